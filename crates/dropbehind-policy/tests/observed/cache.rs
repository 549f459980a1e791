//! The simulated page cache: whose each page is, and what the kernel does to it.

use std::collections::VecDeque;
use std::ops::Range;

use dropbehind_policy::{ByteRange, Counted, Used};

pub(crate) const PAGE: u64 = 4096;

const CACHED: u8 = 1;
const DIRTY: u8 = 2;
const WRITEBACK: u8 = 4;
/// An observed program brought it in last.
const OURS: u8 = 8;
/// The record of the last time that it was brought in was lost.
const UNSEEN: u8 = 16;
/// The shell was told to let it stay.
const KEPT: u8 = 32;
/// Nobody was told of the last time that it was brought in.
const LOST: u8 = 64;
/// It was not worth a place on the shelf.
const UNWANTED: u8 = 128;

/// Read since it was brought in.
const ONCE: u8 = 1;
/// Read twice.
const AGAIN: u8 = 2;

/// Mapped, until that ends.
pub(crate) const MAPPED: u64 = u64::MAX - 1;
/// Mapped by an outsider, for good.
pub(crate) const FOR_GOOD: u64 = u64::MAX;

/// A file, and what the cache holds of it.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) size_pages: usize,
    pub(crate) unlinked: bool,
    pub(crate) dirty_since_ns: Option<u64>,
    flags: Vec<u8>,
    /// Which add brought the page in last.
    adds: Vec<u32>,
    uses: Vec<u8>,
    /// It cannot be dropped before.
    pinned_ns: Vec<u64>,
}

/// A page that a drop took out of the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gone {
    pub(crate) page: usize,
    pub(crate) add: u32,
    pub(crate) ours: bool,
    pub(crate) kept: bool,
    pub(crate) lost: bool,
}

pub(crate) fn bytes_of(pages: Range<usize>) -> ByteRange {
    ByteRange::new(pages.start as u64 * PAGE, pages.end as u64 * PAGE)
}

impl File {
    pub(crate) fn new(most_pages: usize) -> File {
        File {
            size_pages: 0,
            unlinked: false,
            dirty_since_ns: None,
            flags: vec![0; most_pages],
            adds: vec![0; most_pages],
            uses: vec![0; most_pages],
            pinned_ns: vec![0; most_pages],
        }
    }

    pub(crate) fn most_pages(&self) -> usize {
        self.flags.len()
    }

    fn pages_of(&self, range: ByteRange) -> Range<usize> {
        let most = self.flags.len() as u64;
        let first = (range.start / PAGE).min(most) as usize;
        let end = range.end.div_ceil(PAGE).min(most) as usize;
        first..end.max(first)
    }

    /// Brings in what is absent; answers which pages that were.
    pub(crate) fn bring(&mut self, pages: Range<usize>, ours: bool, add: u32) -> Vec<usize> {
        let absent: Vec<usize> = pages
            .filter(|page| self.flags[*page] & CACHED == 0)
            .collect();
        for &page in &absent {
            self.flags[page] = CACHED | if ours { OURS } else { 0 };
            self.adds[page] = add;
            self.uses[page] = 0;
            self.pinned_ns[page] = 0;
        }
        absent
    }

    /// Somebody reads these pages.
    pub(crate) fn read(&mut self, pages: Range<usize>) {
        for page in pages {
            self.uses[page] = match self.uses[page] {
                0 => ONCE,
                _ => ONCE | AGAIN,
            };
        }
    }

    /// What is known of the uses of these pages.
    pub(crate) fn used(&self, range: ByteRange) -> Used {
        let pages = self.uses[self.pages_of(range)].iter();
        let uses = pages.fold(0, |all, uses| all | uses);
        Used {
            once: uses & ONCE != 0,
            again: uses & AGAIN != 0,
            unknown: false,
        }
    }

    /// The record of an add was lost.
    pub(crate) fn lose_record(&mut self, range: ByteRange, add: u32) {
        self.flag(range, add, LOST | UNSEEN);
    }

    pub(crate) fn lose(&mut self, range: ByteRange, upto_add: u32) {
        self.flag(range, upto_add, LOST);
    }

    /// What was brought in up to this add is to stay.
    pub(crate) fn keep(&mut self, range: ByteRange, upto_add: u32) {
        self.flag(range, upto_add, KEPT);
    }

    /// What was brought in up to this add may stay.
    pub(crate) fn leave(&mut self, range: ByteRange, upto_add: u32) {
        self.flag(range, upto_add, UNWANTED);
    }

    fn flag(&mut self, range: ByteRange, upto_add: u32, flag: u8) {
        for page in self.pages_of(range) {
            if self.flags[page] & CACHED != 0 && self.adds[page] <= upto_add {
                self.flags[page] |= flag;
            }
        }
    }

    pub(crate) fn pin(&mut self, pages: Range<usize>, until_ns: u64) {
        for page in pages {
            if self.flags[page] & CACHED != 0 {
                self.pinned_ns[page] = self.pinned_ns[page].max(until_ns);
            }
        }
    }

    pub(crate) fn unpin(&mut self, pages: Range<usize>) {
        for page in pages {
            if self.pinned_ns[page] != FOR_GOOD {
                self.pinned_ns[page] = 0;
            }
        }
    }

    /// The pages of the range that no record shows to have been brought in since an add.
    pub(crate) fn unchanged_since(&self, range: ByteRange, add: u32) -> Vec<ByteRange> {
        let pages = self.pages_of(range);
        let pages = pages.filter(|page| !self.has_arrived(*page, add));
        pages.map(|page| bytes_of(page..page + 1)).collect()
    }

    /// Returns whether records show that something of the range has been brought in since an
    /// add.
    pub(crate) fn has_arrivals(&self, range: ByteRange, add: u32) -> bool {
        self.pages_of(range).any(|page| self.has_arrived(page, add))
    }

    fn has_arrived(&self, page: usize, add: u32) -> bool {
        self.flags[page] & (CACHED | UNSEEN) == CACHED && self.adds[page] > add
    }

    /// Somebody has a cached page of the range mapped.
    pub(crate) fn is_mapped(&self, range: ByteRange) -> bool {
        self.pages_of(range)
            .any(|page| self.flags[page] & CACHED != 0 && self.pinned_ns[page] >= MAPPED)
    }

    pub(crate) fn dirty(&mut self, now_ns: u64, pages: Range<usize>) {
        self.size_pages = self.size_pages.max(pages.end);
        for page in pages {
            assert!(self.flags[page] & CACHED != 0);
            self.flags[page] |= DIRTY;
        }
        self.dirty_since_ns.get_or_insert(now_ns);
    }

    /// Starts writeback of what is dirty, and queues it.
    pub(crate) fn start_writeback(
        &mut self,
        number: usize,
        range: ByteRange,
        queue: &mut VecDeque<(usize, Range<usize>)>,
    ) {
        let pages = self.pages_of(range);
        let mut run: Option<Range<usize>> = None;
        for page in pages {
            if self.flags[page] & (DIRTY | WRITEBACK) != DIRTY {
                continue;
            }
            self.flags[page] = self.flags[page] & !DIRTY | WRITEBACK;
            match &mut run {
                Some(run) if run.end == page => run.end += 1,
                _ => {
                    queue.extend(run.replace(page..page + 1).map(|run| (number, run)));
                }
            }
        }
        queue.extend(run.map(|run| (number, run)));
        if self.flags.iter().all(|flags| flags & DIRTY == 0) {
            self.dirty_since_ns = None;
        }
    }

    pub(crate) fn end_writeback(&mut self, pages: Range<usize>) {
        for page in pages {
            self.flags[page] &= !WRITEBACK;
        }
    }

    /// Takes out what is clean and not pinned; answers what is gone.
    pub(crate) fn drop_clean(&mut self, now_ns: u64, range: ByteRange) -> Vec<Gone> {
        let mut gone = Vec::new();
        for page in self.pages_of(range) {
            let flags = self.flags[page];
            let held = flags & (CACHED | DIRTY | WRITEBACK) != CACHED;
            if held || self.pinned_ns[page] > now_ns {
                continue;
            }
            gone.push(Gone {
                page,
                add: self.adds[page],
                ours: flags & OURS != 0,
                kept: flags & KEPT != 0,
                lost: flags & LOST != 0,
            });
            self.evict(page);
        }
        gone
    }

    fn evict(&mut self, page: usize) {
        let flags = self.flags[page];
        assert!(
            flags & (DIRTY | WRITEBACK) == 0,
            "page {page} goes before it is on the disk"
        );
        self.flags[page] = 0;
    }

    /// Takes out everything from a page on, written or not.
    pub(crate) fn truncate(&mut self, size_pages: usize) {
        for page in size_pages..self.flags.len() {
            self.flags[page] = 0;
        }
        self.size_pages = self.size_pages.min(size_pages);
    }

    pub(crate) fn count(&self, range: ByteRange) -> Counted {
        let flags = &self.flags[self.pages_of(range)];
        let having = |bit: u8| {
            flags
                .iter()
                .map(|flags| u64::from(flags & bit != 0))
                .sum::<u64>()
        };
        Counted {
            cached_bytes: having(CACHED) * PAGE,
            dirty_bytes: having(DIRTY) * PAGE,
            writeback_bytes: having(WRITEBACK) * PAGE,
        }
    }

    /// Cached pages of ours of which all was told, and that were not to stay.
    pub(crate) fn forgotten_pages(&self) -> Vec<usize> {
        let page_is = |page: &usize| {
            let flags = self.flags[*page];
            flags & (CACHED | OURS) == CACHED | OURS && flags & (LOST | KEPT | UNWANTED) == 0
        };
        (0..self.flags.len()).filter(page_is).collect()
    }

    /// How many cached pages of ours were to stay.
    pub(crate) fn reused_pages(&self) -> u64 {
        let wanted = CACHED | OURS | KEPT;
        let flags = self.flags.iter();
        flags
            .filter(|&&flags| flags & (wanted | LOST) == wanted)
            .count() as u64
    }

    pub(crate) fn describe(&self, page: usize) -> String {
        format!(
            "flags {:#x}, add {}, pinned until {}",
            self.flags[page], self.adds[page], self.pinned_ns[page]
        )
    }
}
