//! Ranges of which the pages were noted. They are dropped once it is known who brought those
//! pages in.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::range::ByteRange;
use crate::range_set::RangeSet;

/// At most this many ranges are noted at once, which takes some hundred microseconds.
const PARTS: usize = 1024;
/// And at most this many bytes, and one range: of single pages, that takes as long.
const BYTES: u64 = 16 << 20;

/// The ranges that were noted together.
#[derive(Clone, Debug, Default)]
pub(super) struct Noted {
    /// What was noted, and neither withdrawn nor dropped since.
    left: RangeSet,
    /// The ranges as they were noted, and their tries so far.
    ranges: VecDeque<(ByteRange, u32)>,
    /// Whether it is known who brought the pages in.
    caught_up: bool,
}

impl Noted {
    pub(super) const fn new() -> Noted {
        Noted {
            left: RangeSet::new(),
            ranges: VecDeque::new(),
            caught_up: false,
        }
    }

    /// Starts anew.
    pub(super) fn begin(&mut self) {
        self.left.clear();
        self.ranges.clear();
        self.caught_up = false;
    }

    /// Returns whether more may be noted together with these.
    pub(super) fn has_room(&self) -> bool {
        self.left.bytes() < BYTES && self.ranges.len() < PARTS
    }

    pub(super) fn add(&mut self, range: ByteRange, tries: u32) {
        self.left.insert(range);
        self.ranges.push_back((range, tries));
    }

    /// The ranges as they were noted.
    pub(super) fn ranges(&self) -> Vec<ByteRange> {
        self.ranges.iter().map(|(range, _)| *range).collect()
    }

    /// What was noted, and neither withdrawn nor dropped since.
    pub(super) fn left(&self) -> &RangeSet {
        &self.left
    }

    pub(super) fn withdraw(&mut self, range: ByteRange) {
        self.left.remove(range);
    }

    pub(super) fn caught_up(&mut self) {
        self.caught_up = true;
    }

    /// `None` if nothing is left.
    pub(super) fn may_be_dropped(&self) -> Option<bool> {
        (!self.left.is_empty()).then_some(self.caught_up)
    }

    /// The next range, as it was noted.
    pub(super) fn first(&self) -> Option<ByteRange> {
        self.ranges.front().map(|(range, _)| *range)
    }

    /// Takes what is left of the next range, and its tries so far.
    pub(super) fn take_first(&mut self) -> (Vec<ByteRange>, u32) {
        let Some((range, tries)) = self.ranges.pop_front() else {
            return (Vec::new(), 0);
        };
        let left = self.left.overlaps_of(range).collect();
        self.left.remove(range);
        (left, tries)
    }
}
