//! A file's extents: ioctl(2) `FS_IOC_FIEMAP`, since Linux 2.6.28
//! (Documentation/filesystems/fiemap.rst, include/uapi/linux/fiemap.h).

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use std::io;
use std::os::fd::BorrowedFd;

/// `struct fiemap`, without the extents that follow it.
#[repr(C)]
struct RawHeader {
    fm_start: u64,
    fm_length: u64,
    fm_flags: u32,
    fm_mapped_extents: u32,
    fm_extent_count: u32,
    fm_reserved: u32,
}

/// `struct fiemap_extent`.
#[repr(C)]
struct RawExtent {
    fe_logical: u64,
    fe_physical: u64,
    fe_length: u64,
    fe_reserved64: [u64; 2],
    fe_flags: u32,
    fe_reserved: [u32; 3],
}

#[repr(C)]
struct RawRequest {
    header: RawHeader,
    first: RawExtent,
}

/// The kernel encodes the size of the bare header into the number.
const FS_IOC_FIEMAP: Opcode = opcode::read_write::<RawHeader>(b'f', 11);

/// Asks for as many extents from `start` on, one at most.
fn fiemap(fd: BorrowedFd<'_>, start: u64, count: u32) -> io::Result<RawRequest> {
    let mut request = RawRequest {
        header: RawHeader {
            fm_start: start,
            fm_length: u64::MAX - start,
            // Not FIEMAP_FLAG_SYNC: asking must not write.
            fm_flags: 0,
            fm_mapped_extents: 0,
            fm_extent_count: count.min(1),
            fm_reserved: 0,
        },
        first: RawExtent {
            fe_logical: 0,
            fe_physical: 0,
            fe_length: 0,
            fe_reserved64: [0; 2],
            fe_flags: 0,
            fe_reserved: [0; 3],
        },
    };
    // SAFETY: the number is FS_IOC_FIEMAP's, and the request is a `struct
    // fiemap` with room for the one extent that the kernel may write behind it.
    unsafe { ioctl(fd, Updater::<FS_IOC_FIEMAP, _>::new(&mut request)) }?;
    Ok(request)
}

/// The number of a file's extents. Writes nothing first: the file system decides how it counts
/// data that is not written yet.
///
/// # Errors
///
/// - `EOPNOTSUPP`, `ENOTTY`: the file system has no such call (tmpfs, NFS, FUSE), or this is
///   not a regular file.
pub fn extent_count(fd: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(fiemap(fd, 0, 0)?.header.fm_mapped_extents.into())
}

/// Where the first extent begins that reaches beyond `start`; `None` if only a hole follows.
///
/// # Errors
///
/// Those of [`extent_count`].
pub(crate) fn next_extent(fd: BorrowedFd<'_>, start: u64) -> io::Result<Option<u64>> {
    let request = fiemap(fd, start, 1)?;
    Ok((request.header.fm_mapped_extents > 0).then_some(request.first.fe_logical))
}

/// Whether an error of these calls means that the file system reports no extents, rather than
/// that the call failed.
#[must_use]
pub fn is_unsupported(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(|errno| {
        matches!(
            errno,
            Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS | Errno::INVAL
        )
    })
}
