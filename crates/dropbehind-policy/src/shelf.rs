//! Small files that observed programs have closed.
//!
//! They wait for their [grace](crate::grace): we never cause a write of what is deleted
//! within it. Beyond the budget, the oldest half is written and dropped at once. None of them
//! becomes a [stream](crate::stream): tens of thousands a second are closed when an archive
//! is unpacked, and a slot, a place in several queues and a search for what was written would
//! cost more than the file.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::action::Counted;
use crate::grace::GRACE_NS;
use crate::mode::{Mode, Writeback};
use crate::observed_files::FileNumber;
use crate::range::ByteRange;
use crate::range_set::RangeSet;

/// The budget of a disk's closed files together: beyond it, the older half does not wait for its
/// grace. On ext4, it takes several times as long to unlink a file once it has been written, so
/// this has room for what a program such as `git gc` makes and soon deletes.
const SHELF_BYTES: u64 = 64 << 20;
/// Nothing reports the end of writeback, so a file is looked at again after this.
const LOOK_NS: u64 = 20_000_000;
/// The most looks: then the file is left to the kernel, five seconds after its writeback
/// began.
const LOOKS: u32 = 250;
/// The same if the kernel is to write it: its flusher wakes every five seconds, and writes
/// what is 30 s old.
const LAZY_LOOK_NS: u64 = 1_000_000_000;
const LAZY_LOOKS: u32 = 120;
/// If a file cannot be opened, the pause before the next look doubles so often, to 1.28 s;
const PAUSE_DOUBLINGS: u32 = 6;
/// after so many looks, or two minutes, the file is left,
const MISSES: u32 = 100;
/// with `flush` after three seconds.
const MISSES_FLUSHED: u32 = 7;
/// A clean file that waits for a decision is looked at again after this, or once it has waited
/// twice as long, in case it was deleted: until then it counts as cached. Opening it takes some
/// 40 us of a processor, and thousands may wait while an archive is unpacked.
const PARKED_LOOK_NS: u64 = 16_000_000_000;
/// At most this many files are dropped together, after one look at what has entered the cache;
const DROPS_TOGETHER: usize = 64;
/// and at most this many bytes wait for others to be dropped with.
const DROPS_TOGETHER_BYTES: u64 = 4 << 20;
/// The most drops of clean pages: the kernel may hold some for a moment, such as in a
/// processor's batch.
const DROPS: u32 = 10;

/// What the shell has to do about a file on the shelf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShelfAction {
    /// Look at it; answered with [`Shelf::looked`].
    Look(ShelfPlace),
    /// Start its writeback; no answer.
    Write(ShelfPlace),
    /// Close its descriptor; no answer. It counts as clean, and may wait long for a decision.
    Park(ShelfPlace),
    /// Drop the clean pages of ours in these files; answered for each with
    /// [`Shelf::dropped`].
    Drop(Vec<ShelfPlace>),
    /// Nothing is left to do for the file.
    Done {
        /// The place that it had.
        place: ShelfPlace,
        /// Bytes of ours that are not cached any more.
        dropped_bytes: u64,
        /// Bytes of ours that stayed.
        left_bytes: u64,
        /// Bytes of ours that stay, since they were used again.
        reused_bytes: u64,
    },
}

/// What becomes of pages of ours on the shelf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The shelf leaves them alone: they have left the cache, and whoever brought in what is there
    /// now has it.
    Others,
    /// They stay, since they were used again.
    Stays,
    /// They go, even if they were held.
    Goes,
}

/// A file's place on the shelf. A file may have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShelfPlace(u64);

#[derive(Clone, Debug)]
struct SmallFile {
    file: FileNumber,
    mode: Mode,
    ours: RangeSet,
    /// What of it is not dropped before that is decided.
    held: RangeSet,
    /// Bytes of ours when it was put here, and those of them that stay, since they were used
    /// again.
    bytes: u64,
    reused_bytes: u64,
    /// Observed programs may have written it.
    written: bool,
    since_ns: u64,
    looks: u32,
    /// Looks in a row for which it could not be opened.
    misses: u32,
    drops: u32,
}

/// The small files that wait.
#[derive(Clone, Debug, Default)]
pub struct Shelf {
    files: BTreeMap<ShelfPlace, SmallFile>,
    places: BTreeSet<(FileNumber, ShelfPlace)>,
    /// Clean, and not to be dropped before that is decided; and when to look whether they were
    /// deleted.
    parked: BTreeMap<ShelfPlace, u64>,
    /// Closed files, oldest first.
    closed: VecDeque<ShelfPlace>,
    closed_bytes: u64,
    /// Written or dropped, and to be looked at again; the one that is due first comes first.
    again: BTreeSet<(u64, ShelfPlace)>,
    /// Actions that follow from an answer, and come before everything else.
    at_once: VecDeque<ShelfAction>,
    /// Clean files, to be dropped together.
    clean: Vec<ShelfPlace>,
    clean_bytes: u64,
    /// This many of the oldest are due, whatever their age.
    crowd: usize,
    last_place: u64,
    waiting_bytes: u64,
}

impl Shelf {
    /// Returns whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.at_once.is_empty()
    }

    /// Bytes of ours that wait.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// The parts of a file that are ours.
    pub fn ours(&self, place: ShelfPlace) -> Option<&RangeSet> {
        Some(&self.files.get(&place)?.ours)
    }

    /// A file was closed; `ours` are its pages that are ours, of which those that are `held` are
    /// not dropped before [`Shelf::decided`]. Unless it was `written`, it counts as clean.
    pub fn put(
        &mut self,
        now_ns: u64,
        file: FileNumber,
        mode: Mode,
        ours: RangeSet,
        held: RangeSet,
        written: bool,
    ) -> ShelfPlace {
        self.last_place += 1;
        let place = ShelfPlace(self.last_place);
        let bytes = ours.bytes();
        self.waiting_bytes += bytes;
        self.closed_bytes += bytes;
        self.closed.push_back(place);
        let small = SmallFile {
            file,
            mode,
            ours,
            held,
            bytes,
            reused_bytes: 0,
            written,
            since_ns: now_ns,
            looks: 0,
            misses: 0,
            drops: 0,
        };
        self.files.insert(place, small);
        self.places.insert((file, place));
        if self.closed_bytes > SHELF_BYTES {
            self.hurry();
        }
        place
    }

    /// Half of the closed files, the oldest, are due now.
    pub fn hurry(&mut self) {
        self.crowd = self.crowd.max(self.closed.len().div_ceil(2));
    }

    /// The files that wait for their grace and were deleted are done with.
    pub fn find_deleted(&mut self, mut is_deleted: impl FnMut(ShelfPlace) -> bool) {
        let closed = core::mem::take(&mut self.closed);
        for place in closed {
            if !is_deleted(place) {
                self.closed.push_back(place);
                continue;
            }
            self.closed_bytes -= self.files.get(&place).map_or(0, |small| small.bytes);
            // The kernel frees the pages unwritten when the last descriptor is closed.
            self.done(place, 0);
        }
        self.crowd = self.crowd.min(self.closed.len());
    }

    /// It is known what becomes of this range.
    pub fn decided(&mut self, file: FileNumber, range: ByteRange, fate: Fate) {
        let all = (file, ShelfPlace(0))..=(file, ShelfPlace(u64::MAX));
        let places: Vec<_> = self.places.range(all).map(|(_, place)| *place).collect();
        for place in places {
            let Some(small) = self.files.get_mut(&place) else {
                continue;
            };
            small.held.remove(range);
            match fate {
                Fate::Others => drop(small.ours.remove(range)),
                Fate::Stays => small.reused_bytes += small.ours.remove(range),
                Fate::Goes => {}
            }
            if small.held.is_empty() {
                self.unpark(place);
            }
        }
    }

    /// If the file waits for a decision, what is left of ours goes.
    fn unpark(&mut self, place: ShelfPlace) {
        let Some(due_ns) = self.parked.remove(&place) else {
            return;
        };
        self.again.remove(&(due_ns, place));
        let Some(small) = self.files.get_mut(&place) else {
            return;
        };
        small.held.clear();
        self.drop_with_others(place);
    }

    /// What is ours of a clean file is to be dropped, together with others.
    fn drop_with_others(&mut self, place: ShelfPlace) {
        let ours = self.ours(place).map_or(0, RangeSet::bytes);
        if ours == 0 {
            return self.done(place, 0);
        }
        self.clean.push(place);
        self.clean_bytes += ours;
    }

    /// What to do now; `None` if nothing is [due](Shelf::next_due). With `flush`, files don't wait
    /// for their grace.
    pub fn next(&mut self, now_ns: u64, flush: bool) -> Option<ShelfAction> {
        if flush {
            // Nobody decides any more.
            while !self.has_batch()
                && let Some((&place, _)) = self.parked.first_key_value()
            {
                self.unpark(place);
            }
        }
        loop {
            let at_once = self.at_once.pop_front();
            if at_once.is_some() {
                return at_once;
            }
            if self.has_batch() {
                return Some(self.drop_clean());
            }
            if let Some(&(due_ns, place)) = self.again.first()
                && (due_ns <= now_ns || flush && self.is_lazy(place))
            {
                self.again.pop_first();
                self.parked.remove(&place);
                return Some(ShelfAction::Look(place));
            }
            let Some(place) = self.take_closed(now_ns, flush) else {
                return (!self.clean.is_empty()).then(|| self.drop_clean());
            };
            if self.files.get(&place)?.written {
                return Some(ShelfAction::Look(place));
            }
            self.is_clean(now_ns, place, flush);
        }
    }

    /// The oldest closed file, if it is due.
    fn take_closed(&mut self, now_ns: u64, flush: bool) -> Option<ShelfPlace> {
        let due_ns = self.closed_due(now_ns, flush)?;
        if due_ns > now_ns {
            return None;
        }
        let place = self.closed.pop_front()?;
        self.crowd = self.crowd.saturating_sub(1);
        self.closed_bytes -= self.files.get(&place).map_or(0, |small| small.bytes);
        Some(place)
    }

    /// Returns whether so much is clean that it is to be dropped now.
    fn has_batch(&self) -> bool {
        self.clean.len() >= DROPS_TOGETHER || self.clean_bytes >= DROPS_TOGETHER_BYTES
    }

    fn drop_clean(&mut self) -> ShelfAction {
        self.clean_bytes = 0;
        ShelfAction::Drop(core::mem::take(&mut self.clean))
    }

    /// When there is something to do; `None` means never, unless something happens.
    pub fn next_due(&self, now_ns: u64, flush: bool) -> Option<u64> {
        let at_once = !self.at_once.is_empty() || !self.clean.is_empty();
        if at_once || flush && !self.parked.is_empty() {
            return Some(now_ns);
        }
        let again = self.again.first();
        let again = again.map(|&(due_ns, place)| match flush && self.is_lazy(place) {
            true => now_ns,
            false => due_ns,
        });
        let closed = self.closed_due(now_ns, flush);
        again.into_iter().chain(closed).min()
    }

    /// When the oldest closed file is due.
    fn closed_due(&self, now_ns: u64, flush: bool) -> Option<u64> {
        let oldest = self.files.get(self.closed.front()?)?;
        match flush || self.crowd > 0 {
            true => Some(now_ns),
            false => Some(oldest.since_ns.saturating_add(GRACE_NS)),
        }
    }

    /// Returns whether the kernel is to write the file.
    fn is_lazy(&self, place: ShelfPlace) -> bool {
        let small = self.files.get(&place);
        small.is_some_and(|small| small.mode.writeback == Writeback::Lazy)
    }

    /// The answer to [`ShelfAction::Look`]: the count of the pages that are ours, or `None`
    /// if the file has no name any more. With `flush`, nothing is left to the kernel.
    pub fn looked(
        &mut self,
        now_ns: u64,
        place: ShelfPlace,
        counted: Option<Counted>,
        flush: bool,
    ) {
        let Some(small) = self.files.get_mut(&place) else {
            return;
        };
        let Some(counted) = counted else {
            // The kernel frees the pages unwritten when the last descriptor is closed.
            return self.done(place, 0);
        };
        small.misses = 0;
        if flush {
            small.mode.writeback = Writeback::Eager;
        }
        let lazy = small.mode.writeback == Writeback::Lazy;
        if counted.unwritten_bytes() == 0 {
            return self.is_clean(now_ns, place, flush);
        }
        let (looks, pause_ns) = match lazy {
            true => (LAZY_LOOKS, LAZY_LOOK_NS),
            false => (LOOKS, LOOK_NS),
        };
        small.looks += 1;
        if small.looks > looks {
            return self.done(place, u64::MAX);
        }
        if counted.writeback_bytes == 0 && !lazy {
            // New, locked when we started writeback, or written again.
            self.at_once.push_back(ShelfAction::Write(place));
        }
        self.again.insert((now_ns + pause_ns, place));
    }

    /// A clean file is dropped, or waits for a decision.
    fn is_clean(&mut self, now_ns: u64, place: ShelfPlace, flush: bool) {
        let Some(small) = self.files.get(&place) else {
            return;
        };
        if !small.mode.drops() {
            self.done(place, u64::MAX);
        } else if !flush && !small.held.is_empty() {
            let age_ns = now_ns.saturating_sub(small.since_ns);
            let due_ns = now_ns.saturating_add(age_ns.max(PARKED_LOOK_NS));
            self.parked.insert(place, due_ns);
            self.again.insert((due_ns, place));
            self.at_once.push_back(ShelfAction::Park(place));
        } else {
            self.drop_with_others(place);
        }
    }

    /// The answer to [`ShelfAction::Look`] or [`ShelfAction::Drop`] if the file cannot be opened
    /// now: another process has a lease on it, or its mount is not where it was. It is looked at again, for less long
    /// with `flush`.
    pub fn look_again(&mut self, now_ns: u64, place: ShelfPlace, flush: bool) {
        let Some(small) = self.files.get_mut(&place) else {
            return;
        };
        if flush {
            small.mode.writeback = Writeback::Eager;
        }
        let most = if flush { MISSES_FLUSHED } else { MISSES };
        if small.misses >= most {
            return self.done(place, u64::MAX);
        }
        let pause_ns = LOOK_NS << small.misses.min(PAUSE_DOUBLINGS);
        small.misses += 1;
        self.again.insert((now_ns + pause_ns, place));
    }

    /// The answer to [`ShelfAction::Drop`]: this many bytes of ours are still cached.
    pub fn dropped(&mut self, now_ns: u64, place: ShelfPlace, left_bytes: u64) {
        let Some(small) = self.files.get_mut(&place) else {
            return;
        };
        small.drops += 1;
        if left_bytes == 0 || small.drops >= DROPS {
            return self.done(place, left_bytes);
        }
        self.again.insert((now_ns + LOOK_NS, place));
    }

    /// The answer to [`ShelfAction::Drop`] if it is not known of all that is cached there who
    /// brought it in. That is no failed drop.
    pub fn unreported(&mut self, now_ns: u64, place: ShelfPlace) {
        self.again.insert((now_ns + LOOK_NS, place));
    }

    /// The file cannot be counted or dropped: it is left to the kernel.
    pub fn failed(&mut self, place: ShelfPlace) {
        self.done(place, u64::MAX);
    }

    /// Removes a file that is done with, of which at most `left_bytes` of ours are cached.
    fn done(&mut self, place: ShelfPlace, left_bytes: u64) {
        let Some(small) = self.files.remove(&place) else {
            return;
        };
        self.places.remove(&(small.file, place));
        self.waiting_bytes -= small.bytes;
        let left_bytes = left_bytes.min(small.ours.bytes());
        self.at_once.push_back(ShelfAction::Done {
            place,
            dropped_bytes: small.bytes - small.reused_bytes - left_bytes,
            left_bytes,
            reused_bytes: small.reused_bytes,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const FILE: FileNumber = FileNumber(1);
    const BYTES: u64 = 64 << 10;
    const CLEAN: Counted = Counted {
        cached_bytes: BYTES,
        dirty_bytes: 0,
        writeback_bytes: 0,
    };
    const DIRTY: Counted = Counted {
        dirty_bytes: BYTES,
        ..CLEAN
    };

    fn put(shelf: &mut Shelf, now_ns: u64, mode: Mode) -> ShelfPlace {
        let mut ours = RangeSet::new();
        ours.insert(ByteRange::new(0, BYTES));
        shelf.put(now_ns, FILE, mode, ours, RangeSet::new(), true)
    }

    fn done(place: ShelfPlace, left_bytes: u64) -> Option<ShelfAction> {
        Some(ShelfAction::Done {
            place,
            dropped_bytes: BYTES - left_bytes,
            left_bytes,
            reused_bytes: 0,
        })
    }

    #[test]
    fn after_its_grace_a_file_is_written_and_then_dropped() {
        let mut shelf = Shelf::default();
        let place = put(&mut shelf, 5, Mode::DONTCACHE);
        assert_eq!(shelf.next(5, false), None);
        assert_eq!(shelf.next_due(5, false), Some(5 + GRACE_NS));
        let mut now_ns = 5 + GRACE_NS;
        let look = Some(ShelfAction::Look(place));
        assert_eq!(shelf.next(now_ns, false), look);
        shelf.looked(now_ns, place, Some(DIRTY), false);
        let write = Some(ShelfAction::Write(place));
        assert_eq!(shelf.next(now_ns, false), write);
        assert_eq!(shelf.next(now_ns, false), None);
        assert_eq!(shelf.next_due(now_ns, false), Some(now_ns + LOOK_NS));
        now_ns += LOOK_NS;
        assert_eq!(shelf.next(now_ns, false), look);
        shelf.looked(now_ns, place, Some(CLEAN), false);
        let drop = Some(ShelfAction::Drop(vec![place]));
        assert_eq!(shelf.next(now_ns, false), drop);
        shelf.dropped(now_ns, place, 0);
        assert_eq!(shelf.waiting_bytes(), 0);
        assert!(!shelf.is_empty(), "nobody has heard of it");
        assert_eq!(shelf.next(now_ns, false), done(place, 0));
        assert!(shelf.is_empty());
        assert_eq!(shelf.next(now_ns, false), None);
    }

    #[test]
    fn what_others_brought_in_is_neither_dropped_nor_left() {
        let mut shelf = Shelf::default();
        let place = put(&mut shelf, 0, Mode::DONTCACHE);
        shelf.decided(FILE, ByteRange::new(0, BYTES / 2), Fate::Others);
        assert_eq!(shelf.ours(place).map(RangeSet::bytes), Some(BYTES / 2));
        shelf.failed(place);
        assert_eq!(shelf.next(0, false), done(place, BYTES / 2));
    }

    #[test]
    fn what_is_held_is_written_and_waits_for_its_decision() {
        for stays in [false, true] {
            let mut shelf = Shelf::default();
            let mut ours = RangeSet::new();
            ours.insert(ByteRange::new(0, BYTES));
            let place = shelf.put(0, FILE, Mode::AUTO, ours.clone(), ours, true);
            let look = Some(ShelfAction::Look(place));
            assert_eq!(shelf.next(GRACE_NS, false), look);
            shelf.looked(GRACE_NS, place, Some(CLEAN), false);
            assert_eq!(shelf.next(GRACE_NS, false), Some(ShelfAction::Park(place)));
            let waits = Some(GRACE_NS + PARKED_LOOK_NS);
            assert_eq!(shelf.next(GRACE_NS, false), None);
            assert_eq!(shelf.next_due(GRACE_NS, false), waits);
            let half = ByteRange::new(0, BYTES / 2);
            let fate = if stays { Fate::Stays } else { Fate::Goes };
            shelf.decided(FILE, half, fate);
            assert_eq!(shelf.next(GRACE_NS, false), None);
            assert_eq!(shelf.next_due(GRACE_NS, false), waits);
            shelf.decided(FILE, ByteRange::WHOLE, Fate::Goes);
            assert_eq!(shelf.next_due(GRACE_NS, false), Some(GRACE_NS));
            let drop = Some(ShelfAction::Drop(vec![place]));
            assert_eq!(shelf.next(GRACE_NS, false), drop);
            shelf.dropped(GRACE_NS, place, 0);
            let reused_bytes = if stays { BYTES / 2 } else { 0 };
            let done = Some(ShelfAction::Done {
                place,
                dropped_bytes: BYTES - reused_bytes,
                left_bytes: 0,
                reused_bytes,
            });
            assert_eq!(shelf.next(GRACE_NS, false), done);
        }
    }

    #[test]
    fn what_was_only_read_needs_no_look() {
        for held_bytes in [0, BYTES] {
            let mut shelf = Shelf::default();
            let [mut ours, mut held] = [RangeSet::new(), RangeSet::new()];
            ours.insert(ByteRange::new(0, BYTES));
            held.insert(ByteRange::new(0, held_bytes));
            let place = shelf.put(0, FILE, Mode::AUTO, ours, held, false);
            assert_eq!(shelf.next(GRACE_NS - 1, false), None);
            if held_bytes > 0 {
                assert_eq!(shelf.next(GRACE_NS, false), Some(ShelfAction::Park(place)));
                assert_eq!(shelf.next(GRACE_NS, false), None);
                shelf.decided(FILE, ByteRange::WHOLE, Fate::Goes);
            }
            let drop = Some(ShelfAction::Drop(vec![place]));
            assert_eq!(shelf.next(GRACE_NS, false), drop);
            // It was dirty all the same.
            shelf.dropped(GRACE_NS, place, BYTES);
            let look = Some(ShelfAction::Look(place));
            assert_eq!(shelf.next(GRACE_NS + LOOK_NS, false), look);
        }
    }

    #[test]
    fn a_flush_waits_for_no_decision() {
        let mut shelf = Shelf::default();
        let mut ours = RangeSet::new();
        ours.insert(ByteRange::new(0, BYTES));
        let place = shelf.put(0, FILE, Mode::AUTO, ours.clone(), ours, true);
        let look = Some(ShelfAction::Look(place));
        assert_eq!(shelf.next(GRACE_NS, false), look);
        shelf.looked(GRACE_NS, place, Some(CLEAN), false);
        assert_eq!(shelf.next_due(GRACE_NS, true), Some(GRACE_NS));
        assert_eq!(shelf.next(GRACE_NS, false), Some(ShelfAction::Park(place)));
        assert_eq!(shelf.next_due(GRACE_NS, true), Some(GRACE_NS));
        let drop = Some(ShelfAction::Drop(vec![place]));
        assert_eq!(shelf.next(GRACE_NS, true), drop);
    }

    #[test]
    fn what_is_held_and_deleted_does_not_wait_for_its_decision() {
        let mut shelf = Shelf::default();
        let mut ours = RangeSet::new();
        ours.insert(ByteRange::new(0, BYTES));
        let place = shelf.put(0, FILE, Mode::AUTO, ours.clone(), ours, true);
        let look = Some(ShelfAction::Look(place));
        let mut now_ns = GRACE_NS;
        for pause_ns in [PARKED_LOOK_NS, GRACE_NS + PARKED_LOOK_NS] {
            assert_eq!(shelf.next(now_ns, false), look);
            shelf.looked(now_ns, place, Some(CLEAN), false);
            assert_eq!(shelf.next(now_ns, false), Some(ShelfAction::Park(place)));
            now_ns += pause_ns;
            assert_eq!(shelf.next(now_ns - 1, false), None);
            assert_eq!(shelf.next_due(now_ns - 1, false), Some(now_ns));
        }
        assert_eq!(shelf.next(now_ns, false), look);
        shelf.looked(now_ns, place, None, false);
        assert_eq!(shelf.next(now_ns, false), done(place, 0));
        assert!(shelf.is_empty());
    }

    #[test]
    fn a_deleted_file_is_gone() {
        let mut shelf = Shelf::default();
        let place = put(&mut shelf, 0, Mode::DONTCACHE);
        assert!(shelf.next(0, true).is_some());
        shelf.looked(0, place, None, true);
        assert_eq!(shelf.next(0, true), done(place, 0));
    }

    #[test]
    fn what_resists_is_left_at_last() {
        let mut shelf = Shelf::default();
        let place = put(&mut shelf, 0, Mode::DONTCACHE);
        let mut now_ns = GRACE_NS;
        for _ in 0..DROPS {
            let look = Some(ShelfAction::Look(place));
            assert_eq!(shelf.next(now_ns, false), look);
            shelf.looked(now_ns, place, Some(CLEAN), false);
            assert!(shelf.next(now_ns, false).is_some());
            shelf.dropped(now_ns, place, 4096);
            now_ns += LOOK_NS;
        }
        assert_eq!(shelf.next(now_ns, false), done(place, 4096));
    }

    #[test]
    fn what_was_deleted_makes_room_at_once() {
        let mut shelf = Shelf::default();
        let places = [0, 1, 2].map(|now_ns| put(&mut shelf, now_ns, Mode::DONTCACHE));
        shelf.find_deleted(|place| place != places[1]);
        for place in [places[0], places[2]] {
            let done = shelf.next(3, false);
            assert!(
                matches!(done, Some(ShelfAction::Done { place: of, left_bytes: 0, .. }) if of == place)
            );
        }
        assert_eq!(shelf.next(3, false), None);
        assert_eq!(shelf.waiting_bytes(), BYTES);
        assert_eq!(shelf.next_due(3, false), Some(1 + GRACE_NS));
        assert_eq!(
            shelf.next(1 + GRACE_NS, false),
            Some(ShelfAction::Look(places[1]))
        );
    }

    #[test]
    fn a_crowd_is_not_waited_for() {
        const BUDGET: u64 = SHELF_BYTES / BYTES;
        let mut shelf = Shelf::default();
        for _ in 0..BUDGET {
            put(&mut shelf, 7, Mode::DONTCACHE);
            assert_eq!(shelf.next(7, false), None);
            assert_eq!(shelf.next_due(7, false), Some(7 + GRACE_NS));
        }
        put(&mut shelf, 7, Mode::DONTCACHE);
        let mut looks = 0;
        while let Some(ShelfAction::Look(_)) = shelf.next(7, false) {
            looks += 1;
        }
        assert_eq!(looks, BUDGET / 2 + 1, "the oldest half");
    }

    #[test]
    fn what_cannot_be_opened_is_looked_at_again_and_left_at_last() {
        for (flush, misses) in [(false, MISSES), (true, MISSES_FLUSHED)] {
            let mut shelf = Shelf::default();
            let place = put(&mut shelf, 0, Mode::NOREUSE);
            let mut now_ns = GRACE_NS;
            let look = Some(ShelfAction::Look(place));
            assert_eq!(shelf.next(now_ns, flush), look);
            for _ in 0..misses {
                shelf.look_again(now_ns, place, flush);
                assert_eq!(shelf.next(now_ns, flush), None, "it is not due at once");
                now_ns = shelf.next_due(now_ns, flush).unwrap();
                assert_eq!(shelf.next(now_ns, flush), look);
            }
            shelf.look_again(now_ns, place, flush);
            assert_eq!(shelf.next(now_ns, flush), done(place, BYTES));
        }
    }

    /// On a disk that makes writes wait, clean pages would stay cached.
    #[test]
    fn clean_files_do_not_wait_for_the_writes_of_others() {
        let mut shelf = Shelf::default();
        for _ in 0..4 * DROPS_TOGETHER + 1 {
            put(&mut shelf, 0, Mode::DONTCACHE);
        }
        let (mut clean, mut dropped) = (0, Vec::new());
        for _ in 0..DROPS_TOGETHER + 2 {
            match shelf.next(GRACE_NS, false) {
                Some(ShelfAction::Look(place)) => {
                    clean += 1;
                    shelf.looked(GRACE_NS, place, Some(CLEAN), false);
                }
                Some(ShelfAction::Drop(places)) => dropped.push((clean, places.len())),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(dropped, [(DROPS_TOGETHER, DROPS_TOGETHER)]);
    }

    #[test]
    fn a_flush_does_not_wait_for_the_kernel() {
        let mut shelf = Shelf::default();
        let place = put(&mut shelf, 0, Mode::NOREUSE);
        let look = Some(ShelfAction::Look(place));
        assert_eq!(shelf.next(GRACE_NS, false), look);
        shelf.looked(GRACE_NS, place, Some(DIRTY), false);
        let due_ns = GRACE_NS + LAZY_LOOK_NS;
        assert_eq!(shelf.next(GRACE_NS, false), None);
        assert_eq!(shelf.next_due(GRACE_NS, false), Some(due_ns));
        assert_eq!(shelf.next(GRACE_NS, true), look);
        shelf.looked(GRACE_NS, place, Some(DIRTY), true);
        let write = Some(ShelfAction::Write(place));
        assert_eq!(shelf.next(GRACE_NS, true), write);
    }
}
