//! Which ranges to drop, when, and what to try again.
//!
//! `POSIX_FADV_DONTNEED` silently skips a folio that straddles the range, is
//! under writeback or sits in a CPU's list of folios just added. So ranges are
//! large, they lag, what a call left is part of the next one, and every call is
//! verified by a count. What cannot be dropped after several tries is left, and
//! counted as left.

use crate::range::ByteRange;
use crate::range_set::RangeSet;

/// A drop is worth a call from this many bytes on. In chunks of 128 KiB, 98.6 %
/// of a file stayed cached; with 4 MiB and overlap nothing did.
pub const STEP_BYTES: u64 = 4 << 20;
/// The end of each range that is tried again with the next one: the largest
/// folio a file system makes today is 2 MiB (a PMD), and one may straddle.
pub const OVERLAP_BYTES: u64 = 4 << 20;
/// Tries without progress before a range is left.
pub const TRIES: u32 = 6;
/// Wait before the first retry; doubled each time. Folios leave the per-CPU
/// lists as soon as others are added there, mostly within milliseconds.
pub const RETRY_NS: u64 = 4_000_000;

/// The clean ranges of one stream that wait to be dropped.
#[derive(Clone, Debug, Default)]
pub struct DropPlanner {
    ready: RangeSet,
    /// Ends of earlier drops in which something stayed.
    overlap: RangeSet,
    tries: u32,
    not_before_ns: u64,
}

impl DropPlanner {
    /// A planner with nothing to drop.
    pub const fn new() -> DropPlanner {
        DropPlanner {
            ready: RangeSet::new(),
            overlap: RangeSet::new(),
            tries: 0,
            not_before_ns: 0,
        }
    }

    /// `range` is ours and clean.
    pub fn ready(&mut self, range: ByteRange) {
        self.ready.insert(range);
    }

    /// `range` is dirty again, or gone: it is not to be dropped now.
    pub fn withdraw(&mut self, range: ByteRange) {
        self.ready.remove(range);
        self.overlap.remove(range);
    }

    /// Bytes that wait.
    pub fn ready_bytes(&self) -> u64 {
        self.ready.bytes()
    }

    /// True when nothing waits and nothing is to be tried again.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.overlap.is_empty()
    }

    /// When the planner has something to do: with `flush`, whatever is there,
    /// otherwise only from `step_bytes` on.
    pub fn due_ns(&self, flush: bool, step_bytes: u64) -> Option<u64> {
        let enough = if flush {
            !self.is_empty()
        } else {
            self.ready.bytes() >= step_bytes
        };
        enough.then_some(self.not_before_ns)
    }

    /// The next range to drop, taken out of the waiting ones.
    pub fn take(&mut self, flush: bool) -> Option<ByteRange> {
        // The longest first would be best for the count of calls; the lowest
        // first is simpler, and streams mostly have a single range.
        let mut range = match self.ready.first() {
            Some(first) => first,
            None if flush => self.overlap.first()?,
            None => return None,
        };
        // What stayed just before this range is tried again with it.
        if let Some(before) = self
            .overlap
            .iter()
            .rev()
            .find(|part| part.end >= range.start && part.start <= range.end)
        {
            range = ByteRange::new(range.start.min(before.start), range.end.max(before.end));
        }
        self.ready.remove(range);
        self.overlap.remove(range);
        Some(range)
    }

    /// A drop of `range` removed `dropped_bytes` and left `left_bytes`.
    pub fn verified(
        &mut self,
        now_ns: u64,
        range: ByteRange,
        dropped_bytes: u64,
        left_bytes: u64,
    ) -> Verdict {
        if left_bytes == 0 || dropped_bytes > 0 {
            self.tries = 0;
            self.not_before_ns = 0;
        }
        if left_bytes == 0 {
            return Verdict::Gone;
        }
        self.tries += 1;
        if self.tries > TRIES {
            self.tries = 0;
            self.not_before_ns = 0;
            return Verdict::GivenUp;
        }
        let again = if left_bytes <= OVERLAP_BYTES {
            ByteRange::new(
                range.start.max(range.end.saturating_sub(OVERLAP_BYTES)),
                range.end,
            )
        } else {
            range
        };
        // Only a range that resists is backed off from; one that gave way is
        // tried again with the next step.
        if dropped_bytes == 0 {
            self.not_before_ns = now_ns + (RETRY_NS << self.tries);
        }
        self.overlap.insert(again);
        Verdict::Again(again)
    }
}

/// What becomes of a range after a drop of it was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing of it is left in the cache.
    Gone,
    /// This part of it is tried again.
    Again(ByteRange),
    /// What is left of it stays.
    GivenUp,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start << 20, end << 20)
    }

    #[test]
    fn waits_for_a_step_unless_flushed() {
        let mut planner = DropPlanner::new();
        planner.ready(range(0, 3));
        assert_eq!(planner.due_ns(false, STEP_BYTES), None);
        assert_eq!(planner.due_ns(true, STEP_BYTES), Some(0));
        planner.ready(range(3, 4));
        assert_eq!(planner.due_ns(false, STEP_BYTES), Some(0));
        assert_eq!(planner.take(false), Some(range(0, 4)));
        assert!(planner.is_empty());
    }

    #[test]
    fn what_stayed_at_the_end_is_part_of_the_next_drop() {
        let mut planner = DropPlanner::new();
        planner.ready(range(0, 20));
        let first = planner.take(false).unwrap();
        let again = range(16, 20);
        assert_eq!(
            planner.verified(0, first, 19 << 20, 1 << 20),
            Verdict::Again(again)
        );
        assert_eq!(planner.due_ns(false, STEP_BYTES), None, "not by itself");
        planner.ready(range(20, 30));
        assert_eq!(planner.take(false), Some(range(16, 30)));
    }

    #[test]
    fn what_resists_is_backed_off_from_and_then_left() {
        let mut planner = DropPlanner::new();
        planner.ready(range(0, 8));
        let mut now_ns = 0;
        for _ in 0..TRIES {
            let taken = planner.take(true).unwrap();
            assert!(matches!(
                planner.verified(now_ns, taken, 0, taken.len()),
                Verdict::Again(_)
            ));
            let due_ns = planner.due_ns(true, STEP_BYTES).unwrap();
            assert!(due_ns > now_ns);
            now_ns = due_ns;
        }
        let taken = planner.take(true).unwrap();
        assert_eq!(
            planner.verified(now_ns, taken, 0, taken.len()),
            Verdict::GivenUp
        );
        assert!(planner.is_empty());
    }

    #[test]
    fn a_page_written_again_is_withdrawn() {
        let mut planner = DropPlanner::new();
        planner.ready(range(0, 8));
        planner.withdraw(range(2, 4));
        assert_eq!(planner.take(true), Some(range(0, 2)));
        assert_eq!(planner.take(true), Some(range(4, 8)));
        assert_eq!(planner.take(true), None);
    }
}
