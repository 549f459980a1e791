//! One look at an observed file.

use alloc::vec::Vec;

use super::search::Search;
use super::{ObservedStream, Pages, Provenance, Resident, busy_parts};
use crate::action::{Counted, StreamId};
use crate::disk::Disk;
use crate::range::{ByteRange, round_up};
use crate::range_set::RangeSet;

/// All of a file's pages are counted at most this often,
const COUNT_MIN_NS: u64 = 8_000_000;
/// and in at most one part in this many of the time.
const COUNT_SHARE: u64 = 25;
/// This many unknown bytes are worth a search at once,
const SEARCH_BYTES: u64 = 1 << 20;
/// and fewer after this time.
const SEARCH_NS: u64 = 200_000_000;

/// One look at one file.
pub(super) struct Look<'a, P> {
    pub(super) now_ns: u64,
    /// Whether to find everything.
    pub(super) thorough: bool,
    pub(super) disk: &'a mut Disk,
    pub(super) pages: &'a P,
}

impl<'a, P: Pages> Look<'a, P> {
    fn count(&self, range: ByteRange) -> Counted {
        self.pages.count(range).unwrap_or_default()
    }

    /// The parts of `range` in which the stream has nothing left to do.
    fn idle_parts(&self, id: StreamId, range: ByteRange) -> Vec<ByteRange> {
        let stream = self.disk.stream(id);
        stream
            .map(|stream| stream.idle_parts(range))
            .unwrap_or_default()
    }

    fn search(&self, of_interest: fn(Counted) -> u64) -> Search<'a, P> {
        Search::new(self.pages, self.thorough, of_interest)
    }
}

impl ObservedStream {
    /// Returns whether anything happened to the file since the last look.
    pub(super) fn see<P: Pages>(&mut self, look: &mut Look<'_, P>) -> bool {
        let mut changed = self.see_size(look);
        changed |= self.sort_fresh(look);
        if look.thorough || look.now_ns >= self.next_count_ns {
            let before_ns = look.pages.processor_ns();
            changed |= self.count_all(look);
            let cost_ns = look.pages.processor_ns().saturating_sub(before_ns);
            let pause_ns = cost_ns.saturating_mul(COUNT_SHARE).max(COUNT_MIN_NS);
            self.next_count_ns = look.pages.now_ns().saturating_add(pause_ns);
        }
        let written_bytes = self.counts.written_bytes;
        look.disk
            .written_until(look.now_ns, self.config.id, written_bytes);
        changed
    }

    fn see_size<P: Pages>(&mut self, look: &mut Look<'_, P>) -> bool {
        let before_bytes = self.counts.size_bytes;
        let size_bytes = match look.pages.size_bytes() {
            Some(size_bytes) if !self.config.block_device => size_bytes,
            _ => return false,
        };
        self.counts.size_bytes = size_bytes;
        let end = round_up(size_bytes, self.config.page_bytes);
        if size_bytes < before_bytes {
            look.disk.resized(look.now_ns, self.config.id, size_bytes);
            self.fronts.withdraw(ByteRange::new(end, u64::MAX));
            self.write_cursor = self.write_cursor.min(size_bytes);
            if let Some(resident) = self.provenance.resident() {
                resident.before_bytes = resident.before_bytes.min(end);
                resident.unwritten_bytes = resident.unwritten_bytes.min(end);
                resident.unwritten_end = resident.unwritten_end.min(end);
            }
        } else if size_bytes > before_bytes && self.provenance.resident().is_some() {
            let start = before_bytes - before_bytes % self.config.page_bytes;
            self.grew(look, ByteRange::new(start, end));
        }
        size_bytes != before_bytes
    }

    /// Without the trace: pages cached beyond the old end were written.
    fn grew<P: Pages>(&mut self, look: &mut Look<'_, P>, grown: ByteRange) {
        let cached_bytes = look.count(grown).cached_bytes;
        if cached_bytes >= grown.len() / 2 {
            self.found_written(look, grown, cached_bytes);
        } else if cached_bytes > 0 {
            // Extended, and written here and there.
            let mut search = look.search(|counted| counted.cached_bytes);
            search.descend(grown);
            for (piece, _) in search.found {
                self.found_written(look, piece, piece.len());
            }
        }
    }

    /// Of the pages brought in since the last look, the dirty ones were written. The rest
    /// were read, or are just being written: they wait behind the fronts.
    fn sort_fresh<P: Pages>(&mut self, look: &mut Look<'_, P>) -> bool {
        let Some(traced) = self.provenance.traced() else {
            return false;
        };
        let fresh = core::mem::take(&mut traced.fresh);
        // What a search found dirty before the trace was read needs no second look.
        let unknown: Vec<ByteRange> = fresh
            .iter()
            .flat_map(|range| look.idle_parts(self.config.id, range))
            .collect();
        for range in fresh.iter() {
            self.pass_busy(look, range);
        }
        for range in unknown {
            let mut search = look.search(Counted::unwritten_bytes);
            search.descend(range);
            let mut clean = RangeSet::new();
            clean.insert(range);
            for (piece, bytes) in search.found {
                clean.remove(piece);
                self.found_written(look, piece, bytes);
            }
            for part in clean.iter() {
                self.fronts.appeared(look.now_ns, part);
            }
        }
        !fresh.is_empty()
    }

    /// Pages of ours in this range that are under way are dropped when that is over.
    fn pass_busy<P: Pages>(&mut self, look: &mut Look<'_, P>, range: ByteRange) {
        for part in busy_parts(look.disk, self.config.id, range) {
            look.disk.passed(look.now_ns, self.config.id, part);
        }
    }

    /// Records that this many bytes of the range were written.
    fn found_written<P: Pages>(
        &mut self,
        look: &mut Look<'_, P>,
        range: ByteRange,
        written_bytes: u64,
    ) {
        self.fronts.withdraw(range);
        self.take_back(range);
        let (id, mode) = (self.config.id, self.config.mode);
        look.disk.found(look.now_ns, id, range, written_bytes, mode);
        // With the trace, each page brought in is counted once, plus what is written to pages
        // that were there before.
        let brought_bytes = self.take_uncounted(range);
        let known_bytes = self.counted_dirty.bytes_of(range).min(written_bytes);
        if !mode.drops() || self.keeps_all {
            let dirty = ByteRange::new(range.start, range.start + written_bytes.min(range.len()));
            self.counted_dirty.insert(dirty);
        }
        let new_bytes = written_bytes - known_bytes;
        let written_bytes = new_bytes - self.take_others_unwritten(range, new_bytes);
        self.counted_early(range, written_bytes.saturating_sub(brought_bytes));
        self.counts.written_bytes += brought_bytes.max(written_bytes);
        self.write_cursor = range.end;
    }

    /// Without the trace: of the bytes found written, how many others had written before the open.
    /// What the program has overwritten of those is not told apart.
    fn take_others_unwritten(&mut self, range: ByteRange, written_bytes: u64) -> u64 {
        let Some(resident) = self.provenance.resident() else {
            return 0;
        };
        let before = range.intersection(ByteRange::new(0, resident.unwritten_end));
        let others_bytes = written_bytes.min(before.len());
        let others_bytes = others_bytes.min(resident.unwritten_bytes);
        resident.unwritten_bytes -= others_bytes;
        others_bytes
    }

    /// Forgets what has been written to the disk of what was counted as dirty: if it is found
    /// dirty again, it was written once more.
    fn see_clean<P: Pages>(&mut self, look: &Look<'_, P>) {
        let mut search = look.search(Counted::unwritten_bytes);
        for range in self.counted_dirty.iter() {
            search.descend(range);
        }
        self.counted_dirty.clear();
        for (piece, bytes) in search.found {
            let dirty = ByteRange::new(piece.start, piece.start + bytes);
            self.counted_dirty.insert(dirty);
        }
    }

    /// Takes how many bytes of this range had been dropped before.
    fn take_back(&mut self, range: ByteRange) -> u64 {
        let traced = self.provenance.traced();
        traced.map_or(0, |traced| traced.back.remove(range))
    }

    /// Counts what was brought into this range, now that its purpose is known.
    fn take_uncounted(&mut self, range: ByteRange) -> u64 {
        let traced = self.provenance.traced();
        traced.map_or(0, |traced| traced.uncounted.remove(range))
    }

    fn count_all<P: Pages>(&mut self, look: &mut Look<'_, P>) -> bool {
        let all = self.all();
        let Some(counted) = look.pages.count(all) else {
            return false;
        };
        let changed = counted != self.counts.counted;
        self.counts.counted = counted;
        if counted.unwritten_bytes() < self.counted_dirty.bytes() {
            self.see_clean(look);
        }
        let Some(stream) = look.disk.stream(self.config.id) else {
            return changed;
        };
        let unknown_dirty_bytes = counted
            .unwritten_bytes()
            .saturating_sub(stream.unclean_bytes());
        let brought_bytes = stream.brought_bytes();
        let left_bytes = stream.counters().left_bytes;
        let is_deleted = stream.is_deleted();
        let ours_bytes = match &mut self.provenance {
            // The kernel may have evicted some.
            Provenance::Traced(_) if self.config.mode.drops() => {
                (brought_bytes + left_bytes).min(counted.cached_bytes)
            }
            Provenance::Traced(_) => counted.cached_bytes,
            Provenance::ResidentAtOpen(resident) => {
                // Reclaim takes pages of others, too; pages that come after that are not
                // theirs.
                let Counted { cached_bytes, .. } = counted;
                resident.before_bytes = resident.before_bytes.min(cached_bytes);
                let unwritten_bytes = counted.unwritten_bytes();
                resident.unwritten_bytes = resident.unwritten_bytes.min(unwritten_bytes);
                cached_bytes - resident.before_bytes
            }
        };
        self.counts.ours = Counted {
            cached_bytes: ours_bytes,
            ..counted
        };
        // A stream takes no note of what is dirty in a deleted file, so it would be found, and counted
        // as written, with each look.
        if !is_deleted && self.is_worth_a_search(look, unknown_dirty_bytes) {
            self.searched_ns = look.now_ns;
            self.search_written(look, all);
        }
        if let Some(&mut Resident { before_bytes, .. }) = self.provenance.resident()
            && self.drops_what_appears()
        {
            let explained_bytes = before_bytes + brought_bytes + self.fronts.waiting_bytes();
            let unknown_bytes = counted.cached_bytes.saturating_sub(explained_bytes);
            if self.is_worth_a_search(look, unknown_bytes) {
                self.searched_ns = look.now_ns;
                self.search_read(look, all);
            }
        }
        self.tell_passed(look);
        changed
    }

    /// The trace names pieces of which little may be dirty: only a search finds everything.
    fn is_worth_a_search<P: Pages>(&self, look: &Look<'_, P>, unknown_bytes: u64) -> bool {
        let rested = look.now_ns.saturating_sub(self.searched_ns) >= SEARCH_NS;
        look.thorough || unknown_bytes >= SEARCH_BYTES || unknown_bytes > 0 && rested
    }

    /// Returns whether a look had to leave something out while a request is under way.
    pub(super) fn has_undecided<P: Pages>(&self, look: &Look<'_, P>) -> bool {
        let Some(stream) = look.disk.stream(self.config.id) else {
            return false;
        };
        let drops = self.drops_what_appears();
        stream.undecided(self.all()).into_iter().any(|gap| {
            let counted = look.count(gap);
            counted.unwritten_bytes() > 0 || drops && counted.cached_bytes > 0
        })
    }

    fn search_written<P: Pages>(&mut self, look: &mut Look<'_, P>, all: ByteRange) {
        // A sequential writer continues where it was.
        let cursor = self.write_cursor.min(all.end);
        let mut search = look.search(Counted::unwritten_bytes);
        for half in [
            ByteRange::new(cursor, all.end),
            ByteRange::new(all.start, cursor),
        ] {
            for gap in look.idle_parts(self.config.id, half) {
                search.descend(gap);
            }
        }
        let found = search.found;
        // They may have been brought in since the trace was read. Pages that the trace doesn't
        // name until the next search were there before.
        let doubts = !look.thorough;
        let suspects = self.provenance.traced().map(|traced| {
            let pieces = found.iter().map(|(piece, _)| *piece).filter(|_| doubts);
            core::mem::replace(&mut traced.suspects, pieces.collect())
        });
        let Some(suspects) = suspects.filter(|_| doubts) else {
            for (piece, bytes) in found {
                self.found_written(look, piece, bytes);
            }
            return;
        };
        for suspect in suspects {
            for part in look.idle_parts(self.config.id, suspect) {
                let bytes = look.count(part).unwritten_bytes();
                if bytes > 0 {
                    self.found_written(look, part, bytes);
                }
            }
        }
    }

    /// Without the trace: finds pages that appeared.
    fn search_read<P: Pages>(&mut self, look: &Look<'_, P>, all: ByteRange) {
        let stream = look.disk.stream(self.config.id);
        let (Some(stream), Some(resident)) = (stream, self.provenance.resident()) else {
            return;
        };
        let mut search = look.search(|counted| counted.cached_bytes);
        let cursor = core::mem::take(&mut resident.cursor);
        // If a file was cached here and there, there are many gaps, most of them already
        // dropped. Always starting at the first would never reach the last ones.
        let gaps = stream.unexplained(all);
        let first = gaps.partition_point(|gap| gap.end <= cursor);
        'gaps: for gap in gaps[first..].iter().chain(&gaps[..first]) {
            for part in self.fronts.unseen(*gap) {
                search.descend(part);
                if search.counts == 0 {
                    resident.cursor = part.start;
                    break 'gaps;
                }
            }
        }
        for (piece, _) in search.found {
            self.fronts.appeared(look.now_ns, piece);
        }
    }

    /// Hands the stream what the fronts have passed: its readers are done with it, or its
    /// writer is, if it was clean before it was found.
    fn tell_passed<P: Pages>(&mut self, look: &mut Look<'_, P>) {
        let (now_ns, id) = (look.now_ns, self.config.id);
        let passed = if self.closed || self.flush {
            self.fronts.all()
        } else {
            self.fronts.passed(now_ns)
        };
        let halves = self.was_there_and_new();
        let passed = passed
            .iter()
            .flat_map(|range| halves.map(|half| range.intersection(half)))
            .filter(|range| !range.is_empty());
        let traced = self.provenance.traced().is_some();
        for range in passed {
            for part in look.idle_parts(id, range) {
                let counted = look.count(part);
                if counted.unwritten_bytes() > 0 {
                    // Written meanwhile: don't drop it before it is clean.
                    self.found_written(look, part, counted.unwritten_bytes());
                    continue;
                }
                let drops =
                    self.drops_what_appears() || self.config.mode.drops() && self.is_new(part);
                match (traced, drops) {
                    (true, true) => look.disk.passed(now_ns, id, part),
                    (true, false) => look.disk.kept(now_ns, id, part),
                    (false, true) => look.disk.read(now_ns, id, part),
                    (false, false) => {}
                }
                match traced {
                    true => self.count_clean(part),
                    false if self.is_only_written() => {
                        self.counts.written_bytes += counted.cached_bytes;
                    }
                    false => self.counts.read_bytes += counted.cached_bytes,
                }
            }
            // The rest of it is under way.
            if traced {
                self.pass_busy(look, range);
            }
            self.take_back(range);
            self.counts.written_bytes += self.take_uncounted(range);
        }
    }

    /// The parts of the file that were there when it was opened, and that were not.
    pub(super) fn was_there_and_new(&self) -> [ByteRange; 2] {
        let written_from = self.config.written_from;
        [
            ByteRange::new(0, written_from),
            ByteRange::new(written_from, u64::MAX),
        ]
    }

    /// Returns whether `range`, which lies in one of these parts, entered the cache by a write:
    /// there was nothing to read, and nothing of it was dropped since.
    fn is_new(&self, range: ByteRange) -> bool {
        let Provenance::Traced(traced) = &self.provenance else {
            return false;
        };
        range.start >= self.config.written_from && traced.back.overlaps_of(range).next().is_none()
    }

    /// Counts what the trace has named in this range, which is clean and lies in one of these
    /// parts.
    pub(super) fn count_clean(&mut self, range: ByteRange) {
        let only_written = self.is_only_written() || self.is_new(range);
        let back_bytes = self.take_back(range);
        let bytes = self.take_uncounted(range);
        match only_written {
            true => self.counts.written_bytes += bytes,
            false => {
                self.counts.read_bytes += bytes;
                self.counts.reread_bytes += back_bytes.min(bytes);
            }
        }
    }
}
