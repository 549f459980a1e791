//! What the server tells the observer: a message, and a descriptor of the file.

use dropbehind_flusher::CacheMap;
use dropbehind_linux::send_message;
use dropbehind_policy::ByteRange;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Of a file whose cached pages are scattered so much, the smallest parts that are not cached
/// count as others'.
const PARTS: usize = 2048;

/// What happened.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// A process opens the file whose descriptor comes with this.
    Opened(Opened),
    /// The open of a thread that was [under way](Opened::is_under_way) is over.
    Over { thread: i32 },
    /// A process may have opened a file that could not be looked at before.
    Search { process: i32 },
    /// A process opens files without being stopped, through io_uring.
    Unstopped { process: i32 },
    /// For the end of the run.
    Note(String),
}

/// The open of a file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Opened {
    pub(crate) process: i32,
    pub(crate) thread: i32,
    /// The open may not be over yet. Once it is, there is another report of this thread.
    pub(crate) is_under_way: bool,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// When the file was made that an overlay copies for this open, unless that was done before.
    pub(crate) copied_born: Option<Duration>,
    pub(crate) before: Before,
    /// When what was cached before was counted (`CLOCK_MONOTONIC`).
    pub(crate) counted_ns: u64,
}

/// What was cached of a file just before an open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Before {
    /// Nothing: the open has made it, or truncated it to nothing.
    Emptied,
    /// All but this.
    Absent(Absent),
    /// Nobody counted, since that took long the last time. Most likely the file is known.
    Uncounted,
}

impl Before {
    /// What was cached of this file.
    pub(crate) fn map(self, file: BorrowedFd<'_>) -> CacheMap {
        match self {
            Before::Emptied => CacheMap::empty(),
            Before::Absent(absent) => absent.map(),
            Before::Uncounted => CacheMap::now_without_reads_under_way(file),
        }
    }
}

/// What of a file was not cached.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Absent {
    /// Of its pages: of a page that is cached, nothing is absent.
    size_bytes: u64,
    cached_bytes: u64,
    unwritten_bytes: u64,
    parts: Vec<(u64, u64)>,
}

impl Absent {
    /// All of it: nothing of it was cached, or it has been truncated.
    pub(crate) fn all() -> Absent {
        Absent::default()
    }

    /// None of it: all of its pages were cached.
    pub(crate) fn none(size_bytes: u64, unwritten_bytes: u64) -> Absent {
        Absent {
            size_bytes,
            cached_bytes: size_bytes,
            unwritten_bytes,
            parts: Vec::new(),
        }
    }

    pub(crate) fn from(map: &CacheMap, size_bytes: u64) -> Absent {
        let mut parts = map.absent(ByteRange::new(0, size_bytes));
        if parts.len() > PARTS {
            parts.sort_unstable_by_key(|part| std::cmp::Reverse(part.len()));
            parts.truncate(PARTS);
        }
        Absent {
            size_bytes,
            cached_bytes: map.cached_bytes,
            unwritten_bytes: map.unwritten_bytes,
            parts: parts.iter().map(|part| (part.start, part.end)).collect(),
        }
    }

    fn map(&self) -> CacheMap {
        let parts = self.parts.iter();
        let parts = parts.filter(|(start, end)| start < end);
        let parts = parts.map(|(start, end)| ByteRange::new(*start, *end));
        CacheMap::without(
            self.size_bytes,
            parts,
            self.cached_bytes,
            self.unwritten_bytes,
        )
    }
}

impl Report {
    pub(crate) fn send(
        &self,
        socket: BorrowedFd<'_>,
        file: Option<BorrowedFd<'_>>,
        waits: bool,
    ) -> io::Result<()> {
        let message = postcard::to_allocvec(self).map_err(io::Error::other)?;
        send_message(socket, &message, file, waits)
    }

    /// `None` if the message is none of these: an empty one comes once all processes that were
    /// stopped at their opens have ended, or nobody answers them any more.
    pub(crate) fn from_message(message: &[u8]) -> Option<Report> {
        postcard::from_bytes(message).ok()
    }
}
