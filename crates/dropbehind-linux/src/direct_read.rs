//! Reading around the page cache, to make those wait who write to a file.
//!
//! A direct read of pages that are dirty or under writeback waits until they are
//! written (`kiocb_write_and_wait` in `fs/iomap/direct-io.c`), and on ext4, xfs,
//! btrfs and f2fs it holds the inode's lock meanwhile, shared: who writes to the
//! file waits for that lock, who reads from it does not. That is how a process
//! outside can hold a writer back, in the kernel and for no longer than the disk
//! takes: when the process dies, the lock goes with its read.

use crate::file::{FsKind, filesystem};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Memory that cannot be written to. A read into it waits as any other does, and
/// fails then, without having asked the disk for anything: reads of the disk
/// would make the kernel's writeback throttling (blk-wbt) take them for a program
/// that suffers from the writes, and slow these down.
#[derive(Debug)]
struct Nowhere {
    start: *mut c_void,
}

/// Addresses only.
const NOWHERE_BYTES: usize = 256 << 20;

// SAFETY: nobody ever reads or writes there.
unsafe impl Send for Nowhere {}

impl Nowhere {
    fn new() -> io::Result<Nowhere> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                NOWHERE_BYTES,
                ProtFlags::empty(),
                flags,
            )
        }?;
        Ok(Nowhere { start })
    }
}

impl Drop for Nowhere {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, and nobody has a reference into it.
        let _ = unsafe { munmap(self.start, NOWHERE_BYTES) };
    }
}

/// Reads ranges of a file around the page cache, to nowhere.
#[derive(Debug)]
pub struct DirectReader {
    file: OwnedFd,
    nowhere: Nowhere,
}

impl DirectReader {
    /// Opens a description of its own for the file behind `fd`.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: writers would not wait: a block device, or a file system
    ///   that is not named above.
    /// - `EINVAL`: the file system has no direct I/O for this file.
    /// - Those of open(2).
    pub fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let locks = matches!(
            filesystem(fd)?,
            FsKind::Ext4 | FsKind::Xfs | FsKind::Btrfs | FsKind::F2fs
        );
        if !locks {
            return Err(Errno::OPNOTSUPP.into());
        }
        // The thread may have a descriptor table of its own.
        let path = format!("/proc/thread-self/fd/{}", fd.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::DIRECT;
        let open = |flags| openat(CWD, path.as_str(), flags, Mode::empty());
        let file = match open(flags | OFlags::NOATIME) {
            // Only owners may.
            Err(Errno::PERM) => open(flags)?,
            other => other?,
        };
        Ok(Self {
            file,
            nowhere: Nowhere::new()?,
        })
    }

    /// Writes what is dirty in a range, multiples of 4096, and returns when that
    /// has arrived. Those who write to the file wait meanwhile. Of a longer range
    /// than 256 MiB only the beginning is written.
    ///
    /// # Errors
    ///
    /// - `EIO`, `ENOSPC` and others: it could not be written. The writers'
    ///   descriptions are told of that as they would have been (`errseq_t` counts
    ///   for each).
    pub fn write_range(&self, offset: u64, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_or(NOWHERE_BYTES, |len| len.min(NOWHERE_BYTES));
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?;
        loop {
            // SAFETY: the kernel writes nothing where nothing can be written.
            let read =
                unsafe { libc::pread(self.file.as_raw_fd(), self.nowhere.start, len, offset) };
            if read >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EFAULT) => return Ok(()),
                _ => return Err(error),
            }
        }
    }
}

impl AsFd for DirectReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
