//! What the worker shows to those who ask how it stands.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dropbehind::{Observed, ObservedState};

/// No more notes are kept.
const NOTES: usize = 64;

/// Sums over files that are finished, and over small ones never tracked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Finished {
    pub(crate) files: u64,
    pub(crate) written_bytes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) small_dropped_bytes: u64,
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
    pub(crate) idle: bool,
}

/// A file that is looked after.
#[derive(Debug)]
struct Entry {
    path: PathBuf,
    mode: String,
    observed: Observed,
    idle: bool,
}

/// What the worker shares with those who ask for a snapshot.
#[derive(Debug, Default)]
pub(crate) struct Board {
    pub(crate) finished: Finished,
    pub(crate) notes: Vec<String>,
    /// Bytes written and read of finished files, by disk.
    pub(crate) by_disk: HashMap<String, (u64, u64)>,
    files: HashMap<u64, Entry>,
}

impl Board {
    pub(crate) fn views(&self) -> Vec<FileView> {
        let views = self.files.values().map(|file| FileView {
            path: file.path.clone(),
            disk: file.observed.disk_name().to_owned(),
            mode: file.mode.clone(),
            state: file.observed.state(),
            idle: file.idle,
        });
        views.collect()
    }

    pub(crate) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) && self.notes.len() < NOTES {
            self.notes.push(note);
        }
    }

    /// A file is looked after from now on.
    pub(crate) fn begin(&mut self, key: u64, path: PathBuf, mode: String, observed: Observed) {
        self.finished.files += 1;
        let entry = Entry {
            path,
            mode,
            observed,
            idle: false,
        };
        self.files.insert(key, entry);
    }

    pub(crate) fn set_idle(&mut self, key: u64, idle: bool) {
        if let Some(file) = self.files.get_mut(&key) {
            file.idle = idle;
        }
    }

    /// A file is not looked after any more.
    pub(crate) fn end(&mut self, key: u64, state: &ObservedState) {
        let Some(file) = self.files.remove(&key) else {
            return;
        };
        self.finished.written_bytes += state.written_bytes;
        self.finished.read_bytes += state.read_bytes;
        self.finished.waits += state.waits;
        self.finished.wait_ns += state.wait_ns;
        let disk = file.observed.disk_name().to_owned();
        let sums = self.by_disk.entry(disk).or_default();
        sums.0 += state.written_bytes;
        sums.1 += state.read_bytes;
    }
}

pub(crate) type SharedBoard = Arc<Mutex<Board>>;

pub(crate) fn lock(board: &SharedBoard) -> MutexGuard<'_, Board> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}
