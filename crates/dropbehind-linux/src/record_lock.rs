//! Byte range locks that belong to an open file description: fcntl(2), since Linux 3.15
//! (`fs/locks.c`).

use crate::errno::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The bytes from `first` to `last`, to be locked with `kind`, or unlocked.
pub(crate) fn span(kind: i32, first: i64, last: i64) -> libc::flock {
    // A length of 0 means to the end of the file, whatever that is.
    let len = if last == i64::MAX {
        0
    } else {
        last - first + 1
    };
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: first,
        l_len: len,
        l_pid: 0,
    }
}

/// Makes one of fcntl(2)'s lock calls.
pub(crate) fn lock_call(
    fd: BorrowedFd<'_>,
    command: i32,
    lock: &mut libc::flock,
) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the structure outlives the call.
    let returned = unsafe { libc::fcntl(fd.as_raw_fd(), command, std::ptr::from_mut(lock)) };
    check(returned.into())
}
