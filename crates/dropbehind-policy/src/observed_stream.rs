//! An observed file with a stream: what happened to its pages since the last look.
//!
//! Observed programs don't report what they write and read. If the trace names the pages that
//! they brought in, a count shows which of these are dirty: those were written, and the
//! others were read. Writes to pages that were already cached are found when more of the
//! file's pages are dirty than are known. Without the trace, pages that are cached now and
//! were not at the open count as brought in.

mod look;
mod pages;
mod search;

use alloc::vec::Vec;

use crate::action::{Counted, Inspected, StreamId};
use crate::disk::Disk;
use crate::mode::{Mode, Residency};
use crate::observed_files::Brought;
use crate::range::{ByteRange, round_up};
use crate::range_list::gaps_between;
use crate::range_set::RangeSet;
use crate::read_fronts::ReadFronts;
use crate::stats::Stats;
use look::Look;
pub use pages::Pages;

/// Files that change are looked at this often: at 2 GB/s, every 4 MiB. A look at a growing
/// file costs some 3 µs.
pub const LOOK_MIN_NS: u64 = 2_000_000;
/// Files that wait for their disk share it, so each pauses this long for each of them: at
/// 2 GB/s, the disk has then written another megabyte of it. When 32 files were looked at
/// every 2 ms, counts took a third of their disk's thread's time.
const LOOK_SHARED_NS: u64 = 500_000;
/// Files that don't change are looked at less and less often, down to this,
const LOOK_MAX_NS: u64 = 200_000_000;
/// and, once idle, to this: nothing reports writes to pages that were cached already.
const LOOK_IDLE_NS: u64 = 2_000_000_000;
/// A file that has not changed for this long is idle.
const IDLE_NS: u64 = 1_000_000_000;
/// Thorough looks take at most one part in this many of the time, however often they are
/// requested.
const THOROUGH_SHARE: u64 = 4;

/// How to know which pages the observed programs brought in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProvenanceKind {
    /// The kernel's trace names them: [`ObservedStream::brought`].
    Traced,
    /// There is no trace. Some pages were cached when the file was opened; all others that
    /// appear were brought in.
    ResidentAtOpen {
        /// Bytes in the cache at that time.
        cached_bytes: u64,
        /// Those of them that were not on the disk yet.
        unwritten_bytes: u64,
    },
}

/// What an observed stream starts with.
#[derive(Clone, Copy, Debug)]
pub struct ObservedStreamConfig {
    /// The file's stream.
    pub id: StreamId,
    /// When to write back, and which pages stay cached.
    pub mode: Mode,
    /// Whether pages that reads bring in are dropped, too, if the mode drops.
    pub reads: bool,
    /// How to know whose a page is.
    pub provenance: ProvenanceKind,
    /// The file's size now, in bytes.
    pub size_bytes: u64,
    /// A block device, whose size doesn't change when it is written.
    pub block_device: bool,
    /// Nobody has opened it for reading so far, or nobody has read it and it was written.
    pub only_written: bool,
    /// The file's size in bytes when it was opened: the pages after it had nothing to be read, so
    /// what the trace names there was written. `u64::MAX` if that is not known.
    pub written_from: u64,
    /// How far a reader may be behind the end of its readahead, in bytes.
    pub lag_bytes: u64,
    /// The size of a page in bytes.
    pub page_bytes: u64,
}

/// What the trace has named.
#[derive(Clone, Debug, Default)]
struct Traced {
    /// Ours, and not looked at yet.
    fresh: RangeSet,
    /// Found dirty, and not known to be ours yet.
    suspects: Vec<ByteRange>,
    /// Ours, and counted neither as written nor as read yet.
    uncounted: RangeSet,
    /// Of them: had been dropped before.
    back: RangeSet,
    /// Where pages that the trace had not named were counted as written, and how many bytes.
    early: RangeSet,
    early_bytes: u64,
}

/// What was there when the file was opened.
#[derive(Clone, Debug)]
struct Resident {
    /// Bytes of others that were in the cache.
    before_bytes: u64,
    /// Bytes below `unwritten_end` that others had written before the open, and that no look
    /// has found yet.
    unwritten_bytes: u64,
    unwritten_end: u64,
    /// Where the search for pages that were read continues.
    cursor: u64,
}

#[derive(Clone, Debug)]
enum Provenance {
    Traced(Traced),
    ResidentAtOpen(Resident),
}

impl Provenance {
    fn traced(&mut self) -> Option<&mut Traced> {
        match self {
            Provenance::Traced(traced) => Some(traced),
            Provenance::ResidentAtOpen(_) => None,
        }
    }

    fn resident(&mut self) -> Option<&mut Resident> {
        match self {
            Provenance::Traced(_) => None,
            Provenance::ResidentAtOpen(resident) => Some(resident),
        }
    }
}

/// What is known about an observed file as of the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservedCounts {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its pages.
    pub counted: Counted,
    /// The same, with only the cached bytes that are ours.
    pub ours: Counted,
    /// Bytes seen written.
    pub written_bytes: u64,
    /// Bytes of those in pages that the trace had not named; set when the stream ends.
    pub early_bytes: u64,
    /// Bytes seen read in from the disk.
    pub read_bytes: u64,
    /// Bytes of those that had been dropped before.
    pub reread_bytes: u64,
    /// Whether nothing has changed for a second.
    pub idle: bool,
}

/// An observed file that has a stream.
#[derive(Clone, Debug)]
pub struct ObservedStream {
    config: ObservedStreamConfig,
    provenance: Provenance,
    fronts: ReadFronts,
    counts: ObservedCounts,
    /// In modes that keep pages, what was counted as written and not seen clean since. The
    /// stream forgets what it leaves to the kernel, so a search finds that again.
    counted_dirty: RangeSet,
    /// Nothing is dropped, whatever the mode.
    keeps_all: bool,
    /// Another process has read it.
    was_read: bool,
    /// Nobody has it open.
    closed: bool,
    /// Everything pending is to be written and dropped.
    flush: bool,
    /// A look that finds everything was requested, and may be made from this time on.
    thorough: bool,
    thorough_from_ns: u64,
    /// Where the last write that was found ended.
    write_cursor: u64,
    interval_ns: u64,
    /// Use does not bring the next look forward to before this.
    rested_ns: u64,
    next_look_ns: u64,
    next_count_ns: u64,
    searched_ns: u64,
    changed_ns: u64,
}

impl ObservedStream {
    /// Starts to observe a file. If the provenance is traced, its stream must have been
    /// opened with [`StreamConfig::traced`](crate::StreamConfig::traced).
    pub fn new(config: ObservedStreamConfig) -> ObservedStream {
        ObservedStream {
            provenance: match config.provenance {
                ProvenanceKind::Traced => Provenance::Traced(Traced::default()),
                ProvenanceKind::ResidentAtOpen {
                    cached_bytes,
                    unwritten_bytes,
                } => Provenance::ResidentAtOpen(Resident {
                    before_bytes: cached_bytes,
                    unwritten_bytes,
                    unwritten_end: config.size_bytes,
                    cursor: 0,
                }),
            },
            fronts: ReadFronts::new(config.lag_bytes),
            counts: ObservedCounts {
                size_bytes: config.size_bytes,
                ..ObservedCounts::default()
            },
            config: ObservedStreamConfig {
                written_from: round_up(config.written_from, config.page_bytes),
                ..config
            },
            counted_dirty: RangeSet::new(),
            keeps_all: false,
            was_read: false,
            closed: false,
            flush: false,
            thorough: false,
            thorough_from_ns: 0,
            write_cursor: 0,
            interval_ns: 0,
            rested_ns: 0,
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

    /// What is known as of the last look.
    pub fn counts(&self) -> ObservedCounts {
        self.counts
    }

    /// What is known in the end, when the file is not looked at any more.
    pub fn final_counts(&self) -> ObservedCounts {
        let Provenance::Traced(traced) = &self.provenance else {
            return self.counts;
        };
        let early_bytes = traced.early_bytes;
        let mut ended = self.clone();
        for half in self.was_there_and_new() {
            ended.count_clean(half);
        }
        ObservedCounts {
            early_bytes,
            ..ended.counts
        }
    }

    /// How many separate ranges of pages wait to be looked at, or to be counted.
    pub fn range_count(&self) -> usize {
        let named = match &self.provenance {
            Provenance::Traced(traced) => traced.fresh.count().max(traced.uncounted.count()),
            Provenance::ResidentAtOpen(_) => 0,
        };
        named.max(self.counted_dirty.count())
    }

    /// Returns whether a reader may still be about to read all of `range`.
    pub fn is_unread(&self, range: ByteRange) -> bool {
        self.fronts.unseen(range).next().is_none()
    }

    /// Returns whether a look for everything has not found everything yet.
    pub fn is_searching(&self) -> bool {
        self.thorough
    }

    /// The file was truncated to nothing. Without the trace, nothing is others' from now on.
    pub fn emptied(&mut self) {
        if let Some(resident) = self.provenance.resident() {
            (resident.before_bytes, resident.unwritten_bytes) = (0, 0);
            self.fronts.withdraw(ByteRange::WHOLE);
        }
    }

    /// The file is in use: look at it soon.
    pub fn touched(&mut self, now_ns: u64) {
        self.interval_ns = 0;
        self.changed_ns = now_ns;
        self.counts.idle = false;
        // A file is rarely closed in the moment after its open. A look a little later sees
        // everything that happens at once.
        let mut due_ns = now_ns + LOOK_MIN_NS / 2;
        if !self.thorough {
            due_ns = due_ns.max(self.rested_ns);
        }
        if self.next_look_ns <= now_ns || self.next_look_ns > due_ns {
            self.next_look_ns = due_ns;
        }
    }

    /// A program opens the file, which somebody had closed last.
    pub fn reopened(&mut self, now_ns: u64, disk: &mut Disk) {
        self.closed = false;
        disk.reopened(now_ns, self.config.id);
        self.touched(now_ns);
    }

    /// The file could not be looked at now: the next look is later and later.
    pub fn not_looked(&mut self, now_ns: u64) {
        self.interval_ns = (self.interval_ns * 2).clamp(LOOK_MIN_NS, LOOK_MAX_NS);
        self.next_look_ns = now_ns + self.interval_ns;
    }

    /// Another process has read the file.
    pub fn was_read(&mut self) {
        self.was_read = true;
    }

    /// An observed process has written to the file.
    pub fn was_written(&mut self) {
        self.config.only_written = true;
    }

    /// The trace names these pages as having entered the cache, in this order. The next look
    /// finds which of them were written.
    pub fn brought(
        &mut self,
        now_ns: u64,
        disk: &mut Disk,
        brought: impl IntoIterator<Item = Brought>,
    ) {
        let (id, drops) = (self.config.id, self.config.mode.drops());
        for brought in brought {
            let Brought { range, ours, .. } = brought;
            self.fronts.withdraw(range);
            if let Some(traced) = self.provenance.traced() {
                match brought.back {
                    true => traced.back.insert(range),
                    false => traced.back.remove(range),
                };
                if ours {
                    traced.fresh.insert(range);
                    traced.uncounted.insert(range);
                    // What was counted as written before the trace was read is not counted
                    // again.
                    for part in traced.early.overlaps_of(range) {
                        let bytes = part.len().min(traced.early_bytes);
                        let counted = ByteRange::new(part.start, part.start + bytes);
                        traced.early_bytes -= traced.uncounted.remove(counted);
                        traced.back.remove(counted);
                    }
                    traced.early.remove(range);
                } else {
                    traced.fresh.remove(range);
                }
            }
            match ours {
                true if drops => disk.brought(now_ns, id, range, brought.held),
                true => {}
                false => disk.taken_over(now_ns, id, range),
            }
        }
        self.touched(now_ns);
    }

    /// Nothing of the file can be dropped, for good. Call this before [`Disk::failed`].
    ///
    /// With the trace, its stream leaves what it brings in. Without, the pages that the stream
    /// has left would be found again and again.
    pub fn keep_all(&mut self, disk: &Disk) {
        if !core::mem::replace(&mut self.keeps_all, true) {
            for dirty in busy_parts(disk, self.config.id, ByteRange::WHOLE) {
                self.counted_dirty.insert(dirty);
            }
        }
        if self.provenance.resident().is_some() {
            self.config.mode.residency = Residency::Keep;
        }
    }

    /// The stream's counters, with all that it leaves without knowing.
    pub fn counters_of(&self, mut counters: Stats) -> Stats {
        if self.keeps_all && matches!(self.provenance, Provenance::ResidentAtOpen(_)) {
            let cached_bytes = self.counts.ours.cached_bytes;
            let more_bytes = cached_bytes.saturating_sub(counters.left_bytes);
            counters.left_bytes += more_bytes;
            counters.brought_bytes += more_bytes;
        }
        counters
    }

    /// The file is used in another way from now on. Before it first drops, the observer must
    /// report that everything brought in so far stays ([`ObservedStream::brought`]).
    pub fn change(&mut self, mode: Mode, reads: bool) {
        self.config.mode = mode;
        self.config.reads = reads;
        if self.keeps_all && self.provenance.resident().is_some() {
            self.config.mode.residency = Residency::Keep;
        }
    }

    /// Nobody has the file open any more. Unless it is used again, a look finds everything,
    /// and then the stream is closed. A `deleted` file's pages need not be found: nobody can
    /// open it again.
    pub fn closed(&mut self, deleted: bool) {
        self.closed = true;
        self.thorough |= !deleted;
    }

    /// Asks for a look that finds everything, and then for all that is pending to be written
    /// and dropped.
    pub fn flush(&mut self) {
        self.flush = true;
        self.thorough = true;
    }

    /// Looks at the file. Returns whether it has become idle.
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
        let streams = look.disk.waiting_streams();
        let became_idle = self.schedule(changed, now_ns, pages.now_ns(), streams);
        // Not before everything was found, since a closed stream is forgotten. What is found
        // after the close does not reopen the file.
        if !self.thorough {
            if self.closed {
                disk.closed(now_ns, self.config.id);
                // What waits for a decision has nothing done with it that would find that out.
                if !self.config.block_device && pages.is_deleted() {
                    let unlinked = true;
                    disk.inspected(now_ns, self.config.id, Inspected { unlinked });
                }
            }
            if core::mem::take(&mut self.flush) {
                disk.flush(now_ns, self.config.id);
            }
        }
        became_idle
    }

    /// Decides when the next look is due. Returns whether the file has become idle.
    fn schedule(&mut self, changed: bool, now_ns: u64, end_ns: u64, streams: u64) -> bool {
        let was_idle = self.counts.idle;
        let shared_ns = LOOK_SHARED_NS.saturating_mul(streams).min(LOOK_MAX_NS);
        let least_ns = shared_ns.max(LOOK_MIN_NS);
        if changed {
            self.changed_ns = now_ns;
            self.interval_ns = least_ns;
        } else {
            self.interval_ns = (self.interval_ns * 3 / 2).clamp(least_ns, LOOK_MAX_NS);
        }
        self.counts.idle = now_ns.saturating_sub(self.changed_ns) > IDLE_NS;
        if self.counts.idle {
            self.interval_ns = LOOK_IDLE_NS;
        }
        self.next_look_ns = end_ns + self.interval_ns;
        self.rested_ns = end_ns + shared_ns;
        if self.thorough {
            self.next_look_ns = self.next_look_ns.min(self.thorough_from_ns);
        }
        self.counts.idle && !was_idle
    }

    /// Records that `bytes` of this range were counted as written, although the trace has not
    /// named them.
    fn counted_early(&mut self, range: ByteRange, bytes: u64) {
        if let Some(traced) = self.provenance.traced().filter(|_| bytes > 0) {
            traced.early.insert(range);
            traced.early_bytes += bytes;
        }
    }

    /// Returns whether clean pages that appear are to be dropped.
    fn drops_what_appears(&self) -> bool {
        self.config.mode.drops() && (self.config.reads || self.is_only_written())
    }

    /// Nobody reads the file, so its clean pages were written. To find them dirty, one would
    /// have to look before the program writes them back, or a request for pages beside them
    /// does. fanotify(7) reports no use of devices, so there they may have been read.
    fn is_only_written(&self) -> bool {
        let was_written = self.counts.written_bytes > 0 && !self.config.block_device;
        (self.config.only_written || was_written) && !self.was_read
    }

    fn all(&self) -> ByteRange {
        ByteRange::new(0, round_up(self.counts.size_bytes, self.config.page_bytes))
    }
}

/// The parts of `range` that are dirty or under way.
fn busy_parts(disk: &Disk, id: StreamId, range: ByteRange) -> Vec<ByteRange> {
    match disk.stream(id) {
        Some(stream) => gaps_between(range, stream.idle_parts(range)),
        None => Vec::new(),
    }
}
