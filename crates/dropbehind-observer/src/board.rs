//! What the observer's thread shows to those who ask for its state.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dropbehind_flusher::{Observed, ObservedState};

/// This many of the latest notes are kept, and as many of those that users cause.
const NOTES: usize = 32;

/// Sums over finished files, and over small ones that had no stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Finished {
    pub(crate) files: u64,
    pub(crate) written_bytes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) waits: u64,
    pub(crate) wait_ns: u64,
}

/// One file, for the snapshot.
#[derive(Clone, Debug)]
pub(crate) struct FileView {
    pub(crate) path: PathBuf,
    pub(crate) disk: String,
    pub(crate) mode: String,
    pub(crate) state: ObservedState,
}

/// A file that is observed.
#[derive(Debug)]
struct Entry {
    path: PathBuf,
    mode: String,
    observed: Observed,
}

/// What the observer's thread shares with those who ask for a snapshot.
#[derive(Debug, Default)]
pub(crate) struct Board {
    pub(crate) finished: Finished,
    notes: Vec<String>,
    /// Notes on users' files and mounts, of which they may make as many as they like.
    user_notes: Vec<String>,
    /// Bytes written to and read from finished files, by disk.
    pub(crate) by_disk: HashMap<String, (u64, u64)>,
    files: HashMap<u64, Entry>,
    /// Brought into open files that have no stream.
    pub(crate) waiting_bytes: u64,
    /// The most that was cached at once and still to be dropped.
    pub(crate) peak_cached_bytes: u64,
    /// Cached in the end and not to be dropped: of all files, and by disk.
    pub(crate) kept_bytes: u64,
    pub(crate) kept_by_disk: HashMap<String, u64>,
    /// Records of the trace that the kernel had no room for.
    pub(crate) lost_records: u64,
}

fn keep(notes: &mut Vec<String>, note: String) {
    if notes.contains(&note) {
        return;
    }
    if notes.len() >= NOTES {
        notes.remove(0);
    }
    notes.push(note);
}

/// A copy of the board, for the snapshot.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) finished: Finished,
    pub(crate) notes: Vec<String>,
    pub(crate) by_disk: HashMap<String, (u64, u64)>,
    pub(crate) views: Vec<FileView>,
    pub(crate) waiting_bytes: u64,
    pub(crate) peak_cached_bytes: u64,
    pub(crate) kept_bytes: u64,
    pub(crate) kept_by_disk: HashMap<String, u64>,
    pub(crate) lost_records: u64,
}

impl Board {
    /// All of it at this moment.
    pub(crate) fn shown(&self) -> Shown {
        Shown {
            finished: self.finished,
            notes: [&*self.notes, &self.user_notes].concat(),
            by_disk: self.by_disk.clone(),
            views: self.views(),
            waiting_bytes: self.waiting_bytes,
            peak_cached_bytes: self.peak_cached_bytes,
            kept_bytes: self.kept_bytes,
            kept_by_disk: self.kept_by_disk.clone(),
            lost_records: self.lost_records,
        }
    }

    fn views(&self) -> Vec<FileView> {
        let views = self.files.values().map(|file| FileView {
            path: file.path.clone(),
            disk: file.observed.disk_name().to_owned(),
            mode: file.mode.clone(),
            state: file.observed.state(),
        });
        views.collect()
    }

    pub(crate) fn note(&mut self, note: String) {
        keep(&mut self.notes, note);
    }

    /// Adds a note that users can cause, which displaces no other kind.
    pub(crate) fn user_note(&mut self, note: String) {
        keep(&mut self.user_notes, note);
    }

    /// Counts records of the trace that the kernel had no room for.
    pub(crate) fn lost_records(&mut self, records: u64) {
        self.lost_records += records;
    }

    /// Adds a file that is observed from now on.
    pub(crate) fn begin(&mut self, key: u64, path: PathBuf, mode: String, observed: Observed) {
        let entry = Entry {
            path,
            mode,
            observed,
        };
        self.files.insert(key, entry);
    }

    /// Removes a file that is no longer observed.
    pub(crate) fn end(&mut self, key: u64, state: &ObservedState) {
        let Some(file) = self.files.remove(&key) else {
            return;
        };
        self.finished.written_bytes += state.counts.written_bytes;
        self.finished.read_bytes += state.counts.read_bytes;
        self.finished.waits += state.waits;
        self.finished.wait_ns += state.wait_ns;
        let disk = file.observed.disk_name().to_owned();
        let sums = self.by_disk.entry(disk).or_default();
        sums.0 += state.counts.written_bytes;
        sums.1 += state.counts.read_bytes;
    }
}

pub(crate) type SharedBoard = Arc<Mutex<Board>>;

pub(crate) fn lock(board: &SharedBoard) -> MutexGuard<'_, Board> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_notes_take_no_others_place() {
        let mut board = Board::default();
        board.note("the disk failed".into());
        for number in 0..1000 {
            board.user_note(format!("mount {number}"));
        }
        let notes = board.shown().notes;
        assert!(notes.contains(&"the disk failed".to_owned()));
        assert!(notes.contains(&"mount 999".to_owned()));
        assert_eq!(notes.len(), 1 + NOTES);
    }
}
