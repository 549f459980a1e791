//! The thread that writes and drops small files once they are closed.

use std::collections::{BTreeMap, VecDeque};

use dropbehind_policy::{
    ByteRange, Counted, Fate, FileNumber, RangeSet, Shelf, ShelfAction, ShelfPlace,
};

use crate::kernel::Mark;
use crate::observer::Input;
use crate::world::World;

#[derive(Clone, Debug)]
pub(crate) enum SmallMessage {
    File(FileNumber, usize, RangeSet, RangeSet, bool),
    Decide(FileNumber, ByteRange, Fate),
    Flush,
}

/// A file on the shelf.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) number: FileNumber,
    pub(crate) file: usize,
    pub(crate) bytes: u64,
    /// What the last look at it found not to be written.
    pub(crate) unwritten_bytes: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Small {
    pub(crate) shelf: Shelf,
    pub(crate) places: BTreeMap<ShelfPlace, Place>,
    pub(crate) inbox: VecDeque<SmallMessage>,
    flushing: bool,
}

impl World {
    /// True when something was done.
    pub(crate) fn small_step(&mut self) -> bool {
        let mut busy = self.read_small_inbox();
        while let Some(action) = self.small.shelf.next(self.now_ns, self.small.flushing) {
            busy = true;
            self.say(|| format!("{action:?}"));
            self.shelf_action(action);
            self.work();
        }
        let due_ns = self.small.shelf.next_due(self.now_ns, self.small.flushing);
        let spins = due_ns.is_some_and(|due_ns| due_ns <= self.now_ns);
        assert!(!spins, "the shelf spins");
        if self.small.shelf.is_empty() {
            self.small.flushing = false;
        }
        self.watch_shelf();
        busy
    }

    /// Returns whether files came.
    fn read_small_inbox(&mut self) -> bool {
        let mut any = false;
        while let Some(message) = self.small.inbox.pop_front() {
            match message {
                SmallMessage::File(number, file, ours, held, written) => {
                    any = true;
                    self.put(number, file, ours, held, written);
                }
                SmallMessage::Decide(number, range, fate) => {
                    self.small.shelf.decided(number, range, fate);
                }
                SmallMessage::Flush => {
                    self.small.flushing = true;
                    self.flushed = true;
                }
            }
        }
        any
    }

    fn put(
        &mut self,
        number: FileNumber,
        file: usize,
        ours: RangeSet,
        held: RangeSet,
        written: bool,
    ) {
        let pages = held.bytes() / crate::cache::PAGE;
        self.coverage.saw_times("pages held on the shelf", pages);
        let bytes = ours.bytes();
        let twice = self.small.places.values().any(|place| place.file == file);
        self.coverage.saw_times("shelved twice", u64::from(twice));
        let mode = self.plan.files[file].mode;
        let shelf = &mut self.small.shelf;
        let place = shelf.put(self.now_ns, number, mode, ours, held, written);
        let small = Place {
            number,
            file,
            bytes,
            unwritten_bytes: (!written).then_some(0),
        };
        self.small.places.insert(place, small);
    }

    fn shelf_action(&mut self, action: ShelfAction) {
        let place = match action {
            ShelfAction::Look(place) | ShelfAction::Write(place) => place,
            ShelfAction::Park(place) | ShelfAction::Done { place, .. } => place,
            ShelfAction::Drop(places) => {
                self.coverage
                    .saw_times("shelf drops of several", u64::from(places.len() > 1));
                return self.drop_together(&places);
            }
        };
        let Some(small) = self.small.places.get(&place) else {
            panic!("{action:?} of a place that is empty");
        };
        let (file, number) = (small.file, small.number);
        self.meddle(file);
        match action {
            ShelfAction::Look(_) => self.look_at_small(place, file),
            ShelfAction::Write(_) => {
                self.coverage.saw("shelf writes");
                for range in self.ours_on_shelf(place) {
                    self.start_writeback(file, range);
                }
            }
            ShelfAction::Park(_) => self.coverage.saw("shelf files that wait for a decision"),
            ShelfAction::Drop(_) => unreachable!("it is of several places"),
            ShelfAction::Done {
                dropped_bytes,
                left_bytes,
                reused_bytes,
                ..
            } => {
                self.reused_bytes += reused_bytes;
                let gone_bytes = dropped_bytes + reused_bytes;
                self.watch_shelf_done(place, gone_bytes, left_bytes);
                self.observer.inputs.push_back(Input::Unshelved(number));
            }
        }
        self.meddle(file);
    }

    fn drop_together(&mut self, places: &[ShelfPlace]) {
        let reported = self.observer.reported;
        for place in places {
            let looked = self.small.places[place].unwritten_bytes;
            assert_eq!(looked, Some(0), "it was not clean when it was looked at");
            self.meddle(self.small.places[place].file);
            self.observe_meanwhile();
        }
        self.read_small_inbox();
        for place in places {
            self.drop_small(*place, reported);
        }
    }

    fn ours_on_shelf(&self, place: ShelfPlace) -> Vec<ByteRange> {
        let ours = self.small.shelf.ours(place);
        ours.expect("it is on the shelf").iter().collect()
    }

    fn count_small(&mut self, place: ShelfPlace, file: usize) -> Option<Counted> {
        if self.random.chance(self.plan.fail_in_thousand) {
            self.coverage.saw("shelf counts that failed");
            self.excuse(file);
            return None;
        }
        let mut sum = Counted::default();
        for range in self.ours_on_shelf(place) {
            let counted = self.files[file].count(range);
            sum.cached_bytes += counted.cached_bytes;
            sum.dirty_bytes += counted.dirty_bytes;
            sum.writeback_bytes += counted.writeback_bytes;
        }
        Some(sum)
    }

    fn look_at_small(&mut self, place: ShelfPlace, file: usize) {
        let (now_ns, flush) = (self.now_ns, self.small.flushing);
        if self.files[file].unlinked {
            self.coverage.saw("shelf files that were deleted");
            return self.small.shelf.looked(now_ns, place, None, flush);
        }
        if self.random.chance(self.plan.refuse_in_thousand) {
            self.coverage.saw("shelf looks that could not be made");
            // After so many it is left.
            self.excuse(file);
            return self.small.shelf.look_again(now_ns, place, flush);
        }
        let counted = self.count_small(place, file);
        if let Some(small) = self.small.places.get_mut(&place) {
            small.unwritten_bytes = counted.map(Counted::unwritten_bytes);
        }
        match counted {
            Some(_) => self.small.shelf.looked(now_ns, place, counted, flush),
            None => self.small.shelf.failed(place),
        }
    }

    fn drop_small(&mut self, place: ShelfPlace, reported: Mark) {
        let file = self.small.places[&place].file;
        self.meddle(file);
        if self.random.chance(self.plan.refuse_in_thousand) {
            self.coverage.saw("shelf drops that could not be made");
            self.excuse(file);
            let flush = self.small.flushing;
            return self.small.shelf.look_again(self.now_ns, place, flush);
        }
        self.coverage.saw("shelf drops");
        let reported_add = self.kernel.reported_add(reported);
        let mut is_reported = reported_add.is_some();
        for range in self.ours_on_shelf(place) {
            self.excuse_mapped(file, range);
            let Some(add) = reported_add else { continue };
            for part in self.files[file].unchanged_since(range, add) {
                let gone = self.files[file].drop_clean(self.now_ns, part);
                self.start_writeback(file, part);
                self.watch_drop(file, &gone, false);
            }
            is_reported &= !self.files[file].has_arrivals(range, add);
        }
        if !is_reported {
            self.coverage.saw("shelf drops put off for reports");
            return self.small.shelf.unreported(self.now_ns, place);
        }
        match self.count_small(place, file) {
            Some(counted) => {
                let left_bytes = counted.cached_bytes;
                let again = u64::from(left_bytes > 0);
                self.coverage.saw_times("shelf drops to try again", again);
                self.small.shelf.dropped(self.now_ns, place, left_bytes);
            }
            None => self.small.shelf.failed(place),
        }
    }
}
