//! What was done for a file, in numbers.

use std::mem::size_of;

use dropbehind::Stats;

/// What was done for a file, in bytes of whole pages unless said otherwise. Later versions of
/// the library add fields at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct dropbehind_stats {
    /// Bytes that the calls read; 0 for attached files.
    pub bytes_read: u64,
    /// Bytes that the calls wrote, or that were reported.
    pub bytes_written: u64,
    /// Most bytes at any time that were written and not yet seen clean.
    pub peak_dirty_bytes: u64,
    /// Most bytes at any time that were brought into the cache and not yet dropped.
    pub peak_cached_bytes: u64,
    /// Bytes that this I/O brought into the cache.
    pub brought_bytes: u64,
    /// Those of them that have left the cache again. A closed file without a name counts as gone
    /// at once, though its pages stay for as long as somebody else has it open.
    pub dropped_bytes: u64,
    /// Bytes that had been cached before, and were kept. What was only read of an open file counts once
    /// the file is settled. Of more than 1024 separate ranges at once, some do not count.
    pub kept_bytes: u64,
    /// Bytes that should have been dropped and could not be.
    pub left_bytes: u64,
    /// Times a writer waited or paused for writeback.
    pub waits: u64,
    /// Nanoseconds that writers waited or paused.
    pub wait_ns: u64,
}

/// The cached pages of a range, in bytes of whole pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct dropbehind_cache_state {
    /// Bytes that are cached, clean or not.
    pub cached_bytes: u64,
    /// Bytes that are dirty and not under writeback.
    pub dirty_bytes: u64,
    /// Bytes under writeback.
    pub writeback_bytes: u64,
}

impl From<Stats> for dropbehind_stats {
    fn from(stats: Stats) -> dropbehind_stats {
        dropbehind_stats {
            bytes_read: stats.bytes_read,
            bytes_written: stats.bytes_written,
            peak_dirty_bytes: stats.peak_dirty_bytes,
            peak_cached_bytes: stats.peak_cached_bytes,
            brought_bytes: stats.brought_bytes,
            dropped_bytes: stats.dropped_bytes,
            kept_bytes: stats.kept_bytes,
            left_bytes: stats.left_bytes,
            waits: stats.waits,
            wait_ns: stats.wait_ns,
        }
    }
}

impl dropbehind_stats {
    /// Copies as much as the caller's version of the struct has.
    ///
    /// # Safety
    /// `to` is valid for `size` bytes of writes.
    pub(crate) unsafe fn copy_to(self, to: *mut dropbehind_stats, size: usize) {
        let bytes = size.min(size_of::<dropbehind_stats>());
        // SAFETY: by the caller; the struct has no padding.
        unsafe {
            std::ptr::write_bytes(to.cast::<u8>(), 0, size);
            std::ptr::copy_nonoverlapping((&raw const self).cast::<u8>(), to.cast(), bytes);
        }
    }
}
