//! Which pages are resident: mincore(2) over a mapping that is never touched
//! (`mm/mincore.c`).

use crate::cachestat::cachestat;
use crate::errno::{check, invalid};
use crate::extents::next_extent;
use crate::fact::Fact;
use crate::file::{FsKind, filesystem, size_bytes};
use crate::page::page_size;
use crate::page_counts::has_cachestat;
use rustix::fs::AtFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::CapabilitySet;
use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// How much is mapped at once. At one byte per page, the map of this takes 256 KiB.
const PIECE_BYTES: u64 = if cfg!(target_pointer_width = "64") {
    1 << 30
} else {
    1 << 26
};

/// In longer ranges, holes are skipped where no count shows that nothing is cached: mincore takes
/// half a minute for a terabyte (Linux 6.18).
const WITH_HOLES_BYTES: u64 = 4 << 30;

/// The user ID shown for owners that our user namespace doesn't know, unless
/// `/proc/sys/kernel/overflowuid` says otherwise.
const OVERFLOW_UID: u32 = 65534;

/// An inaccessible mapping of part of a file. It exists for mincore to look at, so it neither
/// faults pages in nor keeps any from being dropped.
struct Mapping {
    address: *mut c_void,
    len: usize,
}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        // Private, because FUSE refuses shared mappings of files with direct I/O. The same
        // pages are resident in both.
        // SAFETY: a fresh mapping at an address of the kernel's choice cannot
        // overlap any other, and without access rights it cannot be misused.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
                fd,
                offset,
            )
        }?;
        Ok(Self { address, len })
    }

    /// The residency of `len` bytes from `offset` on, which is on a page, within the mapping.
    /// Fills `pages` with a byte for each page.
    fn residency(&self, offset: usize, len: usize, pages: &mut Vec<u8>) -> io::Result<()> {
        assert!(len <= self.len && offset <= self.len - len);
        pages.clear();
        pages.resize(len.div_ceil(page_size() as usize), 0);
        // SAFETY: the range is within our mapping, and `pages` has the one byte for each of its
        // pages that mincore writes.
        let returned =
            unsafe { libc::mincore(self.address.byte_add(offset), len, pages.as_mut_ptr()) };
        check(returned.into())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, nobody has a reference into it, and it
        // is not used afterwards.
        let unmapped = unsafe { munmap(self.address, self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Whether the caller's permissions allow it to write the file now, however the descriptor
/// was opened, or if it only names the file: what `file_permission(file, MAY_WRITE)` says.
#[must_use]
pub fn may_write(fd: BorrowedFd<'_>) -> bool {
    // faccessat2(2), since Linux 5.8; rustix refuses AT_EMPTY_PATH for it.
    // SAFETY: the path is a terminated string, the rest are integers.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            fd.as_raw_fd(),
            c"".as_ptr(),
            libc::W_OK,
            AtFlags::EMPTY_PATH.union(AtFlags::EACCESS).bits(),
        )
    };
    match check(returned) {
        Ok(()) => true,
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            let link = format!("/proc/thread-self/fd/{}", fd.as_raw_fd());
            rustix::fs::accessat(
                rustix::fs::CWD,
                link,
                rustix::fs::Access::WRITE_OK,
                AtFlags::EACCESS,
            )
            .is_ok()
        }
        Err(_) => false,
    }
}

/// Whether our user namespace knows every user, as the first one does: then [`OVERFLOW_UID`] is
/// a user like any other ("nobody").
fn knows_all_users() -> bool {
    static KNOWS: Fact = Fact::new();
    KNOWS.is(|| {
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        map.split_whitespace().eq(["0", "0", "4294967295"])
    })
}

/// Whether mincore tells this caller the truth about the file.
///
/// The rule is stricter than cachestat's. For cachestat, a descriptor open for writing is
/// enough even if permissions have changed since, but not here.
fn may_know_residency(fd: BorrowedFd<'_>) -> io::Result<bool> {
    if has_cachestat()
        && cachestat(fd, 0, 1).is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
    {
        return Ok(false);
    }
    let owner = rustix::fs::fstat(fd)?.st_uid;
    if owner == rustix::process::geteuid().as_raw() || may_write(fd) {
        return Ok(true);
    }
    // CAP_FOWNER counts only over files whose owner our user namespace knows.
    Ok((owner != OVERFLOW_UID || knows_all_users())
        && rustix::thread::capabilities(None)
            .is_ok_and(|sets| sets.effective.contains(CapabilitySet::FOWNER)))
}

/// Whether the file's pages belong to its own inode, so that cachestat's "none" can be
/// believed. overlayfs and FUSE passthrough keep them elsewhere.
fn counts_are_its_own(fd: BorrowedFd<'_>) -> bool {
    matches!(
        filesystem(fd),
        Ok(FsKind::Ext4
            | FsKind::Xfs
            | FsKind::Btrfs
            | FsKind::F2fs
            | FsKind::Tmpfs
            | FsKind::Nfs
            | FsKind::BlockDevice)
    )
}

/// The resident ranges of `[offset, offset + len)`: whole pages, ascending, adjacent ones
/// merged. The first may start before `offset`, and the last may end after `offset + len` or
/// the end of the file, by less than a page. A `len` of 0 is an empty range.
///
/// Works for regular files and block devices, maps at most 1 GiB at a time, and touches no
/// page. Skips parts in which cachestat counts nothing, which keeps sparse files of terabytes
/// cheap. Where cachestat is missing or sees nothing, it skips the holes of ranges longer than
/// 4 GiB, although zeros may be cached there: what is dirty has an extent.
///
/// # Errors
///
/// - `EPERM`: the caller neither owns the file (or has `CAP_FOWNER`) nor may
///   write it. mincore itself would not fail but call every page resident.
/// - `EACCES`: the descriptor is not open for reading.
/// - `ENODEV`: the file cannot be mapped.
/// - `EINVAL`: the offset is past the largest file offset.
/// - `ENOMEM`: too many mappings.
pub fn resident_ranges(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<Vec<Range<u64>>> {
    if i64::try_from(offset).is_err() {
        return Err(invalid());
    }
    if !may_know_residency(fd)? {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    let page = page_size();
    let end = offset
        .saturating_add(len)
        .min(size_bytes(fd)?.next_multiple_of(page));
    let is_empty = |start: u64, end: u64| {
        cachestat(fd, start, end - start).is_ok_and(|stat| stat.cached_pages == 0)
    };
    let believe_counts = has_cachestat() && counts_are_its_own(fd);

    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut start = offset / page * page;
    if start >= end || len == 0 || (believe_counts && is_empty(start, end)) {
        return Ok(ranges);
    }
    let skips_holes = !believe_counts && end - start > WITH_HOLES_BYTES;
    let mut pages = Vec::new();
    while start < end {
        if skips_holes {
            match next_extent(fd, start) {
                Ok(Some(extent)) => start = start.max(extent / page * page),
                Ok(None) => break,
                Err(_) => {}
            }
            if start >= end {
                break;
            }
        }
        let piece_end = end.min(start + PIECE_BYTES);
        if !(believe_counts && is_empty(start, piece_end)) {
            let piece = usize::try_from(piece_end - start).map_err(|_| Errno::OVERFLOW)?;
            Mapping::new(fd, start, piece)?.residency(0, piece, &mut pages)?;
            collect(&mut ranges, start, page, &pages);
        }
        start = piece_end;
    }
    Ok(ranges)
}

/// Appends the resident pages from `start` on to the ranges so far.
fn collect(ranges: &mut Vec<Range<u64>>, start: u64, page: u64, pages: &[u8]) {
    let mut at = start;
    for run in pages.chunk_by(|a, b| a & 1 == b & 1) {
        let run_end = at + run.len() as u64 * page;
        // The other bits are reserved.
        if run[0] & 1 == 1 {
            match ranges.last_mut() {
                Some(last) if last.end == at => last.end = run_end,
                _ => ranges.push(at..run_end),
            }
        }
        at = run_end;
    }
}

#[cfg(test)]
mod tests {
    use super::collect;

    #[test]
    fn runs_merge_across_pieces() {
        let mut ranges = Vec::new();
        collect(&mut ranges, 0, 10, &[1, 1, 0, 1]);
        collect(&mut ranges, 40, 10, &[1, 0, 0xFE, 0xFF]);
        collect(&mut ranges, 80, 10, &[0, 0]);
        assert_eq!(ranges, [0..20, 30..50, 70..80]);
    }
}
