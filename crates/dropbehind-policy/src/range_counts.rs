//! How many requests under way cover each byte.
//!
//! A page that is written again during its first request is requested twice, and is busy
//! until both are counted. Finding that out by walking all requests is quadratic for
//! scattered small writes. So the bytes covered once, twice and so on are kept as sets.

use alloc::vec::Vec;

use crate::range::ByteRange;
use crate::range_set::RangeSet;

/// Ranges with multiplicity.
#[derive(Clone, Debug, Default)]
pub struct RangeCounts {
    /// At index `n`, the bytes covered more than `n` times. The last set is never empty.
    levels: Vec<RangeSet>,
}

impl RangeCounts {
    /// Covers `range` once more.
    pub fn add(&mut self, range: ByteRange) {
        let mut more: Vec<ByteRange> = Vec::from([range]);
        let mut level = 0;
        loop {
            more.retain(|part| !part.is_empty());
            if more.is_empty() {
                return;
            }
            if level == self.levels.len() {
                self.levels.push(RangeSet::new());
            }
            let set = &mut self.levels[level];
            let covered: Vec<ByteRange> = more
                .iter()
                .flat_map(|part| set.overlaps_of(*part))
                .collect();
            for part in more {
                set.insert(part);
            }
            more = covered;
            level += 1;
        }
    }

    /// Covers `range` once less; bytes that are not covered are ignored.
    pub fn remove(&mut self, range: ByteRange) {
        let mut less: Vec<ByteRange> = Vec::from([range]);
        for set in self.levels.iter_mut().rev() {
            let mut rest = Vec::new();
            for part in less {
                rest.extend(set.gaps_of(part));
                set.remove(part);
            }
            less = rest;
        }
        while self.levels.last().is_some_and(RangeSet::is_empty) {
            self.levels.pop();
        }
    }

    /// Removes all coverage.
    pub fn clear(&mut self) {
        self.levels.clear();
    }

    /// Returns whether nothing is covered.
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// The parts of `range` that are covered, ascending.
    pub fn overlaps_of(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        self.levels
            .first()
            .into_iter()
            .flat_map(move |set| set.overlaps_of(range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_an_array_of_counts() {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = |bound: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % bound
        };
        for _ in 0..500 {
            let mut counts = RangeCounts::default();
            let mut array = [0_u32; 24];
            let mut covering: Vec<ByteRange> = Vec::new();
            for _ in 0..30 {
                if next(2) == 0 || covering.is_empty() {
                    let (a, b) = (next(25), next(25));
                    let range = ByteRange::new(a.min(b), a.max(b));
                    counts.add(range);
                    covering.push(range);
                    (range.start..range.end).for_each(|at| array[at as usize] += 1);
                } else {
                    let at = next(covering.len() as u64) as usize;
                    let range = covering.swap_remove(at);
                    counts.remove(range);
                    (range.start..range.end).for_each(|at| array[at as usize] -= 1);
                }
                for (at, count) in array.iter().enumerate() {
                    let byte = ByteRange::new(at as u64, at as u64 + 1);
                    assert_eq!(counts.overlaps_of(byte).count(), usize::from(*count > 0));
                }
                assert_eq!(counts.is_empty(), array == [0; 24]);
            }
        }
    }
}
