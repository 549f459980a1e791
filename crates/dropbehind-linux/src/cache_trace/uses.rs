//! Uses of cached pages: the tracepoints `filemap:mm_filemap_get_pages` and
//! `mm_filemap_map_pages`, which newer kernels have.
//!
//! There are as many uses as there are calls of read(2) on the whole machine, so nobody could
//! read a record of each. Instead, programs in the kernel keep a table in memory that we map. It
//! has the blocks of 64 pages that entered the cache last, and of each page, whether it was used
//! since then, and whether it was used again.
//!
//! A reader that reads a page in several small pieces uses it once: what the last use of a
//! block had already does not count as another, if it was the same thread's, nor does the page where
//! another thread goes on. What is mapped makes no event after the first, and cannot be dropped
//! meanwhile. `mm_filemap_fault` comes before the page does, and is not needed: what a fault can map
//! at once, it does (fault-around). A fault that writes makes no event that counts.

mod program;

use super::event::{Event, Recorded};
use super::format::{Field, Format};
use super::{CacheTraceError, KernelInode, TRACEPOINT, processors, tracefs};
use crate::bpf::{ArrayMap, Program, ProgramKind};
use crate::deferred_close::close_deferred;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

/// Pages of a block: one for each bit.
const BLOCK_PAGES: u64 = 64;
const BLOCK_SHIFT: i32 = 6;
/// The table's sets, which have an entry for each of several blocks: 5 MiB, for 131,072 blocks, or
/// 32 GiB of large files.
const SETS: usize = 1 << 15;
const SET_SHIFT: i32 = 30;
const SET_MASK: i32 = SETS as i32 - 1;
/// Blocks of a set. After 16,384 others entered, a block is not in the table any more in 0.2
/// percent of all cases. With two blocks a set, and as much memory, that would be 2.6.
const WAYS: usize = 4;
const WORD_BYTES: usize = 8;
const FIELD_BYTES: usize = WAYS * WORD_BYTES;

// A set has the first word of each entry, then the second of each, and so on. So a block that is
// not in the table costs a look at one cache line, or two.
/// Which block it is.
const TAG: usize = 0;
/// Which of its pages were used since they entered the cache.
const USED: usize = FIELD_BYTES;
/// Which of them were used again.
const AGAIN: usize = 2 * FIELD_BYTES;
/// The pages of the last use, and the thread that used them (32 bits).
const LAST: usize = 3 * FIELD_BYTES;
const USER: usize = 4 * FIELD_BYTES;
/// The order of the folio that entered the cache last, in the upper half of the same word.
const ORDER: usize = USER + WORD_BYTES / 2;
const SET_BYTES: usize = 5 * FIELD_BYTES;

/// A folio has at most this many blocks that count (2 MiB), and a single use, too. A longer read
/// makes several events.
const BLOCKS: usize = 8;

// Factors of the hash; odd, so that no two blocks of a file have the same.
const INODE_FACTOR: i32 = 0x5851_F42D;
const MIX_SHIFT: i32 = 29;
const MIX_FACTOR: i32 = 0x4C95_7F2D;

const READS: &str = "filemap/mm_filemap_get_pages";
const MAPS: &str = "filemap/mm_filemap_map_pages";

/// What is known of the uses of some pages since they entered the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageUses {
    /// Some page was used.
    pub once: bool,
    /// Some page was used at two different times.
    pub again: bool,
    /// The table had no room for the uses of some page.
    pub unknown: bool,
}

/// Where a use's record has its pages.
#[derive(Clone, Copy, Debug)]
struct UseFormat {
    inode: Field,
    device: Field,
    first: Field,
    last: Field,
}

/// The table, and the programs that fill it.
#[derive(Debug)]
pub struct CacheUses {
    table: ArrayMap,
    /// Each runs a program on all processors while it is open.
    events: Vec<Event>,
}

impl CacheUses {
    /// Notes uses on the whole machine from now on. The table is locked memory.
    ///
    /// # Errors
    ///
    /// Those of [`CacheTrace::open`](super::CacheTrace::open);
    /// [`CacheTraceError::NoTracepoint`] also where the kernel does not report reads.
    pub fn open() -> Result<Self, CacheTraceError> {
        let failed = |error| CacheTraceError::of("the program in the kernel", error);
        if cfg!(not(all(
            target_endian = "little",
            target_pointer_width = "64"
        ))) {
            let why = "it needs a 64-bit little-endian machine";
            return Err(failed(io::Error::new(io::ErrorKind::Unsupported, why)));
        }
        // A kernel without these may refuse the programs, too, as if they took a privilege.
        let arrivals = tracefs::tracepoint(TRACEPOINT)?;
        let uses = [tracefs::tracepoint(READS)?, tracefs::tracepoint(MAPS)?];
        let table = ArrayMap::new(SETS, SET_BYTES).map_err(failed)?;
        let first = *processors::online()
            .map_err(failed)?
            .first()
            .ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let run = |tracepoint, instructions: &[u64]| -> io::Result<Event> {
            let program = Program::load(ProgramKind::Tracepoint, instructions)?;
            let event = Event::open(Recorded::Tracepoint(tracepoint), first, 0)?;
            event.run(program.as_fd())?;
            Ok(event)
        };
        let mut events = Vec::new();
        let (tracepoint, text) = arrivals;
        let format = Format::parse(&text, false)?;
        // Before uses are noted, so that none is noted of a page that came later.
        let arrivals = program::of_arrivals(&format, table.as_fd());
        events.push(run(tracepoint, &arrivals).map_err(failed)?);
        for (tracepoint, text) in uses {
            let field = |name| Field::find(&text, name);
            let format = UseFormat {
                inode: field("i_ino")?,
                device: field("s_dev")?,
                first: field("index")?,
                last: field("last_index")?,
            };
            let uses = program::of_uses(format, table.as_fd());
            events.push(run(tracepoint, &uses).map_err(failed)?);
        }
        Ok(Self { table, events })
    }

    /// What is known of the uses of these pages since each of them entered the cache. Of pages
    /// that entered too long ago, nothing is known.
    #[must_use]
    pub fn of(&self, inode: KernelInode, first_page: u64, pages: u64) -> PageUses {
        let mut uses = PageUses::default();
        let end = first_page.saturating_add(pages);
        let mut at = first_page;
        while at < end {
            let next = (at - at % BLOCK_PAGES).saturating_add(BLOCK_PAGES).min(end);
            let found = self.of_block(inode, at / BLOCK_PAGES);
            uses.unknown |= found.is_none();
            let (used, again) = found.unwrap_or((0, 0));
            let wanted = (u64::MAX << (at % BLOCK_PAGES))
                & (u64::MAX >> (BLOCK_PAGES - 1 - (next - 1) % BLOCK_PAGES));
            uses.once |= used & wanted != 0;
            uses.again |= again & wanted != 0;
            at = next;
        }
        uses
    }

    /// Extends a range to the folios in which its pages entered the cache, as far as they are
    /// longer than 64 pages. The kernel drops a folio as a whole.
    #[must_use]
    pub fn folios_of(&self, inode: KernelInode, first_page: u64, pages: u64) -> (u64, u64) {
        let last_page = first_page + pages.max(1) - 1;
        let around = |page: u64| {
            let found = self.find(inode, page / BLOCK_PAGES);
            let order = found.map_or(0, |(set, entry)| self.word(set, entry, USER) >> 32);
            // A folio is aligned to its size.
            let folio_pages = 1_u64.checked_shl(order as u32).unwrap_or(1);
            let start = page - page % folio_pages;
            match folio_pages > BLOCK_PAGES {
                true => (start, start + folio_pages),
                false => (page, page + 1),
            }
        };
        let (start, end) = (around(first_page).0, around(last_page).1);
        (start, end - start)
    }

    fn of_block(&self, inode: KernelInode, block: u64) -> Option<(u64, u64)> {
        let (set, entry) = self.find(inode, block)?;
        Some((self.word(set, entry, USED), self.word(set, entry, AGAIN)))
    }

    /// The set of a block, and its place there.
    fn find(&self, inode: KernelInode, block: u64) -> Option<(usize, usize)> {
        let tag = tag_of(inode, block);
        let set = set_of(tag);
        let entry = (0..WAYS).find(|&entry| self.word(set, entry, TAG) == tag)?;
        Some((set, entry))
    }

    fn word(&self, set: usize, entry: usize, field: usize) -> u64 {
        let place = entry * WORD_BYTES + field;
        self.table.word(set, place).load(Relaxed)
    }
}

impl Drop for CacheUses {
    fn drop(&mut self) {
        close_deferred(self.events.drain(..).map(Event::into).collect());
    }
}

/// As the programs compute it. Blocks that follow one another are in different sets, since these
/// are the bits at which the last factor begins.
fn set_of(tag: u64) -> usize {
    (tag >> SET_SHIFT) as usize & SET_MASK as usize
}

/// As the programs compute it.
fn tag_of(inode: KernelInode, block: u64) -> u64 {
    let factor = |factor: i32| i64::from(factor).cast_unsigned();
    let file = inode.number.wrapping_mul(factor(INODE_FACTOR)) ^ u64::from(inode.device) << 32;
    let mixed = file ^ block;
    (mixed ^ mixed >> MIX_SHIFT).wrapping_mul(factor(MIX_FACTOR))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KernelDevices, drop_clean, page_size};
    use dropbehind_testbed::{Need, need};
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    const PAGES: u64 = 300;

    fn uses() -> Option<CacheUses> {
        match CacheUses::open() {
            Ok(uses) => Some(uses),
            Err(CacheTraceError::NoTracepoint(error)) => {
                eprintln!("SKIPPED: this kernel does not report uses: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// A file that was just written, and its inode.
    fn written() -> (File, KernelInode) {
        let mut file = tempfile::tempfile_in(".").unwrap();
        let bytes = vec![1; (PAGES * page_size()) as usize];
        file.write_all(&bytes).unwrap();
        let inode = KernelDevices::new().inode_of(file.as_fd()).unwrap();
        (file, inode)
    }

    fn read(file: &File, page: u64, pages: u64) {
        let mut buffer = vec![0; (pages * page_size()) as usize];
        file.read_exact_at(&mut buffer, page * page_size()).unwrap();
    }

    const UNUSED: PageUses = PageUses {
        once: false,
        again: false,
        unknown: false,
    };
    const ONCE: PageUses = PageUses {
        once: true,
        again: false,
        unknown: false,
    };
    const AGAIN: PageUses = PageUses {
        once: true,
        again: true,
        unknown: false,
    };

    #[test]
    fn what_was_written_is_unused_until_it_is_read() {
        need!(Need::Root);
        let Some(uses) = uses() else { return };
        let (file, inode) = written();
        assert_eq!(uses.of(inode, 0, PAGES), UNUSED);
        read(&file, 100, 1);
        assert_eq!(uses.of(inode, 0, 100), UNUSED);
        assert_eq!(uses.of(inode, 100, 1), ONCE);
        assert_eq!(uses.of(inode, 101, PAGES - 101), UNUSED);
        // In pieces.
        for _ in 0..3 {
            read(&file, 100, 1);
        }
        assert_eq!(uses.of(inode, 100, 1), ONCE);
        read(&file, 99, 1);
        read(&file, 100, 1);
        assert_eq!(uses.of(inode, 100, 1), AGAIN);
        assert_eq!(uses.of(inode, 99, 1), ONCE);
        // By two programs, as one thread after the other.
        for expected in [ONCE, AGAIN] {
            std::thread::scope(|scope| scope.spawn(|| read(&file, 200, 1)).join()).unwrap();
            assert_eq!(uses.of(inode, 200, 1), expected);
        }
    }

    #[test]
    fn what_a_reader_passes_was_used_once_and_by_the_next_one_again() {
        need!(Need::Root);
        let Some(uses) = uses() else { return };
        let (file, inode) = written();
        file.sync_all().unwrap();
        for (piece_pages, dropped) in [(1, true), (25, true), (100, true), (300, true)] {
            if dropped {
                drop_clean(file.as_fd(), 0, 0).unwrap();
            }
            for expected in [ONCE, AGAIN] {
                for page in (0..PAGES).step_by(piece_pages as usize) {
                    read(&file, page, piece_pages);
                    let passed = uses.of(inode, page, piece_pages);
                    assert_eq!(passed, expected, "{piece_pages} {page}");
                }
            }
        }
    }

    /// Go's programs change the thread by themselves.
    #[test]
    fn a_page_that_two_threads_share_in_passing_was_used_once() {
        need!(Need::Root);
        let Some(uses) = uses() else { return };
        let (file, inode) = written();
        let half = page_size() / 2;
        for piece in (0..PAGES - 4).step_by(3) {
            let mut buffer = vec![0; (3 * page_size()) as usize];
            let offset = piece * page_size() + half;
            let read = || file.read_exact_at(&mut buffer, offset).unwrap();
            std::thread::scope(|scope| scope.spawn(read).join()).unwrap();
        }
        assert_eq!(uses.of(inode, 0, PAGES), ONCE);
        std::thread::scope(|scope| scope.spawn(|| read(&file, 10, 3)).join()).unwrap();
        assert_eq!(uses.of(inode, 10, 3), AGAIN);
    }

    #[test]
    fn what_is_mapped_again_was_used_again() {
        need!(Need::Root);
        let Some(uses) = uses() else { return };
        let (file, inode) = written();
        file.sync_all().unwrap();
        drop_clean(file.as_fd(), 0, 0).unwrap();
        let bytes = (PAGES * page_size()) as usize;
        for expected in [ONCE, AGAIN] {
            let protection = rustix::mm::ProtFlags::READ;
            let mapping = crate::mapping::Mapping::new(file.as_fd(), 0, bytes, protection).unwrap();
            for page in 0..PAGES {
                mapping.word((page * page_size()) as usize).load(Relaxed);
            }
            drop(mapping);
            assert_eq!(uses.of(inode, 0, PAGES), expected);
        }
    }

    /// A compiler brings in as many small files while one of them waits.
    #[test]
    fn uses_are_known_after_many_other_blocks_came() {
        need!(Need::Root);
        let Some(uses) = uses() else { return };
        let file = tempfile::tempfile_in(".").unwrap();
        let inode = KernelDevices::new().inode_of(file.as_fd()).unwrap();
        let page = vec![1; page_size() as usize];
        // Blocks that follow one another are in different sets, and those of many files are not.
        let offset = |number: u64| (number * 2_654_435_761 % (1 << 25)) * BLOCK_PAGES * page_size();
        let first_blocks = 2_000;
        for number in 0..first_blocks + (1 << 14) {
            file.write_all_at(&page, offset(number)).unwrap();
            if number < first_blocks {
                read(&file, offset(number) / page_size(), 1);
            }
        }
        let known = |number: &u64| uses.of(inode, offset(*number) / page_size(), 1) == ONCE;
        let known = (0..first_blocks).filter(known).count();
        assert!(known > 1_980, "{known} of {first_blocks}");
    }

    /// The kernel drops a folio as a whole or not at all, which shows where it ends.
    #[test]
    fn a_large_folio_is_known() {
        need!(Need::Root, Need::Cachestat);
        let Some(uses) = uses() else { return };
        let mut file = tempfile::tempfile_in(".").unwrap();
        let bytes = 4 << 20;
        file.write_all(&vec![1; bytes as usize]).unwrap();
        file.sync_all().unwrap();
        let inode = KernelDevices::new().inode_of(file.as_fd()).unwrap();
        let page = bytes / 2 / page_size();
        let (first, pages) = uses.folios_of(inode, page, 1);
        if pages == 1 {
            eprintln!("SKIPPED: no large folios on this file system");
            return;
        }
        assert!(first <= page && page < first + pages, "{first} {pages}");
        let (start, end) = (first * page_size(), (first + pages) * page_size());
        let cached = |offset, length| crate::cached_pages(file.as_fd(), offset, length).unwrap();
        drop_clean(file.as_fd(), start, (end - start) / 2).unwrap();
        assert_eq!(cached(start, end - start), pages, "it was dropped in part");
        drop_clean(file.as_fd(), 0, start).unwrap();
        drop_clean(file.as_fd(), end, 0).unwrap();
        assert_eq!(cached(0, 0), pages, "there is more of it");
    }

    #[test]
    fn tags_tell_blocks_apart() {
        let mut tags = std::collections::HashSet::new();
        for device in [1, 254 << 20 | 1] {
            for number in (0..200).chain(1 << 32..(1 << 32) + 200) {
                for block in 0..200 {
                    tags.insert(tag_of(KernelInode { device, number }, block));
                }
            }
        }
        assert_eq!(tags.len(), 2 * 400 * 200);
        let mut sets = vec![0_u32; SETS];
        tags.iter().for_each(|tag| sets[set_of(*tag)] += 1);
        // On average, there are 4.9 in a set.
        assert!(sets.iter().max().unwrap() < &24, "{:?}", sets.iter().max());
    }
}
