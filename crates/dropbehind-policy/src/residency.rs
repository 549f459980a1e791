//! What was in the page cache before our I/O.
//!
//! A page may be dropped only if it is known that it was not resident before this stream
//! touched it. If that is unknown, the page is kept.

use crate::range::ByteRange;
use crate::range_set::RangeSet;

/// Which bytes have been looked at, and which of them others had cached.
#[derive(Clone, Debug, Default)]
pub struct ResidencyMap {
    known: RangeSet,
    resident: RangeSet,
}

impl ResidencyMap {
    /// A map in which nothing is known, so everything is kept.
    pub const fn unknown() -> ResidencyMap {
        ResidencyMap {
            known: RangeSet::new(),
            resident: RangeSet::new(),
        }
    }

    /// Records a look at `range` that found `resident` in the cache.
    pub fn observed(&mut self, range: ByteRange, resident: impl IntoIterator<Item = ByteRange>) {
        self.known.insert(range);
        self.resident.remove(range);
        for part in resident {
            self.resident.insert(part.intersection(range));
        }
    }

    /// Marks bytes as wanted by others: they are kept from now on.
    pub fn keep(&mut self, range: ByteRange) {
        self.resident.insert(range);
    }

    /// The file now ends at `size`: nothing beyond it can be resident.
    pub fn truncated(&mut self, size: u64) {
        self.observed(ByteRange::new(size, u64::MAX), []);
    }

    /// Returns whether all of `range` is known not to have been resident.
    pub fn is_absent(&self, range: ByteRange) -> bool {
        self.known.gaps_of(range).next().is_none() && !self.resident.touches(range)
    }

    /// The parts of `range` that are known not to have been resident.
    pub fn brought(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        self.known
            .overlaps_of(range)
            .flat_map(|known| self.resident.gaps_of(known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start, end)
    }

    fn brought(map: &ResidencyMap, range: ByteRange) -> Vec<ByteRange> {
        map.brought(range).collect()
    }

    #[test]
    fn unknown_is_kept() {
        assert_eq!(brought(&ResidencyMap::unknown(), range(0, 100)), vec![]);
    }

    #[test]
    fn only_what_was_absent_is_ours() {
        let mut map = ResidencyMap::unknown();
        map.observed(range(0, 100), [range(40, 60)]);
        assert_eq!(
            brought(&map, range(0, 200)),
            vec![range(0, 40), range(60, 100)]
        );
        map.truncated(100);
        assert_eq!(
            brought(&map, range(50, 200)),
            vec![range(60, 200)],
            "known on both sides of the old end"
        );
        map.keep(range(0, 10));
        assert_eq!(brought(&map, range(0, 50)), vec![range(10, 40)]);
    }

    #[test]
    fn truncation_forgets_what_was_there() {
        let mut map = ResidencyMap::unknown();
        map.observed(range(0, 100), [range(0, 100)]);
        map.truncated(50);
        assert_eq!(brought(&map, range(0, 100)), vec![range(50, 100)]);
    }
}
