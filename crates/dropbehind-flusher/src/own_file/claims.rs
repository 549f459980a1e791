//! Which parts of a file a reader is about to read.
//!
//! A reader looks at what is cached, and takes what is for somebody else's. Of
//! that, pages of our own may still wait to be dropped: were they dropped
//! between the look and the read, the read would fetch them again, and nobody
//! would know whose they are. So a reader claims a range before it looks, and
//! the flusher drops nothing in a claimed range.

use std::sync::{Condvar, Mutex, PoisonError};

use dropbehind_policy::ByteRange;

use crate::lock;

/// The ranges claimed by the readers of a file, and the one being dropped.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    state: Mutex<State>,
    dropped: Condvar,
}

#[derive(Debug, Default)]
struct State {
    reading: Vec<ByteRange>,
    dropping: ByteRange,
    /// Readers that wait for the end of the drop: to wake nobody is a system call
    /// all the same, and there is a drop for each scattered page.
    waiting: usize,
}

impl Claims {
    /// Claims a range for reading; waits while something of it is being
    /// dropped.
    pub(crate) fn claim(&self, range: ByteRange) {
        let mut state = lock(&self.state);
        while state.dropping.overlaps(range) {
            state.waiting += 1;
            let woken = self.dropped.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.reading.push(range);
    }

    /// Gives a claim up.
    pub(crate) fn release(&self, range: ByteRange) {
        let reading = &mut lock(&self.state).reading;
        if let Some(at) = reading.iter().position(|claimed| *claimed == range) {
            reading.swap_remove(at);
        }
    }

    /// The flusher is about to drop `range`, until the answer goes; `None` when
    /// something of it is claimed.
    pub(crate) fn begin_drop(&self, range: ByteRange) -> Option<Dropping<'_>> {
        let mut state = lock(&self.state);
        if state.reading.iter().any(|claimed| claimed.overlaps(range)) {
            return None;
        }
        state.dropping = range;
        Some(Dropping { claims: self })
    }
}

/// A drop that is under way.
pub(crate) struct Dropping<'a> {
    claims: &'a Claims,
}

impl Drop for Dropping<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.claims.state);
        state.dropping = ByteRange::default();
        if state.waiting > 0 {
            self.claims.dropped.notify_all();
        }
    }
}
