//! Reading and writing: preadv2(2) and pwritev2(2), since Linux 4.6, and the
//! plain calls (`fs/read_write.c`).
//!
//! None of them retries on `EINTR` or completes a short count: the program sees what it would
//! have seen without us.

use crate::errno::invalid;
use rustix::io::ReadWriteFlags;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;

/// `RWF_DONTCACHE`, include/uapi/linux/fs.h, since Linux 6.14: goes through the page cache,
/// but keeps nothing there that this call brought in.
///
/// An early draft of the flag had the value 0x40, which is `RWF_ATOMIC` today.
pub const RWF_DONTCACHE: u32 = 0x80;

/// Per-call flags of [`preadv2`] and [`pwritev2`] (`RWF_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct IoFlags(u32);

impl IoFlags {
    /// No flags: the plain vectored call.
    pub const NONE: Self = Self(0);
    /// Fail with `EAGAIN` rather than wait (reads 4.14, buffered writes 6.0).
    pub const NOWAIT: Self = Self(0x08);
    /// Keep nothing in the page cache, see [`RWF_DONTCACHE`] (since 6.14).
    pub const DONTCACHE: Self = Self(RWF_DONTCACHE);

    /// The flags with these bits, whether we know them or not: the kernel returns
    /// `EOPNOTSUPP` for those that it doesn't know.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The bits handed to the kernel.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    fn kernel(self) -> ReadWriteFlags {
        ReadWriteFlags::from_bits_retain(self.0)
    }
}

/// The offset as the kernel takes it. -1 means the file position, so an offset of 2^64 - 1
/// must not be passed on.
fn position(offset: Option<u64>) -> io::Result<u64> {
    match offset {
        None => Ok(u64::MAX),
        Some(offset) if i64::try_from(offset).is_ok() => Ok(offset),
        Some(_) => Err(invalid()),
    }
}

/// Reads into several buffers, at an offset or (`None`) at the file position,
/// which then advances. At most 1024 buffers are filled.
///
/// # Errors
///
/// Those of read(2), and:
///
/// - `EOPNOTSUPP`: the kernel doesn't know a flag, or the file system does not
///   support it. For [`IoFlags::DONTCACHE`]: before 6.14, or a file system that
///   has not opted in.
/// - `ENOSYS`: before Linux 4.6.
/// - `EAGAIN`: with [`IoFlags::NOWAIT`], if it would have had to wait.
pub fn preadv2(
    fd: BorrowedFd<'_>,
    bufs: &mut [IoSliceMut<'_>],
    offset: Option<u64>,
    flags: IoFlags,
) -> io::Result<usize> {
    let position = position(offset)?;
    Ok(rustix::io::preadv2(fd, bufs, position, flags.kernel())?)
}

/// Writes from several buffers, at an offset or (`None`) at the file position,
/// which then advances. At most 1024 buffers are written.
///
/// # Errors
///
/// Those of write(2), and:
///
/// - `EOPNOTSUPP`: the kernel doesn't know a flag, or the file system does not support it.
///   For [`IoFlags::DONTCACHE`]: before 6.14, or a file system that has not opted in. Nothing
///   has been written in that case.
/// - `ENOSYS`: before Linux 4.6.
/// - `EAGAIN`: with [`IoFlags::NOWAIT`], if it would have had to wait.
pub fn pwritev2(
    fd: BorrowedFd<'_>,
    bufs: &[IoSlice<'_>],
    offset: Option<u64>,
    flags: IoFlags,
) -> io::Result<usize> {
    let position = position(offset)?;
    Ok(rustix::io::pwritev2(fd, bufs, position, flags.kernel())?)
}

/// Reads at the file position: read(2).
///
/// # Errors
///
/// Those of read(2).
pub fn read(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::read(fd, buf)?)
}

/// Writes at the file position: write(2).
///
/// # Errors
///
/// Those of write(2).
pub fn write(fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
    Ok(rustix::io::write(fd, buf)?)
}

/// Reads at an offset: pread(2).
///
/// # Errors
///
/// Those of pread(2).
pub fn pread(fd: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pread(fd, buf, offset)?)
}

/// Writes at an offset: pwrite(2). Linux appends, whatever the offset, if the
/// description is `O_APPEND`.
///
/// # Errors
///
/// Those of pwrite(2).
pub fn pwrite(fd: BorrowedFd<'_>, buf: &[u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pwrite(fd, buf, offset)?)
}
