//! Ascending lists of ranges: the gaps between their ranges, and what two have in common.
//!
//! For short-lived work, a list replaces a [`RangeSet`](crate::RangeSet), without any
//! searching.

use alloc::vec::Vec;

use crate::range::ByteRange;

/// The parts of `range` between `parts`, which ascend.
pub(crate) fn gaps(
    range: ByteRange,
    parts: impl IntoIterator<Item = ByteRange>,
) -> impl Iterator<Item = ByteRange> {
    let end = ByteRange::new(range.end, range.end);
    parts
        .into_iter()
        .chain([end])
        .scan(range.start, |at, part| {
            let gap = ByteRange::new(*at, part.start);
            *at = part.end.max(*at);
            Some(gap)
        })
        .filter(|gap| !gap.is_empty())
}

/// The parts of `range` that are in none of `taken`: a few ascending lists, one after
/// another.
pub(crate) fn gaps_between(range: ByteRange, mut taken: Vec<ByteRange>) -> Vec<ByteRange> {
    // This sort merges runs that already ascend.
    taken.sort_by_key(|part| part.start);
    gaps(range, taken).collect()
}

/// The parts that two lists have in common. Each list ascends and has no overlaps.
pub(crate) fn intersections(one: &[ByteRange], other: &[ByteRange]) -> Vec<ByteRange> {
    let (mut at, mut other_at) = (0, 0);
    let mut common = Vec::new();
    while let (Some(part), Some(other_part)) = (one.get(at), other.get(other_at)) {
        let both = part.intersection(*other_part);
        if !both.is_empty() {
            common.push(both);
        }
        if part.end < other_part.end {
            at += 1;
        } else {
            other_at += 1;
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start, end)
    }

    #[test]
    fn gaps_are_between_all_lists() {
        let gaps = |all, taken: &[ByteRange]| gaps_between(all, taken.to_vec());
        let taken = [range(2, 5), range(7, 8), range(0, 3), range(4, 6)];
        assert_eq!(gaps(range(0, 10), &taken), [range(6, 7), range(8, 10)]);
        assert_eq!(gaps(range(2, 8), &[]), [range(2, 8)]);
        assert_eq!(gaps(range(2, 8), &[range(2, 8)]), []);
    }

    #[test]
    fn intersections_are_in_both_lists() {
        let one = [range(0, 4), range(6, 8), range(9, 20)];
        let other = [range(1, 2), range(3, 7), range(8, 9), range(10, 11)];
        let both = [range(1, 2), range(3, 4), range(6, 7), range(10, 11)];
        assert_eq!(intersections(&one, &other), both);
        assert_eq!(intersections(&other, &one), both);
        assert_eq!(intersections(&one, &[]), []);
    }
}
