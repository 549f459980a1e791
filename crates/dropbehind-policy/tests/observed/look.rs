//! Looks at files, as the library does.

use std::cell::Cell;

use dropbehind_policy::{ByteRange, Counted, Pages, RangeSet, StreamId};

use crate::cache::{File, PAGE};
use crate::world::World;

/// A file's pages, whose counts take a random time.
struct FilePages<'a> {
    file: &'a File,
    now_ns: u64,
    count_cost_ns: u64,
    used_ns: Cell<u64>,
}

impl Pages for FilePages<'_> {
    fn size_bytes(&self) -> Option<u64> {
        Some(self.file.size_pages as u64 * PAGE)
    }

    fn count(&self, range: ByteRange) -> Option<Counted> {
        self.used_ns.set(self.used_ns.get() + self.count_cost_ns);
        Some(self.file.count(range))
    }

    fn is_deleted(&self) -> bool {
        self.file.unlinked
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn processor_ns(&self) -> u64 {
        self.used_ns.get()
    }
}

impl World {
    /// Looks at the files that are due; true when there were any.
    pub(crate) fn look_around(&mut self) -> bool {
        let watches = self.threads.watches.iter();
        let due: Vec<StreamId> = watches
            .filter(|(_, watch)| watch.looks.next_look_ns() <= self.now_ns)
            .map(|(stream, _)| *stream)
            .collect();
        for stream in &due {
            self.look_at(*stream);
        }
        !due.is_empty()
    }

    pub(crate) fn look_at(&mut self, stream: StreamId) {
        let ours_before = self.ours(stream);
        let Some(watch) = self.threads.watches.get_mut(&stream) else {
            return;
        };
        if self.random.chance(self.plan.refuse_in_thousand) {
            self.coverage.saw("looks that could not be made");
            return watch.looks.not_looked(self.now_ns);
        }
        let pages = FilePages {
            file: &self.files[watch.file],
            now_ns: self.now_ns,
            count_cost_ns: self.random.below(20_000),
            used_ns: Cell::new(0),
        };
        watch.looks.look(&mut self.threads.disk, &pages);
        self.note_kept(stream, &ours_before);
    }

    /// What a look took out of the stream's hands, without a drop, is to stay.
    fn note_kept(&mut self, stream: StreamId, ours_before: &RangeSet) {
        let ours = self.ours(stream);
        let (file, told_add) = match self.threads.watches.get(&stream) {
            Some(watch) => (watch.file, watch.told_add),
            None => return,
        };
        for range in ours_before.iter() {
            for kept in ours.gaps_of(range) {
                self.say(|| format!("{stream:?}: {kept:?} is kept"));
                self.coverage.saw("pages kept");
                self.files[file].keep(kept, told_add);
            }
        }
    }

    fn ours(&self, stream: StreamId) -> RangeSet {
        let known = self.threads.disk.stream(stream);
        let parts = known.map(|known| known.brought_in(ByteRange::WHOLE));
        let mut ours = RangeSet::new();
        for part in parts.unwrap_or_default() {
            ours.insert(part);
        }
        ours
    }
}
