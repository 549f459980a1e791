//! Which pages are used once, and which again: the mode `auto`.
//!
//! ```text
//!            learned: used again                 used again
//!  arrives ─┬──────────────────▶ kept ◀──────────────────┐
//!           │                                            │
//!           ├─▶ probation (first in, first out) ── oldest, beyond the capacity
//!           │      ▲                                     │
//!           │      └── comes back ── ghosts ◀── dropped ─┘ used once
//!           │                          ▲
//!           └──────────────────────────┘
//!            a stream longer than the probation
//! ```
//!
//! The probation is the small queue of 2Q and S3-FIFO, and what is kept is the kernel's: its
//! own lists are the main queue. The ghosts are ranges of files whose pages were dropped, back to
//! the moment since which as much was dropped as memory could have held: a page that comes back
//! later would not be there without us, either (the kernel's refault distance, mm/workingset.c).
//! What stayed is a ghost, too, and remembered as long: if it comes back, the kernel evicted it for something else,
//! and it has shown before that it is used again. With each new ghost, those of the same 256 KiB and
//! fate become the youngest: they are likely still used.
//!
//! A page that was written is used again by its first read. A page that a read brought in is
//! used once by that read, and again by the next.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::lessons::{Lessons, Subject};
use crate::observed_files::{FileNumber, Inode};
use crate::queue_length::{MEMORY_SHARE, QueueLength};
use crate::range::ByteRange;
use crate::range_list::gaps_between;
use crate::range_queue::{PIECE_BYTES, RangeQueue};
use crate::range_set::RangeSet;

/// The most pieces that wait: a file that waits takes up to 3 KB of ours.
const PIECES: usize = 1 << 14;
/// The most pieces that ghosts have: some 16 MB.
const GHOST_PIECES: usize = 1 << 17;
/// While nothing waits and ghosts only serve to count, they take some 0.5 MB for small files:
/// more pieces than this only if they have so many bytes on average.
const COUNTING_PIECES: usize = 1 << 12;
const COUNTING_PIECE_BYTES: u64 = 64 << 10;
/// If the kernel keeps so many quarters of 256 KiB, the rest stays after one use. So a scan adds at
/// most a third to what others use of a file. Other shares were not tried.
const KEPT_QUARTERS: u64 = 3;

/// What is known of the uses of some pages since they entered the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Some page was used.
    pub once: bool,
    /// Some page was used at two different times.
    pub again: bool,
    /// Nobody knows of some page: so many others entered the cache since.
    pub unknown: bool,
}

/// Pages around some that wait, and how many of their bytes the kernel must have kept for those
/// to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// Includes those that wait.
    pub range: ByteRange,
    /// Those that wait count.
    pub kept_bytes: u64,
}

/// What becomes of pages that enter the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// They wait for what becomes of them.
    Waits,
    /// They stay.
    Stays,
    /// They are dropped once they are clean.
    Goes,
}

/// A file for ghosts, which outlive its [number](FileNumber): its inode, and when that was made,
/// since the next file may get the same inode.
pub type Past = (Inode, u64);

/// What became of pages when they were decided about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ghost {
    Dropped,
    /// If it comes back, the kernel has evicted it.
    Stayed,
}

/// What is known of a file.
#[derive(Clone, Debug, Default)]
struct Tried {
    past: Option<Past>,
    /// What first enters the cache from here on was written.
    written_from: u64,
    /// Whom there is to learn about.
    subjects: [Option<Subject>; 2],
    /// Bytes that entered since something was used again.
    once_bytes: u64,
    /// Bytes that stayed since then, as they were expected to be used again.
    trusted_bytes: u64,
    /// Of what waits: came back after we dropped it.
    dropped: RangeSet,
    /// Of what waits: came back after it was dropped.
    back: RangeSet,
    /// The subjects have learned that something of it was used once, or again.
    told_once: bool,
    told_again: bool,
}

/// The probation and what goes with it.
#[derive(Clone, Debug)]
pub struct Reuse {
    length: QueueLength,
    memory_bytes: u64,
    /// Whether pages were to stay if they are used again.
    has_tried: bool,
    files: BTreeMap<FileNumber, Tried>,
    probation: RangeQueue<FileNumber>,
    /// As far back as memory could have held them.
    ghosts: RangeQueue<(Past, Ghost)>,
    lessons: Lessons,
}

impl Default for Reuse {
    /// Nothing waits. Until [`Reuse::set_memory`], memory is taken not to be scarce.
    fn default() -> Reuse {
        Reuse {
            length: QueueLength::new(),
            memory_bytes: QueueLength::new().bytes() * MEMORY_SHARE,
            has_tried: false,
            files: BTreeMap::new(),
            probation: RangeQueue::default(),
            ghosts: RangeQueue::default(),
            lessons: Lessons::default(),
        }
    }
}

impl Reuse {
    /// Sets how many bytes of memory are available for files: of the machine, and within the limit of
    /// the programs' memory cgroup, if there is one.
    pub fn set_memory(&mut self, machine_bytes: u64, group_bytes: Option<u64>) {
        self.memory_bytes = group_bytes.map_or(machine_bytes, |bytes| bytes.min(machine_bytes));
        self.length.set_memory(machine_bytes, group_bytes);
    }

    /// A file is known from now on. What enters the cache of it from `written_from` on was
    /// written, unless it was there before.
    pub fn opened(&mut self, file: FileNumber, past: Option<Past>, written_from: u64) {
        let had_it = past.is_some_and(|past| self.ghosts.has((past, Ghost::Dropped)));
        self.files.entry(file).or_insert_with(|| Tried {
            past,
            // What it has on the disk may be read now.
            written_from: if had_it { u64::MAX } else { written_from },
            ..Tried::default()
        });
    }

    /// The file is not known any more.
    pub fn forget(&mut self, file: FileNumber) {
        self.files.remove(&file);
        self.probation.remove(file, ByteRange::WHOLE);
    }

    /// Bytes that wait.
    pub fn waiting_bytes(&self) -> u64 {
        self.probation.bytes()
    }

    /// What of a part of a file waits.
    pub fn waiting_of(&self, file: FileNumber, range: ByteRange) -> Vec<ByteRange> {
        self.probation.parts_of(file, range)
    }

    /// Pages of ours entered the cache that are dropped in any case. Returns the parts that had
    /// been dropped before.
    pub fn dropped_in_any_case(&mut self, file: FileNumber, range: ByteRange) -> Vec<ByteRange> {
        // What waited was evicted meanwhile.
        self.probation.remove(file, range);
        let past = self.files.get(&file).and_then(|tried| tried.past);
        let Some(past) = past else {
            return Vec::new();
        };
        let back = self.ghosts.remove((past, Ghost::Dropped), range);
        self.ghosts.remove((past, Ghost::Stayed), range);
        self.remember(Some(past), Ghost::Dropped, range);
        self.bound_ghosts();
        back
    }

    /// Pages of ours entered the cache. Returns what becomes of each part, and those that had been
    /// dropped before.
    pub fn arrived(
        &mut self,
        file: FileNumber,
        range: ByteRange,
        subjects: [Option<Subject>; 2],
    ) -> (Vec<(ByteRange, Arrival)>, Vec<ByteRange>) {
        let Some(tried) = self.files.get_mut(&file) else {
            return (Vec::from([(range, Arrival::Goes)]), Vec::new());
        };
        tried.subjects = subjects;
        self.has_tried = true;
        // What waited was evicted meanwhile.
        let mut back = self.probation.remove(file, range);
        let past = tried.past.into_iter();
        let dropped: Vec<ByteRange> = past
            .clone()
            .flat_map(|past| self.ghosts.remove((past, Ghost::Dropped), range))
            .collect();
        back.extend(&dropped);
        back.extend(past.flat_map(|past| self.ghosts.remove((past, Ghost::Stayed), range)));
        back.sort_unstable();
        tried.back.remove(range);
        tried.dropped.remove(range);
        for part in &dropped {
            tried.dropped.insert(*part);
        }
        let mut parts = Vec::with_capacity(1);
        let some_back = !back.is_empty();
        for part in gaps_between(range, back.clone()) {
            let arrival = self.fate(file, part, some_back);
            parts.push((part, arrival));
        }
        if let Some(tried) = self.files.get_mut(&file) {
            for part in back {
                // It may be written anew, and not read.
                tried.back.insert(part);
                parts.push((part, Arrival::Waits));
            }
        }
        let past = self.files.get(&file).and_then(|tried| tried.past);
        for (part, arrival) in &parts {
            match arrival {
                Arrival::Waits => self.probation.add(file, *part),
                Arrival::Stays => self.remember(past, Ghost::Stayed, *part),
                Arrival::Goes => self.remember(past, Ghost::Dropped, *part),
            }
        }
        self.bound_ghosts();
        (parts, dropped)
    }

    /// What becomes of pages that enter the cache for the first time, as far as is known. If they
    /// came with some that are back, they may be in one folio with those, and wait as well.
    fn fate(&mut self, file: FileNumber, part: ByteRange, some_back: bool) -> Arrival {
        let Some(tried) = self.files.get_mut(&file) else {
            return Arrival::Goes;
        };
        let subjects = tried.subjects.into_iter().flatten();
        let mut subjects = core::iter::once(of_file(file)).chain(subjects);
        let trusts = !some_back && tried.trusted_bytes < self.length.stream_bytes();
        if trusts && subjects.any(|subject| self.lessons.expects_reuse(subject)) {
            tried.trusted_bytes += part.len();
            return Arrival::Stays;
        }
        if !some_back && tried.once_bytes >= self.length.stream_bytes() {
            self.length.streams(part.len());
            return Arrival::Goes;
        }
        self.length.waits(part.len());
        tried.once_bytes += part.len();
        Arrival::Waits
    }

    /// Others brought in `range`, or nothing of it is cached any more.
    pub fn taken_over(&mut self, file: FileNumber, range: ByteRange) {
        self.probation.remove(file, range);
        if let Some(tried) = self.files.get_mut(&file) {
            tried.back.remove(range);
            tried.dropped.remove(range);
        }
    }

    /// Takes the oldest that waits, if too much does, or in any case if `all` is to be decided.
    /// [`Reuse::decide`] says what becomes of it.
    pub fn take_oldest(&mut self, all: bool) -> Option<(FileNumber, Vec<ByteRange>)> {
        let too_much =
            self.probation.bytes() > self.length.bytes() || self.probation.pieces() > PIECES;
        match all || too_much {
            true => self.probation.take_oldest(),
            false => None,
        }
    }

    /// Takes what waits of a part of a file, to be decided about with what is in the same folio.
    pub fn take(&mut self, file: FileNumber, range: ByteRange) -> Vec<ByteRange> {
        self.probation.remove(file, range)
    }

    /// Decides about what [`Reuse::take_oldest`] returned, from what is known of its uses.
    /// Returns whether it stays.
    pub fn decide(&mut self, file: FileNumber, parts: &[ByteRange], used: Used) -> bool {
        let Some(tried) = self.files.get_mut(&file) else {
            return false;
        };
        let written_from = tried.written_from;
        let is_back = |part: &ByteRange| tried.back.touches(*part);
        let some_back = parts.iter().any(is_back);
        let one_suffices = some_back || parts.iter().any(|part| part.start >= written_from);
        // A page dropped by mistake is read once more. One kept by mistake would stay for good, and
        // a scan of many small files might keep all of them.
        let stays = used.again || used.once && one_suffices || used.unknown && some_back;
        let past = tried.past;
        let mut came_back_bytes = 0;
        for part in parts {
            tried.back.remove(*part);
            came_back_bytes += tried.dropped.remove(*part);
        }
        // Otherwise it was written anew.
        if used.once {
            self.length.came_back(came_back_bytes);
        }
        let fate = if stays { Ghost::Stayed } else { Ghost::Dropped };
        for part in parts {
            if !stays && !used.unknown {
                self.length.used_once(part.len());
            }
            self.remember(past, fate, *part);
        }
        self.bound_ghosts();
        if !used.unknown {
            self.learn(file, stays);
        }
        stays
    }

    /// What is around parts of a piece, unless the parts are most of it.
    ///
    /// The kernel keeps, or has recently evicted by itself, only what stayed or is not ours. If
    /// pages return among those, they have most likely stayed before, too. Ghosts do not reach
    /// back as far: neighbours that move 5 GiB a minute through 6 GiB of memory push out a
    /// server's ghosts after 70 s.
    pub fn surroundings(parts: &[ByteRange]) -> Option<Surroundings> {
        let piece = parts.first()?.start / PIECE_BYTES;
        let range = ByteRange::new(piece * PIECE_BYTES, (piece + 1).saturating_mul(PIECE_BYTES));
        let of_parts: u64 = parts
            .iter()
            .map(|part| part.intersection(range).len())
            .sum();
        let kept_bytes = of_parts + range.len() / 4 * KEPT_QUARTERS;
        (kept_bytes <= range.len()).then_some(Surroundings { range, kept_bytes })
    }

    fn learn(&mut self, file: FileNumber, again: bool) {
        let Some(tried) = self.files.get_mut(&file) else {
            return;
        };
        if again {
            (tried.once_bytes, tried.trusted_bytes) = (0, 0);
        }
        self.lessons.learn(of_file(file), again);
        // Large files count no more than small ones.
        let told = match again {
            true => &mut tried.told_again,
            false => &mut tried.told_once,
        };
        if !core::mem::replace(told, true) {
            for subject in tried.subjects.into_iter().flatten() {
                self.lessons.learn(subject, again);
            }
        }
    }

    fn remember(&mut self, past: Option<Past>, fate: Ghost, part: ByteRange) {
        if let Some(past) = past {
            self.ghosts.add_last((past, fate), part);
        }
    }

    fn bound_ghosts(&mut self) {
        while self.ghosts.bytes() > self.memory_bytes || self.ghosts.pieces() > self.most_ghosts() {
            self.ghosts.take_oldest();
        }
    }

    fn most_ghosts(&self) -> usize {
        if self.has_tried {
            return GHOST_PIECES;
        }
        let of_large = self.ghosts.bytes() / COUNTING_PIECE_BYTES;
        let of_large = usize::try_from(of_large).unwrap_or(usize::MAX);
        of_large.clamp(COUNTING_PIECES, GHOST_PIECES)
    }
}

/// Numbers of files are small, and the hashes of all else are not.
fn of_file(file: FileNumber) -> Subject {
    file.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const FILE: FileNumber = FileNumber(1);
    const NEW: FileNumber = FileNumber(2);
    const PIECE: u64 = crate::range_queue::PIECE_BYTES;
    const USED: Used = Used {
        once: true,
        again: false,
        unknown: false,
    };

    fn past(number: u64) -> Option<Past> {
        Some((Inode { device: 8, number }, 0))
    }

    fn pieces(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start * PIECE, end * PIECE)
    }

    /// With a file that was there, a new one, and room for four pieces.
    fn reuse() -> Reuse {
        let mut reuse = Reuse::default();
        reuse.set_memory(4 * PIECE * MEMORY_SHARE, None);
        reuse.opened(FILE, past(1), u64::MAX);
        reuse.opened(NEW, past(2), 0);
        reuse
    }

    fn arrive(reuse: &mut Reuse, file: FileNumber, range: ByteRange) -> Vec<Arrival> {
        let (parts, _) = reuse.arrived(file, range, [None; 2]);
        parts.into_iter().map(|(_, arrival)| arrival).collect()
    }

    fn decide_oldest(reuse: &mut Reuse, used: Used) -> Option<(FileNumber, bool)> {
        let (file, parts) = reuse.take_oldest(false)?;
        Some((file, reuse.decide(file, &parts, used)))
    }

    /// It was evicted meanwhile, and came back through a program whose rule drops it.
    #[test]
    fn what_is_to_go_in_any_case_waits_for_nothing() {
        let mut reuse = reuse();
        assert_eq!(arrive(&mut reuse, FILE, pieces(0, 2)), [Arrival::Waits]);
        reuse.dropped_in_any_case(FILE, pieces(0, 1));
        assert_eq!(reuse.waiting_of(FILE, pieces(0, 2)), [pieces(1, 2)]);
    }

    #[test]
    fn ghosts_that_only_count_take_little_for_small_files() {
        let mut reuse = Reuse::default();
        let page = ByteRange::new(0, 4096);
        let drop = |reuse: &mut Reuse, number: u64, range| {
            let file = FileNumber(number);
            reuse.opened(file, past(number), u64::MAX);
            reuse.dropped_in_any_case(file, range);
            reuse.forget(file);
        };
        for number in 0..2 * COUNTING_PIECES as u64 {
            drop(&mut reuse, number, page);
        }
        assert_eq!(reuse.ghosts.pieces(), COUNTING_PIECES);
        reuse.set_memory(1 << 40, None);
        drop(&mut reuse, u64::MAX, pieces(0, 2 * COUNTING_PIECES as u64));
        assert!(reuse.ghosts.pieces() > 2 * COUNTING_PIECES - 10);
    }

    #[test]
    fn only_the_first_read_of_what_was_written_is_another_use() {
        let mut reuse = reuse();
        assert_eq!(arrive(&mut reuse, FILE, pieces(0, 2)), [Arrival::Waits]);
        assert_eq!(arrive(&mut reuse, NEW, pieces(0, 2)), [Arrival::Waits]);
        assert_eq!(decide_oldest(&mut reuse, USED), None, "there is room");
        arrive(&mut reuse, NEW, pieces(2, 6));
        assert_eq!(decide_oldest(&mut reuse, USED), Some((FILE, false)));
        let again = Used {
            once: true,
            again: true,
            unknown: false,
        };
        assert_eq!(decide_oldest(&mut reuse, again), Some((FILE, true)));
        assert_eq!(decide_oldest(&mut reuse, USED), Some((NEW, true)));
        assert_eq!(
            decide_oldest(&mut reuse, Used::default()),
            Some((NEW, false))
        );
        assert_eq!(decide_oldest(&mut reuse, USED), None);
    }

    #[test]
    fn what_comes_back_and_is_read_stays() {
        let mut reuse = reuse();
        arrive(&mut reuse, FILE, pieces(0, 1));
        let (file, parts) = reuse.take_oldest(true).unwrap();
        assert!(!reuse.decide(file, &parts, USED));
        // The file is closed, and opened again later.
        reuse.forget(FILE);
        let later = FileNumber(3);
        reuse.opened(later, past(1), 0);
        assert_eq!(
            arrive(&mut reuse, later, pieces(0, 2)),
            [Arrival::Waits, Arrival::Waits]
        );
        let (file, parts) = reuse.take_oldest(true).unwrap();
        assert_eq!(parts, [pieces(1, 2)]);
        assert!(
            !reuse.decide(file, &parts, USED),
            "it was read, not written"
        );
        let (file, parts) = reuse.take_oldest(true).unwrap();
        assert!(reuse.decide(file, &parts, USED));
        // Written anew, and not read.
        arrive(&mut reuse, later, pieces(1, 2));
        let (file, parts) = reuse.take_oldest(true).unwrap();
        assert!(!reuse.decide(file, &parts, Used::default()));
    }

    #[test]
    fn what_stayed_and_was_evicted_stays_if_it_is_used_at_all() {
        let mut reuse = reuse();
        let again = Used {
            once: true,
            again: true,
            unknown: false,
        };
        arrive(&mut reuse, FILE, pieces(0, 2));
        while let Some((file, parts)) = reuse.take_oldest(true) {
            assert!(reuse.decide(file, &parts, again));
        }
        let (_, dropped) = reuse.arrived(FILE, pieces(0, 1), [None; 2]);
        assert_eq!(dropped, [], "not by us");
        let (file, parts) = reuse.take_oldest(true).unwrap();
        assert!(reuse.decide(file, &parts, USED));
        // It is back once more, and nobody uses it.
        arrive(&mut reuse, FILE, pieces(0, 1));
        let (file, parts) = reuse.take_oldest(true).unwrap();
        assert!(!reuse.decide(file, &parts, Used::default()));
    }

    #[test]
    fn a_long_stream_does_not_wait_and_is_remembered() {
        let mut reuse = reuse();
        let mut arrivals = vec![];
        for piece in 0..6 {
            arrivals.extend(arrive(&mut reuse, NEW, pieces(piece, piece + 1)));
        }
        let waits = Arrival::Waits;
        let goes = Arrival::Goes;
        assert_eq!(arrivals, [waits, waits, waits, waits, goes, goes]);
        let some_back = arrive(&mut reuse, NEW, pieces(5, 7));
        assert_eq!(some_back, [waits, waits], "they may be one folio");
        assert_eq!(arrive(&mut reuse, NEW, pieces(7, 8)), [goes]);
        assert_eq!(reuse.waiting_bytes(), 6 * PIECE);
        assert_eq!(decide_oldest(&mut reuse, USED), Some((NEW, true)));
        assert_eq!(arrive(&mut reuse, NEW, pieces(6, 7)), [waits]);
    }

    /// A file's only piece comes, and is decided about.
    fn comes(reuse: &mut Reuse, file: u64) -> bool {
        let number = FileNumber(10 + file);
        reuse.opened(number, past(10 + file), u64::MAX);
        arrive(reuse, number, pieces(0, 1));
        let (number, parts) = reuse.take_oldest(true).unwrap();
        reuse.decide(number, &parts, USED)
    }

    #[test]
    fn ghosts_go_back_as_far_as_memory_would() {
        let mut reuse = reuse();
        for file in 0..4 * MEMORY_SHARE + 1 {
            assert!(!comes(&mut reuse, file));
        }
        assert!(comes(&mut reuse, 1));
        assert!(!comes(&mut reuse, 0));
    }

    #[test]
    fn what_comes_back_shows_that_its_neighbours_are_used() {
        let mut reuse = reuse();
        assert!(!comes(&mut reuse, 0));
        let page_comes = |reuse: &mut Reuse, page: u64| {
            arrive(
                reuse,
                FileNumber(10),
                ByteRange::new(page << 12, (page + 1) << 12),
            );
            let (file, parts) = reuse.take_oldest(true).unwrap();
            reuse.decide(file, &parts, USED)
        };
        // Both are ghosts of the same fate from then on.
        assert!(page_comes(&mut reuse, 0) && page_comes(&mut reuse, 1));
        let most = 4 * MEMORY_SHARE;
        for file in 1..3 * most {
            assert!(!comes(&mut reuse, file));
            if file % (most / 2) == 0 {
                assert!(page_comes(&mut reuse, 0));
            }
        }
        assert!(page_comes(&mut reuse, 1), "it has not come back since");
    }

    #[test]
    fn what_nobody_knows_the_uses_of_stays_once_it_is_back() {
        let mut reuse = reuse();
        let unknown = Used {
            unknown: true,
            ..Used::default()
        };
        for stays in [false, true] {
            arrive(&mut reuse, FILE, pieces(0, 1));
            let (file, parts) = reuse.take_oldest(true).unwrap();
            assert_eq!(reuse.decide(file, &parts, unknown), stays);
        }
    }

    #[test]
    fn only_what_is_read_again_lengthens_the_queue() {
        let mut reuse = Reuse::default();
        reuse.set_memory(1 << 40, None);
        reuse.opened(NEW, past(2), 0);
        let mut passes = |used| {
            let before_bytes = reuse.length.bytes();
            arrive(&mut reuse, NEW, pieces(0, 100));
            while let Some((file, parts)) = reuse.take_oldest(true) {
                reuse.decide(file, &parts, used);
            }
            reuse.length.bytes() - before_bytes
        };
        assert_eq!(passes(Used::default()), 0);
        assert_eq!(passes(Used::default()), 0, "it was written anew");
        assert_eq!(passes(USED), 100 * PIECE);
    }

    #[test]
    fn what_others_brought_in_is_not_decided_about() {
        let mut reuse = reuse();
        arrive(&mut reuse, FILE, pieces(0, 2));
        reuse.taken_over(FILE, pieces(0, 1));
        assert_eq!(reuse.take_oldest(true), Some((FILE, vec![pieces(1, 2)])));
        arrive(&mut reuse, FILE, pieces(0, 2));
        reuse.forget(FILE);
        assert_eq!(reuse.take_oldest(true), None);
        assert_eq!(reuse.waiting_bytes(), 0);
    }

    #[test]
    fn what_was_learned_of_a_program_holds_for_its_next_file() {
        let mut reuse = reuse();
        let compiler = Some(1 << 60);
        for file in 10..40 {
            let number = FileNumber(file);
            reuse.opened(number, past(file), 0);
            reuse.arrived(number, pieces(0, 1), [compiler, None]);
            if let Some((file, parts)) = reuse.take_oldest(true) {
                assert!(reuse.decide(file, &parts, USED));
            }
        }
        let number = FileNumber(50);
        reuse.opened(number, past(50), 0);
        let (parts, _) = reuse.arrived(number, pieces(0, 1), [compiler, None]);
        assert_eq!(parts, [(pieces(0, 1), Arrival::Stays)]);
        let (parts, _) = reuse.arrived(number, pieces(1, 2), [None; 2]);
        assert_eq!(parts, [(pieces(1, 2), Arrival::Waits)]);
        // One that is read once all the same gets no more than a stream does.
        let stays = (2..100).filter(|&piece| {
            let (parts, _) = reuse.arrived(number, pieces(piece, piece + 1), [compiler, None]);
            parts == [(pieces(piece, piece + 1), Arrival::Stays)]
        });
        assert_eq!(stays.count(), 3);
    }
}
