//! Where a file's readers are, as far as the page cache shows it.
//!
//! A sequential reader is never farther behind the end of its readahead than two readahead
//! windows: the kernel reads the next window when the reader reaches the start of the last
//! one (`page_cache_ra_order`, mm/readahead.c). So pages that appear where others just
//! appeared form a front that moves, and what lies far enough behind it has been read.

use alloc::vec::Vec;

use crate::range::ByteRange;
use crate::range_set::RangeSet;

/// At most this many readers of one file are told apart. Beyond that, the front that has
/// rested longest is given up, and its pages may be dropped.
const FRONTS: usize = 16;
/// A front that has not moved for this long belongs to a reader that has stopped or left. It
/// would have to read again what it has not read. We can only go by time: reads of cached
/// pages make no event (`mm_filemap_get_pages`, which would show them, is only in the newest
/// kernels).
const REST_NS: u64 = 5_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Front {
    end: u64,
    moved_ns: u64,
}

/// The fronts of one file, and the pages that appeared and may still be read.
#[derive(Clone, Debug)]
pub struct ReadFronts {
    lag_bytes: u64,
    fronts: Vec<Front>,
    /// Appeared, and not handed out as read yet.
    waiting: RangeSet,
}

impl ReadFronts {
    /// `lag_bytes` is how far a reader may be behind its front: two readahead windows.
    pub fn new(lag_bytes: u64) -> ReadFronts {
        ReadFronts {
            lag_bytes,
            fronts: Vec::new(),
            waiting: RangeSet::new(),
        }
    }

    /// Pages of `range` appeared in the cache.
    pub fn appeared(&mut self, now_ns: u64, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        self.waiting.insert(range);
        let lag_bytes = self.lag_bytes;
        // Behind its front by at most the lag, or ahead by as much: several windows may have
        // passed since the last look.
        let near = self.fronts.iter_mut().find(|front| {
            range.end + lag_bytes >= front.end && range.start <= front.end + lag_bytes
        });
        match near {
            Some(front) => {
                front.end = front.end.max(range.end);
                front.moved_ns = now_ns;
            }
            None => {
                if self.fronts.len() == FRONTS {
                    let rested = (0..FRONTS).min_by_key(|&at| self.fronts[at].moved_ns);
                    self.fronts.swap_remove(rested.unwrap_or(0));
                }
                self.fronts.push(Front {
                    end: range.end,
                    moved_ns: now_ns,
                });
            }
        }
    }

    /// Pages that appeared and that no reader is about to read. Hands out each once.
    pub fn passed(&mut self, now_ns: u64) -> Vec<ByteRange> {
        self.fronts
            .retain(|front| now_ns.saturating_sub(front.moved_ns) < REST_NS);
        let mut passed = self.waiting.clone();
        for front in &self.fronts {
            let about_to_read = ByteRange::new(front.end.saturating_sub(self.lag_bytes), front.end);
            passed.remove(about_to_read);
        }
        let passed: Vec<ByteRange> = passed.iter().collect();
        for &part in &passed {
            self.waiting.remove(part);
        }
        passed
    }

    /// Hands out all that appeared, when nobody reads any more.
    pub fn all(&mut self) -> Vec<ByteRange> {
        self.fronts.clear();
        let all = self.waiting.iter().collect();
        self.waiting.clear();
        all
    }

    /// The parts of `range` that have not appeared, or were already handed out.
    pub fn unseen(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        self.waiting.gaps_of(range)
    }

    /// `range` was written, or is gone.
    pub fn withdraw(&mut self, range: ByteRange) {
        self.waiting.remove(range);
    }

    /// Bytes that appeared and may still be read.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const LAG: u64 = 16 << 20;
    const WINDOW: u64 = 8 << 20;

    fn window(number: u64) -> ByteRange {
        ByteRange::new(number * WINDOW, (number + 1) * WINDOW)
    }

    #[test]
    fn what_lies_two_windows_behind_was_read() {
        let mut fronts = ReadFronts::new(LAG);
        fronts.appeared(0, window(0));
        fronts.appeared(1, window(1));
        assert_eq!(fronts.passed(1), vec![]);
        fronts.appeared(2, window(2));
        assert_eq!(fronts.passed(2), vec![window(0)]);
        assert_eq!(fronts.passed(2), vec![], "handed out once");
        assert_eq!(fronts.all(), vec![ByteRange::new(WINDOW, 3 * WINDOW)]);
        assert_eq!(fronts.waiting_bytes(), 0);
    }

    #[test]
    fn readers_in_two_places_are_two_fronts() {
        let mut fronts = ReadFronts::new(LAG);
        for number in [0, 100, 1, 101] {
            fronts.appeared(0, window(number));
        }
        assert_eq!(fronts.passed(0), vec![]);
        fronts.appeared(1, window(102));
        assert_eq!(fronts.passed(1), vec![window(100)]);
    }

    #[test]
    fn a_front_that_rests_is_given_up() {
        let mut fronts = ReadFronts::new(LAG);
        fronts.appeared(0, window(0));
        assert_eq!(fronts.passed(REST_NS - 1), vec![]);
        assert_eq!(fronts.passed(REST_NS), vec![window(0)]);
    }

    #[test]
    fn random_reads_do_not_pile_up() {
        let mut fronts = ReadFronts::new(LAG);
        for number in 0..1000 {
            fronts.appeared(number, window(number * 1000));
        }
        fronts.passed(1000);
        assert_eq!(fronts.waiting_bytes(), FRONTS as u64 * WINDOW);
    }
}
