//! Advice about a file's pages: posix_fadvise(2), since Linux 2.5.60
//! (`mm/fadvise.c`).

use crate::errno::signed_range;
use rustix::fs::Advice;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;

fn advise(fd: BorrowedFd<'_>, offset: u64, len: u64, advice: Advice) -> io::Result<()> {
    let (start, length) = signed_range(offset, len)?;
    let length = NonZeroU64::new(length.unsigned_abs());
    Ok(rustix::fs::fadvise(
        fd,
        start.unsigned_abs(),
        length,
        advice,
    )?)
}

/// Drops the clean pages that lie wholly in a range (`POSIX_FADV_DONTNEED`); a
/// `len` of 0 means to the end of the file.
///
/// Call it on clean, unmapped ranges only:
///
/// - it starts `WB_SYNC_NONE` writeback of what is dirty in the range;
/// - if any folio of the range could not be dropped (dirty, mapped, in use), it
///   drains the per-CPU lists of *every* CPU and walks the range again;
/// - folios that straddle an end of the range, or are under writeback, are silently skipped.
///   So use large, overlapping ranges, and count the outcome.
///
/// overlayfs passes the advice on to the layer's file, whose pages neither
/// [`start_writeback`](crate::start_writeback) nor [`cachestat`](crate::cachestat()) can
/// reach. There, the first call starts writeback, a later one drops, and
/// [`resident_ranges`](crate::resident_ranges) shows whether it did.
///
/// The start is rounded up and the end down to whole pages, but an end at or
/// past the end of the file includes the last, partial page.
///
/// # Errors
///
/// - `ESPIPE`: a pipe or socket.
/// - `EINVAL`: the offset is past the largest file offset.
pub fn drop_clean(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    advise(fd, offset, len, Advice::DontNeed)
}

/// Starts reading a range into the page cache (`POSIX_FADV_WILLNEED`); a `len`
/// of 0 means to the end of the file.
///
/// Returns before the data is there, but blocks while it submits the reads. Pages that are
/// already cached are left alone. The start is rounded down and the end up to whole pages.
///
/// # Errors
///
/// - `ESPIPE`: a pipe or socket.
/// - `EINVAL`: the offset is past the largest file offset.
/// - `EBADF`: not open for reading.
pub fn will_need(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    advise(fd, offset, len, Advice::WillNeed)
}

/// How a file will be read through one open file description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// The device's usual readahead (`POSIX_FADV_NORMAL`).
    Normal,
    /// Twice the device's readahead (`POSIX_FADV_SEQUENTIAL`).
    Sequential,
    /// No readahead (`POSIX_FADV_RANDOM`).
    Random,
}

/// Sets the readahead behaviour of the open file description.
///
/// # Errors
///
/// - `ESPIPE`: a pipe or socket.
pub fn advise_access(fd: BorrowedFd<'_>, access: Access) -> io::Result<()> {
    let advice = match access {
        Access::Normal => Advice::Normal,
        Access::Sequential => Advice::Sequential,
        Access::Random => Advice::Random,
    };
    advise(fd, 0, 0, advice)
}
