//! Ranges of which a drop left something, to be tried again.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{CALL_BYTES, DropPlanner};
use crate::range::ByteRange;

/// The pause before the first retry; it doubles each time. Folios leave the per-CPU batches
/// as soon as others are added there, mostly within milliseconds.
const RETRY_NS: u64 = 4_000_000;
/// How often it doubles: up to two seconds, since nothing says when a neighbour is gone.
const DOUBLINGS: u32 = 9;
/// The longest range that is joined from whole neighbours: two that were dropped separately.
const JOINED_BYTES: u64 = 2 * CALL_BYTES;
/// At most this many ranges are retried. Beyond that, something holds the file's pages for
/// good, and we would do nothing but retry.
const COUNT: usize = 1024;

/// The ranges, none of which overlap, by the time when they are due.
#[derive(Clone, Debug, Default)]
pub(super) struct Resisting {
    /// Due time and start → end and tries so far.
    ranges: BTreeMap<(u64, u64), (u64, u32)>,
}

impl Resisting {
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.ranges.len() >= COUNT
    }

    /// When the next one is due.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let first = self.ranges.first_key_value();
        first.map(|(&(due_ns, _), _)| due_ns)
    }

    /// Takes the first range, with its tries so far, if it is due.
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<(ByteRange, u32)> {
        let first = self.ranges.first_entry()?;
        let &(due_ns, start) = first.key();
        if due_ns > now_ns {
            return None;
        }
        let (end, tries) = first.remove();
        Some((ByteRange::new(start, end), tries))
    }

    pub(super) fn touches(&self, range: ByteRange) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|(&(_, start), &(end, _))| ByteRange::new(start, end).overlaps(range))
    }

    /// Removes all that lies in `range`.
    #[inline]
    pub(super) fn withdraw(&mut self, range: ByteRange) {
        // As at nearly every page that is written.
        if !self.ranges.is_empty() {
            self.withdraw_parts(range);
        }
    }

    fn withdraw_parts(&mut self, range: ByteRange) {
        for (due_ns, part, tries) in self.parts(|part| part.overlaps(range)) {
            self.shorten(due_ns, part, tries, range);
        }
    }

    /// Retries a range later, joined with its neighbours: a folio that straddles the border of
    /// two ranges is dropped with neither. Of a long neighbour it takes the part up to the
    /// next place that no folio straddles. A range that was written or read again while it was
    /// being dropped may come back twice, so what overlaps is joined as well.
    pub(super) fn insert(&mut self, now_ns: u64, mut range: ByteRange, mut tries: u32) {
        let folios = DropPlanner::folios_of(range);
        let mut near = self.parts(|part| part.end >= folios.start && part.start <= folios.end);
        while let Some(at) = near
            .iter()
            .position(|(_, part, _)| part.end >= range.start && part.start <= range.end)
        {
            let (due_ns, part, tried) = near.swap_remove(at);
            let mut joined = ByteRange::new(range.start.min(part.start), range.end.max(part.end));
            if joined.len() > JOINED_BYTES {
                joined = ByteRange::new(
                    joined.start.max(range.start.min(folios.start)),
                    joined.end.min(range.end.max(folios.end)),
                );
            }
            if part.overlaps(joined) {
                self.shorten(due_ns, part, tried, joined);
                range = joined;
                // Joined, they have not been tried at all, but a page that resists for good
                // must not be retried forever.
                tries = tries.min(tried);
            }
        }
        debug_assert!(!self.touches(range), "{range:?} {:?}", self.ranges);
        let due_ns = now_ns.saturating_add(RETRY_NS << tries.min(DOUBLINGS));
        self.ranges
            .insert((due_ns, range.start), (range.end, tries));
    }

    fn parts(&self, wanted: impl Fn(&ByteRange) -> bool) -> Vec<(u64, ByteRange, u32)> {
        let parts = self
            .ranges
            .iter()
            .map(|(&(due_ns, start), &(end, tries))| (due_ns, ByteRange::new(start, end), tries));
        parts.filter(|(_, part, _)| wanted(part)).collect()
    }

    /// Takes `taken` out of a range.
    fn shorten(&mut self, due_ns: u64, range: ByteRange, tries: u32, taken: ByteRange) {
        self.ranges.remove(&(due_ns, range.start));
        for rest in range.without(taken) {
            self.ranges.insert((due_ns, rest.start), (rest.end, tries));
        }
    }
}
