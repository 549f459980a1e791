//! A queue of pages of many files, the oldest first.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::range::ByteRange;

/// Pages travel in aligned pieces of this length: what is near each other is used together.
pub const PIECE_BYTES: u64 = PAGES * PAGE_BYTES;
/// A bit for each.
const PAGES: u64 = 64;
/// The smallest page of any system.
const PAGE_BYTES: u64 = 4096;

/// Some pages of a piece.
#[derive(Clone, Copy, Debug)]
struct Piece {
    place: u64,
    pages: u64,
}

/// Pieces in the order in which something of them was first added, or last moved to the end.
#[derive(Clone, Debug)]
pub struct RangeQueue<K> {
    /// By file, and number within the file. None is empty.
    pieces: BTreeMap<(K, u64), Piece>,
    places: BTreeMap<u64, (K, u64)>,
    last_place: u64,
    bytes: u64,
}

impl<K> Default for RangeQueue<K> {
    fn default() -> RangeQueue<K> {
        RangeQueue {
            pieces: BTreeMap::new(),
            places: BTreeMap::new(),
            last_place: 0,
            bytes: 0,
        }
    }
}

impl<K> RangeQueue<K> {
    /// Bytes in the queue.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Pieces in the queue.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }
}

impl<K: Copy + Ord> RangeQueue<K> {
    /// Returns whether something of this file is in the queue.
    pub fn has(&self, key: K) -> bool {
        self.pieces
            .range((key, 0)..=(key, u64::MAX))
            .next()
            .is_some()
    }

    /// The parts of a range, in whole pages, that are in the queue.
    pub fn parts_of(&self, key: K, range: ByteRange) -> Vec<ByteRange> {
        let mut parts = Vec::new();
        if range.is_empty() {
            return parts;
        }
        let last = (range.end - 1) / PIECE_BYTES;
        let pieces = self
            .pieces
            .range((key, range.start / PIECE_BYTES)..=(key, last));
        for (&(_, number), piece) in pieces {
            add_parts(&mut parts, number, piece.pages & mask(range, number));
        }
        parts
    }

    /// Adds a range, in whole pages. All that the queue has of its pieces moves to the end.
    pub fn add_last(&mut self, key: K, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        self.add(key, range);
        let pieces = self
            .pieces
            .range_mut((key, range.start / PIECE_BYTES)..(key, range.end.div_ceil(PIECE_BYTES)));
        for (&piece_key, piece) in pieces {
            self.places.remove(&piece.place);
            self.last_place += 1;
            piece.place = self.last_place;
            self.places.insert(piece.place, piece_key);
        }
    }

    /// Adds what of the range, in whole pages, is not in the queue yet.
    pub fn add(&mut self, key: K, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        for number in range.start / PIECE_BYTES..=(range.end - 1) / PIECE_BYTES {
            let pages = mask(range, number);
            let piece = self.pieces.entry((key, number)).or_insert_with(|| {
                self.last_place += 1;
                self.places.insert(self.last_place, (key, number));
                Piece {
                    place: self.last_place,
                    pages: 0,
                }
            });
            self.bytes += bytes_of(pages & !piece.pages);
            piece.pages |= pages;
        }
    }

    /// Removes a range of a file. Returns the parts of it that were in the queue.
    pub fn remove(&mut self, key: K, range: ByteRange) -> Vec<ByteRange> {
        let parts = self.parts_of(key, range);
        for part in &parts {
            for number in part.start / PIECE_BYTES..=(part.end - 1) / PIECE_BYTES {
                let Some(piece) = self.pieces.get_mut(&(key, number)) else {
                    continue;
                };
                let gone = piece.pages & mask(*part, number);
                piece.pages &= !gone;
                self.bytes -= bytes_of(gone);
                if piece.pages == 0 {
                    self.places.remove(&piece.place);
                    self.pieces.remove(&(key, number));
                }
            }
        }
        parts
    }

    /// Takes out the oldest piece: what is there of it.
    pub fn take_oldest(&mut self) -> Option<(K, Vec<ByteRange>)> {
        let (_, (key, number)) = self.places.pop_first()?;
        let piece = self.pieces.remove(&(key, number))?;
        self.bytes -= bytes_of(piece.pages);
        let mut parts = Vec::new();
        add_parts(&mut parts, number, piece.pages);
        Some((key, parts))
    }
}

fn bytes_of(pages: u64) -> u64 {
    u64::from(pages.count_ones()) * PAGE_BYTES
}

/// The pages of a piece that are in a range.
fn mask(range: ByteRange, number: u64) -> u64 {
    let piece = ByteRange::new(
        number * PIECE_BYTES,
        (number + 1).saturating_mul(PIECE_BYTES),
    );
    let inside = range.intersection(piece);
    if inside.is_empty() {
        return 0;
    }
    let first = (inside.start - piece.start) / PAGE_BYTES;
    let end = (inside.end - piece.start).div_ceil(PAGE_BYTES);
    let below = |page: u64| {
        if page >= PAGES {
            u64::MAX
        } else {
            (1 << page) - 1
        }
    };
    below(end) & !below(first)
}

/// Adds the ranges of some pages of a piece; adjacent ones become one.
fn add_parts(parts: &mut Vec<ByteRange>, number: u64, mut pages: u64) {
    let mut at = number * PIECE_BYTES;
    while pages != 0 {
        let gap = pages.trailing_zeros();
        pages >>= gap;
        at += u64::from(gap) * PAGE_BYTES;
        let run = pages.trailing_ones();
        let part = ByteRange::new(at, at.saturating_add(u64::from(run) * PAGE_BYTES));
        match parts.last_mut() {
            Some(last) if last.end == part.start => last.end = part.end,
            _ => parts.push(part),
        }
        at = part.end;
        pages = pages.checked_shr(run).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range_set::RangeSet;
    use alloc::vec;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start << 12, end << 12)
    }

    #[test]
    fn the_oldest_comes_out_first_and_once() {
        let mut queue = RangeQueue::default();
        queue.add(1, range(0, 10));
        queue.add(1, range(10, 100));
        queue.add(2, range(5, 6));
        queue.add(1, range(0, 4));
        assert_eq!(queue.bytes(), 101 << 12);
        assert_eq!(queue.parts_of(1, range(60, 200)), [range(60, 100)]);
        assert_eq!(queue.remove(1, range(2, 3)), [range(2, 3)]);
        assert_eq!(queue.remove(3, range(2, 3)), []);
        let parts = vec![range(0, 2), range(3, 64)];
        assert_eq!(queue.take_oldest(), Some((1, parts)), "a piece at most");
        assert_eq!(queue.take_oldest(), Some((1, vec![range(64, 100)])));
        assert!(!queue.has(1) && queue.has(2));
        assert_eq!(queue.take_oldest(), Some((2, vec![range(5, 6)])));
        assert_eq!((queue.take_oldest(), queue.bytes()), (None, 0));
    }

    #[test]
    fn what_is_added_last_comes_out_last() {
        let mut queue = RangeQueue::default();
        queue.add(1, range(0, 100));
        queue.add(2, range(0, 1));
        queue.add_last(1, range(3, 70));
        queue.add_last(1, range(0, 1));
        queue.add_last(1, range(70, 70));
        assert_eq!(queue.take_oldest(), Some((2, vec![range(0, 1)])));
        assert_eq!(queue.take_oldest(), Some((1, vec![range(64, 100)])));
        assert_eq!(queue.take_oldest(), Some((1, vec![range(0, 64)])));
        assert_eq!((queue.take_oldest(), queue.bytes()), (None, 0));
    }

    #[test]
    fn it_holds_what_a_set_of_ranges_would() {
        let mut queue = RangeQueue::default();
        let mut set = RangeSet::new();
        let mut random = 7_u64;
        let mut below = |most: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
            (random >> 33) % most
        };
        for _ in 0..2000 {
            let start = below(300);
            let range = range(start, start + 1 + below(90));
            if below(2) == 0 {
                match below(2) {
                    0 => queue.add(1, range),
                    _ => queue.add_last(1, range),
                }
                set.insert(range);
            } else {
                let expected: Vec<ByteRange> = set.overlaps_of(range).collect();
                assert_eq!(queue.remove(1, range), expected);
                set.remove(range);
            }
            assert_eq!(queue.bytes(), set.bytes());
            assert_eq!(queue.places.len(), queue.pieces.len());
        }
        let all: Vec<ByteRange> = set.iter().collect();
        assert_eq!(queue.parts_of(1, ByteRange::WHOLE), all);
        assert_eq!(queue.remove(1, ByteRange::WHOLE), all);
        assert_eq!(queue.pieces(), 0);
    }

    #[test]
    fn the_last_page_of_all_can_wait() {
        let mut queue = RangeQueue::default();
        queue.add(1, ByteRange::new(u64::MAX - 4096, u64::MAX));
        assert_eq!(queue.pieces(), 1);
        queue.remove(1, ByteRange::WHOLE);
        assert_eq!((queue.pieces(), queue.bytes()), (0, 0));
    }
}
