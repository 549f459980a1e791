//! Counting cached pages: cachestat(2), since Linux 6.5 (`mm/filemap.c`).

use crate::errno::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The call's number: 451 on all but MIPS, where an offset that depends on the ABI is added.
/// `libc` defines it for too few targets.
const SYS_CACHESTAT: libc::c_long = if cfg!(any(target_arch = "mips", target_arch = "mips32r6")) {
    4451
} else if cfg!(any(target_arch = "mips64", target_arch = "mips64r6")) {
    5451
} else if cfg!(all(target_arch = "x86_64", target_pointer_width = "32")) {
    0x4000_0000 + 451
} else {
    451
};

/// `struct cachestat_range`, include/uapi/linux/mman.h.
#[repr(C)]
struct RawRange {
    off: u64,
    len: u64,
}

/// `struct cachestat`, include/uapi/linux/mman.h.
#[repr(C)]
#[derive(Default)]
struct RawStat {
    nr_cache: u64,
    nr_dirty: u64,
    nr_writeback: u64,
    nr_evicted: u64,
    nr_recently_evicted: u64,
}

/// The cached pages of a range, in units of [`page_size`](crate::page_size).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStat {
    /// Pages in the page cache, including dirty ones and those under writeback.
    pub cached_pages: u64,
    /// Pages with data that writeback has not started on.
    pub dirty_pages: u64,
    /// Pages under writeback.
    pub writeback_pages: u64,
    /// Pages that were evicted, have left a shadow entry, and were evicted so recently that they
    /// show a lack of memory.
    pub recently_evicted_pages: u64,
}

impl CacheStat {
    /// Whether nothing remains to be written: no page is dirty or under writeback.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.dirty_pages == 0 && self.writeback_pages == 0
    }

    /// Pages that could be dropped now.
    #[must_use]
    pub fn clean_pages(&self) -> u64 {
        self.cached_pages
            .saturating_sub(self.dirty_pages)
            .saturating_sub(self.writeback_pages)
    }
}

/// Counts the pages that a range touches; a `len` of 0 means to the end of the
/// file.
///
/// Walks only pages that exist, so a sparse file of 2 TB takes no longer than an empty one.
/// Leaves writeback errors alone. Counts without a lock: each count was true at some moment
/// during the call.
///
/// A large folio counts only with those of its pages that are in the range. tmpfs does not
/// tag dirty pages, so it shows none. overlayfs shows nothing at all, since its files' pages
/// belong to the inodes of its layers.
///
/// # Errors
///
/// - `EPERM`: the descriptor is not open for writing, and the caller neither
///   owns the file (or has `CAP_FOWNER`) nor may write it.
/// - `ENOSYS`: before Linux 6.5, or a sandbox that doesn't know the call.
/// - `EOPNOTSUPP`: hugetlbfs.
/// - `EBADF`: also for an `O_PATH` descriptor.
pub fn cachestat(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<CacheStat> {
    let range = RawRange { off: offset, len };
    let mut stat = RawStat::default();
    // SAFETY: both pointers are to live, writable or readable structs of the
    // kernel's layout; the kernel keeps neither after the call.
    let returned = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            fd.as_raw_fd(),
            &raw const range,
            &raw mut stat,
            0 as libc::c_uint,
        )
    };
    check(returned)?;
    Ok(CacheStat {
        cached_pages: stat.nr_cache,
        dirty_pages: stat.nr_dirty,
        writeback_pages: stat.nr_writeback,
        recently_evicted_pages: stat.nr_recently_evicted,
    })
}
