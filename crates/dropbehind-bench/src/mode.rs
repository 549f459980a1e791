//! The ways of doing I/O that are compared.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A way of doing I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Plain buffered I/O.
    Buffered,
    /// `RWF_DONTCACHE` on each call.
    Native,
    /// The library's `dontcache`.
    Dontcache,
    /// The library's `noreuse`.
    Noreuse,
    /// The library's `write-behind`.
    WriteBehind,
    /// The library's `write-behind-any`.
    WriteBehindAny,
    /// The library's `write-through`.
    WriteThrough,
    /// `O_DIRECT`, one request at a time.
    Direct,
    /// `O_DIRECT`, 16 requests at a time.
    DirectQ16,
    /// `sync_file_range` with waits and `DONTNEED` after each call.
    Snippet,
    /// Plain buffered I/O in a small memory cgroup.
    Cgroup,
    /// Plain buffered I/O of a program under `dropbehind run`.
    Run,
    /// Plain buffered I/O of a program under `nocache`.
    Nocache,
    /// Nothing: the others of the scenario by themselves.
    Alone,
}

/// Limit of the small memory cgroup of [`Mode::Cgroup`].
pub(crate) const SMALL_GROUP_BYTES: u64 = 256 << 20;
/// Requests at a time of [`Mode::DirectQ16`].
const QUEUE: u32 = 16;

impl Mode {
    /// All of them, in the order of the tables.
    pub const ALL: [Mode; 14] = [
        Mode::Buffered,
        Mode::Native,
        Mode::Direct,
        Mode::DirectQ16,
        Mode::Snippet,
        Mode::Cgroup,
        Mode::Nocache,
        Mode::Dontcache,
        Mode::Noreuse,
        Mode::WriteBehind,
        Mode::WriteBehindAny,
        Mode::WriteThrough,
        Mode::Run,
        Mode::Alone,
    ];

    /// The name in options, tables and results.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Buffered => "buffered",
            Mode::Native => "native",
            Mode::Dontcache => "dontcache",
            Mode::Noreuse => "noreuse",
            Mode::WriteBehind => "write-behind",
            Mode::WriteBehindAny => "write-behind-any",
            Mode::WriteThrough => "write-through",
            Mode::Direct => "direct",
            Mode::DirectQ16 => "direct-q16",
            Mode::Snippet => "snippet",
            Mode::Cgroup => "cgroup",
            Mode::Run => "run",
            Mode::Nocache => "nocache",
            Mode::Alone => "alone",
        }
    }

    /// What it is, in a line.
    pub fn summary(self) -> &'static str {
        match self {
            Mode::Buffered => "plain buffered I/O: the baseline",
            Mode::Native => "RWF_DONTCACHE on each call: the kernel's own uncached buffered I/O",
            Mode::Dontcache => "ours: written back at once, dropped once clean",
            Mode::Noreuse => "ours: written back by the kernel, dropped once clean",
            Mode::WriteBehind => "ours: written back a window behind an appending writer, kept",
            Mode::WriteBehindAny => "ours: written back a window behind a sequential writer, kept",
            Mode::WriteThrough => "ours: written back at once, kept",
            Mode::Direct => "O_DIRECT, one request at a time",
            Mode::DirectQ16 => "O_DIRECT by 16 threads: a queue of 16 requests",
            Mode::Snippet => "sync_file_range with waits and DONTNEED after each call",
            Mode::Cgroup => "plain buffered I/O in a memory cgroup of 256 MiB",
            Mode::Run => "ours: a plain program under `dropbehind run`",
            Mode::Nocache => "a plain program under `nocache` (LD_PRELOAD)",
            Mode::Alone => "nobody: the scenario's other programs by themselves",
        }
    }

    /// Whether it is dropbehind's.
    pub fn is_ours(self) -> bool {
        matches!(self, Mode::Run) || self.library().is_some()
    }

    /// The library's mode, where it is one.
    pub(crate) fn library(self) -> Option<dropbehind::Mode> {
        match self {
            Mode::Dontcache => Some(dropbehind::Mode::DONTCACHE),
            Mode::Noreuse => Some(dropbehind::Mode::NOREUSE),
            Mode::WriteBehind => Some(dropbehind::Mode::WRITE_BEHIND),
            Mode::WriteBehindAny => Some(dropbehind::Mode::WRITE_BEHIND_ANY),
            Mode::WriteThrough => Some(dropbehind::Mode::WRITE_THROUGH),
            _ => None,
        }
    }

    /// Whether transfers go around the page cache, and must be aligned.
    pub(crate) fn is_direct(self) -> bool {
        matches!(self, Mode::Direct | Mode::DirectQ16)
    }

    /// How many threads do what one thread does in other modes.
    pub(crate) fn queue(self) -> u32 {
        if self == Mode::DirectQ16 { QUEUE } else { 1 }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text is no mode of the benchmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMode(String);

impl fmt::Display for UnknownMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Mode::ALL.iter().map(|mode| mode.name()).collect();
        let (unknown, names) = (&self.0, names.join(", "));
        write!(f, "there is no mode {unknown:?}; the modes are {names}")
    }
}

impl std::error::Error for UnknownMode {}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Mode, UnknownMode> {
        Mode::ALL
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| UnknownMode(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_results() {
        for mode in Mode::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
            assert_eq!(
                serde_json::to_string(&mode).unwrap(),
                format!("\"{}\"", mode.name())
            );
        }
        let error = "uncached".parse::<Mode>().unwrap_err().to_string();
        assert!(error.contains("dontcache"), "{error}");
    }
}
