//! The run's figures, as `--stats` writes them.

use crate::error::{Exit, Failure, shown};
use crate::input::check_open;
use crate::report_file::{self, InUse};
use crate::size::show;
use dropbehind::Stats;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a run did. The names are those of the file; sizes are in bytes.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct RunStats {
    /// Read from the sources.
    pub(crate) bytes_read: u64,
    /// Written to the destinations, not counting holes.
    pub(crate) bytes_written: u64,
    /// From the start of the command to the last close.
    pub(crate) elapsed_ns: u64,
    /// The most that was dirty or under writeback at a time, of the files being written.
    pub(crate) peak_dirty_bytes: u64,
    /// The most in the page cache at a time, of the files being written or read.
    pub(crate) peak_cached_bytes: u64,
    /// Brought into the page cache.
    pub(crate) brought_bytes: u64,
    /// Of these, dropped again.
    pub(crate) dropped_bytes: u64,
    /// In the page cache before, or brought in by others, and kept.
    pub(crate) kept_bytes: u64,
    /// Brought in, to be dropped, but still there.
    pub(crate) left_bytes: u64,
    /// Waits of the writer for the disk.
    pub(crate) waits: u64,
    /// How long they took.
    pub(crate) wait_ns: u64,
    /// Wake-ups of the flusher.
    pub(crate) kicks: u64,
    /// Wake-ups made needless by an earlier one that was not answered yet.
    pub(crate) kicks_coalesced: u64,
    /// Writeback asked for, by the reason for it.
    pub(crate) writeback_bytes: BTreeMap<Cow<'static, str>, u64>,
}

impl RunStats {
    /// Adds the figures of one file. `watched` says whether its peaks count.
    pub(crate) fn add(&mut self, stats: &Stats, watched: bool) {
        if watched {
            self.peak_dirty_bytes = self.peak_dirty_bytes.max(stats.peak_dirty_bytes);
            self.peak_cached_bytes = self.peak_cached_bytes.max(stats.peak_cached_bytes);
        }
        self.brought_bytes += stats.brought_bytes;
        self.dropped_bytes += stats.dropped_bytes;
        self.kept_bytes += stats.kept_bytes;
        self.left_bytes += stats.left_bytes;
        self.waits += stats.waits;
        self.wait_ns += stats.wait_ns;
        self.kicks += stats.kicks;
        self.kicks_coalesced += stats.kicks_coalesced;
        for (reason, bytes) in stats.writeback_bytes.iter() {
            *self
                .writeback_bytes
                .entry(reason.name().into())
                .or_default() += bytes;
        }
    }

    /// One line about a finished run, for those who watched it.
    pub(crate) fn summary(&self, exit: Exit) -> String {
        let seconds = self.elapsed_ns as f64 / 1e9;
        let bytes = self.bytes_written.max(self.bytes_read);
        let done = if exit == Exit::Done {
            "done"
        } else {
            "not all done"
        };
        format!(
            "{done}: {} in {seconds:.1} s, {}/s; at most {} in the page cache at a time, {} could \
             not be dropped",
            show(bytes),
            // Never negative, and far from the limit.
            show((bytes as f64 / seconds.max(1e-9)) as u64),
            show(self.peak_cached_bytes),
            show(self.left_bytes),
        )
    }

    /// Sets the time the run took.
    pub(crate) fn set_elapsed(&mut self, elapsed: Duration) {
        self.elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    }
}

/// Where the figures go.
pub(crate) enum StatsFile {
    /// Standard error.
    Stderr,
    /// A file, already open.
    File(File, PathBuf),
}

impl StatsFile {
    /// Opens it before the work, so that a wrong name stops the command before it changes
    /// anything. The file keeps its contents until there are figures.
    pub(crate) fn open(path: &Path, in_use: &[InUse]) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            return Ok(Self::Stderr);
        }
        let file = report_file::open("--stats", path, in_use)?;
        Ok(Self::File(file, path.to_owned()))
    }

    /// Writes the figures, one JSON object on a line.
    pub(crate) fn write(self, stats: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(stats).map_err(io::Error::from);
        match self {
            Self::Stderr => check_open(2)
                .and(text)
                .and_then(|text| writeln!(io::stderr(), "{text}"))
                .map_err(|error| Failure::new(format!("cannot write the figures: {error}."))),
            Self::File(mut file, path) => text
                .and_then(|text| {
                    // A pipe or terminal has no length to set and no start to go to.
                    if file.metadata()?.is_file() {
                        file.set_len(0)?;
                        file.rewind()?;
                    }
                    writeln!(file, "{text}")
                })
                .map_err(|error| {
                    Failure::new(format!(
                        "cannot write the figures to {}: {error}. The data itself is not affected.",
                        shown(&path)
                    ))
                }),
        }
    }
}
