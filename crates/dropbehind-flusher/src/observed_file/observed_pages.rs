//! The pages of all observed files of a disk.

use dropbehind_policy::Counted;

/// Pages of the observed files of a disk, in bytes, as last counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservedPages {
    /// The current pages, including those of others.
    pub counted: Counted,
    /// The most that was dirty or under writeback at any time.
    pub peak_unwritten_bytes: u64,
    /// The most that was cached at any time.
    pub peak_cached_bytes: u64,
}

impl ObservedPages {
    /// Updates the sums after one file's pages went from `before` to `now`.
    pub(crate) fn change(&mut self, before: Counted, now: Counted) {
        let counted = &mut self.counted;
        let moved = |sum: u64, before: u64, now: u64| (sum + now).saturating_sub(before);
        counted.cached_bytes = moved(counted.cached_bytes, before.cached_bytes, now.cached_bytes);
        counted.dirty_bytes = moved(counted.dirty_bytes, before.dirty_bytes, now.dirty_bytes);
        counted.writeback_bytes = moved(
            counted.writeback_bytes,
            before.writeback_bytes,
            now.writeback_bytes,
        );
        self.peak_unwritten_bytes = self.peak_unwritten_bytes.max(counted.unwritten_bytes());
        self.peak_cached_bytes = self.peak_cached_bytes.max(counted.cached_bytes);
    }
}
