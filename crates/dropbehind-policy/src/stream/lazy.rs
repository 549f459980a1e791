//! Ranges that the kernel is to write, which are counted now and then until they are clean
//! and can be dropped; also ranges that were requested and are still dirty.

use alloc::vec::Vec;

use crate::range::ByteRange;
use crate::range_set::RangeSet;

/// How often lazily written pages are counted. The kernel's own flusher wakes every five
/// seconds.
const COUNT_NS: u64 = 1_000_000_000;
/// The smallest piece in which lazily written pages are counted. A clean piece doubles the
/// next one, a dirty one halves it.
const PIECE_MIN_BYTES: u64 = 4 << 20;
/// The largest piece: a quarter of a million pages take some milliseconds.
const PIECE_MAX_BYTES: u64 = 1 << 30;
/// The most pieces counted each time: at 5 µs each, a third of a thousandth of a CPU.
const PIECES: u32 = 64;
/// If a caller waits, or a descriptor is held, the lazily written pages are given up after
/// this many looks that found none of them clean. The kernel writes what is 30 s old; this is
/// four times that.
const LOOKS: u32 = 120;
/// They are given up after this many looks in a row that found none of them under writeback, although we
/// had requested it. ext4 leaves pages marked dirty after a truncation has taken their blocks, and nothing
/// ever writes those.
const LOOKS_IN_VAIN: u32 = 3;

/// The lazily written ranges of one stream.
#[derive(Clone, Debug)]
pub(super) struct Lazy {
    ranges: RangeSet,
    /// Where the next piece starts.
    cursor: u64,
    piece_bytes: u64,
    /// Pieces counted since the last pause.
    pieces: u32,
    /// Looks at all ranges since one found something clean.
    looks: u32,
    /// The last looks in a row that found nothing under writeback, although we had requested it.
    looks_in_vain: u32,
    /// The current look is one of those, so far.
    in_vain: bool,
    next_count_ns: u64,
}

impl Lazy {
    pub(super) const fn new() -> Lazy {
        Lazy {
            ranges: RangeSet::new(),
            cursor: 0,
            piece_bytes: PIECE_MIN_BYTES,
            pieces: 0,
            looks: 0,
            looks_in_vain: 0,
            in_vain: true,
            next_count_ns: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.ranges.bytes()
    }

    /// The parts of `range` that are left to the kernel.
    pub(super) fn parts_of(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        self.ranges.overlaps_of(range)
    }

    /// Leaves `range` to the kernel to write.
    pub(super) fn leave(&mut self, now_ns: u64, range: ByteRange) {
        if !range.is_empty() {
            self.leave_again(now_ns, range);
            self.progressed();
        }
    }

    /// `range` was requested once more, and is still not clean.
    pub(super) fn leave_again(&mut self, now_ns: u64, range: ByteRange) {
        if self.ranges.is_empty() {
            self.next_count_ns = now_ns + COUNT_NS;
            self.pieces = 0;
        }
        self.ranges.insert(range);
    }

    /// Removes and returns the parts of `range` that are left to the kernel.
    pub(super) fn take_parts(&mut self, range: ByteRange) -> Vec<ByteRange> {
        let parts = self.ranges.overlaps_of(range).collect();
        self.ranges.remove(range);
        parts
    }

    /// Ranges that were requested once more are clean.
    pub(super) fn progressed(&mut self) {
        self.looks = 0;
        self.looks_in_vain = 0;
        self.in_vain = false;
    }

    /// We write `range` ourselves after all, or need not know when it is clean.
    pub(super) fn remove(&mut self, range: ByteRange) {
        self.ranges.remove(range);
    }

    /// Removes everything: nothing is left to the kernel any more.
    pub(super) fn take(&mut self) -> RangeSet {
        core::mem::take(&mut self.ranges)
    }

    /// Stops counting everything.
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// The program's fsync wrote it, so count at once.
    pub(super) fn synced(&mut self, now_ns: u64) {
        self.next_count_ns = now_ns;
        self.pieces = 0;
    }

    /// When to count the next piece, if there is any.
    pub(super) fn count_due_ns(&self) -> Option<u64> {
        (!self.ranges.is_empty()).then_some(self.next_count_ns)
    }

    /// Starts counting the next piece.
    pub(super) fn begin_count(&mut self, now_ns: u64) -> ByteRange {
        let piece = self.next_piece();
        self.cursor = piece.end;
        self.pieces += 1;
        let round_over = self.ranges.first_from(self.cursor).is_none();
        if round_over {
            self.cursor = 0;
            self.looks += 1;
            self.looks_in_vain = match core::mem::replace(&mut self.in_vain, true) {
                true => self.looks_in_vain + 1,
                false => 0,
            };
        }
        if round_over || self.pieces >= PIECES {
            self.pieces = 0;
            self.next_count_ns = now_ns + COUNT_NS;
        }
        piece
    }

    fn next_piece(&self) -> ByteRange {
        let range = self
            .ranges
            .first_from(self.cursor)
            .or_else(|| self.ranges.first())
            .unwrap_or_default();
        let start = if range.start <= self.cursor && self.cursor < range.end {
            self.cursor
        } else {
            range.start
        };
        // Across gaps, too: a count costs little where nothing is cached.
        let end = start.saturating_add(self.piece_bytes);
        ByteRange::new(start, end.min(self.ranges.span().end))
    }

    /// The whole piece is clean.
    pub(super) fn counted_clean(&mut self, piece: ByteRange) {
        if self.ranges.remove(piece) > 0 {
            self.progressed();
        }
        self.piece_bytes = (self.piece_bytes * 2).min(PIECE_MAX_BYTES);
    }

    /// Some of the piece is not clean. `in_vain`: we had requested it, and none of it is under writeback.
    pub(super) fn counted_dirty(&mut self, in_vain: bool) {
        self.in_vain &= in_vain;
        self.piece_bytes = (self.piece_bytes / 2).max(PIECE_MIN_BYTES);
    }

    /// Returns whether the kernel has had its time.
    pub(super) fn is_overdue(&self) -> bool {
        self.looks >= LOOKS || self.looks_in_vain >= LOOKS_IN_VAIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn mib(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start * MIB, end * MIB)
    }

    #[test]
    fn pieces_grow_while_they_are_clean() {
        let mut lazy = Lazy::new();
        lazy.leave(0, mib(1, 21));
        assert_eq!(lazy.count_due_ns(), Some(COUNT_NS));
        for piece in [mib(1, 5), mib(5, 13)] {
            assert_eq!(lazy.begin_count(COUNT_NS), piece);
            lazy.counted_clean(piece);
            assert_eq!(lazy.count_due_ns(), Some(COUNT_NS), "the next at once");
        }
        assert_eq!(lazy.begin_count(COUNT_NS), mib(13, 21), "no farther");
        lazy.counted_dirty(false);
        assert_eq!(lazy.count_due_ns(), Some(2 * COUNT_NS), "the round is over");
        assert_eq!(lazy.begin_count(2 * COUNT_NS), mib(13, 21));
        lazy.counted_clean(mib(13, 21));
        assert_eq!(lazy.count_due_ns(), None);
    }

    #[test]
    fn what_stays_dirty_is_overdue_in_the_end() {
        let mut lazy = Lazy::new();
        lazy.leave(0, mib(0, 1));
        for _ in 0..LOOKS {
            assert!(!lazy.is_overdue());
            lazy.begin_count(0);
            lazy.counted_dirty(false);
        }
        assert!(lazy.is_overdue());
        lazy.leave(0, mib(1, 2));
        assert!(!lazy.is_overdue(), "there is something new");
    }

    #[test]
    fn what_is_requested_and_never_on_its_way_is_overdue_soon() {
        let mut lazy = Lazy::new();
        lazy.leave(0, mib(0, 1));
        let mut look = |in_vain| {
            lazy.begin_count(0);
            lazy.counted_dirty(in_vain);
            lazy.is_overdue()
        };
        let looks = [true, true, false, true, true, true, true];
        let overdue = looks.map(&mut look);
        assert_eq!(overdue, [false, false, false, false, false, false, true]);
    }
}
