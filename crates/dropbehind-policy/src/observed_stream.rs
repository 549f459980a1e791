//! An observed file that has a stream: what became of its pages since the last look.
//!
//! Nobody says what observed programs write and read. Where the kernel's trace names
//! the pages that they brought in, a count tells which of these are dirty: they were
//! written, and the others were read. Writes to pages that were cached already are
//! found when more pages of the file are dirty than are known of. Without the trace,
//! what is cached and was not when the file was opened counts as brought in.

use alloc::vec::Vec;
use core::convert::Infallible;

use crate::action::{Counted, StreamId};
use crate::bisection::bisect;
use crate::disk::Disk;
use crate::mode::Mode;
use crate::observed_files::Brought;
use crate::range::{ByteRange, round_up};
use crate::range_set::RangeSet;
use crate::read_fronts::ReadFronts;

/// Files that change are looked at this often: at 2 GB/s, every 4 MiB. A look at a
/// file that grows costs some 3 µs.
pub const LOOK_MIN_NS: u64 = 2_000_000;
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
/// So many unknown bytes are worth a search at once,
const SEARCH_BYTES: u64 = 1 << 20;
/// and fewer after this time.
const SEARCH_NS: u64 = 200_000_000;
/// Pages are found to within this.
const PIECE_BYTES: u64 = 128 << 10;
/// No more counts than this in one search: 20 ms when each has a thousand pages
/// to walk. The next one goes on where this one ended.
const COUNTS: u32 = 2048;
/// And this in a thorough one: enough for a gigabyte of which every second page was
/// cached before.
const THOROUGH_COUNTS: u32 = 1 << 18;
/// Thorough looks take no more than one part in so many of the time, however often
/// they are asked for.
const THOROUGH_SHARE: u64 = 4;

/// The file's pages, and the clocks, as a look sees them.
pub trait Pages {
    /// The file's size in bytes; `None` when the kernel does not tell.
    fn size_bytes(&self) -> Option<u64>;
    /// Counts the pages of a range; `None` when the kernel does not tell.
    fn count(&self, range: ByteRange) -> Option<Counted>;
    /// The time, in nanoseconds of the disk's clock.
    fn now_ns(&self) -> u64;
    /// What this thread has used of the processor, in nanoseconds.
    fn processor_ns(&self) -> u64;
}

/// How it is known which pages the observed programs brought in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProvenanceKind {
    /// The kernel's trace says so: [`ObservedStream::brought`].
    Traced,
    /// There is no trace. So many bytes were cached when the file was opened; whatever
    /// else appears was brought in.
    ResidentAtOpen {
        /// Bytes in the cache at that time.
        cached_bytes: u64,
    },
}

/// What an observed stream starts with.
#[derive(Clone, Copy, Debug)]
pub struct ObservedStreamConfig {
    /// The file's stream.
    pub id: StreamId,
    /// When to write back, and what stays cached.
    pub mode: Mode,
    /// What reads bring in is dropped, too, where the mode drops.
    pub reads: bool,
    /// Whose pages.
    pub provenance: ProvenanceKind,
    /// The file's size now, in bytes.
    pub size_bytes: u64,
    /// Its size does not change by writing to it.
    pub block_device: bool,
    /// How far behind the end of what was read ahead a reader may be, in bytes.
    pub lag_bytes: u64,
    /// The size of a page in bytes.
    pub page_bytes: u64,
}

#[derive(Clone, Debug)]
enum Provenance {
    Traced {
        /// Ours, and not looked at yet.
        fresh: RangeSet,
        /// Found dirty, and not ours as far as is known yet.
        suspects: Vec<ByteRange>,
        /// Ours, and counted neither as written nor as read yet.
        uncounted: RangeSet,
    },
    ResidentAtOpen {
        /// Bytes in the cache that others had.
        before_bytes: u64,
        /// Where the search for pages that were read goes on.
        cursor: u64,
    },
}

/// What was found out about an observed file up to the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservedCounts {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its pages.
    pub counted: Counted,
    /// Of these, those of ours: `counted` with the cached bytes of nobody else's.
    pub ours: Counted,
    /// Bytes seen written.
    pub written_bytes: u64,
    /// Bytes seen read in from the disk.
    pub read_bytes: u64,
    /// Nothing has changed for a second.
    pub idle: bool,
}

/// An observed file that has a stream.
#[derive(Clone, Debug)]
pub struct ObservedStream {
    config: ObservedStreamConfig,
    provenance: Provenance,
    fronts: ReadFronts,
    counts: ObservedCounts,
    /// Somebody has read it.
    was_read: bool,
    /// Nobody has it open.
    closed: bool,
    /// All that is pending is to be written and dropped.
    flush: bool,
    /// A look that finds everything was asked for, and may be made from then on.
    thorough: bool,
    thorough_from_ns: u64,
    /// Where the last write that was found ended.
    write_cursor: u64,
    interval_ns: u64,
    next_look_ns: u64,
    next_count_ns: u64,
    searched_ns: u64,
    changed_ns: u64,
}

impl ObservedStream {
    /// Starts to observe a file; its stream was opened with
    /// [`StreamConfig::told`](crate::StreamConfig::told) where the provenance is traced.
    pub fn new(config: ObservedStreamConfig) -> ObservedStream {
        ObservedStream {
            provenance: match config.provenance {
                ProvenanceKind::Traced => Provenance::Traced {
                    fresh: RangeSet::new(),
                    suspects: Vec::new(),
                    uncounted: RangeSet::new(),
                },
                ProvenanceKind::ResidentAtOpen { cached_bytes } => Provenance::ResidentAtOpen {
                    before_bytes: cached_bytes,
                    cursor: 0,
                },
            },
            fronts: ReadFronts::new(config.lag_bytes),
            counts: ObservedCounts {
                size_bytes: config.size_bytes,
                ..ObservedCounts::default()
            },
            config,
            was_read: false,
            closed: false,
            flush: false,
            thorough: false,
            thorough_from_ns: 0,
            write_cursor: 0,
            interval_ns: 0,
            next_look_ns: 0,
            next_count_ns: 0,
            searched_ns: 0,
            changed_ns: 0,
        }
    }

    /// The file's stream.
    pub fn id(&self) -> StreamId {
        self.config.id
    }

    /// When the next look is due.
    pub fn next_look_ns(&self) -> u64 {
        self.next_look_ns
    }

    /// What was found out up to the last look.
    pub fn counts(&self) -> ObservedCounts {
        self.counts
    }

    /// What was found out in all: the file is not looked at any more.
    pub fn final_counts(&self) -> ObservedCounts {
        let mut counts = self.counts;
        if let Provenance::Traced { uncounted, .. } = &self.provenance {
            match self.is_only_written() {
                true => counts.written_bytes += uncounted.bytes(),
                false => counts.read_bytes += uncounted.bytes(),
            }
        }
        counts
    }

    /// True while a reader may still be about to read all of `range`.
    pub fn is_unread(&self, range: ByteRange) -> bool {
        self.fronts.unseen(range).next().is_none()
    }

    /// True while a look that was to find everything has not.
    pub fn is_searching(&self) -> bool {
        self.thorough
    }

    /// Somebody uses the file: it is looked at soon.
    pub fn touched(&mut self, now_ns: u64) {
        self.interval_ns = 0;
        self.changed_ns = now_ns;
        self.counts.idle = false;
        // Who opens a file does not close it in the next moment, mostly; one look a
        // little later sees all that happens at once.
        let due_ns = now_ns + LOOK_MIN_NS / 2;
        if self.next_look_ns <= now_ns || self.next_look_ns > due_ns {
            self.next_look_ns = due_ns;
        }
    }

    /// Somebody has read the file.
    pub fn was_read(&mut self) {
        self.was_read = true;
    }

    /// The kernel's trace says that these pages entered the cache, in this order. The
    /// next look finds which of them were written.
    pub fn brought(
        &mut self,
        now_ns: u64,
        disk: &mut Disk,
        brought: impl IntoIterator<Item = Brought>,
    ) {
        let (id, drops) = (self.config.id, self.config.mode.drops());
        for Brought { range, ours } in brought {
            self.fronts.withdraw(range);
            if let Provenance::Traced {
                fresh, uncounted, ..
            } = &mut self.provenance
            {
                if ours {
                    fresh.insert(range);
                    uncounted.insert(range);
                } else {
                    fresh.remove(range);
                }
            }
            match ours {
                true if drops => disk.brought(now_ns, id, range),
                true => {}
                false => disk.taken_over(now_ns, id, range),
            }
        }
        self.touched(now_ns);
    }

    /// Nobody has the file open any more. Unless it is used again, a look finds
    /// everything, and then the stream is closed. The pages of a `deleted` file need not
    /// be found: nobody can open it again.
    pub fn closed(&mut self, deleted: bool) {
        self.closed = true;
        self.thorough |= !deleted;
    }

    /// A look finds everything, and then all that is pending is written and dropped.
    pub fn flush(&mut self) {
        self.flush = true;
        self.thorough = true;
    }

    /// Looks at the file; true when it has become idle.
    pub fn look(&mut self, disk: &mut Disk, pages: &impl Pages) -> bool {
        let now_ns = pages.now_ns();
        let mut look = Look {
            now_ns,
            thorough: self.thorough && now_ns >= self.thorough_from_ns,
            disk,
            pages,
        };
        let changed = self.see(&mut look);
        if look.thorough {
            self.thorough = self.has_undecided(&look);
            let end_ns = pages.now_ns();
            let cost_ns = end_ns.saturating_sub(now_ns);
            self.thorough_from_ns = end_ns + cost_ns.saturating_mul(THOROUGH_SHARE - 1);
        }
        let became_idle = self.schedule(changed, now_ns, pages.now_ns());
        // Not before everything was found: a closed stream is forgotten. Whatever was
        // found after the close does not open the file again.
        if !self.thorough {
            if self.closed {
                disk.closed(now_ns, self.config.id);
            }
            if core::mem::take(&mut self.flush) {
                disk.flush(now_ns, self.config.id);
            }
        }
        became_idle
    }

    /// Decides when the next look is due; true when the file has become idle.
    fn schedule(&mut self, changed: bool, now_ns: u64, end_ns: u64) -> bool {
        let was_idle = self.counts.idle;
        if changed {
            self.changed_ns = now_ns;
            self.interval_ns = LOOK_MIN_NS;
        } else {
            self.interval_ns = (self.interval_ns * 3 / 2).clamp(LOOK_MIN_NS, LOOK_MAX_NS);
        }
        self.counts.idle = now_ns.saturating_sub(self.changed_ns) > IDLE_NS;
        if self.counts.idle {
            self.interval_ns = LOOK_IDLE_NS;
        }
        self.next_look_ns = end_ns + self.interval_ns;
        if self.thorough {
            self.next_look_ns = self.next_look_ns.min(self.thorough_from_ns);
        }
        self.counts.idle && !was_idle
    }

    /// True when something happened to the file since the last look.
    fn see<P: Pages>(&mut self, look: &mut Look<'_, P>) -> bool {
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
        look.disk.told(look.now_ns, self.config.id, written_bytes);
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
            if let Provenance::ResidentAtOpen { before_bytes, .. } = &mut self.provenance {
                *before_bytes = (*before_bytes).min(end);
            }
        } else if size_bytes > before_bytes
            && let Provenance::ResidentAtOpen { .. } = self.provenance
        {
            let start = before_bytes - before_bytes % self.config.page_bytes;
            self.grew(look, ByteRange::new(start, end));
        }
        size_bytes != before_bytes
    }

    /// Without the trace: what is cached beyond the old end was written.
    fn grew<P: Pages>(&mut self, look: &mut Look<'_, P>, grown: ByteRange) {
        let cached_bytes = look.count(grown).cached_bytes;
        if cached_bytes >= grown.len() / 2 {
            self.found_written(look, grown, cached_bytes);
        } else if cached_bytes > 0 {
            // Made longer, and written here and there.
            let mut search = look.search(|counted| counted.cached_bytes);
            search.descend(grown);
            for (piece, _) in search.found {
                self.found_written(look, piece, piece.len());
            }
        }
    }

    /// Of what was brought in since the last look, what is dirty was written. The rest
    /// was read, or is being written in this moment: it waits behind the fronts.
    fn sort_fresh<P: Pages>(&mut self, look: &mut Look<'_, P>) -> bool {
        let Provenance::Traced { fresh, .. } = &mut self.provenance else {
            return false;
        };
        let fresh = core::mem::take(fresh);
        // What a search has found dirty before the trace was read needs no second look.
        let unknown: Vec<ByteRange> = fresh
            .iter()
            .flat_map(|range| look.untold(self.config.id, range))
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

    /// What of this range is on its way is dropped, if it is ours, once that is over.
    fn pass_busy<P: Pages>(&mut self, look: &mut Look<'_, P>, range: ByteRange) {
        let mut busy = RangeSet::new();
        busy.insert(range);
        for idle in look.untold(self.config.id, range) {
            busy.remove(idle);
        }
        for part in busy.iter() {
            look.disk.passed(look.now_ns, self.config.id, part);
        }
    }

    /// Of this range, so many bytes were written.
    fn found_written<P: Pages>(
        &mut self,
        look: &mut Look<'_, P>,
        range: ByteRange,
        written_bytes: u64,
    ) {
        self.fronts.withdraw(range);
        let (id, mode) = (self.config.id, self.config.mode);
        look.disk.wrote(look.now_ns, id, range, mode);
        // Where the trace tells, each page that was brought in is counted once, and
        // besides what is written of those that were there.
        let brought_bytes = self.take_uncounted(range);
        self.counts.written_bytes += brought_bytes.max(written_bytes);
        self.write_cursor = range.end;
    }

    /// Counts what was brought into this range, now that it is known what for.
    fn take_uncounted(&mut self, range: ByteRange) -> u64 {
        match &mut self.provenance {
            Provenance::Traced { uncounted, .. } => uncounted.remove(range),
            Provenance::ResidentAtOpen { .. } => 0,
        }
    }

    fn count_all<P: Pages>(&mut self, look: &mut Look<'_, P>) -> bool {
        let all = self.all();
        let Some(counted) = look.pages.count(all) else {
            return false;
        };
        let changed = counted != self.counts.counted;
        self.counts.counted = counted;
        let Some(stream) = look.disk.stream(self.config.id) else {
            return changed;
        };
        let unknown_dirty_bytes = counted
            .unwritten_bytes()
            .saturating_sub(stream.unclean_bytes());
        let brought_bytes = stream.brought_bytes();
        let ours_bytes = match &mut self.provenance {
            Provenance::Traced { .. } if self.config.mode.drops() => brought_bytes,
            Provenance::Traced { .. } => counted.cached_bytes,
            Provenance::ResidentAtOpen { before_bytes, .. } => {
                // Reclaim takes what others had, too; what comes after it is not theirs.
                *before_bytes = (*before_bytes).min(counted.cached_bytes);
                counted.cached_bytes - *before_bytes
            }
        };
        self.counts.ours = Counted {
            cached_bytes: ours_bytes,
            ..counted
        };
        if self.is_worth_a_search(look, unknown_dirty_bytes) {
            self.searched_ns = look.now_ns;
            self.search_written(look, all);
        }
        if let Provenance::ResidentAtOpen {
            before_bytes,
            cursor,
        } = self.provenance
            && self.drops_what_appears()
        {
            let explained_bytes = before_bytes + brought_bytes + self.fronts.waiting_bytes();
            let unknown_bytes = counted.cached_bytes.saturating_sub(explained_bytes);
            if self.is_worth_a_search(look, unknown_bytes) {
                self.searched_ns = look.now_ns;
                let next = self.search_read(look, all, cursor);
                self.provenance = Provenance::ResidentAtOpen {
                    before_bytes,
                    cursor: next,
                };
            }
        }
        self.tell_passed(look);
        changed
    }

    /// The trace names pieces, of which little may be dirty: only a search finds
    /// everything.
    fn is_worth_a_search<P: Pages>(&self, look: &Look<'_, P>, unknown_bytes: u64) -> bool {
        let rested = look.now_ns.saturating_sub(self.searched_ns) >= SEARCH_NS;
        look.thorough || unknown_bytes >= SEARCH_BYTES || unknown_bytes > 0 && rested
    }

    /// True when a look had to leave something out, for as long as a request is
    /// under way.
    fn has_undecided<P: Pages>(&self, look: &Look<'_, P>) -> bool {
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
        // A sequential writer goes on where it was.
        let cursor = self.write_cursor.min(all.end);
        let mut search = look.search(Counted::unwritten_bytes);
        for half in [
            ByteRange::new(cursor, all.end),
            ByteRange::new(all.start, cursor),
        ] {
            for gap in look.untold(self.config.id, half) {
                search.descend(gap);
            }
        }
        let found = search.found;
        let suspects = match &mut self.provenance {
            // It may have been brought in since the trace was read. What the trace does
            // not name until the next search was there before.
            Provenance::Traced { suspects, .. } if !look.thorough => {
                let pieces = found.iter().map(|(piece, _)| *piece).collect();
                core::mem::replace(suspects, pieces)
            }
            provenance => {
                if let Provenance::Traced { suspects, .. } = provenance {
                    suspects.clear();
                }
                for (piece, bytes) in found {
                    self.found_written(look, piece, bytes);
                }
                return;
            }
        };
        for suspect in suspects {
            for part in look.untold(self.config.id, suspect) {
                let bytes = look.count(part).unwritten_bytes();
                if bytes > 0 {
                    self.found_written(look, part, bytes);
                }
            }
        }
    }

    /// Without the trace: finds pages that appeared; answers where to go on.
    fn search_read<P: Pages>(&mut self, look: &Look<'_, P>, all: ByteRange, cursor: u64) -> u64 {
        let Some(stream) = look.disk.stream(self.config.id) else {
            return 0;
        };
        let mut search = look.search(|counted| counted.cached_bytes);
        let mut next = 0;
        // Of a file that was cached here and there, there are many, most of
        // them dropped before: always from the first one, and the last ones
        // would never be looked at.
        let gaps = stream.unexplained(all);
        let first = gaps.partition_point(|gap| gap.end <= cursor);
        'gaps: for gap in gaps[first..].iter().chain(&gaps[..first]) {
            for part in self.fronts.unseen(*gap) {
                search.descend(part);
                if search.counts == 0 {
                    next = part.start;
                    break 'gaps;
                }
            }
        }
        for (piece, _) in search.found {
            self.fronts.appeared(look.now_ns, piece);
        }
        next
    }

    /// Hands the stream what the fronts have passed: its readers are done with it, or its
    /// writer is, where it was clean before it was found.
    fn tell_passed<P: Pages>(&mut self, look: &mut Look<'_, P>) {
        let (now_ns, id) = (look.now_ns, self.config.id);
        let passed = if self.closed || self.flush {
            self.fronts.all()
        } else {
            self.fronts.passed(now_ns)
        };
        let drops = self.drops_what_appears();
        let traced = matches!(self.provenance, Provenance::Traced { .. });
        for range in passed {
            for part in look.untold(id, range) {
                let counted = look.count(part);
                if counted.unwritten_bytes() > 0 {
                    // Written meanwhile, it is not to be dropped before that is clean.
                    self.found_written(look, part, counted.unwritten_bytes());
                    continue;
                }
                match (traced, drops) {
                    (true, true) => look.disk.passed(now_ns, id, part),
                    (true, false) => look.disk.kept(now_ns, id, part),
                    (false, true) => look.disk.read(now_ns, id, part),
                    (false, false) => {}
                }
                let bytes = match traced {
                    true => self.take_uncounted(part),
                    false => counted.cached_bytes,
                };
                match self.is_only_written() {
                    true => self.counts.written_bytes += bytes,
                    false => self.counts.read_bytes += bytes,
                }
            }
            // The rest of it is on its way.
            if traced {
                self.pass_busy(look, range);
            }
            self.counts.written_bytes += self.take_uncounted(range);
        }
    }

    /// True where clean pages that appear are to be dropped.
    fn drops_what_appears(&self) -> bool {
        self.config.mode.drops() && (self.config.reads || self.is_only_written())
    }

    /// Nobody reads it, so clean pages were written: to be found dirty they would have to
    /// be looked for before the program, or a request for what is beside them, has them
    /// written.
    fn is_only_written(&self) -> bool {
        self.counts.written_bytes > 0 && !self.was_read
    }

    fn all(&self) -> ByteRange {
        ByteRange::new(0, round_up(self.counts.size_bytes, self.config.page_bytes))
    }
}

/// One look at one file.
struct Look<'a, P> {
    now_ns: u64,
    /// Everything is to be found.
    thorough: bool,
    disk: &'a mut Disk,
    pages: &'a P,
}

impl<'a, P: Pages> Look<'a, P> {
    fn count(&self, range: ByteRange) -> Counted {
        self.pages.count(range).unwrap_or_default()
    }

    /// The parts of `range` of which the stream knows nothing that is still to happen.
    fn untold(&self, id: StreamId, range: ByteRange) -> Vec<ByteRange> {
        let stream = self.disk.stream(id);
        stream
            .map(|stream| stream.untold(range))
            .unwrap_or_default()
    }

    fn search(&self, of_interest: fn(Counted) -> u64) -> Search<'a, P> {
        Search {
            pages: self.pages,
            of_interest,
            counts: match self.thorough {
                true => THOROUGH_COUNTS,
                false => COUNTS,
            },
            found: Vec::new(),
        }
    }
}

/// Finds the pieces of a file in which something is.
struct Search<'a, P> {
    pages: &'a P,
    of_interest: fn(Counted) -> u64,
    /// Counts that may still be made.
    counts: u32,
    /// What was found, and how many bytes of it are of interest.
    found: Vec<(ByteRange, u64)>,
}

impl<P: Pages> Search<'_, P> {
    fn descend(&mut self, range: ByteRange) {
        let Ok(()) = bisect(
            range,
            PIECE_BYTES,
            &mut |part| -> Result<bool, Infallible> { Ok(self.visit(part)) },
        );
    }

    /// True when the halves of this part are to be visited.
    fn visit(&mut self, part: ByteRange) -> bool {
        if self.counts == 0 {
            return false;
        }
        self.counts -= 1;
        let bytes = self.pages.count(part).map_or(0, self.of_interest);
        if bytes == 0 || bytes < part.len() && part.len() > PIECE_BYTES {
            return bytes > 0;
        }
        match self.found.last_mut() {
            Some((last, found_bytes)) if last.end == part.start => {
                last.end = part.end;
                *found_bytes += bytes;
            }
            _ => self.found.push((part, bytes)),
        }
        false
    }
}
