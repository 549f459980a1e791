//! A set of bytes, kept as disjoint ranges in offset order.

use alloc::vec::Vec;

use crate::range::ByteRange;
use crate::range_list::gaps;

/// The most ranges in a leaf: inserting among this many moves a kilobyte at most.
const LEAF_RANGES: usize = 64;

/// Disjoint, non-adjacent, ascending ranges, and their total length.
///
/// A sorted array of sorted arrays. Thousands of scattered pages are looked up a dozen times
/// each between write and drop. In a `BTreeMap` from start to end, each lookup searches for
/// both ends of a range of keys: that was 2500 of the 8200 instructions per page
/// (`policy-scattered` in `.ci/instruction-counts`).
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    /// No leaf is empty.
    leaves: Vec<Vec<ByteRange>>,
    count: usize,
    bytes: u64,
}

/// Where a range is, or would be: a leaf, and an index in it.
#[derive(Clone, Copy, Debug)]
struct Place {
    leaf: usize,
    at: usize,
}

impl RangeSet {
    /// An empty set.
    pub const fn new() -> RangeSet {
        RangeSet {
            leaves: Vec::new(),
            count: 0,
            bytes: 0,
        }
    }

    /// Bytes in the set.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of separate ranges.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        *self = RangeSet::new();
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = ByteRange> + '_ {
        self.leaves.iter().flatten().copied()
    }

    /// The range with the lowest offset.
    pub fn first(&self) -> Option<ByteRange> {
        self.iter().next()
    }

    /// The smallest range around everything in the set.
    pub fn span(&self) -> ByteRange {
        match (self.iter().next(), self.iter().next_back()) {
            (Some(first), Some(last)) => ByteRange::new(first.start, last.end),
            _ => ByteRange::default(),
        }
    }

    /// The first range that ends after `offset`.
    pub fn first_from(&self, offset: u64) -> Option<ByteRange> {
        self.get(self.place(|range| range.end <= offset))
    }

    /// Adds a range. Returns how many of its bytes were not in the set.
    pub fn insert(&mut self, range: ByteRange) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let before = self.bytes;
        // Adjacent ranges become one.
        let place = self.place(|near| near.end < range.start);
        match self.get(place).filter(|near| near.start <= range.end) {
            None => self.put(place, range),
            Some(near) => {
                let mut joined =
                    ByteRange::new(near.start.min(range.start), near.end.max(range.end));
                while let Some(next) = self.get(self.after(place))
                    && next.start <= joined.end
                {
                    joined.end = joined.end.max(next.end);
                    self.take(self.after(place));
                }
                self.replace(place, joined);
            }
        }
        self.bytes - before
    }

    /// Removes a range. Returns how many of its bytes were in the set.
    pub fn remove(&mut self, range: ByteRange) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let before = self.bytes;
        let mut place = self.place(|part| part.end <= range.start);
        while let Some(part) = self.get(place)
            && part.start < range.end
        {
            let left = ByteRange::new(part.start, range.start);
            let right = ByteRange::new(range.end, part.end);
            match (left.is_empty(), right.is_empty()) {
                (true, true) => place = self.take(place),
                (true, false) => self.replace(place, right),
                (false, true) => {
                    self.replace(place, left);
                    place = self.after(place);
                }
                (false, false) => {
                    self.replace(place, left);
                    self.put(self.after(place), right);
                }
            }
            if !right.is_empty() {
                break;
            }
        }
        before - self.bytes
    }

    /// The parts of `range` that are in the set, ascending.
    pub fn overlaps_of(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        let Place { leaf, at } = self.place(|part| part.end <= range.start);
        let leaves = self.leaves.get(leaf..).unwrap_or_default();
        leaves
            .iter()
            .flatten()
            .skip(at)
            .take_while(move |part| part.start < range.end)
            .map(move |part| part.intersection(range))
            .filter(|part| !part.is_empty())
    }

    /// The parts of `range` that are not in the set, ascending.
    pub fn gaps_of(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        gaps(range, self.overlaps_of(range))
    }

    /// Bytes of `range` that are in the set.
    pub fn bytes_of(&self, range: ByteRange) -> u64 {
        self.overlaps_of(range).map(ByteRange::len).sum()
    }

    /// Returns whether the set has a byte of `range`.
    pub fn touches(&self, range: ByteRange) -> bool {
        self.overlaps_of(range).next().is_some()
    }

    // ---- places -------------------------------------------------------------

    /// The place of the first range that is not `before`, or past the end if there is none.
    fn place(&self, before: impl Fn(&ByteRange) -> bool) -> Place {
        let leaf = self
            .leaves
            .partition_point(|leaf| leaf.last().is_some_and(&before));
        let ranges = self.leaves.get(leaf);
        Place {
            leaf,
            at: ranges.map_or(0, |ranges| ranges.partition_point(before)),
        }
    }

    fn get(&self, place: Place) -> Option<ByteRange> {
        self.leaves.get(place.leaf)?.get(place.at).copied()
    }

    /// The place after this one.
    fn after(&self, place: Place) -> Place {
        if place.at + 1 < self.leaves[place.leaf].len() {
            Place {
                at: place.at + 1,
                ..place
            }
        } else {
            Place {
                leaf: place.leaf + 1,
                at: 0,
            }
        }
    }

    fn replace(&mut self, place: Place, range: ByteRange) {
        let old = core::mem::replace(&mut self.leaves[place.leaf][place.at], range);
        self.bytes = self.bytes - old.len() + range.len();
    }

    /// Inserts a range before the one at `place`.
    fn put(&mut self, mut place: Place, range: ByteRange) {
        self.count += 1;
        self.bytes += range.len();
        if place.at == 0 && place.leaf > 0 {
            // At the end of the previous leaf, so that ordered writes fill it.
            place.leaf -= 1;
            place.at = self.leaves[place.leaf].len();
        }
        let Some(leaf) = self.leaves.get_mut(place.leaf) else {
            self.leaves.push(Vec::from([range]));
            return;
        };
        leaf.insert(place.at, range);
        if leaf.len() > LEAF_RANGES {
            let rest = leaf.split_off(LEAF_RANGES / 2);
            self.leaves.insert(place.leaf + 1, rest);
        }
    }

    /// Removes the range at `place`. Returns the place of the next one.
    fn take(&mut self, mut place: Place) -> Place {
        let leaf = &mut self.leaves[place.leaf];
        let range = leaf.remove(place.at);
        self.count -= 1;
        self.bytes -= range.len();
        if leaf.is_empty() {
            self.leaves.remove(place.leaf);
            return place;
        }
        let next_len = self.leaves.get(place.leaf + 1).map_or(0, Vec::len);
        let leaf_len = self.leaves[place.leaf].len();
        if next_len > 0 && leaf_len + next_len <= LEAF_RANGES / 4 {
            let rest = self.leaves.remove(place.leaf + 1);
            self.leaves[place.leaf].extend(rest);
        } else if place.at == leaf_len {
            place = Place {
                leaf: place.leaf + 1,
                at: 0,
            };
        }
        place
    }
}

impl PartialEq for RangeSet {
    fn eq(&self, other: &RangeSet) -> bool {
        self.bytes == other.bytes && self.iter().eq(other.iter())
    }
}

impl Eq for RangeSet {}

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

    /// Numbers below a bound, the same ones in every run.
    fn numbers() -> impl FnMut(u64) -> u64 {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        move |bound| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % bound
        }
    }

    /// Checks sets over sixteen bytes against a bit mask.
    #[test]
    fn agrees_with_a_bit_mask() {
        let mut next = numbers();
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
                let gaps: u64 = set.gaps_of(range).map(ByteRange::len).sum();
                assert_eq!(gaps, u64::from((!mask & bits).count_ones()));
                let mut last = None;
                for part in set.iter() {
                    assert!(last.is_none_or(|end| part.start > end), "adjacent ranges");
                    last = Some(part.end);
                }
            }
        }
    }

    /// Thousands of ranges, so that leaves are split and joined.
    #[test]
    fn agrees_with_an_array_of_many_pages() {
        const PAGES: usize = 20_000;
        let mut next = numbers();
        let mut set = RangeSet::new();
        let mut array = [false; PAGES];
        for step in 0..60_000 {
            let start = next(PAGES as u64);
            let longest = if step % 100 == 0 { 2000 } else { 3 };
            let range = ByteRange::new(start, (start + 1 + next(longest)).min(PAGES as u64));
            let pages = &mut array[range.start as usize..range.end as usize];
            let inside = pages.iter().filter(|page| **page).count() as u64;
            assert_eq!(set.bytes_of(range), inside);
            // First it gets fuller, and then emptier.
            let fills = next(3) > u64::from(step > 30_000);
            if fills {
                assert_eq!(set.insert(range), range.len() - inside);
            } else {
                assert_eq!(set.remove(range), inside);
            }
            pages.fill(fills);
            if step % 5000 == 0 {
                let mut pages = [false; PAGES];
                for part in set.iter() {
                    pages[part.start as usize..part.end as usize].fill(true);
                }
                assert!(pages == array, "after step {step}");
                assert_eq!(set.count(), set.iter().count());
                assert!(set.leaves.iter().all(|leaf| !leaf.is_empty()));
            }
            let offset = next(PAGES as u64);
            let expected = (offset..PAGES as u64).find(|page| array[*page as usize]);
            let found = set.first_from(offset).map(|part| part.start.max(offset));
            assert_eq!(found, expected);
        }
    }
}
