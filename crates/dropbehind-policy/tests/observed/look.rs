//! Looks at files, as the library has them: of what was brought in, counting finds what
//! was written.

use dropbehind_policy::{ByteRange, Counted, RangeSet, StreamId};

use crate::cache::{File, PAGE};
use crate::disk_thread::Watch;
use crate::plan::MS;
use crate::world::World;

const LOOK_MIN_NS: u64 = 2 * MS;
const LOOK_MAX_NS: u64 = 200 * MS;
const SEARCH_BYTES: u64 = 1 << 20;
const SEARCH_NS: u64 = 200 * MS;
const PIECE_BYTES: u64 = 128 << 10;

impl World {
    /// Looks at the files that are due; true when there were any.
    pub(crate) fn look_around(&mut self) -> bool {
        let now_ns = self.now_ns;
        let watches = self.threads.watches.iter();
        let due: Vec<StreamId> = watches
            .filter(|(_, watch)| watch.next_look_ns <= now_ns)
            .map(|(stream, _)| *stream)
            .collect();
        let any = !due.is_empty();
        for stream in due {
            self.look_at(stream, false);
        }
        any
    }

    pub(crate) fn look_at(&mut self, stream: StreamId, thorough: bool) {
        let Some(mut watch) = self.threads.watches.remove(&stream) else {
            return;
        };
        watch.thorough_wanted |= thorough;
        let thorough = watch.thorough_wanted;
        let changed = self.see(stream, &mut watch, thorough);
        if thorough {
            watch.thorough_wanted = self.has_undecided(stream, &watch);
        }
        watch.interval_ns = match changed {
            true => LOOK_MIN_NS,
            false => (watch.interval_ns * 3 / 2).clamp(LOOK_MIN_NS, LOOK_MAX_NS),
        };
        watch.next_look_ns = self.now_ns + watch.interval_ns;
        let (left, flushed) = match watch.thorough_wanted {
            true => (false, false),
            false => (watch.closed, std::mem::take(&mut watch.flushed)),
        };
        self.threads.watches.insert(stream, watch);
        if left {
            self.threads.disk.closed(self.now_ns, stream);
        }
        if flushed {
            self.threads.disk.flush(self.now_ns, stream);
        }
    }

    /// True when something happened to the file since the last look.
    fn see(&mut self, stream: StreamId, watch: &mut Watch, thorough: bool) -> bool {
        let size_bytes = self.files[watch.file].size_pages as u64 * PAGE;
        let mut changed = size_bytes != watch.size_bytes;
        if size_bytes < watch.size_bytes {
            self.threads.disk.resized(self.now_ns, stream, size_bytes);
            watch.fronts.withdraw(ByteRange::new(size_bytes, u64::MAX));
            watch.write_cursor = watch.write_cursor.min(size_bytes);
        }
        watch.size_bytes = size_bytes;
        changed |= self.sort_fresh(stream, watch, thorough);
        if thorough || self.random.chance(500) {
            changed |= self.count_all(stream, watch, thorough);
        }
        self.threads.disk.told(self.now_ns, stream, 0);
        changed
    }

    fn sort_fresh(&mut self, stream: StreamId, watch: &mut Watch, thorough: bool) -> bool {
        let fresh = std::mem::take(&mut watch.fresh);
        let Some(known) = self.threads.disk.stream(stream) else {
            return false;
        };
        let unknown: Vec<ByteRange> = fresh.iter().flat_map(|range| known.untold(range)).collect();
        for range in fresh.iter() {
            self.pass_busy(stream, range);
        }
        for range in unknown {
            let mut search = self.search(thorough);
            search.descend(&self.files[watch.file], range);
            let mut clean = RangeSet::new();
            clean.insert(range);
            for piece in search.found {
                clean.remove(piece);
                self.found_written(stream, watch, piece);
            }
            for part in clean.iter() {
                watch.fronts.appeared(self.now_ns, part);
            }
        }
        !fresh.is_empty()
    }

    /// What of this range is on its way is dropped, if it is ours, once that is over.
    fn pass_busy(&mut self, stream: StreamId, range: ByteRange) {
        let Some(known) = self.threads.disk.stream(stream) else {
            return;
        };
        let mut busy = RangeSet::new();
        busy.insert(range);
        for idle in known.untold(range) {
            busy.remove(idle);
        }
        for part in busy.iter() {
            self.threads.disk.passed(self.now_ns, stream, part);
        }
    }

    fn found_written(&mut self, stream: StreamId, watch: &mut Watch, range: ByteRange) {
        self.say(|| format!("{stream:?}: {range:?} was written"));
        watch.fronts.withdraw(range);
        let mode = self.plan.files[watch.file].mode;
        self.threads.disk.wrote(self.now_ns, stream, range, mode);
        watch.wrote = true;
        watch.write_cursor = range.end;
    }

    fn count_all(&mut self, stream: StreamId, watch: &mut Watch, thorough: bool) -> bool {
        let all = ByteRange::new(0, watch.size_bytes);
        let counted = self.files[watch.file].count(all);
        let changed = counted != watch.counted;
        watch.counted = counted;
        let Some(known) = self.threads.disk.stream(stream) else {
            return changed;
        };
        let rested = self.now_ns.saturating_sub(watch.searched_ns) >= SEARCH_NS;
        let unknown_dirty = counted
            .unwritten_bytes()
            .saturating_sub(known.unclean_bytes());
        if thorough || unknown_dirty >= SEARCH_BYTES || unknown_dirty > 0 && rested {
            watch.searched_ns = self.now_ns;
            self.search_written(stream, watch, all, thorough);
        }
        self.tell_passed(stream, watch);
        changed
    }

    fn has_undecided(&self, stream: StreamId, watch: &Watch) -> bool {
        let all = ByteRange::new(0, watch.size_bytes);
        let Some(known) = self.threads.disk.stream(stream) else {
            return false;
        };
        let dropped = self.drops_what_appears(watch);
        known.undecided(all).into_iter().any(|gap| {
            let counted = self.files[watch.file].count(gap);
            counted.unwritten_bytes() > 0 || dropped && counted.cached_bytes > 0
        })
    }

    fn drops_what_appears(&self, watch: &Watch) -> bool {
        let only_written = watch.wrote && !watch.was_read;
        self.plan.files[watch.file].reads || only_written
    }

    fn search_written(
        &mut self,
        stream: StreamId,
        watch: &mut Watch,
        all: ByteRange,
        thorough: bool,
    ) {
        let cursor = watch.write_cursor.min(all.end);
        let halves = [
            ByteRange::new(cursor, all.end),
            ByteRange::new(all.start, cursor),
        ];
        let mut search = self.search(thorough);
        for half in halves {
            let known = self.threads.disk.stream(stream);
            for gap in known.map(|known| known.untold(half)).unwrap_or_default() {
                search.descend(&self.files[watch.file], gap);
            }
        }
        if thorough {
            watch.suspects.clear();
            for piece in search.found {
                self.found_written(stream, watch, piece);
            }
            return;
        }
        for suspect in std::mem::replace(&mut watch.suspects, search.found) {
            let known = self.threads.disk.stream(stream);
            for part in known.map(|known| known.untold(suspect)).unwrap_or_default() {
                if self.files[watch.file].count(part).unwritten_bytes() > 0 {
                    self.found_written(stream, watch, part);
                }
            }
        }
    }

    fn tell_passed(&mut self, stream: StreamId, watch: &mut Watch) {
        let now_ns = self.now_ns;
        let passed = match watch.closed || watch.flushed {
            true => watch.fronts.all(),
            false => watch.fronts.passed(now_ns),
        };
        let drops = self.drops_what_appears(watch);
        for part in passed {
            let known = self.threads.disk.stream(stream);
            for part in known.map(|known| known.untold(part)).unwrap_or_default() {
                if self.files[watch.file].count(part).unwritten_bytes() > 0 {
                    self.found_written(stream, watch, part);
                } else if drops {
                    self.say(|| format!("{stream:?}: {part:?} was passed"));
                    self.threads.disk.passed(now_ns, stream, part);
                } else {
                    self.coverage.saw("pages kept");
                    self.files[watch.file].keep(part, watch.told_add);
                    self.threads.disk.kept(now_ns, stream, part);
                }
            }
            self.pass_busy(stream, part);
        }
    }

    fn search(&mut self, thorough: bool) -> Search {
        Search {
            counts: match thorough {
                true => 1 << 18,
                false => 1 << self.random.between(2, 11),
            },
            found: Vec::new(),
        }
    }
}

/// Halves ranges down to pieces in which something is not written.
struct Search {
    counts: u32,
    found: Vec<ByteRange>,
}

impl Search {
    fn descend(&mut self, file: &File, range: ByteRange) {
        if range.is_empty() || self.counts == 0 {
            return;
        }
        self.counts -= 1;
        let bytes = Counted::unwritten_bytes(file.count(range));
        if bytes == 0 {
            return;
        }
        if bytes >= range.len() || range.len() <= PIECE_BYTES {
            match self.found.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => self.found.push(range),
            }
            return;
        }
        let half = (range.len() / 2).next_multiple_of(PIECE_BYTES);
        let middle = range.start + half;
        let middle = (middle - middle % PIECE_BYTES).max(range.start + PAGE);
        self.descend(file, ByteRange::new(range.start, middle.min(range.end)));
        self.descend(file, ByteRange::new(middle.min(range.end), range.end));
    }
}
