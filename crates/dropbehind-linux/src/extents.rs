//! A file's extents: ioctl(2) `FS_IOC_FIEMAP`, since Linux 2.6.28
//! (Documentation/filesystems/fiemap.rst, include/uapi/linux/fiemap.h).

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use std::io;
use std::ops::BitOr;
use std::os::fd::BorrowedFd;

/// Extents asked for at once: most files take one call, and it fits on any thread's stack (7
/// KiB).
const BATCH: usize = 128;

/// `struct fiemap`, without the extents that follow it.
#[repr(C)]
#[derive(Clone, Copy)]
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
#[derive(Clone, Copy)]
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
    extents: [RawExtent; BATCH],
}

/// The kernel encodes the size of the bare header into the number.
const FS_IOC_FIEMAP: Opcode = opcode::read_write::<RawHeader>(b'f', 11);

/// What the file system says about an extent (`FIEMAP_EXTENT_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExtentFlags(pub u32);

impl ExtentFlags {
    /// The file's last extent.
    pub const LAST: Self = Self(0x1);
    /// There is no physical address (yet).
    pub const UNKNOWN: Self = Self(0x2);
    /// Not allocated yet: dirty data that writeback has not reached.
    pub const DELALLOC: Self = Self(0x4);
    /// The data is compressed or otherwise encoded.
    pub const ENCODED: Self = Self(0x8);
    /// The address or length is not block-aligned.
    pub const NOT_ALIGNED: Self = Self(0x100);
    /// The data is stored among metadata.
    pub const DATA_INLINE: Self = Self(0x200);
    /// Allocated, but reads as zeroes.
    pub const UNWRITTEN: Self = Self(0x800);
    /// The file system has no extents; adjacent blocks were merged.
    pub const MERGED: Self = Self(0x1000);
    /// Shared with other files or snapshots.
    pub const SHARED: Self = Self(0x2000);

    /// Whether all of `other`'s flags are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for ExtentFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A contiguous run of a file's bytes on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Its offset in the file, in bytes.
    pub logical: u64,
    /// Its offset on the device, in bytes; 0 if it has no address.
    pub physical: u64,
    /// Its length, in bytes.
    pub len: u64,
    /// What the file system says about it.
    pub flags: ExtentFlags,
}

fn fiemap(fd: BorrowedFd<'_>, start: u64, count: u32) -> io::Result<RawRequest> {
    let mut request = RawRequest {
        header: RawHeader {
            fm_start: start,
            fm_length: u64::MAX - start,
            // Not FIEMAP_FLAG_SYNC: asking must not write.
            fm_flags: 0,
            fm_mapped_extents: 0,
            fm_extent_count: count,
            fm_reserved: 0,
        },
        extents: [RawExtent {
            fe_logical: 0,
            fe_physical: 0,
            fe_length: 0,
            fe_reserved64: [0; 2],
            fe_flags: 0,
            fe_reserved: [0; 3],
        }; BATCH],
    };
    // SAFETY: the number is FS_IOC_FIEMAP's, and the request is a `struct
    // fiemap` with room for at least the `fm_extent_count` extents that the
    // kernel may write behind it (at most BATCH).
    unsafe { ioctl(fd, Updater::<FS_IOC_FIEMAP, _>::new(&mut request)) }?;
    Ok(request)
}

/// All extents of a file, in the file's order.
///
/// Writes nothing first: data that writeback has not reached shows as
/// [`ExtentFlags::DELALLOC`], and the final layout is known only once the file is clean. If
/// the file changes meanwhile, the result may be a mixture.
///
/// # Errors
///
/// - `EOPNOTSUPP`, `ENOTTY`: the file system has no such call (tmpfs, NFS, FUSE), or this is
///   not a regular file.
pub fn extents(fd: BorrowedFd<'_>) -> io::Result<Vec<Extent>> {
    let mut found: Vec<Extent> = Vec::new();
    let mut start = 0;
    loop {
        let request = fiemap(fd, start, BATCH as u32)?;
        let mapped = (request.header.fm_mapped_extents as usize).min(BATCH);
        for raw in &request.extents[..mapped] {
            found.push(Extent {
                logical: raw.fe_logical,
                physical: raw.fe_physical,
                len: raw.fe_length,
                flags: ExtentFlags(raw.fe_flags),
            });
        }
        let Some(last) = found.last() else { break };
        let next = last.logical.saturating_add(last.len);
        // Don't loop forever on a file that shrinks meanwhile, or on a file system that never
        // sets LAST.
        if mapped < BATCH || last.flags.contains(ExtentFlags::LAST) || next <= start {
            break;
        }
        start = next;
    }
    Ok(found)
}

/// The number of a file's extents, without fetching them. As with [`extents`], the file
/// system decides how it counts data that is not written yet.
///
/// # Errors
///
/// Those of [`extents`].
pub fn extent_count(fd: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(fiemap(fd, 0, 0)?.header.fm_mapped_extents.into())
}

/// Where the first extent begins that reaches beyond `start`; `None` if only a hole follows.
///
/// # Errors
///
/// Those of [`extents`].
pub(crate) fn next_extent(fd: BorrowedFd<'_>, start: u64) -> io::Result<Option<u64>> {
    let request = fiemap(fd, start, 1)?;
    Ok((request.header.fm_mapped_extents > 0).then_some(request.extents[0].fe_logical))
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
