//! The cachestat system call, and the counts it gives.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::str::FromStr;

/// Its number, the same on all architectures since they share one table.
const SYS_CACHESTAT: libc::c_long = 451;

/// Pages of a file in the page cache. Dirty pages and those under writeback
/// are cached as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All pages in memory.
    pub cached_pages: u64,
    /// Changed, and not yet on their way to the disk.
    pub dirty_pages: u64,
    /// On their way to the disk.
    pub writeback_pages: u64,
    /// Evicted by the kernel, and so lately that their return would show a lack of memory.
    pub recently_evicted_pages: u64,
}

impl Counts {
    /// Pages that are not yet on the disk. The kernel counts a page that was
    /// changed again while under writeback in both.
    pub fn unwritten_pages(&self) -> u64 {
        self.dirty_pages + self.writeback_pages
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} {}",
            self.cached_pages, self.dirty_pages, self.writeback_pages, self.recently_evicted_pages
        )
    }
}

impl FromStr for Counts {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        let numbers: Vec<_> = text
            .split_whitespace()
            .map_while(|one| one.parse().ok())
            .collect();
        match numbers[..] {
            [
                cached_pages,
                dirty_pages,
                writeback_pages,
                recently_evicted_pages,
            ] => Ok(Self {
                cached_pages,
                dirty_pages,
                writeback_pages,
                recently_evicted_pages,
            }),
            _ => Err(io::Error::other(format!("no four counts in {text:?}"))),
        }
    }
}

/// The kernel's `struct cachestat_range`.
#[repr(C)]
struct ByteRange {
    offset: u64,
    length: u64,
}

/// The kernel's `struct cachestat`.
#[repr(C)]
#[derive(Default)]
struct Answer {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Counts the pages that a range of bytes touches; an end of `u64::MAX` is
/// the end of the file.
pub(super) fn count(file: BorrowedFd<'_>, range: Range<u64>) -> io::Result<Counts> {
    if range.is_empty() {
        return Ok(Counts::default());
    }
    // A length of 0 is the kernel's "to the end".
    let length = if range.end == u64::MAX {
        0
    } else {
        range.end - range.start
    };
    let range = ByteRange {
        offset: range.start,
        length,
    };
    let mut answer = Answer::default();
    // SAFETY: the kernel reads one structure and writes the other; both are
    // laid out as it expects and live across the call.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut answer,
            0 as libc::c_uint,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Counts {
        cached_pages: answer.cached,
        dirty_pages: answer.dirty,
        writeback_pages: answer.writeback,
        recently_evicted_pages: answer.recently_evicted,
    })
}

/// Why cachestat cannot be used here, or `None`.
pub(crate) fn missing() -> Option<String> {
    let tried = File::open("/proc/self/exe").and_then(|file| count(file.as_fd(), 0..1));
    match tried {
        // A program that belongs to someone else may not be counted: the call
        // is there.
        Err(error) if error.raw_os_error() != Some(libc::EPERM) => {
            Some(format!("cannot use cachestat: {error}"))
        }
        _ => None,
    }
}
