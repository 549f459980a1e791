//! Our own description of a file that the program has open.
//!
//! This uses the descriptor links of proc(5): opening one opens the file anew, whatever its
//! name and even if it is deleted. A copy of the descriptor would not do: it shares the
//! program's description, and with it the writeback error that only the program's own
//! fsync(2) may consume.

use crate::file::{FileId, FileKind};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// `PIDFD_THREAD`, include/uapi/linux/pidfd.h, since Linux 6.9.
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(OFlags::EXCL.bits());

/// Whose open file description a descriptor refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// Ours alone.
    Own,
    /// The program's: we must not do anything with it that consumes writeback errors, moves
    /// its position or changes its flags.
    Shared,
}

/// Opens our own description of the file behind descriptor number `fd` of the process's
/// thread `tid`. Threads may have their own descriptor tables, see
/// [`unshare_descriptor_table`](crate::unshare_descriptor_table).
///
/// These are tried in order. Each result is checked to be the expected file, since descriptor
/// numbers are reused:
///
/// 1. `/proc/self/task/TID/fd/N`, and if that thread is gone `/proc/self/fd/N`: for reading,
///    without updating the access time if we own the file; for writing only, if reading is
///    not permitted.
/// 2. A copy of the descriptor, by pidfd_getfd(2) (since Linux 5.6):
///    [`Sharing::Shared`].
///
/// Only regular files and block devices are opened. Opening others has side effects: pipes
/// would gain a reader, terminals and tapes act on it. Even so, an open breaks another
/// process's conflicting lease (fcntl(2) `F_SETLEASE`), and shows in inotify(7).
///
/// # Errors
///
/// - `ESTALE`: the descriptor refers to another file by now.
/// - `EINVAL`: neither a regular file nor a block device.
/// - `EBADF`: the descriptor is closed.
/// - Those of open(2). After `EMFILE` or `ENFILE`, no copy is tried.
pub fn reopen(tid: i32, fd: RawFd, expect: FileId) -> io::Result<(OwnedFd, Sharing)> {
    let links = [
        format!("/proc/self/task/{tid}/fd/{fd}"),
        format!("/proc/self/fd/{fd}"),
    ];
    let mut error = None;
    for link in links {
        match open_link(&link, expect) {
            Ok(own) => return Ok((own, Sharing::Own)),
            // A copy may find a descriptor that has become free since, and is worth less.
            Err(errno @ (Errno::INVAL | Errno::MFILE | Errno::NFILE)) => return Err(errno.into()),
            // The error from the thread's own table explains more.
            Err(errno) => error = error.or(Some(errno)),
        }
    }
    match copy(tid, fd, expect) {
        Ok(shared) => Ok((shared, Sharing::Shared)),
        Err(Errno::BADF) => Err(Errno::BADF.into()),
        Err(errno) => Err(error.unwrap_or(errno).into()),
    }
}

/// Opens for reading what an `O_PATH` descriptor names: a regular file or a block device, as
/// the caller has checked, which nobody can replace by something else. Its access time stays as
/// it is, if that takes no privilege which we lack.
///
/// # Errors
///
/// Those of open(2).
pub fn open_named(named: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    open_linked(CWD, &format!("/proc/thread-self/fd/{}", named.as_raw_fd()))
}

/// The calling thread's own descriptor links. Finding them costs as much as opening a file, so a
/// thread that opens many keeps this.
#[derive(Debug)]
pub struct OwnLinks(OwnedFd);

impl OwnLinks {
    /// Those of the calling thread, which alone may use them.
    ///
    /// # Errors
    ///
    /// Those of open(2).
    pub fn new() -> io::Result<OwnLinks> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let links = rustix::fs::open("/proc/thread-self/fd", flags, Mode::empty())?;
        Ok(OwnLinks(links))
    }

    /// Does the same as [`open_named`].
    ///
    /// # Errors
    ///
    /// Those of open(2).
    pub fn open_named(&self, named: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        open_linked(self.0.as_fd(), &named.as_raw_fd().to_string())
    }
}

fn open_linked(directory: BorrowedFd<'_>, link: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let open = |flags| rustix::fs::openat(directory, link, flags, Mode::empty());
    let opened = open(flags | OFlags::NOATIME);
    Ok(match opened {
        // Only its owner may leave the access time as it is.
        Err(Errno::PERM) => open(flags)?,
        opened => opened?,
    })
}

/// Opens a descriptor link if it leads to the expected file.
fn open_link(link: &str, expect: FileId) -> Result<OwnedFd, Errno> {
    // Checked before opening, because opening a pipe or a device acts on it, and again
    // afterwards, because the link may have changed in between.
    let before = rustix::fs::stat(link)?;
    if FileId::of(&before) != expect {
        return Err(Errno::STALE);
    }
    if FileKind::of(&before) == FileKind::Other {
        return Err(Errno::INVAL);
    }
    let common = OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let open = |flags: OFlags| rustix::fs::openat(CWD, link, flags | common, Mode::empty());
    let own = open(OFlags::RDONLY | OFlags::NOATIME)
        .or_else(|errno| match errno {
            Errno::PERM => open(OFlags::RDONLY),
            errno => Err(errno),
        })
        .or_else(|errno| match errno {
            Errno::ACCESS => open(OFlags::WRONLY),
            errno => Err(errno),
        })?;
    verify(own, expect)
}

/// Copies the descriptor from the thread's table, or else from the process's.
fn copy(tid: i32, fd: RawFd, expect: FileId) -> Result<OwnedFd, Errno> {
    let thread = Pid::from_raw(tid).ok_or(Errno::SRCH)?;
    let pidfd = pidfd_open(thread, PIDFD_THREAD)
        .or_else(|_| pidfd_open(rustix::process::getpid(), PidfdFlags::empty()))?;
    let shared = pidfd_getfd(pidfd.as_fd(), fd, PidfdGetfdFlags::empty())?;
    verify(shared, expect)
}

fn verify(opened: OwnedFd, expect: FileId) -> Result<OwnedFd, Errno> {
    let stat = rustix::fs::fstat(&opened)?;
    if FileId::of(&stat) != expect {
        return Err(Errno::STALE);
    }
    if FileKind::of(&stat) == FileKind::Other {
        return Err(Errno::INVAL);
    }
    Ok(opened)
}
