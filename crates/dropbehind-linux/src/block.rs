//! Block devices' own calls: ioctl(2) `BLK*` (include/uapi/linux/fs.h,
//! `block/ioctl.c`).

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl, opcode};
use std::io;
use std::os::fd::BorrowedFd;

/// Declared with `size_t`, although the kernel writes 64 bits everywhere.
const BLKGETSIZE64: Opcode = opcode::read::<usize>(0x12, 114);
const BLKROGET: Opcode = opcode::none(0x12, 94);

/// The unit of sizes in sysfs, whatever the device's own sectors are
/// (Documentation/ABI/stable/sysfs-block).
const SYSFS_SECTOR_BYTES: u64 = 512;

/// The size of a block device in bytes (`BLKGETSIZE64`, since Linux 2.4.10). Of a descriptor
/// that only names the device (`O_PATH`), what sysfs says.
///
/// # Errors
///
/// - `ENOTTY`: not a block device.
/// - [`io::ErrorKind::NotFound`]: the device is gone.
pub fn block_size_bytes(fd: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: BLKGETSIZE64 writes one 64-bit integer.
    let getter = unsafe { Getter::<BLKGETSIZE64, u64>::new() };
    // SAFETY: the getter is of this number's type, as just reasoned.
    match unsafe { ioctl(fd, getter) } {
        Err(Errno::BADF) => size_in_sysfs(fd),
        size => Ok(size?),
    }
}

fn size_in_sysfs(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let device = rustix::fs::fstat(fd)?.st_rdev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let size = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/size"))?;
    let sectors: u64 = size.trim().parse().map_err(io::Error::other)?;
    Ok(sectors.saturating_mul(SYSFS_SECTOR_BYTES))
}

/// The smallest unit that the device addresses, in bytes (`BLKSSZGET`).
///
/// # Errors
///
/// - `ENOTTY`: not a block device.
pub fn logical_sector_bytes(fd: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(rustix::fs::ioctl_blksszget(fd)?)
}

/// Whether the device is read-only (`BLKROGET`).
///
/// # Errors
///
/// - `ENOTTY`: not a block device.
pub fn is_read_only(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: BLKROGET writes one int.
    let getter = unsafe { Getter::<BLKROGET, libc::c_int>::new() };
    // SAFETY: the getter is of this number's type, as just reasoned.
    let read_only = unsafe { ioctl(fd, getter) }?;
    Ok(read_only != 0)
}
