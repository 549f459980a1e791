//! Looks at observed files: what was written and read since the last one.
//!
//! Where the kernel tells which pages the programs brought in, a count says
//! whether they were written or read. Nobody tells of writes to pages that were
//! cached already: when more pages of the file are dirty than are known of,
//! halving and counting finds where. Where the kernel tells nothing, halving finds
//! what was brought in, too.

use std::os::fd::{AsFd, BorrowedFd};

use dropbehind_linux::page_size;
use dropbehind_policy::{ByteRange, Counted, RangeSet, StreamId};

use super::Notice;
use super::disk_thread::DiskThread;
use super::observed::{ObservedState, Watch};
use super::processor_time::processor_time;
use crate::handle::lock;
use crate::residency;

/// Files that change are looked at this often: at 2 GB/s, 4 MiB later. A look
/// at a file that grows costs some 3 µs.
pub(super) const LOOK_MIN_NS: u64 = 2_000_000;
/// Files that do not change are looked at less and less often, down to this,
const LOOK_MAX_NS: u64 = 200_000_000;
/// and, once idle, to this: nothing reports writes to pages that were cached already.
const LOOK_IDLE_NS: u64 = 2_000_000_000;
/// Unchanged for so long, a file is idle.
const IDLE_NS: u64 = 1_000_000_000;
/// All pages of a file are counted at most this often,
const COUNT_MIN_NS: u64 = 8_000_000;
/// and no more than one part in so many of the time.
const COUNT_SHARE: u64 = 25;
/// So many unknown bytes are worth looking for at once,
const SEARCH_BYTES: u64 = 1 << 20;
/// and fewer after this time.
const SEARCH_NS: u64 = 200_000_000;
/// Pages are found to within this.
const PIECE_BYTES: u64 = 128 << 10;
/// No more counts than this in one search: 20 ms when each has a thousand pages
/// to walk. The next one goes on where this one ended.
const COUNTS: u32 = 2048;
/// And this in one that is to find everything: enough for a gigabyte of which
/// every second page was cached before.
const THOROUGH_COUNTS: u32 = 1 << 18;
/// Looks that find everything take no more than one part in so many of the time,
/// however often they are asked for.
const THOROUGH_SHARE: u64 = 4;

/// One look at one file.
#[derive(Clone, Copy)]
struct Look<'fd> {
    now_ns: u64,
    id: StreamId,
    fd: BorrowedFd<'fd>,
    /// Everything is to be found.
    thorough: bool,
}

impl DiskThread {
    /// Looks at the observed files that are due; answers when the next one is.
    pub(super) fn look_around(&mut self) -> Option<u64> {
        loop {
            let &(due_ns, number) = self.looks.first()?;
            if due_ns > self.now_ns() {
                return Some(due_ns);
            }
            self.looks.remove(&(due_ns, number));
            self.look_at(number, false);
        }
    }

    /// Queues the next look at a file.
    pub(super) fn queue_look(&mut self, number: u32, due_ns: u64) {
        let Some(watch) = self.watch_of(number) else {
            return;
        };
        let queued_ns = std::mem::replace(&mut watch.next_look_ns, due_ns);
        self.looks.remove(&(queued_ns, number));
        self.looks.insert((due_ns, number));
    }

    /// Looks at a file now; `thorough` finds everything.
    pub(super) fn look_at(&mut self, number: u32, thorough: bool) {
        let now_ns = self.now_ns();
        let Some(mut entry) = self.entries.remove(&number) else {
            return;
        };
        let Some(mut watch) = entry.watch.take() else {
            self.entries.insert(number, entry);
            return;
        };
        watch.thorough_wanted |= thorough;
        let thorough = watch.thorough_wanted && now_ns >= watch.thorough_from_ns;
        let look = Look {
            now_ns,
            id: StreamId(number.into()),
            fd: entry.description.as_fd(),
            thorough,
        };
        let changed = self.see(look, &mut watch);
        if thorough {
            watch.thorough_wanted = self.has_undecided(look, &watch);
            let cost_ns = self.now_ns() - now_ns;
            watch.thorough_from_ns = self.now_ns() + cost_ns.saturating_mul(THOROUGH_SHARE - 1);
        }
        if changed {
            watch.changed_ns = now_ns;
            watch.interval_ns = LOOK_MIN_NS;
            watch.idle_told = false;
        } else {
            watch.interval_ns = (watch.interval_ns * 3 / 2).clamp(LOOK_MIN_NS, LOOK_MAX_NS);
        }
        let idle = now_ns.saturating_sub(watch.changed_ns) > IDLE_NS;
        if idle {
            watch.interval_ns = LOOK_IDLE_NS;
            if !watch.idle_told {
                watch.idle_told = true;
                let key = watch.options.key;
                watch.options.notices.tell(Notice::Idle { key });
            }
        }
        if let Some(brake) = &watch.brake {
            let unwritten_bytes = watch.counted.unwritten_bytes();
            self.shared.saw_unwritten(brake, unwritten_bytes);
        }
        let mut due_ns = self.now_ns() + watch.interval_ns;
        if watch.thorough_wanted {
            due_ns = watch.thorough_from_ns.min(due_ns);
        }
        let (left, flushed) = if watch.thorough_wanted {
            (false, false)
        } else {
            // Not before everything was found: who is done with is forgotten. Whatever
            // was found after the close does not open the file again.
            (watch.closed, std::mem::take(&mut watch.flushed))
        };
        self.store_state(number, &watch);
        entry.watch = Some(watch);
        self.entries.insert(number, entry);
        self.queue_look(number, due_ns);
        if left {
            self.disk.closed(now_ns, StreamId(number.into()));
        }
        if flushed {
            self.disk.flush(now_ns, StreamId(number.into()));
        }
        self.publish(number);
    }

    fn store_state(&self, number: u32, watch: &Watch) {
        let stream = self.disk.stream(StreamId(number.into()));
        let (waits, wait_ns) = watch.brake.as_ref().map_or((0, 0), |brake| brake.waits());
        let mut state = lock(&watch.state);
        *state = ObservedState {
            size_bytes: watch.size_bytes,
            counted: watch.counted,
            written_bytes: watch.written_bytes,
            read_bytes: watch.read_bytes,
            counters: stream
                .map(|stream| stream.counters())
                .unwrap_or(state.counters),
            idle: watch.idle_told,
            waits,
            wait_ns,
        };
    }

    /// True when something happened to the file since the last look.
    fn see(&mut self, look: Look<'_>, watch: &mut Watch) -> bool {
        let Look { now_ns, id, .. } = look;
        let mut changed = false;
        let size_bytes = if watch.block_device {
            watch.size_bytes
        } else {
            dropbehind_linux::size_bytes(look.fd).unwrap_or(watch.size_bytes)
        };
        if size_bytes < watch.size_bytes {
            self.disk.resized(now_ns, id, size_bytes);
            let end = size_bytes.next_multiple_of(page_size());
            watch.fronts.withdraw(ByteRange::new(end, u64::MAX));
            watch.write_cursor = watch.write_cursor.min(size_bytes);
            watch.size_bytes = size_bytes;
            watch.before_bytes = watch.before_bytes.min(end);
            changed = true;
        }
        if size_bytes > watch.size_bytes {
            if watch.is_told() {
                watch.size_bytes = size_bytes;
            } else {
                self.grew(look, watch, size_bytes);
            }
            changed = true;
        }
        changed |= self.sort_fresh(look, watch);
        if look.thorough || now_ns >= watch.next_count_ns {
            let before = processor_time();
            changed |= self.count_all(look, watch);
            let cost = processor_time() - before;
            let cost_ns = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX / COUNT_SHARE);
            watch.next_count_ns = self.now_ns() + (cost_ns * COUNT_SHARE).max(COUNT_MIN_NS);
        }
        self.disk.told(now_ns, id, watch.written_bytes);
        changed
    }

    fn grew(&mut self, look: Look<'_>, watch: &mut Watch, size_bytes: u64) {
        let page_bytes = page_size();
        let start = watch.size_bytes - watch.size_bytes % page_bytes;
        let grown = ByteRange::new(start, size_bytes.next_multiple_of(page_bytes));
        let cached_bytes =
            residency::count(look.fd, grown).map_or(0, |counted| counted.cached_bytes);
        watch.size_bytes = size_bytes;
        if cached_bytes >= grown.len() / 2 {
            self.found_written(look, watch, grown, cached_bytes);
        } else if cached_bytes > 0 {
            // Made longer, and written here and there.
            for piece in residency::cached_pieces(look.fd, grown) {
                self.found_written(look, watch, piece, piece.len());
            }
        }
    }

    /// Of what was brought in since the last look, what is dirty was written. The rest
    /// was read, or is being written in this moment: it waits behind the fronts.
    fn sort_fresh(&mut self, look: Look<'_>, watch: &mut Watch) -> bool {
        let fresh = std::mem::take(&mut watch.fresh);
        // What a search has found dirty before it was told needs no second look.
        let Some(stream) = self.disk.stream(look.id) else {
            return false;
        };
        let unknown: Vec<ByteRange> = fresh
            .iter()
            .flat_map(|range| stream.untold(range))
            .collect();
        for range in fresh.iter() {
            self.pass_busy(look, range);
        }
        for range in unknown {
            let mut search = Search::new(look, |counted| counted.unwritten_bytes());
            search.descend(range);
            let mut clean = RangeSet::new();
            clean.insert(range);
            for (piece, bytes) in search.found {
                clean.remove(piece);
                self.found_written(look, watch, piece, bytes);
            }
            for part in clean.iter() {
                watch.fronts.appeared(look.now_ns, part);
            }
        }
        !fresh.is_empty()
    }

    /// What of this range is on its way is dropped, if it is ours, once that is over.
    fn pass_busy(&mut self, look: Look<'_>, range: ByteRange) {
        let Some(stream) = self.disk.stream(look.id) else {
            return;
        };
        let mut busy = RangeSet::new();
        busy.insert(range);
        for idle in stream.untold(range) {
            busy.remove(idle);
        }
        for part in busy.iter() {
            self.disk.passed(look.now_ns, look.id, part);
        }
    }

    /// Of this range, so many bytes were written.
    fn found_written(
        &mut self,
        look: Look<'_>,
        watch: &mut Watch,
        range: ByteRange,
        written_bytes: u64,
    ) {
        watch.fronts.withdraw(range);
        self.disk
            .wrote(look.now_ns, look.id, range, watch.options.mode);
        // Where the kernel tells, each page that was brought in is counted once, and
        // besides what is written of those that were there.
        let brought_bytes = watch.uncounted.remove(range);
        watch.written_bytes += brought_bytes.max(written_bytes);
        watch.write_cursor = range.end;
    }

    fn count_all(&mut self, look: Look<'_>, watch: &mut Watch) -> bool {
        let all = residency::whole(watch.size_bytes);
        let Ok(counted) = residency::count(look.fd, all) else {
            return false;
        };
        let changed = counted != watch.counted;
        watch.counted = counted;
        // Reclaim takes what others had, too; what comes after it is not theirs.
        watch.before_bytes = watch.before_bytes.min(counted.cached_bytes);
        let Some(stream) = self.disk.stream(look.id) else {
            return changed;
        };
        let brought_bytes = if watch.is_told() && watch.options.mode.drops() {
            stream.brought_bytes()
        } else {
            counted.cached_bytes.saturating_sub(watch.before_bytes)
        };
        let brought = Counted {
            cached_bytes: brought_bytes,
            ..counted
        };
        self.account(watch.accounted, brought);
        watch.accounted = brought;
        let rested = look.now_ns.saturating_sub(watch.searched_ns) >= SEARCH_NS;
        // What is told are pieces, of which little may be dirty: only a search
        // finds everything.
        let worth = |bytes: u64| look.thorough || bytes >= SEARCH_BYTES || bytes > 0 && rested;

        let unknown_dirty = counted
            .unwritten_bytes()
            .saturating_sub(stream.unclean_bytes());
        if worth(unknown_dirty) {
            watch.searched_ns = look.now_ns;
            self.search_written(look, watch, all);
        }
        if !watch.is_told() && watch.drops_what_appears() {
            self.search_read(look, watch, all, worth);
        }
        self.tell_passed(look, watch);
        changed
    }

    /// True when a look had to leave something out, for as long as a request is
    /// under way.
    fn has_undecided(&self, look: Look<'_>, watch: &Watch) -> bool {
        let all = residency::whole(watch.size_bytes);
        let Some(stream) = self.disk.stream(look.id) else {
            return false;
        };
        let dropped = watch.drops_what_appears();
        stream.undecided(all).into_iter().any(|gap| {
            let counted = residency::count(look.fd, gap).unwrap_or_default();
            counted.unwritten_bytes() > 0 || dropped && counted.cached_bytes > 0
        })
    }

    fn search_written(&mut self, look: Look<'_>, watch: &mut Watch, all: ByteRange) {
        let Some(stream) = self.disk.stream(look.id) else {
            return;
        };
        // A sequential writer goes on where it was.
        let cursor = watch.write_cursor.min(all.end);
        let (before, after) = (
            ByteRange::new(all.start, cursor),
            ByteRange::new(cursor, all.end),
        );
        let mut search = Search::new(look, |counted| counted.unwritten_bytes());
        for half in [after, before] {
            for gap in stream.untold(half) {
                search.descend(gap);
            }
        }
        if !watch.is_told() || look.thorough {
            watch.suspects.clear();
            for (piece, bytes) in search.found {
                self.found_written(look, watch, piece, bytes);
            }
            return;
        }
        // It may have been brought in since the last that was told. What is not told
        // until the next search was there before.
        let found = search.found.iter().map(|(piece, _)| *piece).collect();
        let suspects = std::mem::replace(&mut watch.suspects, found);
        for suspect in suspects {
            let Some(stream) = self.disk.stream(look.id) else {
                return;
            };
            for part in stream.untold(suspect) {
                let bytes = residency::count(look.fd, part).unwrap_or_default();
                if bytes.unwritten_bytes() > 0 {
                    self.found_written(look, watch, part, bytes.unwritten_bytes());
                }
            }
        }
    }

    fn search_read(
        &mut self,
        look: Look<'_>,
        watch: &mut Watch,
        all: ByteRange,
        worth: impl Fn(u64) -> bool,
    ) {
        let Some(stream) = self.disk.stream(look.id) else {
            return;
        };
        let explained = watch.before_bytes + stream.brought_bytes() + watch.fronts.waiting_bytes();
        if !worth(watch.counted.cached_bytes.saturating_sub(explained)) {
            return;
        }
        watch.searched_ns = look.now_ns;
        let mut search = Search::new(look, |counted| counted.cached_bytes);
        // Of a file that was cached here and there, there are many, most of
        // them dropped before: always from the first one, and the last ones
        // would never be looked at.
        let gaps = stream.unexplained(all);
        let first = gaps.partition_point(|gap| gap.end <= watch.read_cursor);
        watch.read_cursor = 0;
        'gaps: for gap in gaps[first..].iter().chain(&gaps[..first]) {
            for part in watch.fronts.unseen(*gap) {
                search.descend(part);
                if search.counts == 0 {
                    watch.read_cursor = part.start;
                    break 'gaps;
                }
            }
        }
        for (piece, _) in search.found {
            watch.fronts.appeared(look.now_ns, piece);
        }
    }

    /// Tells what the fronts have passed: its readers are done with it, or its writer
    /// is, where it was clean before it was found.
    fn tell_passed(&mut self, look: Look<'_>, watch: &mut Watch) {
        let passed = if watch.closed || watch.flushed {
            watch.fronts.all()
        } else {
            watch.fronts.passed(look.now_ns)
        };
        let drops = watch.drops_what_appears();
        for part in passed {
            let Some(stream) = self.disk.stream(look.id) else {
                return;
            };
            let unknown = stream.untold(part);
            for part in unknown {
                let counted = residency::count(look.fd, part).unwrap_or_default();
                if counted.unwritten_bytes() > 0 {
                    // Written meanwhile, it is not to be dropped before that is clean.
                    self.found_written(look, watch, part, counted.unwritten_bytes());
                    continue;
                }
                match (watch.is_told(), drops) {
                    (true, true) => self.disk.passed(look.now_ns, look.id, part),
                    (true, false) => self.disk.kept(look.now_ns, look.id, part),
                    (false, true) => self.disk.read(look.now_ns, look.id, part),
                    (false, false) => {}
                }
                let moved_bytes = match watch.is_told() {
                    true => watch.uncounted.remove(part),
                    false => counted.cached_bytes,
                };
                watch.count_moved(moved_bytes, watch.is_only_written());
            }
            // The rest of it is on its way.
            if watch.is_told() {
                self.pass_busy(look, part);
            }
            let rest_bytes = watch.uncounted.remove(part);
            watch.count_moved(rest_bytes, true);
        }
    }
}

/// Halves ranges down to pieces in which something is.
struct Search<'fd, F> {
    fd: BorrowedFd<'fd>,
    of_interest: F,
    counts: u32,
    /// What was found, and how many bytes of it are of interest.
    found: Vec<(ByteRange, u64)>,
}

impl<'fd, F: Fn(Counted) -> u64> Search<'fd, F> {
    fn new(look: Look<'fd>, of_interest: F) -> Search<'fd, F> {
        Search {
            fd: look.fd,
            of_interest,
            counts: if look.thorough {
                THOROUGH_COUNTS
            } else {
                COUNTS
            },
            found: Vec::new(),
        }
    }

    fn descend(&mut self, range: ByteRange) {
        if range.is_empty() || self.counts == 0 {
            return;
        }
        self.counts -= 1;
        let Ok(counted) = residency::count(self.fd, range) else {
            return;
        };
        let bytes = (self.of_interest)(counted);
        if bytes == 0 {
            return;
        }
        if bytes >= range.len() || range.len() <= PIECE_BYTES {
            match self.found.last_mut() {
                Some((last, found_bytes)) if last.end == range.start => {
                    last.end = range.end;
                    *found_bytes += bytes;
                }
                _ => self.found.push((range, bytes)),
            }
            return;
        }
        let half = (range.len() / 2).next_multiple_of(PIECE_BYTES);
        // Aligned, so that neighbours meet where folios do.
        let middle = range.start + half;
        let middle = (middle - middle % PIECE_BYTES).max(range.start + page_size());
        self.descend(ByteRange::new(range.start, middle.min(range.end)));
        self.descend(ByteRange::new(middle.min(range.end), range.end));
    }
}
