//! An observed file that has a stream: what became of its pages since the last look.
//!
//! Nobody says what observed programs write and read. Where the kernel's trace names
//! the pages that they brought in, a count tells which of these are dirty: they were
//! written, and the others were read. Writes to pages that were cached already are
//! found when more pages of the file are dirty than are known of. Without the trace,
//! what is cached and was not when the file was opened counts as brought in.

mod look;
mod pages;
mod search;

use alloc::vec::Vec;

use crate::action::{Counted, StreamId};
use crate::disk::Disk;
use crate::mode::{Mode, Residency};
use crate::observed_files::Brought;
use crate::range::{ByteRange, round_up};
use crate::range_list::gaps_between;
use crate::range_set::RangeSet;
use crate::read_fronts::ReadFronts;
use look::Look;
pub use pages::Pages;

/// Files that change are looked at this often: at 2 GB/s, every 4 MiB. A look at a
/// file that grows costs some 3 µs.
pub const LOOK_MIN_NS: u64 = 2_000_000;
/// Files that do not change are looked at less and less often, down to this,
const LOOK_MAX_NS: u64 = 200_000_000;
/// and, once idle, to this: nothing reports writes to pages that were cached already.
const LOOK_IDLE_NS: u64 = 2_000_000_000;
/// Unchanged for so long, a file is idle.
const IDLE_NS: u64 = 1_000_000_000;
/// Thorough looks take no more than one part in so many of the time, however often
/// they are asked for.
const THOROUGH_SHARE: u64 = 4;

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
        /// Where pages were counted as written that the trace had not named, and how
        /// many bytes.
        early: RangeSet,
        early_bytes: u64,
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
    /// The same, with only the cached bytes that are ours.
    pub ours: Counted,
    /// Bytes seen written.
    pub written_bytes: u64,
    /// Of these, bytes of pages that the trace had not named; counted when the stream ends.
    pub early_bytes: u64,
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
    /// Nothing is dropped, whatever the mode.
    keeps_all: bool,
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
    /// [`StreamConfig::traced`](crate::StreamConfig::traced) where the provenance is traced.
    pub fn new(config: ObservedStreamConfig) -> ObservedStream {
        ObservedStream {
            provenance: match config.provenance {
                ProvenanceKind::Traced => Provenance::Traced {
                    fresh: RangeSet::new(),
                    suspects: Vec::new(),
                    uncounted: RangeSet::new(),
                    early: RangeSet::new(),
                    early_bytes: 0,
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
            keeps_all: false,
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
        if let Provenance::Traced {
            uncounted,
            early_bytes,
            ..
        } = &self.provenance
        {
            counts.early_bytes = *early_bytes;
            match self.is_only_written() {
                true => counts.written_bytes += uncounted.bytes(),
                false => counts.read_bytes += uncounted.bytes(),
            }
        }
        counts
    }

    /// How many separate ranges of pages wait to be looked at, or to be counted.
    pub fn range_count(&self) -> usize {
        match &self.provenance {
            Provenance::Traced {
                fresh, uncounted, ..
            } => fresh.count().max(uncounted.count()),
            Provenance::ResidentAtOpen { .. } => 0,
        }
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
                fresh,
                uncounted,
                early,
                early_bytes,
                ..
            } = &mut self.provenance
            {
                if ours {
                    fresh.insert(range);
                    uncounted.insert(range);
                    // What was counted as written before the trace was read is not
                    // counted again.
                    for part in early.overlaps_of(range) {
                        let bytes = part.len().min(*early_bytes);
                        let counted = ByteRange::new(part.start, part.start + bytes);
                        *early_bytes -= uncounted.remove(counted);
                    }
                    early.remove(range);
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

    /// Nothing of the file is dropped from now on.
    pub fn keep_all(&mut self) {
        self.keeps_all = true;
        self.config.mode.residency = Residency::Keep;
    }

    /// The file is used in another way from now on. Before it is first to drop, the
    /// observer says of all that was brought in that it stays ([`ObservedStream::brought`]).
    pub fn change(&mut self, mode: Mode, reads: bool) {
        self.config.mode = mode;
        self.config.reads = reads;
        if self.keeps_all {
            self.keep_all();
        }
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

    /// So many bytes of this range were counted as written, and the trace has not named
    /// them.
    fn counted_early(&mut self, range: ByteRange, bytes: u64) {
        if let Provenance::Traced {
            early, early_bytes, ..
        } = &mut self.provenance
            && bytes > 0
        {
            early.insert(range);
            *early_bytes += bytes;
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

/// The parts of `range` that are dirty or under way.
fn busy_parts(disk: &Disk, id: StreamId, range: ByteRange) -> Vec<ByteRange> {
    match disk.stream(id) {
        Some(stream) => gaps_between(range, stream.idle_parts(range)),
        None => Vec::new(),
    }
}
