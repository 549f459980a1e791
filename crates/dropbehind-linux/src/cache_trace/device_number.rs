//! Device numbers as the kernel's tracepoints name them.

use crate::file::FileKind;
use rustix::fs::{major, minor};
use std::io;
use std::os::fd::BorrowedFd;

/// A device's number as the kernel writes it, `MAJOR << 20 | MINOR`, from one as of
/// makedev(3).
#[must_use]
pub fn kernel_device(device: u64) -> u32 {
    major(device) << 20 | minor(device)
}

/// The number of the inode that a block device's pages belong to: the device's
/// own number, as the kernel writes it.
///
/// All these inodes are in a file system of the kernel's own (block/bdev.c), which is
/// mounted nowhere: no call tells its number.
///
/// # Errors
///
/// - `ENOTBLK`: not a block device.
/// - Those of fstat(2).
pub fn block_device_number(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let stat = rustix::fs::fstat(fd)?;
    if FileKind::of(&stat) != FileKind::Block {
        return Err(io::Error::from_raw_os_error(libc::ENOTBLK));
    }
    Ok(kernel_device(stat.st_rdev).into())
}
