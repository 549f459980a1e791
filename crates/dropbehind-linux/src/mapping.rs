//! Memory that the kernel maps for us from a descriptor: mmap(2).

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Shared memory, unmapped when this is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, and to no thread.
unsafe impl Send for Mapping {}

// SAFETY: a shared reference gives access to atomic words, and to an address, whose use takes
// a reason of its own.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of `fd` from `offset` on; both are multiples of the page size.
    pub(crate) fn new(
        fd: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        access: ProtFlags,
    ) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                access,
                MapFlags::SHARED,
                fd.as_fd(),
                offset,
            )
        }?;
        Ok(Self {
            start: NonNull::new(start.cast()).expect("the kernel maps nothing at 0 unasked"),
            bytes,
        })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// A word that others also read and write. Storing to it takes memory that was mapped for
    /// writing.
    ///
    /// # Panics
    ///
    /// If there is no aligned word at this offset.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < self.bytes, "{offset}");
        // SAFETY: within the mapping, which ends at a page's end, and aligned. It lives as
        // long as the mapping does.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no reference is left.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
