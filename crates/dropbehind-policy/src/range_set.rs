//! A set of bytes, kept as disjoint ranges in offset order.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::range::ByteRange;

/// Disjoint, non-adjacent, ascending ranges, and their total length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// start → end
    ranges: BTreeMap<u64, u64>,
    bytes: u64,
}

impl RangeSet {
    /// An empty set.
    pub const fn new() -> RangeSet {
        RangeSet {
            ranges: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Bytes in the set.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of separate ranges.
    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    /// True when nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.bytes = 0;
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = ByteRange> + '_ {
        self.ranges
            .iter()
            .map(|(&start, &end)| ByteRange::new(start, end))
    }

    /// The range with the lowest offset.
    pub fn first(&self) -> Option<ByteRange> {
        self.iter().next()
    }

    /// The smallest range around everything in the set.
    pub fn span(&self) -> ByteRange {
        match (self.ranges.first_key_value(), self.ranges.last_key_value()) {
            (Some((&start, _)), Some((_, &end))) => ByteRange::new(start, end),
            _ => ByteRange::default(),
        }
    }

    /// The first range that ends after `offset`.
    pub fn first_from(&self, offset: u64) -> Option<ByteRange> {
        if let Some((&start, &end)) = self.ranges.range(..=offset).next_back()
            && end > offset
        {
            return Some(ByteRange::new(start, end));
        }
        let (&start, &end) = self.ranges.range(offset..).next()?;
        Some(ByteRange::new(start, end))
    }

    /// The last range that begins before `offset`.
    fn last_before(&self, offset: u64) -> Option<ByteRange> {
        let (&start, &end) = self.ranges.range(..offset).next_back()?;
        Some(ByteRange::new(start, end))
    }

    /// Adds a range; answers how many of its bytes were not in the set.
    pub fn insert(&mut self, range: ByteRange) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let before = self.bytes;
        let ByteRange { mut start, mut end } = range;
        // Mostly there is nothing near, and one search tells.
        match self.ranges.range(..=end).next_back() {
            Some((_, &near_end)) if near_end >= start => {}
            _ => {
                self.ranges.insert(start, end);
                self.bytes += end - start;
                return end - start;
            }
        }
        if let Some((&left, &left_end)) = self.ranges.range(..=start).next_back() {
            if left_end >= end {
                return 0;
            }
            if left_end >= start {
                start = left;
            }
        }
        while let Some((&next, &next_end)) = self.ranges.range(start..=end).next() {
            self.ranges.remove(&next);
            self.bytes -= next_end - next;
            end = end.max(next_end);
        }
        self.ranges.insert(start, end);
        self.bytes += end - start;
        self.bytes - before
    }

    /// Takes a range out; answers how many of its bytes were in the set.
    pub fn remove(&mut self, range: ByteRange) -> u64 {
        if range.is_empty() || self.ranges.is_empty() {
            return 0;
        }
        let before = self.bytes;
        // Mostly there is nothing, or just this, and one search tells.
        match self.ranges.range(..range.end).next_back() {
            Some((&start, &end)) if end > range.start => {
                if start == range.start && end == range.end {
                    self.ranges.remove(&start);
                    self.bytes -= range.len();
                    return range.len();
                }
            }
            _ => return 0,
        }
        if let Some((&left, &left_end)) = self.ranges.range(..range.start).next_back()
            && left_end > range.start
        {
            self.ranges.insert(left, range.start);
            self.bytes -= left_end - range.start;
            if left_end > range.end {
                self.ranges.insert(range.end, left_end);
                self.bytes += left_end - range.end;
            }
        }
        while let Some((&next, &next_end)) = self.ranges.range(range.start..range.end).next() {
            self.ranges.remove(&next);
            self.bytes -= next_end - next;
            if next_end > range.end {
                self.ranges.insert(range.end, next_end);
                self.bytes += next_end - range.end;
            }
        }
        before - self.bytes
    }

    /// The parts of `range` that are in the set, ascending.
    pub fn overlaps_of(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        // Backwards one search finds the last part, and mostly there is no other
        // that long: a range bounded on both sides costs two.
        let last = self.last_before(range.end);
        let alone = last.is_none_or(|last| last.start <= range.start);
        let before = (!alone)
            .then(|| self.ranges.range(..range.start).next_back())
            .flatten()
            .map(|(&start, &end)| ByteRange::new(start, end));
        let from = if alone { u64::MAX } else { range.start };
        let inside = self
            .ranges
            .range(from..)
            .map(|(&start, &end)| ByteRange::new(start, end))
            .take_while(move |part| part.start < range.end);
        last.filter(|_| alone)
            .into_iter()
            .chain(before)
            .chain(inside)
            .map(move |part| part.intersection(range))
            .filter(|part| !part.is_empty())
    }

    /// The parts of `range` that are not in the set, ascending.
    pub fn gaps_of(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for part in self.overlaps_of(range) {
            if part.start > at {
                gaps.push(ByteRange::new(at, part.start));
            }
            at = part.end;
        }
        if at < range.end {
            gaps.push(ByteRange::new(at, range.end));
        }
        gaps
    }

    /// Bytes of `range` that are in the set.
    pub fn bytes_of(&self, range: ByteRange) -> u64 {
        self.overlaps_of(range).map(ByteRange::len).sum()
    }

    /// True when the set has a byte of `range`.
    pub fn touches(&self, range: ByteRange) -> bool {
        !range.is_empty()
            && self
                .last_before(range.end)
                .is_some_and(|last| last.end > range.start)
    }
}

impl FromIterator<ByteRange> for RangeSet {
    fn from_iter<I: IntoIterator<Item = ByteRange>>(ranges: I) -> RangeSet {
        let mut set = RangeSet::new();
        for range in ranges {
            set.insert(range);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every set over sixteen bytes against a bit mask.
    #[test]
    fn agrees_with_a_bit_mask() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |bound: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % bound
        };
        for _ in 0..2000 {
            let mut set = RangeSet::new();
            let mut mask = 0_u32;
            for _ in 0..12 {
                let (a, b) = (next(17), next(17));
                let range = ByteRange::new(a.min(b), a.max(b));
                let bits = (range.start..range.end).fold(0_u32, |m, bit| m | 1 << bit);
                if next(3) == 0 {
                    assert_eq!(set.remove(range), u64::from((mask & bits).count_ones()));
                    mask &= !bits;
                } else {
                    assert_eq!(set.insert(range), u64::from((!mask & bits).count_ones()));
                    mask |= bits;
                }
                assert_eq!(set.bytes(), u64::from(mask.count_ones()));
                let inside: u64 = set.iter().map(ByteRange::len).sum();
                assert_eq!(inside, set.bytes());
                assert_eq!(set.bytes_of(range), u64::from((mask & bits).count_ones()));
                let gaps: u64 = set.gaps_of(range).iter().map(|gap| gap.len()).sum();
                assert_eq!(gaps, u64::from((!mask & bits).count_ones()));
                let mut last = None;
                for part in set.iter() {
                    assert!(last.is_none_or(|end| part.start > end), "adjacent ranges");
                    last = Some(part.end);
                }
            }
        }
    }
}
