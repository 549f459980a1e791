//! Device numbers as the kernel's tracepoints name them.

use crate::file::FileKind;
use rustix::fs::{major, minor};
use std::io;
use std::os::fd::BorrowedFd;

/// A makedev(3) device number in the kernel's form, `MAJOR << 20 | MINOR`.
#[must_use]
pub fn kernel_device(device: u64) -> u32 {
    major(device) << 20 | minor(device)
}

/// The number of the inode that a block device's pages belong to: the device's own number in
/// the kernel's form.
///
/// All these inodes are in an internal file system of the kernel (block/bdev.c), which is
/// mounted nowhere. No call returns that file system's number.
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
