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
use rustix::io::{Errno, pread};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Logical blocks are no larger on the disks there are.
const BLOCK_BYTES: usize = 4096;

/// What a direct read goes to: it must be aligned as blocks are.
#[derive(Debug)]
#[repr(align(4096))]
struct Block([u8; BLOCK_BYTES]);

/// Reads single blocks of a file around the page cache.
#[derive(Debug)]
pub struct DirectReader {
    file: OwnedFd,
    block: Box<Block>,
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
            block: Box::new(Block([0; BLOCK_BYTES])),
        })
    }

    /// Reads the block at `offset`, a multiple of 4096: returns when what was
    /// dirty there is written. Those who write to the file wait, too.
    ///
    /// # Errors
    ///
    /// - `EIO`, `ENOSPC` and others: it could not be written, or not be read.
    ///   The writers' descriptions are told of that as they would have been
    ///   (`errseq_t` counts for each).
    pub fn read_block(&mut self, offset: u64) -> io::Result<()> {
        loop {
            match pread(&self.file, &mut self.block.0, offset) {
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => return Ok(()),
            }
        }
    }
}

impl AsFd for DirectReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
