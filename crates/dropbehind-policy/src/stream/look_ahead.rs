//! The look ahead of an overwriting stream: what others have brought in
//! meanwhile, where it comes next, is to be seen before it is written.

use super::context::Context;
use crate::range::{ByteRange, round_up};

/// The cache ahead of an overwriting stream is looked at again when the last
/// look is older.
const LOOK_AGE_NS: u64 = 1_000_000_000;
/// How far ahead such a look goes.
const LOOK_BYTES: u64 = 64 << 20;

/// Where one stream is, and how far ahead of it the cache was looked at.
#[derive(Clone, Debug)]
pub(super) struct LookAhead {
    /// What the file had before us ends here.
    old_end_bytes: u64,
    /// Where the last write ended, and what was written up to there in one piece.
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

    /// Notes a write.
    pub(super) fn wrote(&mut self, context: &Context, range: ByteRange, window_bytes: u64) {
        // Only a stream that has come a long way in one piece has an "ahead":
        // elsewhere lie pages of ours that we may not have heard of yet. Whole
        // pages are told, so a run may begin with the last page once more.
        let overlap = self.run_end.saturating_sub(range.start);
        let goes_on = overlap <= context.page_bytes && range.start <= self.run_end;
        let before_bytes = if goes_on { self.run_bytes } else { 0 };
        self.run_bytes = before_bytes + (range.len() - overlap.min(range.len()));
        self.run_end = range.end;
        if self.run_bytes < window_bytes {
            return;
        }
        // The writer may be two windows ahead of what we have heard of; nearer
        // than that, a look would take its pages for somebody else's.
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

    /// True when there is something to look at.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// What is being looked at. Looked at or not, it is not asked for again.
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

    /// Nothing is to be looked at any more.
    pub(super) fn clear(&mut self) {
        self.wanted = None;
    }
}
