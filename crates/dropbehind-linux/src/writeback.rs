//! Starting writeback: sync_file_range(2), since Linux 2.6.17 (`fs/sync.c`).
//!
//! The call writes no metadata and flushes no device cache, so it never makes data durable.
//! It works on all pages that the range touches: the start is rounded down and the end up to
//! whole pages.
//!
//! ZFS and WSL accept the call and do nothing. On overlayfs it looks at the overlay's own
//! mapping, which is always empty, and so does nothing either. There,
//! [`drop_clean`](crate::drop_clean) starts writeback, since overlayfs passes that on to the
//! layer's file.

use crate::errno::{check, signed_range};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

// include/uapi/linux/fs.h; `libc` defines them only for some targets.
const SYNC_FILE_RANGE_WAIT_BEFORE: libc::c_uint = 1;
const SYNC_FILE_RANGE_WRITE: libc::c_uint = 2;
const SYNC_FILE_RANGE_WAIT_AFTER: libc::c_uint = 4;

fn sync_file_range(
    fd: BorrowedFd<'_>,
    offset: u64,
    len: u64,
    flags: libc::c_uint,
) -> io::Result<()> {
    let (start, length) = signed_range(offset, len)?;
    // SAFETY: the descriptor is borrowed and open; the other arguments are
    // integers, so no memory of ours is touched.
    let returned = unsafe { libc::sync_file_range(fd.as_raw_fd(), start, length, flags) };
    check(returned.into())
}

/// Starts writeback of the dirty pages in a range; a `len` of 0 means to the
/// end of the file.
///
/// Passes `SYNC_FILE_RANGE_WRITE` alone, which means `WB_SYNC_NONE`: pages already under
/// writeback are skipped, and the description's writeback error is neither reported nor
/// consumed. It may block while the device's request queue is full, and while the file system
/// allocates delayed blocks.
///
/// # Errors
///
/// - `ESPIPE`: neither a regular file, a block device nor a directory.
/// - `ENOSYS`: no such call (WSL 1, some sandboxes).
/// - `EIO`, `ENOMEM`, `ENOSPC`: writeback could not even be submitted.
/// - `EINVAL`: the offset is past the largest file offset.
pub fn start_writeback(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    sync_file_range(fd, offset, len, SYNC_FILE_RANGE_WRITE)
}

/// Writes the dirty pages in a range and waits for their writeback to end; a
/// `len` of 0 means to the end of the file.
///
/// **Consumes the writeback error of the open file description**: either wait flag ends in
/// `file_check_and_advance_wb_err()`, so a later fsync(2) on the same description does not
/// return the error returned here. Use it only on a description of our own, see
/// [`reopen()`](crate::reopen()), and only where [`cachestat()`](crate::cachestat()) cannot
/// show that writeback has ended: even a separate description marks the error as seen for
/// files opened later.
///
/// # Errors
///
/// Those of [`start_writeback`], and `EIO`, `ENOSPC`, `EDQUOT` from writeback since the
/// description was opened or last asked.
pub fn write_and_wait(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    sync_file_range(
        fd,
        offset,
        len,
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER,
    )
}

/// Past the last page that a file can have. On 32-bit kernels it is the last page itself,
/// since the kernel checks nothing for a range past that.
const PAST_ALL_BYTES: u64 = if cfg!(target_pointer_width = "64") {
    i64::MAX as u64 & !0xffff
} else {
    (u32::MAX as u64) << 12
};

/// Returns the writeback error of the open file description, without waiting; `None` also if
/// the call is missing. Consumes the error as [`write_and_wait`] does.
pub(crate) fn writeback_error_of_description(fd: BorrowedFd<'_>) -> Option<io::Error> {
    let asked = sync_file_range(fd, PAST_ALL_BYTES, 0, SYNC_FILE_RANGE_WAIT_BEFORE);
    // ENOSYS, EPERM: some sandboxes.
    asked.err().filter(|error| {
        !matches!(
            error.raw_os_error(),
            Some(libc::ENOSYS | libc::EPERM | libc::EBADF | libc::EINVAL | libc::ESPIPE)
        )
    })
}
