//! Which files are observed, and in which mode.

use std::path::Path;
use std::sync::Arc;

use dropbehind_flusher::WriterLimit;
use dropbehind_policy::{Mode, Residency};

pub use dropbehind_config::{MAX_DIRTY_RANGE_BYTES, REQUEST_RANGE_BYTES, WINDOW_RANGE_BYTES};

/// How a file is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// When to write back, and what stays cached.
    pub mode: Mode,
    /// Window in bytes; `None` follows the disk's speed.
    pub window_bytes: Option<u64>,
    /// Request in bytes; `None` takes the disk's.
    pub request_bytes: Option<u64>,
    /// Writers of a file wait for the disk while more than this is dirty or on its way. Unset,
    /// they may be two windows ahead in modes that write behind; in others, that is left to the
    /// kernel.
    pub max_dirty_bytes: Option<u64>,
    /// Whether pages that reads brought in are dropped, too, if the mode drops.
    pub reads: bool,
    /// The number of the rule that says so, from 1; 0 if none does, but what holds for all files.
    pub rule: usize,
}

impl Settings {
    /// How much a writer may be ahead of the disk; `None` leaves that to the kernel.
    pub(crate) fn writer_limit(&self) -> Option<WriterLimit> {
        let two_windows = self.mode.is_behind().then_some(WriterLimit::TwoWindows);
        self.max_dirty_bytes
            .map(WriterLimit::OfDisk)
            .or(two_windows)
    }
}

/// A file that a process opened.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Its path, as the process that opened it would see it. No longer valid if the file was
    /// renamed or removed since.
    pub path: &'a Path,
    /// The process; 0 if not known. It may be gone.
    pub process: i32,
    /// The name that is remembered of it, in case it is gone.
    pub name: Option<&'a str>,
    /// Its size in bytes, if it is known and rules [ask for it](Rules::ask_for_sizes).
    pub size_bytes: Option<u64>,
    /// The name of the disk that carries the file, as in `/sys/block`.
    pub disk: &'a str,
}

/// Decides about files when they are opened.
pub trait Rules: Send + Sync + std::fmt::Debug {
    /// The settings for this file; `None` if it is not observed.
    fn settings_for(&self, candidate: Candidate<'_>) -> Option<Settings>;

    /// Returns whether a pattern begins with this folder. Files below it are then wanted even
    /// though the server of their file system may not answer, in which case the observer stands
    /// still.
    fn name(&self, _folder: &Path) -> bool {
        false
    }

    /// The name by which figures of a rule's files are reported; `None` if they are not.
    fn rule_name(&self, _number: usize) -> Option<Arc<str>> {
        None
    }

    /// Returns false if the answer is always `None`.
    fn want_any(&self) -> bool {
        true
    }

    /// Returns whether some answer has a mode of which this is true. If that is not known, nothing
    /// heeds programs' [advice](Mode::heeds_advice), and nothing waits for [being used
    /// again](Mode::keeps_reused).
    fn have_mode(&self, _of: fn(Mode) -> bool) -> bool {
        false
    }

    /// What becomes of pages of this disk that are to stay if they are [used
    /// again](Mode::keeps_reused), where the kernel does not report what is used.
    fn unless_uses_are_known(&self, _disk: &str) -> Residency {
        Residency::Keep
    }

    /// Returns false if the answer is the same for all paths: a [`Candidate`] may then have an
    /// empty one. Finding a path takes longer than all else about a small file.
    fn ask_for_paths(&self) -> bool {
        true
    }

    /// Returns whether the size of a file makes a difference.
    fn ask_for_sizes(&self) -> bool {
        false
    }
}
