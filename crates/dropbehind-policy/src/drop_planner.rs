//! Which ranges to drop, when, and what to try again.
//!
//! `POSIX_FADV_DONTNEED` silently skips a folio that straddles an end of the range, is under
//! writeback, or is in a CPU's batch of recently added folios. So ranges are large and lag
//! behind, what stayed at the end of one is part of the next, and a count verifies every
//! call. The count doesn't show *where* something stayed, so no part of such a range counts
//! as dropped until a later call finds it empty. What cannot be dropped after several tries
//! is counted as left.

mod resisting;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::grace::AGE_NS;
use crate::range::{ByteRange, round_up};
use crate::range_set::RangeSet;
use resisting::Resisting;

/// From this many bytes on, a drop is worth a call. Each call skips the folios that straddle
/// its ends: a range shorter than the folios drops nothing at all, and one as long as two of
/// the largest drops at least half.
pub const STEP_BYTES: u64 = 4 << 20;
/// The end of each range that is tried again with the next one: the largest folio that a file
/// system makes today is 2 MiB (a PMD; `MAX_PAGECACHE_ORDER`, include/linux/pagemap.h), and
/// one may straddle the end. Folios are aligned to their size, so none straddles a multiple
/// of this.
pub const OVERLAP_BYTES: u64 = 2 << 20;
/// The longest range of one call, apart from what stayed before it. It takes a third of a
/// millisecond, for which the disk waits for its next request, and every other stream for its
/// turn. Twice as much is twice the wait, and writers notice. What another length does to
/// their throughput is shown by
/// `cargo run --release -p dropbehind --example compare -- FILE write 4096 1048576 5 dontcache`.
pub const CALL_BYTES: u64 = 4 << 20;
/// Ranges up to this length are dropped many at once: the decisions and counts around a call
/// cost as much as dropping so few pages.
pub const SHORT_BYTES: u64 = 64 << 10;
/// At most this many at once, which takes some hundred microseconds.
const PARTS: usize = 64;
/// Tries without progress before a range is left: a second in all. Reclaim takes folios off
/// their lists before it frees them, and on a busy machine it may hold them for some hundred
/// milliseconds.
pub const TRIES: u32 = 7;
/// Further tries of a range while its neighbours are being written, or wait to be dropped or
/// dropped again. With pauses of two seconds, that is four minutes, eight times what the kernel
/// takes to write what is left to it.
const NEIGHBOUR_TRIES: u32 = 120;

/// The clean ranges of one stream that wait to be dropped.
#[derive(Clone, Debug, Default)]
pub struct DropPlanner {
    ready: RangeSet,
    /// Ends of earlier drops, where something may have stayed.
    overlap: RangeSet,
    /// Ranges to retry separately.
    resisting: Resisting,
    /// The ranges being dropped, and their tries so far.
    taken: VecDeque<(ByteRange, u32)>,
    /// Whether the last range taken was a retry.
    retried: bool,
    /// When a range that had waited was last taken.
    taken_ns: u64,
}

impl DropPlanner {
    /// `range` is ours and clean.
    pub fn ready(&mut self, range: ByteRange) {
        self.ready.insert(range);
    }

    /// Where all folios lie that reach into `range`.
    pub fn folios_of(range: ByteRange) -> ByteRange {
        ByteRange::new(
            range.start - range.start % OVERLAP_BYTES,
            round_up(range.end, OVERLAP_BYTES),
        )
    }

    /// `range` is dirty again, or gone: don't drop it now.
    pub fn withdraw(&mut self, range: ByteRange) {
        self.ready.remove(range);
        self.overlap.remove(range);
        self.resisting.withdraw(range);
    }

    /// Bytes that wait.
    pub fn ready_bytes(&self) -> u64 {
        self.ready.bytes()
    }

    /// The parts of `range` that wait to be dropped.
    pub fn ready_parts(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        self.ready.overlaps_of(range)
    }

    /// Returns whether nothing waits, is being dropped, or is to be retried.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
            && self.overlap.is_empty()
            && self.resisting.is_empty()
            && self.taken.is_empty()
    }

    /// When there is something to do. With `flush`, that is whenever anything waits;
    /// otherwise from `step_bytes` on, and for less than that [`AGE_NS`] after the last drop.
    pub fn due_ns(&self, flush: bool, step_bytes: u64) -> Option<u64> {
        let waits = !self.ready.is_empty() || !self.overlap.is_empty();
        if waits && flush || self.ready.bytes() >= step_bytes {
            return Some(0);
        }
        let aged_ns = waits.then(|| self.aged_ns());
        self.resisting.due_ns().into_iter().chain(aged_ns).min()
    }

    fn aged_ns(&self) -> u64 {
        self.taken_ns.saturating_add(AGE_NS)
    }

    /// Takes the next ranges to drop: one, or many short ones.
    pub fn take(&mut self, now_ns: u64, flush: bool, step_bytes: u64) -> Vec<ByteRange> {
        let flush = flush || now_ns >= self.aged_ns();
        let mut parts = Vec::new();
        let mut bytes = 0;
        // If there was enough for the first range, the ones that go with it need no more.
        let mut enough = flush;
        while let Some(part) = self.take_one(now_ns, enough, step_bytes) {
            self.taken.push_back(part);
            let (part, _) = part;
            parts.push(part);
            bytes += part.len();
            let full = part.len() > SHORT_BYTES || bytes >= CALL_BYTES || parts.len() == PARTS;
            let next = self.ready.first();
            if full || next.is_none_or(|next| next.len() > SHORT_BYTES) {
                break;
            }
            enough = true;
        }
        parts
    }

    fn take_one(&mut self, now_ns: u64, flush: bool, step_bytes: u64) -> Option<(ByteRange, u32)> {
        // Retries that are due and ready ranges take turns. Otherwise a stream that always
        // has a step ready would starve its retries, and a retry that needs its neighbour
        // gone would be due forever.
        let enough = flush || self.ready.bytes() >= step_bytes;
        let ready = enough && !self.ready.is_empty();
        if !(self.retried && ready)
            && let Some(due) = self.resisting.take_due(now_ns)
        {
            self.retried = true;
            return Some(due);
        }
        self.retried = false;
        // Taking the longest first would need fewer calls. Taking the lowest is simpler, and
        // most streams have a single range.
        let mut range = match self.ready.first().filter(|_| enough) {
            Some(first) => first,
            None if flush => self.overlap.first()?,
            None => return None,
        };
        let first_start = range.start;
        // What may have stayed just before this range is retried with it.
        let before = self.overlap.first_from(range.start.saturating_sub(1));
        if let Some(before) = before.filter(|before| before.start < range.end) {
            range = ByteRange::new(range.start.min(before.start), range.end.max(before.end));
        }
        let range = cut(range, first_start, flush);
        self.ready.remove(range);
        self.overlap.remove(range);
        self.taken_ns = now_ns;
        Some((range, 0))
    }

    /// A range that was taken was not clean; it comes back another way.
    pub fn not_clean(&mut self, range: ByteRange) {
        self.answered(range);
    }

    /// Who brought in all that is cached of a range that was taken is not known yet. That is no
    /// failed try.
    pub fn unreported(&mut self, now_ns: u64, range: ByteRange) {
        let tries = self.answered(range);
        self.resisting.insert(now_ns, range, tries);
    }

    /// A range that was taken and has no answer yet.
    pub fn unanswered(&self) -> Option<ByteRange> {
        self.taken.front().map(|(range, _)| *range)
    }

    /// Removes a range that was taken, and returns its tries so far. Answers come in the
    /// order in which ranges were taken.
    fn answered(&mut self, range: ByteRange) -> u32 {
        let at = self.taken.iter().position(|(taken, _)| *taken == range);
        at.and_then(|at| self.taken.remove(at))
            .map_or(0, |(_, tries)| tries)
    }

    /// A drop of `range` removed `dropped_bytes` and left `left_bytes`.
    pub fn verified(
        &mut self,
        now_ns: u64,
        range: ByteRange,
        dropped_bytes: u64,
        left_bytes: u64,
    ) -> Verdict {
        let tries = self.answered(range);
        if left_bytes == 0 {
            return Verdict::Gone;
        }
        let again = if tries == 0 && dropped_bytes > 0 {
            // Most likely the last folio straddles the end. So that end goes with the next
            // range, and the rest is checked once more.
            let tail = ByteRange::new(
                range.start.max(range.end.saturating_sub(OVERLAP_BYTES)),
                range.end,
            );
            self.overlap.insert(tail);
            ByteRange::new(range.start, tail.start)
        } else {
            range
        };
        let tries = if dropped_bytes > 0 { 1 } else { tries + 1 };
        if tries > TRIES || self.resisting.is_full() {
            self.overlap.remove(range);
            return Verdict::GivenUp { tries };
        }
        if !again.is_empty() {
            self.resisting.insert(now_ns, again, tries);
        }
        Verdict::Again
    }

    /// Returns whether any part of `range` waits to be dropped, or dropped again, or is being
    /// dropped.
    pub fn is_waiting(&self, range: ByteRange) -> bool {
        self.ready.touches(range)
            || self.overlap.touches(range)
            || self.resisting.touches(range)
            || self.taken.iter().any(|(taken, _)| taken.overlaps(range))
    }

    /// Returns whether a range that was given up after so many tries may wait for its neighbours.
    pub fn may_wait_for_neighbours(&self, tries: u32) -> bool {
        tries <= TRIES + NEIGHBOUR_TRIES && !self.resisting.is_full()
    }

    /// Retries a range that was given up after so many tries.
    pub fn wait_for_neighbours(&mut self, now_ns: u64, range: ByteRange, tries: u32) {
        self.resisting.insert(now_ns, range, tries);
    }
}

/// Cuts a range to one call's length from `first_start` on, and, unless everything must go,
/// to an end that no folio straddles.
fn cut(range: ByteRange, first_start: u64, flush: bool) -> ByteRange {
    let call = ByteRange::new(
        range.start,
        range.end.min(first_start.saturating_add(CALL_BYTES)),
    );
    let aligned = ByteRange::new(call.start, call.end - call.end % OVERLAP_BYTES);
    let whole = flush && call.end == range.end;
    if whole || aligned.is_empty() {
        call
    } else {
        aligned
    }
}

/// The result of verifying a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing of the range is left in the cache.
    Gone,
    /// Something is left, and will be retried.
    Again,
    /// What is left stays.
    GivenUp {
        /// Tries without progress.
        tries: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start << 20, end << 20)
    }

    fn is_given_up(verdict: Verdict) -> bool {
        matches!(verdict, Verdict::GivenUp { .. })
    }

    fn one(taken: Vec<ByteRange>) -> ByteRange {
        let [range] = taken[..] else {
            panic!("{taken:?} instead of one range");
        };
        range
    }

    #[test]
    fn waits_for_a_step_unless_flushed() {
        let mut planner = DropPlanner::default();
        planner.ready(range(0, 3));
        assert_eq!(planner.due_ns(false, STEP_BYTES), Some(AGE_NS));
        assert_eq!(planner.due_ns(true, STEP_BYTES), Some(0));
        planner.ready(range(3, 4));
        assert_eq!(planner.due_ns(false, STEP_BYTES), Some(0));
        assert_eq!(planner.take(0, false, STEP_BYTES), [range(0, 4)]);
        assert!(!planner.is_empty(), "it is not answered yet");
        assert_eq!(planner.verified(0, range(0, 4), 4 << 20, 0), Verdict::Gone);
        assert!(planner.is_empty());
    }

    #[test]
    fn nothing_waits_for_ever_for_what_would_go_with_it() {
        let mut planner = DropPlanner::default();
        planner.ready(range(0, 4));
        let now_ns = 10 * AGE_NS;
        assert_eq!(planner.take(now_ns, false, STEP_BYTES), [range(0, 4)]);
        let stays = 64 << 10;
        let gone = (4 << 20) - stays;
        assert_eq!(
            planner.verified(now_ns, range(0, 4), gone, stays),
            Verdict::Again
        );
        let due_ns = planner.due_ns(false, STEP_BYTES).unwrap();
        assert_eq!(planner.take(due_ns, false, STEP_BYTES), [range(0, 2)]);
        assert_eq!(planner.verified(due_ns, range(0, 2), 0, 0), Verdict::Gone);
        assert_eq!(planner.take(due_ns, false, STEP_BYTES), []);
        let due_ns = planner.due_ns(false, STEP_BYTES).unwrap();
        assert_eq!(due_ns, now_ns + AGE_NS);
        assert_eq!(planner.take(due_ns, false, STEP_BYTES), [range(2, 4)]);
        assert_eq!(
            planner.verified(due_ns, range(2, 4), stays, 0),
            Verdict::Gone
        );
        assert!(planner.is_empty());
    }

    #[test]
    fn what_stayed_at_the_end_is_part_of_the_next_drop() {
        let mut planner = DropPlanner::default();
        planner.ready(range(0, 8));
        let first = one(planner.take(0, false, STEP_BYTES));
        assert_eq!(first, range(0, 4));
        assert_eq!(planner.verified(0, first, 3 << 20, 1 << 20), Verdict::Again);
        planner.ready(range(8, 9));
        assert_eq!(
            planner.take(0, false, STEP_BYTES),
            [range(2, 8)],
            "from the old end to a new one that no folio straddles"
        );
        assert_eq!(planner.verified(0, range(2, 8), 4 << 20, 0), Verdict::Gone);
        let due_ns = planner.due_ns(false, STEP_BYTES).unwrap();
        assert_eq!(
            planner.take(due_ns, false, STEP_BYTES),
            [range(0, 2)],
            "who knows where the page was that stayed"
        );
        assert_eq!(planner.verified(0, range(0, 2), 0, 0), Verdict::Gone);
        assert_eq!(planner.take(due_ns, true, STEP_BYTES), [range(8, 9)]);
        planner.not_clean(range(8, 9));
        assert!(planner.is_empty());
    }

    #[test]
    fn what_resists_is_backed_off_from_and_then_left() {
        let mut planner = DropPlanner::default();
        planner.ready(range(0, 4));
        let mut now_ns = 0;
        for _ in 0..TRIES {
            let taken = one(planner.take(now_ns, true, STEP_BYTES));
            assert_eq!(
                planner.verified(now_ns, taken, 0, taken.len()),
                Verdict::Again
            );
            let due_ns = planner.due_ns(true, STEP_BYTES).unwrap();
            assert!(due_ns > now_ns);
            now_ns = due_ns;
        }
        let taken = one(planner.take(now_ns, true, STEP_BYTES));
        assert!(is_given_up(planner.verified(now_ns, taken, 0, taken.len())));
        assert!(planner.is_empty());
    }

    #[test]
    fn progress_elsewhere_does_not_keep_a_stubborn_range_alive() {
        let mut planner = DropPlanner::default();
        planner.ready(range(0, 4));
        let mut given_up = 0;
        let mut now_ns = 0;
        for step in 0..400 {
            now_ns += 5_000_000;
            planner.ready(range(100 + 4 * step, 104 + 4 * step));
            while let [taken] = planner.take(now_ns, false, STEP_BYTES)[..] {
                let stubborn = taken.start == 0;
                let left = if stubborn { 4096 } else { 0 };
                let gone = if stubborn { 0 } else { taken.len() };
                given_up += u32::from(is_given_up(planner.verified(now_ns, taken, gone, left)));
            }
        }
        assert_eq!(given_up, 1);
    }

    #[test]
    fn a_folio_across_two_ranges_is_tried_with_both() {
        let mut planner = DropPlanner::default();
        let page = |start: u64, end: u64| ByteRange::new(start << 12, end << 12);
        planner.ready(page(0, 2));
        planner.ready(page(3, 5));
        let short = [page(0, 2), page(3, 5)];
        assert_eq!(planner.take(0, true, STEP_BYTES), short);
        for taken in short {
            assert_eq!(planner.verified(0, taken, 0, 4096), Verdict::Again);
        }
        planner.ready(page(2, 3));
        assert_eq!(planner.take(0, true, STEP_BYTES), [page(2, 3)]);
        assert_eq!(planner.verified(0, page(2, 3), 0, 4096), Verdict::Again);
        let due_ns = planner.due_ns(true, STEP_BYTES).unwrap();
        assert_eq!(planner.take(due_ns, true, STEP_BYTES), [page(0, 5)]);
    }

    #[test]
    fn a_folio_across_two_long_ranges_is_tried_with_both() {
        let mut planner = DropPlanner::default();
        for (start, end) in [(1, 4), (4, 8), (8, 9), (9, 12)] {
            planner.ready(range(start, end));
            let taken = one(planner.take(0, true, STEP_BYTES));
            assert_eq!(taken, range(start, end));
            assert_eq!(planner.verified(0, taken, 0, 4096), Verdict::Again);
        }
        let mut retried = Vec::new();
        while let Some(due_ns) = planner.due_ns(true, STEP_BYTES) {
            let taken = one(planner.take(due_ns, true, STEP_BYTES));
            planner.verified(due_ns, taken, 0, 0);
            retried.push(taken);
        }
        retried.sort();
        assert_eq!(retried, [range(1, 8), range(8, 12)]);
    }

    #[test]
    fn a_page_written_again_is_withdrawn() {
        let mut planner = DropPlanner::default();
        planner.ready(range(0, 8));
        planner.withdraw(range(2, 4));
        assert_eq!(planner.take(0, true, STEP_BYTES), [range(0, 2)]);
        assert_eq!(planner.verified(0, range(0, 2), 0, 4096), Verdict::Again);
        assert_eq!(planner.take(0, true, STEP_BYTES), [range(4, 8)]);
        assert_eq!(planner.take(0, true, STEP_BYTES), []);
        planner.withdraw(range(1, 2));
        let due_ns = planner.due_ns(true, STEP_BYTES).unwrap();
        assert_eq!(planner.take(due_ns, true, STEP_BYTES), [range(0, 1)]);
        planner.not_clean(range(4, 8));
        planner.not_clean(range(0, 1));
        assert!(planner.is_empty());
    }

    #[test]
    fn short_ranges_go_together() {
        let mut planner = DropPlanner::default();
        let page = |page: u64| ByteRange::new(page << 12, (page + 1) << 12);
        let pages: Vec<ByteRange> = (0..100).map(|number| page(2 * number)).collect();
        for page in &pages {
            planner.ready(*page);
        }
        planner.ready(range(8, 12));
        let first = planner.take(0, false, STEP_BYTES);
        assert_eq!(first, pages[..PARTS]);
        let second = planner.take(0, false, STEP_BYTES);
        assert_eq!(second, pages[PARTS..], "a long range goes by itself");
        assert_eq!(planner.take(0, false, STEP_BYTES), [range(8, 12)]);
        for page in pages {
            assert_eq!(planner.verified(0, page, 4096, 0), Verdict::Gone);
        }
        assert!(!planner.is_empty(), "one is not answered yet");
        assert_eq!(planner.unanswered(), Some(range(8, 12)));
    }

    #[test]
    fn halves_of_a_folio_that_are_dropped_at_once_are_joined() {
        let [half, other, far] = [range(0, 1), range(1, 2), range(9, 10)]
            .map(|range| ByteRange::new(range.start >> 8, range.end >> 8));
        let mut planner = DropPlanner::default();
        planner.ready(half);
        let mut now_ns = 0;
        for _ in 0..TRIES {
            assert_eq!(planner.take(now_ns, true, STEP_BYTES), [half]);
            assert_eq!(planner.verified(now_ns, half, 0, 4096), Verdict::Again);
            now_ns = planner.due_ns(true, STEP_BYTES).unwrap();
        }
        planner.ready(other);
        planner.ready(far);
        let taken = planner.take(now_ns, true, STEP_BYTES);
        assert_eq!(taken, [other, half, far]);
        assert!(planner.is_waiting(half), "it is being dropped");
        assert_eq!(planner.verified(now_ns, other, 0, 4096), Verdict::Again);
        assert!(planner.is_waiting(other), "it is to be dropped again");
        let Verdict::GivenUp { tries } = planner.verified(now_ns, half, 0, 4096) else {
            panic!("tried {TRIES} times");
        };
        assert!(planner.may_wait_for_neighbours(tries));
        planner.wait_for_neighbours(now_ns, half, tries);
        assert_eq!(planner.verified(now_ns, far, 4096, 0), Verdict::Gone);
        now_ns = planner.due_ns(true, STEP_BYTES).unwrap();
        let folio = ByteRange::new(half.start, other.end);
        assert_eq!(planner.take(now_ns, true, STEP_BYTES), [folio]);
        assert_eq!(planner.verified(now_ns, folio, 8192, 0), Verdict::Gone);
        assert!(planner.is_empty());
    }

    /// Its first drop is not answered yet when it is written, and ready, once more.
    #[test]
    fn a_range_that_resists_twice_is_tried_again_once() {
        let (mut planner, mut now_ns) = (DropPlanner::default(), 0);
        for _ in 0..2 {
            planner.ready(range(0, 2));
            assert_eq!(planner.take(now_ns, true, STEP_BYTES), [range(0, 2)]);
        }
        for _ in 0..2 {
            let verdict = planner.verified(now_ns, range(0, 2), 0, 4096);
            assert_eq!(verdict, Verdict::Again);
            now_ns += 1;
        }
        now_ns = planner.due_ns(true, STEP_BYTES).unwrap();
        assert_eq!(planner.take(now_ns, true, STEP_BYTES), [range(0, 2)]);
        assert_eq!(
            planner.verified(now_ns, range(0, 2), 4096, 0),
            Verdict::Gone
        );
        assert!(planner.is_empty());
    }

    #[test]
    fn what_is_not_reported_yet_is_tried_as_often_as_anything_else() {
        let mut planner = DropPlanner::default();
        planner.ready(range(0, 4));
        assert_eq!(planner.take(0, true, STEP_BYTES), [range(0, 4)]);
        planner.unreported(0, range(0, 4));
        let (mut now_ns, mut tries) = (0, 0);
        loop {
            now_ns = planner.due_ns(true, STEP_BYTES).unwrap().max(now_ns + 1);
            assert_eq!(planner.take(now_ns, true, STEP_BYTES), [range(0, 4)]);
            planner.unreported(now_ns, range(0, 4));
            now_ns = planner.due_ns(true, STEP_BYTES).unwrap();
            assert_eq!(planner.take(now_ns, true, STEP_BYTES), [range(0, 4)]);
            tries += 1;
            if is_given_up(planner.verified(now_ns, range(0, 4), 0, 4096)) {
                break;
            }
        }
        assert_eq!(tries, TRIES + 1);
        assert!(planner.is_empty());
    }

    #[test]
    fn one_call_is_not_for_all_of_a_long_range() {
        let mut planner = DropPlanner::default();
        planner.ready(range(1, 26));
        for (start, end) in [
            (1, 4),
            (4, 8),
            (8, 12),
            (12, 16),
            (16, 20),
            (20, 24),
            (24, 26),
        ] {
            let taken = planner.take(0, true, STEP_BYTES);
            assert_eq!(taken, [range(start, end)]);
        }
    }
}
