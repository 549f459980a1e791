//! The explicit controls: of writeback and residency, for a range.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use super::File;
use crate::control::{self, CacheState, DropOutcome};

impl File {
    /// Starts writeback of a range (`u64::MAX` as end: to the end of the file)
    /// and returns without waiting for it. May block while the disk's queue is
    /// full. Writes no metadata and is no durability.
    ///
    /// # Errors
    /// Those of `sync_file_range(2)`.
    pub fn start_writeback(&self, range: Range<u64>) -> io::Result<()> {
        control::start_writeback(self.as_fd(), range.into())
    }

    /// Waits until no page of the range is dirty or under writeback, starting
    /// writeback as needed. Whether it succeeded only `sync_all` tells: no
    /// error is taken from it.
    ///
    /// Pages of which several requests start no writeback are not waited for:
    /// ext4 keeps pages marked dirty whose blocks a truncation took, and nothing
    /// ever writes those.
    ///
    /// # Errors
    /// Those of `sync_file_range(2)` and `cachestat(2)`.
    pub fn wait_clean(&self, range: Range<u64>) -> io::Result<()> {
        control::wait_clean(self.as_fd(), range.into())
    }

    /// Drops clean pages of a range from the cache and says what stayed. In a
    /// mode that drops, what was cached before this file's I/O is kept; in the
    /// others nobody knows what that was, and all clean pages go, even those whose
    /// writeback failed.
    ///
    /// # Errors
    /// Those of `posix_fadvise(2)` and `cachestat(2)`.
    pub fn drop_behind(&self, range: Range<u64>) -> io::Result<DropOutcome> {
        let line = self.line().filter(|_| self.mode().drops());
        control::drop_behind(self.as_fd(), line.as_deref(), range.into())
    }

    /// What is cached, dirty and under writeback of a range.
    ///
    /// # Errors
    /// Those of `cachestat(2)`: `ENOSYS` before Linux 6.5, `EPERM` for files
    /// that are neither one's own nor writable.
    pub fn residency(&self, range: Range<u64>) -> io::Result<CacheState> {
        control::residency(self.as_fd(), range.into())
    }
}
