//! What the observer's thread shows to those who ask for its state.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

pub(crate) use dropbehind_flusher::lock;
use dropbehind_flusher::{Observed, ObservedState, Waits, WritebackSign};
use dropbehind_policy::{Mode, Residency, Writeback};

use crate::snapshot::{FileUser, RulesRead};

/// This many of the latest notes are kept, and as many of those that users cause.
const NOTES: usize = 32;

/// Sums over the finished files of a disk to which a rule applied, and over their small ones that
/// had no stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Finished {
    pub(crate) files: u64,
    pub(crate) written_bytes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) waits: Waits,
    pub(crate) reread_bytes: u64,
    /// Dropped of small files.
    pub(crate) dropped_bytes: u64,
    /// Dropped of files that had streams.
    pub(crate) stream_dropped_bytes: u64,
    /// Should have been dropped of small files, and stayed.
    pub(crate) left_bytes: u64,
    /// Cached when the files were last forgotten, and not to be dropped.
    pub(crate) kept_bytes: u64,
    /// Cached then, and perhaps to be dropped: nobody knows who brought it in.
    pub(crate) unclear_bytes: u64,
}

impl Finished {
    /// What was done to a file that has a stream.
    pub(crate) fn of_stream(state: &ObservedState) -> Finished {
        Finished {
            written_bytes: state.counts.written_bytes,
            read_bytes: state.counts.read_bytes,
            stream_dropped_bytes: state.counters.dropped_bytes,
            reread_bytes: state.counts.reread_bytes,
            waits: state.waits,
            ..Finished::default()
        }
    }
}

impl std::ops::AddAssign for Finished {
    fn add_assign(&mut self, other: Finished) {
        self.files += other.files;
        self.written_bytes += other.written_bytes;
        self.read_bytes += other.read_bytes;
        self.reread_bytes += other.reread_bytes;
        self.waits += other.waits;
        self.dropped_bytes += other.dropped_bytes;
        self.stream_dropped_bytes += other.stream_dropped_bytes;
        self.left_bytes += other.left_bytes;
        self.kept_bytes += other.kept_bytes;
        self.unclear_bytes += other.unclear_bytes;
    }
}

/// What is known of a file besides its figures.
#[derive(Clone, Debug)]
pub(crate) struct FileFacts {
    pub(crate) path: PathBuf,
    pub(crate) mode: Mode,
    /// Whether what is read goes, too, if the mode drops.
    pub(crate) reads: bool,
    /// The mode is what its user advised.
    pub(crate) advised: bool,
    /// The rule that its figures count for.
    pub(crate) rule: Rule,
    /// The rule that gave the mode.
    pub(crate) mode_rule: Rule,
    /// Its own window, if it has one.
    pub(crate) window_bytes: Option<u64>,
    pub(crate) writeback_sign: Option<WritebackSign>,
    pub(crate) users: Vec<FileUser>,
}

impl FileFacts {
    /// What becomes of its pages, and why.
    pub(crate) fn reason(&self) -> String {
        if self
            .writeback_sign
            .as_ref()
            .is_some_and(WritebackSign::has_failed)
        {
            return "stays: the disk does not have what was written".to_owned();
        }
        let fate = match (self.mode.residency, self.reads) {
            (Residency::Keep, _) => "stays",
            (Residency::Reuse, true) => "is dropped unless it is used again",
            (Residency::Reuse, false) => "what is written is dropped unless it is used again",
            (Residency::Drop, true) => "is dropped once it is on the disk",
            (Residency::Drop, false) => "what is written is dropped once it is on the disk",
        };
        let when = match (self.mode.residency, self.mode.writeback) {
            (Residency::Keep, Writeback::Lazy) => "",
            (Residency::Keep, _) => ", written early",
            (_, Writeback::Lazy) => ", which the kernel decides",
            _ => "",
        };
        let advised = if self.advised {
            ", as its program advised"
        } else {
            ""
        };
        format!("{fate}{when}{advised}")
    }
}

/// A file that is observed.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) facts: FileFacts,
    pub(crate) observed: Observed,
}

/// The name of a rule; `None` where rules have none.
pub(crate) type Rule = Option<Arc<str>>;
/// By the name of the disk, which is empty where files have none.
type ByDisk = HashMap<String, HashMap<Rule, Finished>>;

/// Figures that the observer's thread keeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) by_disk: ByDisk,
    /// `None` for a run.
    pub(crate) rules_read: Option<RulesRead>,
    /// Brought into open files that have no stream.
    pub(crate) waiting_bytes: u64,
    /// The most that was cached at once and still to be dropped.
    pub(crate) peak_cached_bytes: u64,
    /// Bytes that stay, since they were used again: of files that had no stream then and were not on the
    /// shelf.
    pub(crate) reused_bytes: u64,
    /// Records of the trace that the kernel had no room for.
    pub(crate) lost_records: u64,
}

/// What the observer's thread shares with those who ask for a snapshot, each of whom takes a copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board {
    pub(crate) figures: Figures,
    pub(crate) notes: Vec<String>,
    /// Notes on users' files and mounts, of which they may make as many as they like.
    pub(crate) user_notes: Vec<String>,
    pub(crate) files: HashMap<u64, Entry>,
}

fn keep(notes: &mut Vec<String>, note: impl AsRef<str> + Into<String>) {
    if notes.iter().any(|known| known == note.as_ref()) {
        return;
    }
    if notes.len() >= NOTES {
        notes.remove(0);
    }
    notes.push(note.into());
}

impl Board {
    pub(crate) fn note(&mut self, note: impl AsRef<str> + Into<String>) {
        keep(&mut self.notes, note);
    }

    /// Adds a note that users can cause, which displaces no other kind.
    pub(crate) fn user_note(&mut self, note: impl AsRef<str> + Into<String>) {
        keep(&mut self.user_notes, note);
    }

    /// Records that the rules that were read last are in force.
    pub(crate) fn rules_taken(&mut self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let read = self.figures.rules_read.get_or_insert_default();
        read.in_force_since = now.map_or(0, |since| since.as_secs());
        read.waiting = false;
    }

    /// The sums of a disk and a rule.
    pub(crate) fn sums(&mut self, disk: &str, rule: &Rule) -> &mut Finished {
        let by_disk = &mut self.figures.by_disk;
        if !by_disk.contains_key(disk) {
            by_disk.insert(disk.to_owned(), HashMap::new());
        }
        let by_rule = by_disk.get_mut(disk).expect("it is there by now");
        by_rule.entry(rule.clone()).or_default()
    }

    /// Adds a file that is observed from now on.
    pub(crate) fn begin(&mut self, key: u64, facts: FileFacts, observed: Observed) {
        self.files.insert(key, Entry { facts, observed });
    }

    /// Replaces what is known of an observed file.
    pub(crate) fn learn(&mut self, key: u64, facts: FileFacts) {
        if let Some(file) = self.files.get_mut(&key) {
            file.facts = facts;
        }
    }

    /// Removes a file that is no longer observed.
    pub(crate) fn end(&mut self, key: u64, state: &ObservedState) {
        let Some(file) = self.files.remove(&key) else {
            return;
        };
        *self.sums(file.observed.disk_name(), &file.facts.rule) += Finished::of_stream(state);
    }
}

pub(crate) type SharedBoard = Arc<Mutex<Board>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_notes_take_no_others_place() {
        let mut board = Board::default();
        board.note("the disk failed");
        for number in 0..1000 {
            board.user_note(format!("mount {number}"));
        }
        assert_eq!(board.notes, ["the disk failed"]);
        assert_eq!(board.user_notes.len(), NOTES);
        assert_eq!(board.user_notes.last().unwrap(), "mount 999");
    }
}
