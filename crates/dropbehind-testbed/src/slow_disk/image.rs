//! The disk's content, in memory.

use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Memory that the kernel provides when it is touched: a sparse file without
/// a file, so that writing to the disk is never held up by another disk or by
/// the limits on dirty pages.
#[derive(Debug)]
pub(super) struct Image {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory belongs to the value alone and is reached through it.
unsafe impl Send for Image {}

impl Image {
    pub(super) fn new(size_bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(size_bytes).map_err(io::Error::other)?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }

    /// The bytes from `offset` on, fewer at the end of the disk.
    pub(super) fn read(&self, offset: u64, length: u64) -> &[u8] {
        &self.bytes()[self.within(offset, length)]
    }

    /// Writes `data`, as far as it fits, and returns how far that is.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> usize {
        let range = self.within(offset, data.len() as u64);
        let fitting = &data[..range.len()];
        self.bytes_mut()[range].copy_from_slice(fitting);
        fitting.len()
    }

    /// Turns a range into zeroes, and gives whole pages of it back.
    pub(super) fn discard(&mut self, offset: u64, length: u64) {
        let page = rustix::param::page_size();
        let range = self.within(offset, length);
        let first = range.start.next_multiple_of(page).min(range.end);
        let last = (range.end / page * page).max(first);
        self.bytes_mut()[range.start..first].fill(0);
        self.bytes_mut()[last..range.end].fill(0);
        if first == last {
            return;
        }
        // SAFETY: the pages are within the mapping, and private anonymous
        // pages read as zeroes after this.
        let dropped = unsafe {
            let pages = self.start.as_ptr().add(first);
            rustix::mm::madvise(pages.cast(), last - first, Advice::LinuxDontNeed)
        };
        if dropped.is_err() {
            self.bytes_mut()[first..last].fill(0);
        }
    }

    fn within(&self, offset: u64, length: u64) -> Range<usize> {
        let cut =
            |position: u64| usize::try_from(position).map_or(self.length, |p| p.min(self.length));
        cut(offset)..cut(offset.saturating_add(length))
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is this long, lives as long as `self` and is
        // changed through `&mut self` only.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no borrow of it is left. It cannot
        // fail for a whole mapping.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discards_leave_zeroes_and_neighbours() {
        let mut image = Image::new(1 << 20).unwrap();
        assert_eq!(image.write(0, &vec![7; 1 << 20]), 1 << 20);
        image.discard(4000, 10_000);
        assert!(image.read(0, 4000).iter().all(|&byte| byte == 7));
        assert!(image.read(4000, 10_000).iter().all(|&byte| byte == 0));
        assert!(image.read(14_000, 4000).iter().all(|&byte| byte == 7));
    }

    #[test]
    fn nothing_lies_past_the_end() {
        let mut image = Image::new(8192).unwrap();
        assert_eq!(image.write(8190, &[1; 5]), 2);
        assert_eq!(image.read(8000, 1000).len(), 192);
        assert_eq!(image.read(u64::MAX, 1), []);
    }
}
