//! Reading a range of a file into the page cache in large folios.
//!
//! readahead(2) and `POSIX_FADV_WILLNEED` bring single pages (`force_page_cache_ra` in
//! `mm/readahead.c`). Each takes its own allocation, a place in the cache and one in the LRU.
//! The kernel's own readahead brings large folios, but in windows whose size cannot be chosen
//! for one file. A fault in a mapping with `MADV_HUGEPAGE` brings exactly one folio of the
//! size of a huge page (`do_sync_mmap_readahead` in `mm/filemap.c`, since Linux 5.18),
//! whatever the window, and `MADV_RANDOM` keeps it from reading on. `MADV_POPULATE_READ`
//! (madvise(2), since Linux 5.14) makes the kernel fault for us: errors are returned, and
//! never come as signals.

use crate::errno::check;
use crate::fact::Fact;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;

/// The size of a huge page, in bytes; `None` if the kernel has none
/// (`CONFIG_TRANSPARENT_HUGEPAGE`). 2 MiB on most machines.
///
/// From `/sys/kernel/mm/transparent_hugepage/hpage_pmd_size`
/// (Documentation/admin-guide/mm/transhuge.rst); read once.
#[must_use]
pub fn huge_page_size() -> Option<u64> {
    static SIZE: Fact = Fact::new();
    let size = SIZE.get(|| {
        let path = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.trim().parse::<u32>().unwrap_or(0).into()
    });
    Some(size).filter(|size| *size > 0)
}

/// A mapping of one huge page's worth of a file, used to read it.
///
/// It gives nobody access to the mapped memory.
#[derive(Debug)]
pub struct LargeRead {
    address: *mut c_void,
    bytes: usize,
}

// SAFETY: the address is only ever given to the kernel, from whatever thread.
unsafe impl Send for LargeRead {}

impl LargeRead {
    /// Maps `[offset, offset + huge_page_size())` of a file. The offset must be a multiple of
    /// that size.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: there are no huge pages, or the offset is not aligned to them.
    /// - `EACCES`: the descriptor is not open for reading.
    /// - `ENODEV`: the file cannot be mapped.
    /// - `ENOMEM`: too many mappings, or more than `RLIMIT_AS`.
    pub fn new(fd: BorrowedFd<'_>, offset: u64) -> io::Result<Self> {
        let size = huge_page_size().filter(|size| offset.is_multiple_of(*size));
        let bytes = usize::try_from(size.ok_or(Errno::INVAL)?).map_err(|_| Errno::INVAL)?;
        // Aligned like the file, so that one page table entry will do.
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let reserved = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                2 * bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let before = reserved.align_offset(bytes);
        let address = reserved.wrapping_byte_add(before);
        let after = address.wrapping_byte_add(bytes);
        // SAFETY: the reservation is ours, `before < bytes`, and so the aligned
        // `bytes` lie within it; nobody has references into any of it.
        let mapped = unsafe {
            if before > 0 {
                let _ = munmap(reserved, before);
            }
            let _ = munmap(after, bytes - before);
            mmap(
                address,
                bytes,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::FIXED,
                fd,
                offset,
            )
        };
        // Dropping this unmaps the reservation, if need be.
        let mapping = Self { address, bytes };
        mapped?;
        // SAFETY: all of it is our mapping, and this advice changes no contents.
        unsafe {
            madvise(mapping.address, bytes, Advice::LinuxHugepage)?;
            madvise(mapping.address, bytes, Advice::Random)?;
        }
        Ok(mapping)
    }

    /// Reads the range, and returns when that is done. Returns how many page faults it took:
    /// a handful with large folios, a hundred times as many if the file system has none or
    /// memory is too fragmented.
    ///
    /// # Errors
    ///
    /// - `EFAULT`: an I/O error, or part of it is past the end of the file.
    /// - `EINVAL`: before Linux 5.14.
    /// - `ENOMEM`: out of memory.
    pub fn read(&self) -> io::Result<u64> {
        let before = faults_of_this_thread();
        // SAFETY: all of it is our mapping, and nothing is written to it.
        check(unsafe { libc::madvise(self.address, self.bytes, libc::MADV_POPULATE_READ) }.into())?;
        Ok(faults_of_this_thread().saturating_sub(before))
    }
}

impl Drop for LargeRead {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, nobody has a reference into it, and it
        // is not used afterwards.
        let unmapped = unsafe { munmap(self.address, self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Page faults, for getrusage(2) `RUSAGE_THREAD`.
fn faults_of_this_thread() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one `rusage`, of which all zeroes is a valid one.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    let faults = usage.ru_minflt.saturating_add(usage.ru_majflt);
    u64::try_from(faults).unwrap_or(0)
}
