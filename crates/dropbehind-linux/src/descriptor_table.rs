//! A separate descriptor table for a thread: close_range(2), since Linux 5.9, or else
//! unshare(2) `CLONE_FILES`.

use crate::errno::check;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, RawFd};

/// Gives the calling thread its own descriptor table, empty but for 0, 1 and 2, which are
/// `/dev/null`.
///
/// A flusher thread inside a program needs one. In the program's table, closing *any*
/// descriptor of a file releases the process's POSIX record locks on it. And our descriptors
/// would be closed by the program's close_range(2), inherited by its children, count towards
/// its `RLIMIT_NOFILE`, and take numbers that it expects to be free.
///
/// `close_range(0, ~0, CLOSE_RANGE_UNSHARE)` copies no descriptors at all. So none of the
/// program's pipes is held open even for a moment, and no file system sees a close (on NFS
/// and FUSE each close flushes). Before Linux 5.9 the table is copied, and the copies are
/// closed one by one.
///
/// Call it at the start of a thread of our own: what was open before is not open here any
/// more. So descriptors that this thread owns, or drops later, would be those of other files.
/// The only thread of a process shares its table with nobody, and simply loses its
/// descriptors.
///
/// # Errors
///
/// - `ENOMEM`, `EMFILE`: no room for a table or its first descriptors.
/// - `ENOSYS`, `EPERM`: a sandbox with neither call. Nothing has changed in that case.
pub fn unshare_descriptor_table() -> io::Result<()> {
    unshare_at_once().or_else(|_| unshare_and_close_each())?;
    occupy_standard_descriptors()
}

/// Gives the calling thread its own descriptor table, in which only these are open, and 0, 1
/// and 2, which are `/dev/null`. What it opens and closes from here on releases no record lock
/// of the process.
///
/// Call it at the start of a thread of our own, which owns no other descriptors.
///
/// # Errors
///
/// - `ENOMEM`, `EMFILE`.
/// - `ENOENT` and others of opening `/proc/thread-self/fd`. The table is a copy then.
pub fn keep_descriptors(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    // SAFETY: the caller owns no other descriptors in this thread. A value that one thread drops
    // stays open in the other's table, which is no more than a leak.
    unsafe { unshare_unsafe(UnshareFlags::FILES) }?;
    let names = std::fs::read_dir("/proc/thread-self/fd")?.flatten();
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<RawFd>().ok();
    let open: Vec<RawFd> = names.filter_map(number).collect();
    for fd in open {
        if kept.iter().all(|kept| kept.as_raw_fd() != fd) {
            // SAFETY: nothing in this thread owns it, and the other threads have their own. The
            // directory's own descriptor is closed by now.
            unsafe { libc::close(fd) };
        }
    }
    occupy_standard_descriptors()
}

/// Closes the pipes, sockets and devices that the process was started with, except for
/// standard error. A process that stands in for another one would keep them open after the
/// other has closed them.
///
/// Standard input and output become `/dev/null`. Of the others, this closes those that an
/// exec would not have closed: what a Rust program opens for itself is close-on-exec. Files
/// stay open, since closing one would release the record locks on it (fcntl(2)) that the
/// process was started with.
///
/// # Errors
///
/// - `ENOENT`, `EMFILE` and others of opening `/dev/null` and `/proc/thread-self/fd`.
pub fn give_up_inherited_descriptors() -> io::Result<()> {
    let null = rustix::fs::openat(
        CWD,
        c"/dev/null",
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    for entry in std::fs::read_dir("/proc/thread-self/fd")? {
        let name = entry?.file_name();
        let Some(fd) = name.to_str().and_then(|name| name.parse::<RawFd>().ok()) else {
            continue;
        };
        // SAFETY: asking changes nothing.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        let inherited = flags >= 0 && flags & libc::FD_CLOEXEC == 0;
        if !inherited || fd == 2 || may_be_locked(fd) {
            continue;
        }
        if fd < 2 {
            // SAFETY: both are descriptors. Standard input and output are owned
            // by nobody, and stay open.
            check(unsafe { libc::dup2(null.as_raw_fd(), fd) }.into())?;
        } else {
            // SAFETY: nobody in this process owns it, as reasoned above.
            unsafe { libc::close(fd) };
        }
    }
    Ok(())
}

fn may_be_locked(fd: RawFd) -> bool {
    // SAFETY: the descriptor was open a moment ago, and no other thread closes any; a wrong
    // one yields EBADF.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::fs::fstat(fd).is_ok_and(|stat| {
        matches!(
            FileType::from_raw_mode(stat.st_mode),
            FileType::RegularFile | FileType::BlockDevice | FileType::Directory
        )
    })
}

fn unshare_at_once() -> io::Result<()> {
    // SAFETY: all arguments are integers. Descriptors that other threads own
    // stay open in the table that those threads keep; that none is owned on
    // this thread is what the documentation above demands.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            0 as libc::c_uint,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_UNSHARE,
        )
    };
    check(returned)
}

fn unshare_and_close_each() -> io::Result<()> {
    // SAFETY: as above; the copies in the new table are closed right below, and
    // nobody has been told of them.
    unsafe { unshare_unsafe(UnshareFlags::FILES) }?;
    let open: Vec<RawFd> = match std::fs::read_dir("/proc/thread-self/fd") {
        Ok(entries) => entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect(),
        Err(_) => {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
            let highest = limit.maximum.or(limit.current).unwrap_or(1 << 20);
            (0..i32::try_from(highest.min(1 << 20)).unwrap_or(i32::MAX)).collect()
        }
    };
    for fd in open {
        // SAFETY: the table is this thread's alone, so the number is nobody
        // else's; the listing's own, closed by now, yields a harmless EBADF
        // (which rustix's close takes for a bug).
        unsafe { libc::close(fd) };
    }
    Ok(())
}

/// Opens `/dev/null` as 0, 1 and 2, so that no message of this thread, such as a panic's,
/// ends up in a file that happens to get one of these numbers.
fn occupy_standard_descriptors() -> io::Result<()> {
    for expected in 0..3 {
        let fd = rustix::fs::openat(CWD, c"/dev/null", OFlags::RDWR, Mode::empty())
            // Without /dev, anything that refuses writes will do.
            .or_else(|_| rustix::fs::openat(CWD, c"/", OFlags::PATH, Mode::empty()))?;
        if fd.into_raw_fd() != expected {
            return Err(Errno::BADF.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn descriptors() -> BTreeSet<RawFd> {
        std::fs::read_dir("/proc/thread-self/fd")
            .unwrap()
            .map(|entry| {
                entry
                    .unwrap()
                    .file_name()
                    .to_str()
                    .unwrap()
                    .parse()
                    .unwrap()
            })
            .collect()
    }

    #[test]
    fn the_older_way_leaves_the_same_table() {
        let file = tempfile::tempfile().unwrap();
        assert!(descriptors().contains(&file.as_raw_fd()));
        let inside = std::thread::spawn(|| {
            unshare_and_close_each().unwrap();
            occupy_standard_descriptors().unwrap();
            descriptors()
        })
        .join()
        .unwrap();
        // 3 is the listing's own descriptor.
        assert_eq!(inside, BTreeSet::from([0, 1, 2, 3]));
        assert!(descriptors().contains(&file.as_raw_fd()));
        file.metadata().unwrap();
    }
}
