//! A fact that a process finds out once.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that never changes. Threads that need it at the same time each find it out.
///
/// None waits for another, as with `OnceLock`: if a thread were finding it out at a fork, the child
/// would wait forever.
pub(crate) struct Fact(AtomicU64);

impl Fact {
    pub(crate) const fn new() -> Fact {
        Fact(AtomicU64::new(0))
    }

    /// Returns the number, which must be below `u64::MAX`.
    pub(crate) fn get(&self, find: impl FnOnce() -> u64) -> u64 {
        if let Some(known) = self.0.load(Ordering::Relaxed).checked_sub(1) {
            return known;
        }
        let found = find();
        self.0.store(found + 1, Ordering::Relaxed);
        found
    }

    pub(crate) fn is(&self, find: impl FnOnce() -> bool) -> bool {
        self.get(|| find().into()) != 0
    }
}
