//! Who owns which page: what we brought in, and what others had or want.

use alloc::vec::Vec;

use crate::range::ByteRange;
use crate::range_set::RangeSet;
use crate::residency::ResidencyMap;

/// Bytes by what became of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnershipCounters {
    pub(super) brought_bytes: u64,
    pub(super) peak_brought_bytes: u64,
    pub(super) dropped_bytes: u64,
    pub(super) left_bytes: u64,
    pub(super) kept_bytes: u64,
}

/// The owners of the pages of one stream.
#[derive(Clone, Debug)]
pub(super) struct Ownership {
    residency: ResidencyMap,
    /// The kernel tells what we bring in: what was resident does not matter.
    told: bool,
    /// Brought in by us, and not yet gone.
    ours: RangeSet,
    /// Written by us and kept, each byte counted once.
    kept: RangeSet,
    counters: OwnershipCounters,
}

impl Ownership {
    pub(super) fn new(residency: ResidencyMap, told: bool) -> Ownership {
        Ownership {
            residency,
            told,
            ours: RangeSet::new(),
            kept: RangeSet::new(),
            counters: OwnershipCounters::default(),
        }
    }

    pub(super) fn counters(&self) -> &OwnershipCounters {
        &self.counters
    }

    /// Bytes brought in and not yet gone.
    pub(super) fn ours_bytes(&self) -> u64 {
        self.ours.bytes()
    }

    /// The parts of `range` that were brought in and are not yet gone.
    pub(super) fn ours_of(&self, range: ByteRange) -> Vec<ByteRange> {
        self.ours.overlaps_of(range).collect()
    }

    /// The parts of `range` that are not ours.
    pub(super) fn not_ours_of(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        self.ours.gaps_of(range)
    }

    /// True when a byte of `range` is ours.
    pub(super) fn is_ours(&self, range: ByteRange) -> bool {
        self.ours.touches(range)
    }

    /// The parts of `range` that are neither ours nor were there before, as far
    /// as is known.
    pub(super) fn unexplained(&self, range: ByteRange) -> Vec<ByteRange> {
        self.residency
            .brought(range)
            .flat_map(|part| self.ours.gaps_of(part))
            .collect()
    }

    /// A look at `range` found these parts in the cache.
    pub(super) fn looked(
        &mut self,
        range: ByteRange,
        resident: impl IntoIterator<Item = ByteRange>,
    ) {
        self.residency.observed(range, resident);
        // What we brought in ourselves is not somebody else's.
        for part in self.ours.overlaps_of(range) {
            self.residency.observed(part, []);
        }
    }

    /// The file's last page now ends here.
    pub(super) fn truncated(&mut self, end: u64) {
        if !self.told {
            self.residency.truncated(end);
        }
        self.kept.remove(ByteRange::new(end, u64::MAX));
    }

    /// We wrote `range`: what was not there before is ours.
    pub(super) fn wrote(&mut self, range: ByteRange) {
        if self.told {
            return;
        }
        let mut brought_bytes = 0;
        for part in self.residency.brought(range) {
            self.counters.brought_bytes += self.ours.insert(part);
            brought_bytes += part.len();
        }
        self.note_peak();
        if brought_bytes < range.len() {
            for part in self.ours.gaps_of(range) {
                self.counters.kept_bytes += self.kept.insert(part);
            }
        }
    }

    /// A read of ours found nothing of `range` in the cache, whoever had it before.
    pub(super) fn absent(&mut self, range: ByteRange) {
        self.residency.observed(range, []);
    }

    /// `range` is ours.
    pub(super) fn bring(&mut self, range: ByteRange) {
        self.counters.brought_bytes += self.ours.insert(range);
        self.note_peak();
    }

    /// Others brought `range` in, so what we had there is gone.
    pub(super) fn take_over(&mut self, range: ByteRange) {
        self.counters.dropped_bytes += self.ours.remove(range);
    }

    fn note_peak(&mut self) {
        let peak = &mut self.counters.peak_brought_bytes;
        *peak = (*peak).max(self.ours.bytes());
    }

    /// `range` is to stay; answers the parts that were ours.
    pub(super) fn keep(&mut self, range: ByteRange) -> Vec<ByteRange> {
        self.residency.keep(range);
        let given_up = self.ours_of(range);
        for part in &given_up {
            let bytes = self.ours.remove(*part);
            self.counters.brought_bytes -= bytes.min(self.counters.brought_bytes);
            self.counters.kept_bytes += self.kept.insert(*part);
        }
        given_up
    }

    /// `parts` are no longer ours: dropped, but for so many bytes at most that
    /// stayed.
    pub(super) fn dropped(&mut self, parts: &[ByteRange], stayed_bytes: u64) {
        let bytes: u64 = parts.iter().map(|part| self.ours.remove(*part)).sum();
        let left_bytes = stayed_bytes.min(bytes);
        self.counters.left_bytes += left_bytes;
        self.counters.dropped_bytes += bytes - left_bytes;
    }

    /// What of `range` is ours could not be dropped.
    pub(super) fn leave(&mut self, range: ByteRange) {
        self.counters.left_bytes += self.ours.remove(range);
    }

    /// The same of all.
    pub(super) fn leave_all(&mut self) {
        self.counters.left_bytes += self.ours.bytes();
        self.ours.clear();
    }

    /// The file is gone, and with it all that is ours.
    pub(super) fn freed_all(&mut self) {
        self.counters.dropped_bytes += self.ours.bytes();
        self.ours.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start, end)
    }

    /// Of an empty cache but for 40 to 60.
    fn ownership() -> Ownership {
        let mut residency = ResidencyMap::unknown();
        residency.observed(ByteRange::WHOLE, [range(40, 60)]);
        Ownership::new(residency, false)
    }

    #[test]
    fn what_was_there_is_kept_and_counted_once() {
        let mut ownership = ownership();
        for _ in 0..2 {
            ownership.wrote(range(0, 100));
            assert_eq!(
                ownership.ours_of(range(0, 100)),
                [range(0, 40), range(60, 100)]
            );
            assert_eq!(ownership.counters().kept_bytes, 20);
            assert_eq!(ownership.counters().brought_bytes, 80);
        }
    }

    #[test]
    fn a_look_does_not_take_ours_for_somebody_elses() {
        let mut ownership = ownership();
        ownership.wrote(range(0, 20));
        ownership.looked(range(0, 40), [range(10, 30)]);
        ownership.dropped(&[range(0, 20)], 0);
        ownership.wrote(range(0, 40));
        assert_eq!(
            ownership.ours_of(range(0, 40)),
            [range(0, 20), range(30, 40)]
        );
    }

    #[test]
    fn where_the_kernel_tells_nothing_else_counts() {
        let mut residency = ResidencyMap::unknown();
        residency.truncated(0);
        let mut ownership = Ownership::new(residency, true);
        ownership.wrote(range(0, 40));
        assert_eq!(ownership.ours_bytes(), 0);
        ownership.bring(range(0, 20));
        ownership.wrote(range(0, 40));
        ownership.take_over(range(10, 30));
        assert_eq!(ownership.ours_of(range(0, 40)), [range(0, 10)]);
        let counters = ownership.counters();
        assert_eq!((counters.brought_bytes, counters.dropped_bytes), (20, 10));
    }

    #[test]
    fn what_is_given_up_was_never_brought() {
        let mut ownership = ownership();
        ownership.wrote(range(0, 40));
        assert_eq!(ownership.keep(range(30, 50)), [range(30, 40)]);
        assert_eq!(ownership.ours_bytes(), 30);
        assert_eq!(ownership.counters().brought_bytes, 30);
        assert_eq!(ownership.counters().peak_brought_bytes, 40);
    }

    #[test]
    fn what_stayed_is_left_and_the_rest_dropped() {
        let mut ownership = ownership();
        ownership.wrote(range(0, 40));
        ownership.dropped(&[range(0, 10), range(20, 30)], 5);
        ownership.dropped(&[range(0, 10)], 5);
        assert_eq!(ownership.counters().dropped_bytes, 15);
        assert_eq!(ownership.counters().left_bytes, 5);
        ownership.leave_all();
        assert_eq!(ownership.counters().left_bytes, 25);
        assert_eq!(ownership.ours_bytes(), 0);
    }
}
