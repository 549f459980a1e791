//! The parts of a file that a reader or writer of this process is about to use.
//!
//! It checks what is cached, and takes those pages for others'. But some may be our own, still
//! waiting to be dropped. If they were dropped between the check and the read, the read would fetch
//! them again, and nobody would know whose they are. So a reader claims a range before it checks, and
//! a writer before it checks a range in which something is cached. The flusher drops nothing in a
//! claimed range.

use std::sync::{Condvar, Mutex, PoisonError};

use dropbehind_policy::{ByteRange, RangeSet};

use crate::lock;

/// The ranges claimed by the users of a file, and those being dropped.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    state: Mutex<State>,
    dropped: Condvar,
}

#[derive(Debug, Default)]
struct State {
    claimed: Vec<ByteRange>,
    dropping: Vec<ByteRange>,
    /// Users that wait for the drop to end. Waking nobody would still cost a system call,
    /// and there is a drop for each scattered page.
    waiting: usize,
}

impl Claims {
    /// Claims a range, after any drop that overlaps it has ended.
    pub(crate) fn claim(&self, range: ByteRange) {
        let mut state = lock(&self.state);
        while state.dropping.iter().any(|part| part.overlaps(range)) {
            state.waiting += 1;
            let woken = self.dropped.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.claimed.push(range);
    }

    /// Gives a claim up.
    pub(crate) fn release(&self, range: ByteRange) {
        let claims = &mut lock(&self.state).claimed;
        if let Some(at) = claims.iter().position(|claimed| *claimed == range) {
            claims.swap_remove(at);
        }
    }

    /// Gives all claims up.
    pub(crate) fn release_all(&self) {
        lock(&self.state).claimed.clear();
    }

    /// Starts a drop of `range`, which lasts until the result is dropped; `None` if any part
    /// of the range is claimed.
    pub(crate) fn begin_drop(&self, range: ByteRange) -> Option<Dropping<'_>> {
        let mut state = lock(&self.state);
        if state.claimed.iter().any(|claimed| claimed.overlaps(range)) {
            return None;
        }
        state.dropping.push(range);
        Some(Dropping {
            claims: self,
            range,
        })
    }

    /// The parts of a range that nobody claims.
    pub(crate) fn unclaimed_of(&self, range: ByteRange) -> Vec<ByteRange> {
        let state = lock(&self.state);
        let claimed: RangeSet = state.claimed.iter().copied().collect();
        claimed.gaps_of(range).collect()
    }
}

/// A drop under way.
#[derive(Debug)]
pub struct Dropping<'a> {
    claims: &'a Claims,
    range: ByteRange,
}

impl Drop for Dropping<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.claims.state);
        let at = state.dropping.iter().position(|part| *part == self.range);
        at.map(|at| state.dropping.swap_remove(at));
        if state.waiting > 0 {
            self.claims.dropped.notify_all();
        }
    }
}
