//! Explicit control over the writeback and residency of a range.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use super::File;
use crate::control::{CacheState, DropOutcome, operations};

impl File {
    /// Starts writeback of a range and returns without waiting for it. `u64::MAX` as the end
    /// means the end of the file. May block while the disk's queue is full. Writes no
    /// metadata and does not make the data durable.
    ///
    /// # Errors
    /// Those of `sync_file_range(2)`.
    pub fn start_writeback(&self, range: Range<u64>) -> io::Result<()> {
        operations::start_writeback(self.file().as_fd(), range.into())
    }

    /// Waits until no page of the range is dirty or under writeback, and starts writeback as
    /// needed. Consumes no writeback error, so only `sync_all` reports whether the writes
    /// succeeded.
    ///
    /// Stops waiting for pages if several requests have failed to start their writeback: ext4
    /// leaves pages marked dirty after a truncation has taken their blocks, and nothing ever
    /// writes those.
    ///
    /// # Errors
    /// Those of `sync_file_range(2)` and `cachestat(2)`.
    pub fn wait_clean(&self, range: Range<u64>) -> io::Result<()> {
        operations::wait_clean(self.file().as_fd(), range.into())
    }

    /// Drops the clean pages of a range from the cache and reports what stayed. In a mode
    /// that drops, only what this file's I/O brought in goes; in the child of a fork, nothing does.
    /// In other modes that isn't tracked: all clean pages go.
    ///
    /// # Errors
    /// Those of `posix_fadvise(2)` and `cachestat(2)`. `EIO`, `ENOSPC` or the like if writing back the
    /// file failed: the cache may have the only copy, so nothing goes. File systems other than ext4,
    /// xfs and btrfs cannot be asked for that. If another process has received the error already, by
    /// an `fsync` for instance, this process does not learn of it. `EAGAIN` if the mode keeps pages and no
    /// thread can be started to ask about that.
    pub fn drop_behind(&self, range: Range<u64>) -> io::Result<DropOutcome> {
        let line = self.line();
        operations::drop_behind(
            self.file().as_fd(),
            self.mode(),
            line.as_deref(),
            range.into(),
        )
    }

    /// Counts the cached, dirty and writeback pages of a range.
    ///
    /// # Errors
    /// Those of `cachestat(2)`: `ENOSYS` before Linux 6.5, `EPERM` for files that the caller
    /// neither owns nor may write.
    pub fn residency(&self, range: Range<u64>) -> io::Result<CacheState> {
        operations::residency(self.file().as_fd(), range.into())
    }
}
