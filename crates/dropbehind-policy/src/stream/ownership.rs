//! Who owns which page: what we brought in, and what others had or want.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::StreamConfig;
use super::provenance::Traced;
use crate::range::ByteRange;
use crate::range_set::RangeSet;
use crate::residency::ResidencyMap;
use crate::stats::Stats;

/// The owners of the pages of one stream.
#[derive(Clone, Debug)]
pub(super) struct Ownership {
    observed: bool,
    /// `None` with the trace: what was resident before doesn't matter then.
    mapped: Option<Box<ResidencyMap>>,
    /// Empty without the trace.
    traced: Traced,
    /// Brought in by us, and not dropped yet.
    ours: RangeSet,
    /// Written or read by us and kept; each byte is counted once.
    kept: RangeSet,
    /// What the pages show: the rest is 0.
    counters: Stats,
}

impl Ownership {
    pub(super) fn new(config: &StreamConfig, residency: ResidencyMap) -> Ownership {
        Ownership {
            observed: config.observed,
            mapped: (!config.traced).then(|| Box::new(residency)),
            traced: Traced::default(),
            ours: RangeSet::new(),
            kept: RangeSet::new(),
            counters: Stats::default(),
        }
    }

    pub(super) fn counters(&self) -> &Stats {
        &self.counters
    }

    /// Bytes brought in and not dropped yet.
    pub(super) fn ours_bytes(&self) -> u64 {
        self.ours.bytes()
    }

    /// How many separate ranges those are in.
    pub(super) fn ours_count(&self) -> usize {
        self.ours.count()
    }

    /// The parts of `range` that were brought in and not dropped yet.
    pub(super) fn ours_of(&self, range: ByteRange) -> Vec<ByteRange> {
        self.ours.overlaps_of(range).collect()
    }

    /// The parts of `range` that are not ours.
    pub(super) fn not_ours_of(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        self.ours.gaps_of(range)
    }

    /// Returns whether a byte of `range` is ours.
    pub(super) fn is_ours(&self, range: ByteRange) -> bool {
        self.ours.touches(range)
    }

    /// The parts of `range` that are neither ours nor were there before, as far as is known.
    pub(super) fn unexplained(&self, range: ByteRange) -> Vec<ByteRange> {
        let mapped = self.mapped.iter();
        mapped
            .flat_map(|mapped| mapped.brought(range))
            .flat_map(|part| self.ours.gaps_of(part))
            .collect()
    }

    /// What was in the cache before our I/O, learned only now.
    pub(super) fn was_cached(&mut self, map: ResidencyMap) {
        if let Some(mapped) = &mut self.mapped {
            **mapped = map;
        }
    }

    /// What of `range` is not ours was brought in by others; only without the trace.
    pub(super) fn others_had(&mut self, range: ByteRange) {
        if let Some(mapped) = &mut self.mapped {
            for part in self.ours.gaps_of(range) {
                mapped.keep(part);
            }
        }
    }

    /// The file's last page now ends here.
    pub(super) fn truncated(&mut self, end: u64) {
        if let Some(mapped) = &mut self.mapped {
            mapped.truncated(end);
        }
        self.kept.remove(ByteRange::new(end, u64::MAX));
    }

    /// We wrote `range`. Without the trace, what was not there before is ours.
    pub(super) fn wrote(&mut self, range: ByteRange) {
        let Some(mapped) = &self.mapped else {
            self.traced.unsorted.remove(range);
            return;
        };
        let mut brought_bytes = 0;
        for part in mapped.brought(range) {
            self.counters.brought_bytes += self.ours.insert(part);
            brought_bytes += part.len();
        }
        self.note_peak();
        if brought_bytes < range.len() {
            self.keep_others(range);
        }
    }

    /// `range` is used by us, and what of it is not ours was cached before.
    pub(super) fn keep_others(&mut self, range: ByteRange) {
        for part in self.ours.gaps_of(range) {
            self.counters.kept_bytes += self.kept.insert(part);
        }
    }

    /// Before our I/O, nothing of `range` was in the cache, whoever had it earlier.
    pub(super) fn absent(&mut self, range: ByteRange) {
        if let Some(mapped) = &mut self.mapped
            && !mapped.is_absent(range)
        {
            mapped.observed(range, []);
        }
        // What we read is taken for others' if we write it before the read is reported. Or others' pages
        // have been evicted.
        if self.kept.touches(range) {
            self.counters.kept_bytes -= self.kept.remove(range);
        }
    }

    /// The trace names `range` as ours. If it is `held`, it is not dropped before
    /// [`Ownership::release`].
    pub(super) fn traced(&mut self, range: ByteRange, held: bool) {
        if self.mapped.is_none() {
            self.traced.stuck.remove(range);
            self.traced.unsorted.insert(range);
            match held {
                true => self.traced.held.insert(range),
                false => self.traced.held.remove(range),
            };
        }
        self.bring(range);
    }

    /// Returns whether anything is held.
    pub(super) fn has_held(&self) -> bool {
        !self.traced.held.is_empty()
    }

    /// The parts of `range` that are held.
    pub(super) fn held_of(&self, range: ByteRange) -> Vec<ByteRange> {
        self.traced.held.overlaps_of(range).collect()
    }

    /// It is decided what becomes of `range`.
    pub(super) fn release(&mut self, range: ByteRange) {
        self.traced.held.remove(range);
    }

    /// `range` is known to be written, or its readers are done with it.
    pub(super) fn sorted(&mut self, range: ByteRange) {
        self.traced.unsorted.remove(range);
    }

    /// The parts of `range` for which neither is known yet.
    pub(super) fn unsorted_of(&self, range: ByteRange) -> Vec<ByteRange> {
        self.traced.unsorted.overlaps_of(range).collect()
    }

    /// Returns whether all of our pages are sorted in this way, and none is held.
    pub(super) fn is_sorted(&self) -> bool {
        self.traced.unsorted.is_empty() && self.traced.held.is_empty()
    }

    /// Our pages in `range` resisted all tries. They wait for the close, or for more of ours
    /// nearby to become clean, since a folio across two ranges is dropped only with both. Returns
    /// false if they are not to be tried again.
    pub(super) fn hold_stuck(&mut self, range: ByteRange) -> bool {
        let holds = self.observed && !self.traced.tried_stuck;
        if holds {
            for part in self.ours.overlaps_of(range) {
                self.traced.stuck.insert(part);
            }
        }
        holds
    }

    pub(super) fn has_stuck(&self) -> bool {
        !self.traced.stuck.is_empty()
    }

    /// Takes what is stuck in `range`, to be tried again.
    pub(super) fn take_stuck(&mut self, range: ByteRange) -> Vec<ByteRange> {
        let parts = self.traced.stuck.overlaps_of(range).collect();
        self.traced.stuck.remove(range);
        parts
    }

    /// Whatever still resists is left.
    pub(super) fn tried_stuck(&mut self) {
        self.traced.tried_stuck = true;
    }

    /// The file is in use again.
    pub(super) fn reopened(&mut self) {
        self.traced.tried_stuck = false;
    }

    /// Cancels all looks and tries.
    pub(super) fn cancel(&mut self) {
        self.traced.unsorted.clear();
        self.traced.stuck.clear();
        self.traced.held.clear();
    }

    /// `range` is ours.
    pub(super) fn bring(&mut self, range: ByteRange) {
        self.counters.brought_bytes += self.ours.insert(range);
        self.note_peak();
    }

    /// Others brought in `range`, so our pages there are gone.
    pub(super) fn take_over(&mut self, range: ByteRange) {
        self.traced.unsorted.remove(range);
        self.traced.stuck.remove(range);
        self.traced.held.remove(range);
        self.counters.dropped_bytes += self.ours.remove(range);
    }

    fn note_peak(&mut self) {
        let peak = &mut self.counters.peak_cached_bytes;
        *peak = (*peak).max(self.ours.bytes());
    }

    /// `range` is to stay. Returns the parts that were ours.
    pub(super) fn keep(&mut self, range: ByteRange) -> Vec<ByteRange> {
        match &mut self.mapped {
            Some(mapped) => mapped.keep(range),
            None => {
                self.traced.unsorted.remove(range);
                self.traced.stuck.remove(range);
            }
        }
        let given_up = self.ours_of(range);
        for part in &given_up {
            let bytes = self.ours.remove(*part);
            self.counters.brought_bytes -= bytes.min(self.counters.brought_bytes);
            if self.mapped.is_some() {
                self.counters.kept_bytes += self.kept.insert(*part);
            }
        }
        given_up
    }

    /// What is ours of `range` was used again, and stays. Returns the parts that were ours.
    pub(super) fn reuse(&mut self, range: ByteRange) -> Vec<ByteRange> {
        let reused = self.keep(range);
        let bytes: u64 = reused.iter().map(|part| part.len()).sum();
        self.counters.brought_bytes += bytes;
        self.counters.reused_bytes += bytes;
        reused
    }

    /// `parts` are no longer ours: dropped, except for at most `stayed_bytes`.
    pub(super) fn dropped(&mut self, parts: &[ByteRange], stayed_bytes: u64) {
        let bytes: u64 = parts.iter().map(|part| self.ours.remove(*part)).sum();
        let left_bytes = stayed_bytes.min(bytes);
        self.counters.left_bytes += left_bytes;
        self.counters.dropped_bytes += bytes - left_bytes;
    }

    /// Our pages in `range` could not be dropped.
    pub(super) fn leave(&mut self, range: ByteRange) {
        self.counters.left_bytes += self.ours.remove(range);
    }

    /// None of our pages could be dropped.
    pub(super) fn leave_all(&mut self) {
        self.counters.left_bytes += self.ours.bytes();
        self.ours.clear();
    }

    /// The file is gone, and with it all our pages.
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

    /// Ownership of an empty cache, except for 40 to 60.
    fn ownership() -> Ownership {
        let mut residency = ResidencyMap::unknown();
        residency.observed(ByteRange::WHOLE, [range(40, 60)]);
        Ownership::new(&StreamConfig::default(), residency)
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
    fn what_a_look_found_is_others_unless_it_is_ours() {
        let mut ownership = ownership();
        ownership.wrote(range(0, 20));
        ownership.others_had(range(10, 30));
        ownership.dropped(&[range(0, 20)], 0);
        ownership.wrote(range(0, 40));
        assert_eq!(
            ownership.ours_of(range(0, 40)),
            [range(0, 20), range(30, 40)]
        );
        ownership.absent(range(20, 30));
        ownership.wrote(range(0, 40));
        assert_eq!(ownership.ours_of(range(0, 40)), [range(0, 40)]);
        assert_eq!(ownership.counters().kept_bytes, 0);
    }

    #[test]
    fn where_the_kernel_tells_nothing_else_counts() {
        let config = StreamConfig {
            traced: true,
            observed: true,
            ..StreamConfig::default()
        };
        let mut ownership = Ownership::new(&config, ResidencyMap::unknown());
        ownership.wrote(range(0, 40));
        assert_eq!(ownership.ours_bytes(), 0);
        ownership.traced(range(0, 20), false);
        ownership.wrote(range(0, 40));
        ownership.take_over(range(10, 30));
        assert_eq!(ownership.ours_of(range(0, 40)), [range(0, 10)]);
        let counters = ownership.counters();
        assert_eq!((counters.brought_bytes, counters.dropped_bytes), (20, 10));
    }

    #[test]
    fn what_is_to_stay_is_not_tried_again() {
        let config = StreamConfig {
            traced: true,
            observed: true,
            ..StreamConfig::default()
        };
        let mut ownership = Ownership::new(&config, ResidencyMap::unknown());
        ownership.traced(range(0, 40), false);
        assert!(ownership.hold_stuck(range(0, 40)));
        ownership.keep(range(10, 20));
        assert_eq!(
            ownership.take_stuck(range(0, 40)),
            [range(0, 10), range(20, 40)]
        );
    }

    #[test]
    fn what_is_given_up_was_never_brought() {
        let mut ownership = ownership();
        ownership.wrote(range(0, 40));
        assert_eq!(ownership.keep(range(30, 50)), [range(30, 40)]);
        assert_eq!(ownership.ours_bytes(), 30);
        assert_eq!(ownership.counters().brought_bytes, 30);
        assert_eq!(ownership.counters().peak_cached_bytes, 40);
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
