//! Looks at the cache ahead of an overwriting stream: pages that others have brought in there
//! must be seen before the stream writes them.

use super::context::Context;
use crate::range::{ByteRange, round_up};

/// The cache ahead of an overwriting stream is looked at again if the last look is older than
/// this.
const LOOK_AGE_NS: u64 = 1_000_000_000;
/// How far ahead such a look goes.
const LOOK_BYTES: u64 = 64 << 20;

/// Where one stream is, and how far ahead of it the cache has been looked at.
#[derive(Clone, Debug)]
pub(super) struct LookAhead {
    /// The end of what the file had before us.
    old_end_bytes: u64,
    /// Where the last write ended, and how much was written up to there without a gap.
    run_end: u64,
    run_bytes: u64,
    looked_ns: u64,
    looked_until: u64,
    wanted: Option<ByteRange>,
}

impl LookAhead {
    /// The file, of `size_bytes`, was looked at when it was opened.
    pub(super) const fn new(now_ns: u64, size_bytes: u64) -> LookAhead {
        LookAhead {
            old_end_bytes: size_bytes,
            run_end: 0,
            run_bytes: 0,
            looked_ns: now_ns,
            looked_until: 0,
            wanted: None,
        }
    }

    /// Records a write.
    pub(super) fn wrote(&mut self, context: &Context, range: ByteRange, window_bytes: u64) {
        // Only a stream that has come a long way without a gap has an "ahead": elsewhere
        // there may be pages of ours that we have not heard of yet. Whole pages are reported,
        // so a run may start with the last page again.
        let overlap = self.run_end.saturating_sub(range.start);
        let goes_on = overlap <= context.page_bytes && range.start <= self.run_end;
        let before_bytes = if goes_on { self.run_bytes } else { 0 };
        self.run_bytes = before_bytes + (range.len() - overlap.min(range.len()));
        self.run_end = range.end;
        if self.run_bytes < window_bytes {
            return;
        }
        // The writer may be two windows ahead of what we have heard of. A look any nearer
        // would take its pages for others'.
        let nearest = range.end.saturating_add(window_bytes.saturating_mul(2));
        let from = nearest.max(self.looked_until);
        let due = from - nearest < LOOK_BYTES;
        let stale = context.now_ns.saturating_sub(self.looked_ns) > LOOK_AGE_NS;
        if from < self.old_end_bytes && due && (stale || self.looked_until > 0) {
            let old_end = round_up(self.old_end_bytes, context.page_bytes);
            let until = old_end.min(from.saturating_add(LOOK_BYTES));
            self.wanted = Some(ByteRange::new(from, until));
        }
    }

    /// The file's last page now ends here.
    pub(super) fn truncated(&mut self, end: u64) {
        self.old_end_bytes = self.old_end_bytes.min(end);
    }

    /// Returns whether there is something to look at.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// Starts a look. Whether or not it succeeds, the range is not asked for again.
    pub(super) fn begin(&mut self) -> ByteRange {
        let range = self.wanted.take().unwrap_or_default();
        self.looked_until = self.looked_until.max(range.end);
        range
    }

    /// `range` was looked at.
    pub(super) fn looked(&mut self, now_ns: u64, range: ByteRange) {
        self.looked_ns = now_ns;
        self.looked_until = self.looked_until.max(range.end);
    }

    /// Cancels a look that is wanted.
    pub(super) fn clear(&mut self) {
        self.wanted = None;
    }
}
