//! Explicit control over writeback and residency, independent of each other.

#[cfg(target_os = "linux")]
pub(crate) mod operations;

/// The cached pages of a range, in bytes of whole pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheState {
    /// Bytes cached, clean or not.
    pub cached_bytes: u64,
    /// Bytes that are dirty and not under writeback.
    pub dirty_bytes: u64,
    /// Bytes under writeback.
    pub writeback_bytes: u64,
}

/// The result of a drop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropOutcome {
    /// Bytes that left the cache.
    pub dropped_bytes: u64,
    /// Bytes kept because they were cached before this file's I/O.
    pub kept_bytes: u64,
    /// Bytes that could not be dropped: dirty, under writeback, mapped or in use.
    pub left_bytes: u64,
}
