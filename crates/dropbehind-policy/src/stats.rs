//! Counters of what was done.

use crate::reason::ReasonBytes;

/// Counters of a file, or of all files of a flusher. Where they concern the cache, bytes are
/// those of whole pages: a file of one byte brings in a page. A stream does not count what is
/// read and written, waits and kicks: these are 0 there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes read through the library.
    pub bytes_read: u64,
    /// Bytes written through the library.
    pub bytes_written: u64,
    /// Most bytes at any time that were written and not yet seen clean.
    pub peak_dirty_bytes: u64,
    /// Most bytes at any time that were brought into the cache and not yet dropped.
    pub peak_cached_bytes: u64,
    /// Bytes that this I/O brought into the cache. After very many scattered writes at once,
    /// this includes the gaps between them if mincore(2) does not report the file's pages.
    pub brought_bytes: u64,
    /// Those of them that have left the cache again. A closed file without a name counts as gone
    /// at once, though its pages stay for as long as somebody else has it open.
    pub dropped_bytes: u64,
    /// Bytes that had been cached before, and were kept. What was only read of an open file counts once
    /// the file is settled. Of more than 1024 separate ranges at once, some do not count.
    pub kept_bytes: u64,
    /// Bytes that should have been dropped and could not be.
    pub left_bytes: u64,
    /// Bytes of other programs that stay, since they were used again.
    pub reused_bytes: u64,
    /// Times a writer waited or paused for writeback.
    pub waits: u64,
    /// Nanoseconds that writers waited or paused.
    pub wait_ns: u64,
    /// Kicks given to a flusher.
    pub kicks: u64,
    /// Kicks that found another one pending, and cost only a load.
    pub kicks_coalesced: u64,
    /// Bytes for which writeback was started, by reason.
    pub writeback_bytes: ReasonBytes,
}

impl Stats {
    /// Adds the counters of another file, or of several.
    pub fn add(&mut self, other: &Stats) {
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.peak_dirty_bytes = self.peak_dirty_bytes.max(other.peak_dirty_bytes);
        self.peak_cached_bytes = self.peak_cached_bytes.max(other.peak_cached_bytes);
        self.brought_bytes += other.brought_bytes;
        self.dropped_bytes += other.dropped_bytes;
        self.kept_bytes += other.kept_bytes;
        self.left_bytes += other.left_bytes;
        self.reused_bytes += other.reused_bytes;
        self.waits += other.waits;
        self.wait_ns += other.wait_ns;
        self.kicks += other.kicks;
        self.kicks_coalesced += other.kicks_coalesced;
        self.writeback_bytes.add(&other.writeback_bytes);
    }
}
