//! The state of an observer at one moment.
//!
//! Bytes of the cache are whole pages. Bytes written, read, brought in, dropped and left only
//! grow, as do the other counters. Bytes kept are those of each file when it was last looked at.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};

/// How a note begins that says why the mode `auto` keeps everything here.
pub const KEEPS_ALL: &str = "what may be used again stays (mode auto): the kernel does not report \
                             which cached pages are used";

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Nanoseconds since the observer began.
    pub elapsed_ns: u64,
    /// What this observer is: `run` or `watch`.
    pub kind: String,
    /// The number of its process.
    pub process: u32,
    /// The kernel reports who brings in which page. Otherwise what was resident when a file was
    /// opened stays, and the rest goes.
    pub traced: bool,
    /// CPU nanoseconds that the observer's process used.
    pub cpu_ns: u64,
    /// Counters over all files.
    pub totals: Totals,
    /// Per disk.
    pub disks: Vec<DiskSnapshot>,
    /// Per rule of a watch that has applied to a file; empty for a run.
    pub rules: Vec<RuleSnapshot>,
    /// How the reading of rules went; `None` for a run.
    pub rules_read: Option<RulesRead>,
    /// Files that are observed now, the most active first; at most
    /// [`FILES_MAX`](crate::status::FILES_MAX).
    pub files: Vec<FileSnapshot>,
    /// What is not possible here, and why.
    pub notes: Vec<String>,
}

/// Counters over all files since the beginning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Events read from the kernel.
    pub events: u64,
    /// Times the kernel's queue of events was full.
    pub overflows: u64,
    /// Files that were observed.
    pub files: u64,
    /// Bytes seen written.
    pub written_bytes: u64,
    /// Bytes that reads brought into the cache, holes included.
    pub read_bytes: u64,
    /// Bytes of those that had been dropped before.
    pub reread_bytes: u64,
    /// The most bytes at once that were dirty or under writeback.
    pub peak_dirty_bytes: u64,
    /// The most bytes of these files at once that were cached and brought in by the observed
    /// programs.
    pub peak_cached_bytes: u64,
    /// Bytes of these files cached at this moment, brought in by the observed programs and still
    /// to be dropped.
    pub cached_bytes: u64,
    /// Bytes brought in by the observed programs.
    pub brought_bytes: u64,
    /// Bytes dropped.
    pub dropped_bytes: u64,
    /// Bytes cached before, or brought in by others, and so kept: of files that are done with,
    /// each as of when it last was; of very many files, of those that were last.
    pub kept_bytes: u64,
    /// Bytes of those brought in that stay, since they were used again (mode `auto`). The kernel may
    /// have taken them since; what is still there counts as kept, too.
    pub reused_bytes: u64,
    /// Bytes that should have gone and could not be dropped, or of which it is not known whether an
    /// observed program brought them in.
    pub left_bytes: u64,
    /// How often writers were made to wait for their disk.
    pub waits: u64,
    /// For how long, in nanoseconds.
    pub wait_ns: u64,
    /// How many of these waits are over, by their length: those of up to each of
    /// [`WAIT_LENGTHS`](dropbehind_flusher::WAIT_LENGTHS) that are longer than the one before it,
    /// and last the longer ones. Empty if nothing is known.
    pub waits_by_length: Vec<u64>,
    /// Bytes for which writeback was started, by reason.
    pub writeback_bytes: BTreeMap<String, u64>,
}

/// The files to which one rule applied when they were first opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleSnapshot {
    /// Its name, or its number from 1; `others` is what holds for files that no rule matches.
    pub name: String,
    /// Files in which something was brought in.
    pub files: u64,
    /// Bytes seen written to them.
    pub written_bytes: u64,
    /// Bytes that reads brought into the cache, holes included.
    pub read_bytes: u64,
    /// Bytes dropped.
    pub dropped_bytes: u64,
}

/// How the reading of rules went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RulesRead {
    /// When those in force were taken, in seconds since 1970.
    pub in_force_since: u64,
    /// Whether others were refused since, for a mistake.
    pub refused: bool,
    /// Whether others come into force once the observer's thread is free.
    pub waiting: bool,
}

/// One disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskSnapshot {
    /// Its name, as in `/sys/block`.
    pub name: String,
    /// Files on it that are observed now.
    pub files: u64,
    /// Bytes seen written to its files.
    pub written_bytes: u64,
    /// Bytes seen read in from it.
    pub read_bytes: u64,
    /// Bytes of those that had been dropped before.
    pub reread_bytes: u64,
    /// Dirty bytes of its files.
    pub dirty_bytes: u64,
    /// Bytes of its files under writeback.
    pub writeback_bytes: u64,
    /// Cached bytes of its files.
    pub cached_bytes: u64,
    /// Bytes dropped.
    pub dropped_bytes: u64,
    /// Bytes kept for others, as in [`Totals`].
    pub kept_bytes: u64,
    /// Bytes that should have gone and could not be dropped, or of which it is not known whether an
    /// observed program brought them in.
    pub left_bytes: u64,
    /// Measured writeback speed, bytes a second; 0 until known.
    pub writeback_bytes_per_second: u64,
    /// The window now, in bytes.
    pub window_bytes: u64,
    /// Flushers that share it, including those of other programs.
    pub flushers: u64,
    /// Nanoseconds that the flusher held back for other users of the disk.
    pub yielded_ns: u64,
}

/// One file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileSnapshot {
    /// Its path when it was last looked up. When written out, what is not UTF-8 in it becomes
    /// U+FFFD.
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    /// Its disk.
    pub disk: String,
    /// Its mode, as in `--mode`.
    pub mode: String,
    /// Whether its program has advised the mode, by `POSIX_FADV_NOREUSE`.
    pub advised: bool,
    /// The name of the rule that gives the mode, unless that is advised, or the rule's number from 1;
    /// `others` is what holds for files that no rule matches. Where users have different rules, that
    /// of the mode that serves all, or `a + b` if only both together give it. Empty for a run, and where
    /// no rule applies any more.
    pub rule: String,
    /// What becomes of its pages, and why: a part of a sentence, for people.
    pub reason: String,
    /// The window now, in bytes: its own, or its disk's. 0 where writeback is left to the kernel.
    pub window_bytes: u64,
    /// Processes that use it, the last one first, but known writers before all others; at most 8.
    pub users: Vec<FileUser>,
    /// Its size.
    pub size_bytes: u64,
    /// Bytes seen written.
    pub written_bytes: u64,
    /// Bytes seen read in from the disk.
    pub read_bytes: u64,
    /// Dirty bytes.
    pub dirty_bytes: u64,
    /// Bytes under writeback.
    pub writeback_bytes: u64,
    /// Cached bytes.
    pub cached_bytes: u64,
    /// Bytes dropped.
    pub dropped_bytes: u64,
    /// Bytes kept for others.
    pub kept_bytes: u64,
    /// Times its writers were made to wait for the disk.
    pub waits: u64,
    /// `active`, or `idle` when nothing has changed for a second.
    pub state: String,
}

/// A process that uses a file, as it was when it opened the file or the file was first listed. It
/// may have ended since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileUser {
    /// Its number.
    pub process: i32,
    /// The name of its program, up to 15 bytes; empty if it is not known.
    pub program: String,
    /// Its systemd unit; where it is in none, or in a group below it that is named like one, its
    /// control group. Empty if it is in the root group,
    /// or that is not known.
    pub unit: String,
    /// The rule that applied to it when it opened the file, by its name or number; empty if
    /// none did, that is not known, or for a run.
    pub rule: String,
    /// Whether it has the file open for writing, if that is known.
    pub writes: Option<bool>,
}

/// JSON has no bytes, and one odd name must not hide all other files.
fn as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `top` asks observers that were started before an upgrade, and after one.
    #[test]
    fn an_observer_of_another_version_is_understood() {
        let text = r#"{"later": {}, "files": [{"path": "/a", "mode": "auto", "later": [1]},
                       {"path": "/b", "users": [{"process": 7, "later": null}]}]}"#;
        let snapshot: Snapshot = serde_json::from_str(text).unwrap();
        assert_eq!(snapshot.files[0].users, []);
        assert_eq!(snapshot.files[0].reason, "");
        let seven = FileUser {
            process: 7,
            ..FileUser::default()
        };
        assert_eq!(snapshot.files[1].users, [seven]);
    }
}
