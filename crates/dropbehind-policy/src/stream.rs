//! One open file: its dirty, asked-for, clean and dropped ranges.
//!
//! A byte written through us is in one of these sets until it is done with:
//!
//! ```text
//!            eager                 writeback asked          counted clean
//!  written ────────▶ dirty ─────────────────────▶ asked ─────────────────▶ planner ──▶ dropped
//!     │   behind ┌▶ window ─▶ to_send ─────────────▲ │                        ▲
//!     └──────────┴▶ lazy (the kernel writes it) ─────┼────────────────────────┘
//!                        ▲     dirty all the same    │
//!                        └───────────────────────────┘
//! ```
//!
//! Modes that keep their pages leave the picture once they are clean.

use alloc::collections::VecDeque;

use crate::action::{Action, Counted, Dropped, Inspected, StreamId};
use crate::drop_planner::{DropPlanner, STEP_BYTES, Verdict};
use crate::grace::{AGE_NS, GRACE_NS, SMALL_FILE_BYTES};
use crate::mode::{Mode, Writeback};
use crate::neighbours::Neighbours;
use crate::pace::{POLL_MAX_NS, Pace, Poll};
use crate::range::{ByteRange, round_up};
use crate::range_counts::RangeCounts;
use crate::range_list::{gaps_between, intersections};
use crate::range_set::RangeSet;
use crate::reason::{Reason, ReasonBytes};
use crate::residency::ResidencyMap;
use crate::write_behind::{CloseKind, DEFAULT_WINDOW_BYTES, WriteBehind, WriteKind};

/// How often a range that is dirty again after its writeback is asked for once
/// more, before it is left to the kernel.
const ASK_TRIES: u8 = 3;
/// A range whose pages come off the disk and go back to it, by another's writes,
/// is no longer waited for once the disk has written this many times what is
/// missing: ours must have been among it.
const CHURN: u64 = 4;
/// With so many clean bytes waiting to be dropped, drops go before new requests:
/// together with two windows, 28 MiB each at most by themselves, that is 64 MiB.
/// (Writers have less room by then: see [`Stream::limit_bytes`].)
const CROWDED_BYTES: u64 = 2 * STEP_BYTES;
/// With less than this on its way, drops and requests take turns instead: disks
/// finish in lumps, and one that has just finished all it had would idle while
/// all of that is dropped.
const BUSY_BYTES: u64 = 2 * STEP_BYTES;
/// How often lazily written pages are looked at. The kernel's own flusher wakes
/// every five seconds.
const LAZY_COUNT_NS: u64 = 1_000_000_000;
/// Lazily written pages are counted in pieces, the smallest of this size. A
/// piece that is clean doubles the next one, a dirty one halves it.
const LAZY_PIECE_MIN_BYTES: u64 = 4 << 20;
/// And the largest of this: a quarter of a million pages take some milliseconds.
const LAZY_PIECE_MAX_BYTES: u64 = 1 << 30;
/// No more pieces than this are counted each time: at 5 µs, a third of a
/// thousandth of a CPU.
const LAZY_PIECES: u32 = 64;
/// Somebody waits, or a descriptor is held for it, and after so many looks none
/// of the lazily written pages has become clean: they are left. The kernel
/// writes what is 30 s old; this is four times that.
const LAZY_LOOKS: u32 = 120;
/// Dirty ranges closer than a request are asked for in one call: the kernel
/// walks dirty pages only, so the gap costs nothing. No more than so many.
const RANGES_PER_CALL: usize = 64;
/// Ranges on their way at once. Each is a request of the disk, whose queue mostly
/// takes 256 (`nr_requests`); a call that finds it full waits in there, while
/// what is clean could be dropped.
const RANGES_UNDER_WAY: usize = 192;
/// A closed file that is being written is seen to so often whether it was
/// deleted: an fstat, well below a microsecond.
const NAME_NS: u64 = 5_000_000;
/// The cache ahead of an overwriting stream is looked at again when the last
/// look is older.
const LOOK_AGE_NS: u64 = 1_000_000_000;
/// How far ahead such a look goes.
const LOOK_BYTES: u64 = 64 << 20;
/// Of scattered pages a count visits each, so the next one waits so many times as
/// long as this one took; but no longer than the longest pause between polls.
const COUNT_SHARE: u64 = 8;

/// What is known of a file when it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamConfig {
    /// Fixed window, in bytes; `None` follows the disk's speed.
    pub window_bytes: Option<u64>,
    /// Fixed request, in bytes; `None` is the disk's.
    pub request_bytes: Option<u64>,
    /// Size of the file when it was opened.
    pub size_bytes: u64,
    /// Open with `O_APPEND`.
    pub o_append: bool,
    /// A raw block device: never deleted, never small.
    pub block_device: bool,
    /// Write-behind does not apply (`POSIX_FADV_RANDOM`).
    pub random: bool,
}

/// What a stream did, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounters {
    /// Bytes this I/O brought into the cache.
    pub brought_bytes: u64,
    /// Of these, bytes no longer there.
    pub dropped_bytes: u64,
    /// Bytes that were there before and were left.
    pub kept_bytes: u64,
    /// Bytes that should have gone, and could not be dropped.
    pub left_bytes: u64,
    /// Bytes for which writeback was started, by reason.
    pub writeback_bytes: ReasonBytes,
    /// Most bytes at once that were written and not seen clean.
    pub peak_dirty_bytes: u64,
    /// Most bytes at once that were brought in and not yet dropped.
    pub peak_brought_bytes: u64,
}

/// What the stream wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    StartWriteback(ByteRange, Reason),
    Count(ByteRange),
    Drop,
    Inspect,
    Look(ByteRange),
    Forget,
}

/// The disk's state a stream decides by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub now_ns: u64,
    pub page_bytes: u64,
    pub pace: Pace,
    pub neighbours: Neighbours,
    pub default_window_bytes: u64,
    pub request_bytes: u64,
    /// Streams that wait for writeback.
    pub busy_streams: u64,
    /// What they wait for.
    pub asked_bytes: u64,
}

impl Context {
    /// The pause before a stream's next poll. All streams wait for the same
    /// disk, so none of many gets its bytes written as soon as a single one, and
    /// polls of each at a single one's pace would take a core.
    fn poll_ns(&self) -> u64 {
        let share = 1 + self.busy_streams.saturating_sub(1) / 4;
        self.pace.poll_ns().saturating_mul(share)
    }
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    range: ByteRange,
    bytes: u64,
    /// How many ranges `bytes` are in.
    ranges: usize,
    reason: Reason,
    tries: u8,
    /// Written by the program's own fsync: we have not asked for it.
    by_program: bool,
    /// Bytes already seen clean.
    clean_bytes: u64,
    /// Bytes under writeback at the last count.
    writeback_bytes: u64,
    /// Bytes that left writeback between two counts, all counts together.
    churn_bytes: u64,
}

impl Asked {
    fn new(range: ByteRange, bytes: u64, reason: Reason) -> Asked {
        Asked {
            range,
            bytes,
            ranges: 1,
            reason,
            tries: 0,
            by_program: false,
            clean_bytes: 0,
            writeback_bytes: 0,
            churn_bytes: 0,
        }
    }

    /// Only parts of the range were asked for.
    fn has_gaps(&self) -> bool {
        self.bytes < self.range.len()
    }

    /// The same request for a part of its range.
    fn part(self, range: ByteRange) -> Asked {
        Asked {
            range,
            bytes: self.bytes.min(range.len()),
            ..self
        }
    }
}

/// One open file.
#[derive(Clone, Debug)]
pub struct Stream {
    config: StreamConfig,
    residency: ResidencyMap,
    size_bytes: u64,
    /// What the file had before us ends here.
    old_end_bytes: u64,
    last_write_end: u64,

    /// Bytes written, as counted by the writers.
    written_bytes: u64,
    /// Of these, bytes seen clean or left to the kernel.
    done_bytes: u64,

    dirty: RangeSet,
    dirty_since_ns: u64,
    /// Where the last request for dirty ranges ended. They are asked for in
    /// offset order from here, and then from the start: always from the start,
    /// and a busy beginning of a file would starve its end.
    dirty_cursor: u64,
    /// Dirty bytes still to be asked for in this sweep.
    sweep_bytes: u64,
    /// Since the last drop, a request was sent.
    sent: bool,
    dirty_mode: Mode,
    window: WriteBehind,
    window_mode: Mode,
    to_send: VecDeque<Asked>,
    asked: VecDeque<Asked>,
    to_send_bytes: u64,
    /// Less what was already seen clean.
    asked_bytes: u64,
    /// Ranges in `asked`.
    asked_ranges: usize,
    /// The ranges of `to_send` and `asked`.
    under_way: RangeCounts,
    next_count_ns: u64,
    /// When the count that is being taken was begun.
    count_begun_ns: u64,
    /// The next count comes after a pause, not right after another one.
    polling: bool,
    lazy: RangeSet,
    lazy_cursor: u64,
    lazy_piece_bytes: u64,
    /// Pieces counted since the last wait.
    lazy_pieces: u32,
    /// Looks at all of `lazy` since the last one that found something clean.
    lazy_looks: u32,
    next_lazy_ns: u64,
    /// The count that is being taken is of the front of `asked`.
    counting_asked: bool,
    /// Brought in by us, and not yet gone.
    ours: RangeSet,
    kept: RangeSet,
    planner: DropPlanner,

    inspected_ns: Option<u64>,
    /// Others use it.
    shared: bool,
    /// Something was done since the last inspection.
    worked: bool,
    unlinked: bool,
    looked_ns: u64,
    looked_until: u64,
    /// Where the last write ended, and what was written up to there in one piece.
    run_end: u64,
    run_bytes: u64,
    look: Option<ByteRange>,
    closed_ns: Option<u64>,
    small_bytes: Option<u64>,
    flush: bool,
    forgotten: bool,
    counters: StreamCounters,
    /// The stream's place in the disk's queue.
    pub(crate) queued: Option<(u64, u64)>,
    /// When the stream last had its turn.
    pub(crate) served_ns: u64,
    /// The stream's place among the small files that wait, and the bytes it is
    /// counted with.
    pub(crate) small_place: Option<(u64, u64)>,
    /// Too many small files wait, and this one is among the oldest.
    pub(crate) over_budget: bool,
}

impl Stream {
    pub(crate) fn new(now_ns: u64, config: StreamConfig, residency: ResidencyMap) -> Stream {
        Stream {
            config,
            residency,
            size_bytes: config.size_bytes,
            old_end_bytes: config.size_bytes,
            last_write_end: 0,
            written_bytes: 0,
            done_bytes: 0,
            dirty: RangeSet::new(),
            dirty_since_ns: 0,
            dirty_cursor: 0,
            sweep_bytes: 0,
            sent: false,
            dirty_mode: Mode::DONTCACHE,
            window: WriteBehind::new(),
            window_mode: Mode::WRITE_BEHIND,
            to_send: VecDeque::new(),
            asked: VecDeque::new(),
            to_send_bytes: 0,
            asked_bytes: 0,
            asked_ranges: 0,
            under_way: RangeCounts::new(),
            next_count_ns: 0,
            count_begun_ns: 0,
            polling: false,
            lazy: RangeSet::new(),
            lazy_cursor: 0,
            lazy_piece_bytes: LAZY_PIECE_MIN_BYTES,
            lazy_pieces: 0,
            lazy_looks: 0,
            next_lazy_ns: 0,
            counting_asked: true,
            ours: RangeSet::new(),
            kept: RangeSet::new(),
            planner: DropPlanner::new(),
            inspected_ns: None,
            shared: false,
            worked: false,
            unlinked: false,
            looked_ns: now_ns,
            looked_until: 0,
            run_end: 0,
            run_bytes: 0,
            look: None,
            closed_ns: None,
            small_bytes: None,
            flush: false,
            forgotten: false,
            counters: StreamCounters::default(),
            queued: None,
            served_ns: 0,
            small_place: None,
            over_budget: false,
        }
    }

    /// What the stream did so far.
    pub fn counters(&self) -> &StreamCounters {
        &self.counters
    }

    /// Bytes written that writers need not wait for any more.
    pub fn done_bytes(&self) -> u64 {
        self.done_bytes
    }

    /// Clean bytes that wait to be dropped.
    pub fn droppable_bytes(&self) -> u64 {
        self.planner.ready_bytes()
    }

    /// Bytes brought in that are still to be dropped.
    pub fn brought_bytes(&self) -> u64 {
        self.ours.bytes()
    }

    /// The parts of `range` that were brought in and are still to be dropped.
    pub fn brought_in(&self, range: ByteRange) -> alloc::vec::Vec<ByteRange> {
        self.ours.overlaps_of(range).collect()
    }

    /// The parts of `range` of which nothing is known to be dirty or under way.
    pub fn untold(&self, range: ByteRange) -> alloc::vec::Vec<ByteRange> {
        self.dirty_or_asked_gaps(range)
    }

    /// Bytes that were told and not seen clean since, those left to the kernel
    /// included.
    pub fn unclean_bytes(&self) -> u64 {
        self.outstanding_bytes() + self.lazy.bytes()
    }

    /// The parts of `range` that neither we brought in nor others had, as far as
    /// is known: what is cached there came after the look before.
    pub fn unexplained(&self, range: ByteRange) -> alloc::vec::Vec<ByteRange> {
        let mut parts = alloc::vec::Vec::new();
        for part in self.residency.brought(range) {
            parts.extend(self.ours.gaps_of(part));
        }
        parts
    }

    /// True when nothing of ours is dirty, asked for, or waits to be dropped.
    pub fn is_settled(&self) -> bool {
        self.dirty.is_empty()
            && self.to_send.is_empty()
            && self.asked.is_empty()
            && self.lazy.is_empty()
            && self.planner.is_empty()
            && (self.window.unsent().is_empty() || !self.window_mode.drops())
    }

    pub(crate) fn small_bytes(&self) -> Option<u64> {
        self.small_bytes
    }

    /// The window of this stream now, in whole pages, one at least; 0 is none.
    pub(crate) fn window_bytes(&self, context: &Context) -> u64 {
        let wanted = match self.config.window_bytes {
            Some(fixed) => fixed,
            None => context
                .pace
                .window_bytes(context.default_window_bytes, self.request_bytes(context)),
        };
        match wanted {
            0 => 0,
            wanted => (wanted - wanted % context.page_bytes).max(context.page_bytes),
        }
    }

    /// In whole pages: a page in two requests would be written twice.
    fn request_bytes(&self, context: &Context) -> u64 {
        let wanted = self
            .config
            .request_bytes
            .unwrap_or(context.request_bytes)
            .max(context.page_bytes);
        wanted - wanted % context.page_bytes
    }

    /// What a stream may have on its way. A window of 0 turns write-behind and
    /// the writer's wait off, and says nothing about this.
    fn room_bytes(&self, context: &Context) -> u64 {
        match self.window_bytes(context) {
            0 => context
                .pace
                .window_bytes(DEFAULT_WINDOW_BYTES, self.request_bytes(context)),
            window_bytes => window_bytes,
        }
    }

    /// How many dirty bytes are worth asking for.
    pub(crate) fn batch_bytes(&self, context: &Context) -> u64 {
        context
            .pace
            .batch_bytes(self.room_bytes(context), self.request_bytes(context))
    }

    /// How many bytes writers may count beyond [`Stream::done_bytes`]: two
    /// windows, less what is clean and to be dropped at once.
    ///
    /// Who waits has more than a window pending outside of the write-behind
    /// window, which nobody but the writer moves on; so there is work that
    /// ends the wait, also when the window shrinks in the meantime.
    pub(crate) fn limit_bytes(&self, context: &Context) -> u64 {
        let window_bytes = self.window_bytes(context);
        if window_bytes == 0 {
            return u64::MAX;
        }
        let held_bytes = self.window.unsent().len().max(window_bytes);
        // Writers count bytes, the disk writes pages. A byte in each page of a
        // file is little to the one and all of it to the other.
        let counted_bytes = self.written_bytes - self.done_bytes;
        let uncounted_bytes = self.outstanding_bytes().saturating_sub(counted_bytes);
        // What waits to be dropped is still in the cache. A disk that has just
        // finished a lump makes room as fast as that goes.
        let undropped_bytes = self.planner.ready_bytes().saturating_sub(STEP_BYTES);
        held_bytes
            .saturating_add(window_bytes)
            .saturating_sub(uncounted_bytes)
            .saturating_sub(undropped_bytes)
    }

    // ---- events -----------------------------------------------------------

    pub(crate) fn looked(
        &mut self,
        now_ns: u64,
        range: ByteRange,
        resident: impl IntoIterator<Item = ByteRange>,
    ) {
        self.residency.observed(range, resident);
        // What we brought in ourselves is not somebody else's.
        let ours: alloc::vec::Vec<ByteRange> = self.ours.overlaps_of(range).collect();
        for part in ours {
            self.residency.observed(part, []);
        }
        self.looked_ns = now_ns;
        self.looked_until = self.looked_until.max(range.end);
    }

    /// What was written beyond the new end is not forgotten: it may have been
    /// written since, and told already. Where nothing is cached, asking for it,
    /// counting and dropping it are calls without effect.
    pub(crate) fn resized(&mut self, context: &Context, size_bytes: u64) {
        self.size_bytes = size_bytes;
        let end = round_up(size_bytes, context.page_bytes);
        self.old_end_bytes = self.old_end_bytes.min(end);
        self.residency.truncated(end);
        self.kept.remove(ByteRange::new(end, u64::MAX));
        let beyond = self.window.truncated(end);
        self.leave_to_kernel(context, beyond, self.window_mode);
        self.update_done();
    }

    pub(crate) fn wrote(&mut self, context: &Context, range: ByteRange, mode: Mode) {
        let range = range.page_aligned_outward(context.page_bytes);
        if range.is_empty() {
            return;
        }
        let size_page = self.size_bytes - self.size_bytes % context.page_bytes;
        let kind = WriteKind {
            o_append: self.config.o_append,
            appending: self.config.o_append || range.start >= size_page,
        };
        self.planner.withdraw(range);
        if mode.drops() {
            self.bring(range);
            self.plan_look(context, range);
        } else {
            self.residency.keep(range);
            self.give_up_ownership(range);
        }
        match mode.writeback {
            Writeback::Lazy => self.leave_to_kernel(context, range, mode),
            Writeback::Eager => {
                if self.dirty.is_empty() {
                    self.dirty_since_ns = context.now_ns;
                }
                self.dirty_mode = mode;
                self.lazy.remove(range);
                self.dirty.insert(range);
            }
            Writeback::BehindAppending if !kind.appending => {
                self.leave_to_kernel(context, range, mode);
            }
            Writeback::BehindAppending | Writeback::Behind => {
                self.wrote_behind(context, range, kind, mode);
            }
        }
        self.size_bytes = self.size_bytes.max(range.end);
        self.last_write_end = range.end;
        self.closed_ns = None;
        self.small_bytes = None;
    }

    fn wrote_behind(&mut self, context: &Context, range: ByteRange, kind: WriteKind, mode: Mode) {
        if self.config.random {
            self.leave_to_kernel(context, range, mode);
            return;
        }
        let window_bytes = self.window_bytes(context);
        let request_bytes = self.request_bytes(context);
        if window_bytes > 0 && !self.window.continues(range, window_bytes) {
            // The write is elsewhere; what the window held is the kernel's now.
            let before = self.window.unsent();
            self.leave_to_kernel(context, before, self.window_mode);
        }
        self.window_mode = mode;
        if window_bytes == 0 {
            self.leave_to_kernel(context, range, mode);
        } else if let Some(send) = self.window.wrote(range, kind, window_bytes, request_bytes) {
            self.send(Asked::new(send, send.len(), Reason::WriteBehind));
            self.move_window(context);
        }
    }

    /// Sends what is out of the window, which also shrinks by itself: the
    /// writer, who would send the rest, may be waiting for just that.
    pub(crate) fn move_window(&mut self, context: &Context) {
        if self.window.unsent().is_empty() {
            return;
        }
        let window_bytes = self.window_bytes(context);
        let request_bytes = self.request_bytes(context);
        while let Some(send) = self.window.moved(window_bytes, request_bytes) {
            self.send(Asked::new(send, send.len(), Reason::WriteBehind));
        }
    }

    fn leave_to_kernel(&mut self, context: &Context, range: ByteRange, mode: Mode) {
        if mode.drops() && !range.is_empty() {
            if self.lazy.is_empty() {
                self.next_lazy_ns = context.now_ns + LAZY_COUNT_NS;
                self.lazy_pieces = 0;
            }
            self.lazy.insert(range);
            self.lazy_looks = 0;
        }
    }

    fn bring(&mut self, range: ByteRange) {
        let mut brought_bytes = 0;
        for part in self.residency.brought(range) {
            self.counters.brought_bytes += self.ours.insert(part);
            brought_bytes += part.len();
        }
        if brought_bytes < range.len() {
            for part in self.ours.gaps_of(range) {
                self.counters.kept_bytes += self.kept.insert(part);
            }
        }
        self.counters.peak_brought_bytes = self.counters.peak_brought_bytes.max(self.ours.bytes());
    }

    fn give_up_ownership(&mut self, range: ByteRange) {
        let ours: alloc::vec::Vec<ByteRange> = self.ours.overlaps_of(range).collect();
        for part in ours {
            let given_bytes = self.ours.remove(part);
            self.lazy.remove(part);
            self.counters.brought_bytes -= given_bytes.min(self.counters.brought_bytes);
            self.counters.kept_bytes += self.kept.insert(part);
        }
    }

    fn plan_look(&mut self, context: &Context, range: ByteRange) {
        // Only a stream that has come a long way in one piece has an "ahead":
        // elsewhere lie pages of ours that we may not have heard of yet. Whole
        // pages are told, so a run may begin with the last page once more.
        let overlap = self.run_end.saturating_sub(range.start);
        let goes_on = overlap <= context.page_bytes && range.start <= self.run_end;
        self.run_bytes =
            if goes_on { self.run_bytes } else { 0 } + (range.len() - overlap.min(range.len()));
        self.run_end = range.end;
        if self.run_bytes < self.window_bytes(context) {
            return;
        }
        // The writer may be two windows ahead of what we have heard of; nearer
        // than that, a look would take its pages for somebody else's.
        let ahead = self.window_bytes(context).saturating_mul(2);
        let nearest = range.end.saturating_add(ahead);
        let from = nearest.max(self.looked_until);
        let due = from - nearest < LOOK_BYTES;
        let stale = context.now_ns.saturating_sub(self.looked_ns) > LOOK_AGE_NS;
        if from < self.old_end_bytes && due && (stale || self.looked_until > 0) {
            let old_end = round_up(self.old_end_bytes, context.page_bytes);
            let until = old_end.min(from.saturating_add(LOOK_BYTES));
            self.look = Some(ByteRange::new(from, until));
        }
    }

    /// A read brought `range` in; it is clean, and ours.
    pub(crate) fn read(&mut self, context: &Context, range: ByteRange) {
        if self.shared {
            // Read before it was, perhaps, and told only now.
            return;
        }
        let range = range.page_aligned_outward(context.page_bytes);
        self.residency.observed(range, []);
        for part in self.dirty_or_asked_gaps(range) {
            self.counters.brought_bytes += self.ours.insert(part);
            self.planner.ready(part);
        }
        self.counters.peak_brought_bytes = self.counters.peak_brought_bytes.max(self.ours.bytes());
    }

    /// The parts of `range` in which no write of ours is under way.
    fn dirty_or_asked_gaps(&self, range: ByteRange) -> alloc::vec::Vec<ByteRange> {
        gaps_between(range, self.busy_parts(range).collect())
    }

    fn busy_parts(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        self.dirty
            .overlaps_of(range)
            .chain(self.lazy.overlaps_of(range))
            .chain(Some(self.window.unsent().intersection(range)).filter(|part| !part.is_empty()))
            .chain(self.under_way.overlaps_of(range))
    }

    /// Writers have counted `written_bytes` up to now, and all ranges up to
    /// there have been told.
    pub(crate) fn told(&mut self, written_bytes: u64) {
        self.written_bytes = self.written_bytes.max(written_bytes);
        self.update_done();
        let outstanding = self.written_bytes - self.done_bytes;
        self.counters.peak_dirty_bytes = self.counters.peak_dirty_bytes.max(outstanding);
    }

    fn outstanding_bytes(&self) -> u64 {
        self.dirty.bytes() + self.window.unsent().len() + self.to_send_bytes + self.asked_bytes
    }

    /// Bytes asked for and not seen clean.
    pub(crate) fn asked_bytes(&self) -> u64 {
        self.asked_bytes
    }

    fn update_done(&mut self) {
        let done = self.written_bytes.saturating_sub(self.outstanding_bytes());
        self.done_bytes = self.done_bytes.max(done);
    }

    /// The program's own fsync returned: look at once, nothing to ask for.
    ///
    /// What another thread wrote during the fsync is among it; it is found
    /// dirty, and asked for then.
    pub(crate) fn synced(&mut self, context: &Context) {
        let request_bytes = self.request_bytes(context);
        while let Some(mut sent) = self.to_send.pop_front() {
            self.under_way.remove(sent.range);
            sent.reason = Reason::Sync;
            sent.by_program = true;
            self.push_asked(sent);
        }
        self.to_send_bytes = 0;
        self.dirty.insert(self.window.take_unsent());
        self.sweep_bytes = 0;
        while let Some(near) = self.take_dirty(request_bytes, u64::MAX, Reason::Sync) {
            self.push_asked(Asked {
                by_program: true,
                ..near
            });
        }
        self.next_count_ns = context.now_ns;
        self.next_lazy_ns = context.now_ns;
        self.lazy_pieces = 0;
    }

    /// All that is pending is to be written and dropped now.
    pub(crate) fn flush(&mut self, context: &Context) {
        self.flush = true;
        let tail = self.window.take_unsent();
        self.send(Asked::new(tail, tail.len(), Reason::Sync));
        // Somebody waits, and the kernel may take half a minute.
        let lazy = core::mem::take(&mut self.lazy);
        for range in lazy.iter() {
            self.send(Asked::new(range, range.len(), Reason::Sync));
        }
        self.next_lazy_ns = self.next_lazy_ns.min(context.now_ns);
        self.lazy_looks = 0;
    }

    fn send(&mut self, asked: Asked) {
        if !asked.range.is_empty() {
            self.under_way.add(asked.range);
            self.to_send_bytes += asked.bytes;
            self.to_send.push_back(asked);
        }
    }

    /// The program closed the file.
    pub(crate) fn closed(&mut self, context: &Context) {
        self.closed_ns = Some(context.now_ns);
        let tail = self.window.unsent();
        let kind = CloseKind {
            o_append: self.config.o_append,
            new_file: self.config.size_bytes == 0,
            at_end: self.last_write_end >= self.size_bytes,
            appending_only: self.window_mode.writeback == Writeback::BehindAppending,
        };
        let (window_bytes, request_bytes) =
            (self.window_bytes(context), self.request_bytes(context));
        match self.window.closed(kind, window_bytes, request_bytes) {
            Some(send) => self.send(Asked::new(send, send.len(), Reason::Close)),
            None => self.leave_to_kernel(context, tail, self.window_mode),
        }
        let dirty_bytes = self.dirty.bytes();
        let small = dirty_bytes < SMALL_FILE_BYTES && !self.config.block_device;
        self.small_bytes = (small && dirty_bytes > 0).then_some(dirty_bytes);
        self.update_done();
    }

    // ---- what to do next --------------------------------------------------

    /// The next task, and when it is due; the most urgent one that is due, or
    /// else the earliest.
    pub(crate) fn task(&self, context: &Context) -> Option<(u64, Task)> {
        if self.forgotten {
            return None;
        }
        let mut best: Option<(u64, Task)> = None;
        let mut offer = |due_ns: u64, task: Task| {
            // Offered in order of urgency: a later one wins only by being due
            // when the earlier is not.
            let due_ns = due_ns.max(1);
            let better =
                best.is_none_or(|(best_ns, _)| best_ns > context.now_ns && due_ns < best_ns);
            if better {
                best = Some((due_ns, task));
            }
        };
        if let Some(due_ns) = self.name_due_ns(context) {
            offer(due_ns, Task::Inspect);
        }
        if let Some(front) = self.asked.front() {
            offer(self.next_count_ns, Task::Count(front.range));
        }
        if let Some(range) = self.look {
            offer(context.now_ns, Task::Look(range));
        }
        let flush = self.flush || self.closed_ns.is_some();
        let drop_due = self.planner.due_ns(flush, STEP_BYTES);
        // A disk that waits for its next request costs more than a page that
        // stays a little longer; but not for long.
        let drops_first = self.sent || context.asked_bytes >= BUSY_BYTES;
        let crowded = drops_first && self.planner.ready_bytes() >= CROWDED_BYTES;
        let submission = self.submission(context);
        let drop = drop_due.map(|due_ns| (due_ns, Task::Drop));
        let (first, second) = if crowded {
            (drop, submission)
        } else {
            (submission, drop)
        };
        for (due_ns, task) in first.into_iter().chain(second) {
            offer(due_ns, task);
        }
        if !self.lazy.is_empty() {
            // Deleted since, it need not be written, and our descriptor is what
            // holds its blocks.
            let inspect = self.closed_ns.is_some()
                && !self.config.block_device
                && self.inspected_ns < Some(self.next_lazy_ns);
            if inspect {
                offer(self.next_lazy_ns, Task::Inspect);
            } else {
                offer(self.next_lazy_ns, Task::Count(self.lazy_piece()));
            }
        }
        if self.closed_ns.is_some() && self.is_settled() {
            offer(context.now_ns, Task::Forget);
        }
        best
    }

    /// When to see whether a closed file still has a name. Deleted, it need not
    /// be written, and our descriptor is all that holds its blocks, which its
    /// programs may want for the next file. Small ones are seen to before their
    /// write.
    fn name_due_ns(&self, context: &Context) -> Option<u64> {
        let closed_ns = self.closed_ns?;
        let busy = self.outstanding_bytes() > 0 || !self.planner.is_empty();
        if !busy || self.config.block_device || self.small_bytes.is_some() {
            return None;
        }
        match self.inspected_ns {
            // Where calls are slow, at least every other one is to the purpose.
            Some(at_ns) if at_ns >= closed_ns => {
                self.worked.then_some(at_ns.saturating_add(NAME_NS))
            }
            _ => Some(context.now_ns),
        }
    }

    fn submission(&self, context: &Context) -> Option<(u64, Task)> {
        let window_bytes = self.room_bytes(context);
        // All that a stream may have outstanding, less a batch, may be on its way.
        // Keeping half of it back cost a fifth of the throughput on a disk that
        // reports completions only once its queue is empty (virtio under
        // Firecracker).
        let batch_bytes = self.batch_bytes(context).min(window_bytes);
        let most_bytes = context
            .neighbours
            .share_of(window_bytes.saturating_mul(2) - batch_bytes);
        let room = self.asked.is_empty()
            || self.asked_bytes < most_bytes && self.asked_ranges < RANGES_UNDER_WAY;
        if !room || self.sweep_would_overlap() {
            return None;
        }
        let (due_ns, reason, front) = if let Some(next) = self.to_send.front() {
            (context.now_ns, next.reason, next.range)
        } else if let Some(first) = self.dirty.first() {
            let (due_ns, reason) = self.eager_due(context);
            (due_ns, reason, first)
        } else {
            return None;
        };
        if self.config.block_device {
            return Some((due_ns, Task::StartWriteback(front, reason)));
        }
        let scratch = self.unlinked && !self.flush && self.outstanding_bytes() < window_bytes;
        match self.inspected_ns {
            None => Some((due_ns, Task::Inspect)),
            // A nameless file may get a name (O_TMPFILE, linkat), so it is
            // looked at again; while it is small it need not be written.
            Some(at_ns) if scratch => Some((due_ns.max(at_ns + AGE_NS), Task::Inspect)),
            // Closed small files wait for their grace; who was deleted since
            // is found out just before the write.
            at_ns if self.small_bytes.is_some() && self.to_send.is_empty() => {
                let fresh_ns = if reason == Reason::Close {
                    Some(due_ns)
                } else {
                    self.closed_ns
                };
                let task = if at_ns < fresh_ns {
                    Task::Inspect
                } else {
                    Task::StartWriteback(front, reason)
                };
                Some((due_ns, task))
            }
            Some(_) => Some((due_ns, Task::StartWriteback(front, reason))),
        }
    }

    /// What lies in the gaps of a request counts as its own. So the sweep over the
    /// file does not come to what is still under way.
    fn sweep_would_overlap(&self) -> bool {
        let sweeps = self.to_send.is_empty() && self.asked.back().is_some_and(Asked::has_gaps);
        sweeps
            && self.next_dirty().is_some_and(|next| {
                let ahead = ByteRange::new(next.start, u64::MAX);
                self.under_way.overlaps_of(ahead).next().is_some()
            })
    }

    /// What the sweep comes to next.
    fn next_dirty(&self) -> Option<ByteRange> {
        self.dirty
            .first_from(self.dirty_cursor)
            .map(|first| ByteRange::new(first.start.max(self.dirty_cursor), first.end))
            .or_else(|| self.dirty.first())
    }

    fn eager_due(&self, context: &Context) -> (u64, Reason) {
        let usual = if self.dirty_mode.drops() {
            Reason::Dontcache
        } else {
            Reason::WriteThrough
        };
        if self.flush {
            return (context.now_ns, Reason::Sync);
        }
        if self.dirty.bytes() >= self.batch_bytes(context) && self.small_bytes.is_none() {
            return (self.dirty_since_ns, usual);
        }
        if self.sweep_bytes > 0 && self.small_bytes.is_none() {
            let old = self.dirty_since_ns.saturating_add(AGE_NS) <= context.now_ns;
            return (self.dirty_since_ns, if old { Reason::Age } else { usual });
        }
        match (self.closed_ns, self.small_bytes) {
            (Some(_), Some(_)) if self.over_budget => (context.now_ns, Reason::Budget),
            (Some(closed_ns), Some(_)) => (closed_ns.saturating_add(GRACE_NS), Reason::Close),
            (Some(_), None) => (context.now_ns, Reason::Close),
            (None, _) => (self.dirty_since_ns.saturating_add(AGE_NS), Reason::Age),
        }
    }

    fn lazy_piece(&self) -> ByteRange {
        let range = self
            .lazy
            .first_from(self.lazy_cursor)
            .or_else(|| self.lazy.first())
            .unwrap_or_default();
        let start = if range.start <= self.lazy_cursor && self.lazy_cursor < range.end {
            self.lazy_cursor
        } else {
            range.start
        };
        // Over gaps too: a count costs little where nothing is cached.
        let end = start.saturating_add(self.lazy_piece_bytes);
        ByteRange::new(start, end.min(self.lazy.span().end))
    }

    /// Takes the task on: what is answered next is its outcome.
    ///
    /// Whatever the answer is, or should there be none, the same task is not
    /// due at once again.
    pub(crate) fn begin(&mut self, context: &Context, stream: StreamId, task: Task) -> Action {
        self.worked = !matches!(task, Task::Inspect);
        match task {
            Task::StartWriteback(_, reason) => {
                self.sent = true;
                let (range, reason) = self.begin_writeback(context, reason);
                Action::StartWriteback {
                    stream,
                    range,
                    reason,
                }
            }
            Task::Count(range) => {
                let front = self.asked.front().map(|asked| asked.range);
                self.counting_asked = front == Some(range) && self.next_count_ns <= context.now_ns;
                self.count_begun_ns = context.now_ns;
                if self.counting_asked {
                    self.next_count_ns = context.now_ns + context.poll_ns();
                } else {
                    self.begin_lazy_count(context, range);
                }
                Action::Count { stream, range }
            }
            Task::Drop => {
                self.sent = false;
                let flush = self.flush || self.closed_ns.is_some();
                let ranges = self.planner.take(context.now_ns, flush, STEP_BYTES);
                Action::Drop { stream, ranges }
            }
            Task::Look(range) => {
                self.look = None;
                // Looked at or not, this part is not asked for again.
                self.looked_until = self.looked_until.max(range.end);
                Action::Look { stream, range }
            }
            Task::Forget => {
                self.forgotten = true;
                self.counters.left_bytes += self.ours.bytes();
                self.ours.clear();
                Action::Forget { stream }
            }
            Task::Inspect => {
                self.inspected_ns = Some(context.now_ns);
                Action::Inspect { stream }
            }
        }
    }

    fn begin_lazy_count(&mut self, context: &Context, range: ByteRange) {
        self.lazy_cursor = range.end;
        self.lazy_pieces += 1;
        let round_over = self.lazy.first_from(self.lazy_cursor).is_none();
        if round_over {
            self.lazy_cursor = 0;
            self.lazy_looks += 1;
        }
        if round_over || self.lazy_pieces >= LAZY_PIECES {
            self.lazy_pieces = 0;
            self.next_lazy_ns = context.now_ns + LAZY_COUNT_NS;
        }
    }

    fn begin_writeback(&mut self, context: &Context, reason: Reason) -> (ByteRange, Reason) {
        let request_bytes = self.request_bytes(context);
        let asked = if let Some(next) = self.to_send.pop_front() {
            self.take_sent(next, request_bytes)
        } else {
            if self.sweep_bytes == 0 {
                self.sweep_bytes = self.dirty.bytes();
            }
            let Some(taken) = self.take_dirty(request_bytes, request_bytes, reason) else {
                return (ByteRange::default(), reason);
            };
            self.end_sweep(context, taken.bytes, reason);
            taken
        };
        self.counters.writeback_bytes[asked.reason] += asked.bytes;
        let begun = (asked.range, asked.reason);
        let was_idle = self.asked.is_empty();
        self.push_asked(asked);
        if was_idle {
            self.next_count_ns = context.now_ns + context.poll_ns();
            self.polling = true;
        }
        begun
    }

    /// The first request's worth of `next`, which was taken off `to_send`; the
    /// rest goes back.
    fn take_sent(&mut self, next: Asked, request_bytes: u64) -> Asked {
        let whole = next.range;
        self.under_way.remove(whole);
        self.to_send_bytes -= next.bytes;
        // A call that is too long may block for as long on a full queue.
        if whole.len() <= request_bytes || next.has_gaps() {
            // Nor does anybody know how much of what has gaps is in which part.
            return next;
        }
        let cut = next.part(whole.first_request(request_bytes));
        let rest = Asked {
            range: ByteRange::new(cut.range.end, whole.end),
            bytes: next.bytes - cut.bytes,
            ..next
        };
        self.under_way.add(rest.range);
        self.to_send_bytes += rest.bytes;
        self.to_send.push_front(rest);
        cut
    }

    /// A batch makes for several requests when it is scattered; what is left of
    /// it may wait for more once it is less than half a batch. What is old is
    /// asked for whole.
    fn end_sweep(&mut self, context: &Context, taken_bytes: u64, reason: Reason) {
        self.sweep_bytes = self.sweep_bytes.saturating_sub(taken_bytes);
        let batched = matches!(reason, Reason::Dontcache | Reason::WriteThrough);
        if self.dirty.is_empty() || batched && self.dirty.bytes() <= self.batch_bytes(context) / 2 {
            self.sweep_bytes = 0;
        }
        if self.sweep_bytes == 0 {
            self.dirty_since_ns = context.now_ns;
        }
        if self.dirty.is_empty() {
            self.small_bytes = None;
        }
    }

    /// Takes dirty ranges in offset order, from where the last request ended:
    /// ranges no farther apart than `gap_bytes`, and no more than `most_bytes`.
    fn take_dirty(&mut self, gap_bytes: u64, most_bytes: u64, reason: Reason) -> Option<Asked> {
        let mut span = ByteRange::default();
        let mut bytes = 0;
        let mut taken = 0;
        let mut next = self.next_dirty();
        while let Some(first) = next {
            let near = taken == 0 || first.start - span.end <= gap_bytes;
            if !near || taken == RANGES_PER_CALL || bytes >= most_bytes {
                break;
            }
            let room = most_bytes - bytes;
            let part = if first.len() > room {
                ByteRange::new(first.start, first.start + room).first_request(most_bytes)
            } else {
                first
            };
            self.dirty.remove(part);
            span = if taken == 0 {
                part
            } else {
                ByteRange::new(span.start, part.end)
            };
            bytes += part.len();
            taken += 1;
            if part.end < first.end {
                // Cut at a request's boundary: the rest begins the next one.
                break;
            }
            next = self.dirty.first_from(span.end);
        }
        self.dirty_cursor = span.end;
        (taken > 0).then(|| Asked {
            ranges: taken,
            ..Asked::new(span, bytes, reason)
        })
    }

    fn push_asked(&mut self, asked: Asked) {
        self.under_way.add(asked.range);
        self.asked_bytes += asked.bytes;
        self.asked_ranges += asked.ranges;
        self.asked.push_back(Asked {
            clean_bytes: 0,
            writeback_bytes: 0,
            churn_bytes: 0,
            ..asked
        });
    }

    // ---- outcomes ---------------------------------------------------------

    /// Answers bytes newly seen clean and what the poll was like, for the
    /// disk's pace.
    pub(crate) fn counted(
        &mut self,
        context: &Context,
        range: ByteRange,
        counted: Counted,
    ) -> Option<(u64, Poll)> {
        if !self.counting_asked {
            self.counted_lazy(range, counted);
            return None;
        }
        let mut front = *self.asked.front().filter(|front| front.range == range)?;
        let polled = core::mem::take(&mut self.polling);
        let left = front
            .writeback_bytes
            .saturating_sub(counted.writeback_bytes);
        front.writeback_bytes = counted.writeback_bytes;
        front.churn_bytes = front.churn_bytes.saturating_add(left);
        let unwritten = counted.unwritten_bytes();
        let clean = front.bytes - front.bytes.min(unwritten);
        let newly = clean.saturating_sub(front.clean_bytes);
        front.clean_bytes += newly;
        self.asked_bytes -= newly;
        let missing_bytes = front.bytes - front.clean_bytes;
        let others_bytes = front.churn_bytes.saturating_sub(front.clean_bytes);
        let churned = others_bytes > missing_bytes.saturating_mul(CHURN);
        if counted.writeback_bytes > 0 && !(churned && missing_bytes > 0) {
            self.asked[0] = front;
            let cost_ns = context.now_ns.saturating_sub(self.count_begun_ns);
            let cost_ns = cost_ns.saturating_mul(COUNT_SHARE).min(POLL_MAX_NS);
            let pause_ns = context.poll_ns().max(cost_ns);
            self.next_count_ns = context.now_ns + pause_ns;
            self.polling = true;
            self.update_done();
            let early = polled && newly == 0;
            return Some((newly, if early { Poll::Early } else { Poll::InTime }));
        }
        self.asked.pop_front();
        self.asked_ranges -= front.ranges;
        self.under_way.remove(front.range);
        self.asked_bytes -= missing_bytes;
        self.next_count_ns = context.now_ns;
        if unwritten > 0 {
            self.still_dirty(context, front, unwritten);
        }
        self.now_clean(front.range);
        self.update_done();
        let newly = newly + missing_bytes.saturating_sub(unwritten);
        Some((newly, if polled { Poll::Late } else { Poll::InTime }))
    }

    /// Pages asked for are dirty and not on their way: written to again, or
    /// skipped by the kernel because they were locked.
    fn still_dirty(&mut self, context: &Context, front: Asked, unwritten_bytes: u64) {
        let window_bytes = self.window.unsent().intersection(front.range).len();
        let under_way_bytes: u64 = self
            .under_way
            .overlaps_of(front.range)
            .map(ByteRange::len)
            .sum();
        let expected_bytes = self.dirty.bytes_of(front.range) + window_bytes + under_way_bytes;
        // The kernel counts whole folios, so a small part of one that was
        // written again may show as much more. It is asked for in its own time;
        // once more for what the kernel may have skipped besides is enough.
        let expected = unwritten_bytes <= expected_bytes || (expected_bytes > 0 && front.tries > 0);
        // Nobody but the program has asked for these, and perhaps too early.
        if expected && !front.by_program {
            return;
        }
        if front.tries < ASK_TRIES {
            self.send(Asked {
                tries: front.tries + 1,
                by_program: false,
                ..front
            });
        } else if self.ours.touches(front.range) {
            self.leave_to_kernel(context, front.range, Mode::NOREUSE);
        }
    }

    /// Hands what is ours and no longer under way over to be dropped.
    fn now_clean(&mut self, range: ByteRange) {
        // Where ranges are scattered, most of what is ours in their span was clean
        // before, and to look each of it up takes more time than all else.
        let busy = self
            .busy_parts(range)
            .chain(self.planner.ready_parts(range));
        let gaps = gaps_between(range, busy.collect());
        let ours: alloc::vec::Vec<ByteRange> = self.ours.overlaps_of(range).collect();
        for part in intersections(&gaps, &ours) {
            self.planner.ready(part);
        }
    }

    fn counted_lazy(&mut self, range: ByteRange, counted: Counted) {
        if counted.unwritten_bytes() == 0 {
            if self.lazy.remove(range) > 0 {
                self.lazy_looks = 0;
            }
            self.now_clean(range);
            self.lazy_piece_bytes = (self.lazy_piece_bytes * 2).min(LAZY_PIECE_MAX_BYTES);
            return;
        }
        self.lazy_piece_bytes = (self.lazy_piece_bytes / 2).max(LAZY_PIECE_MIN_BYTES);
        let awaited = self.flush || self.closed_ns.is_some();
        if awaited && self.lazy_looks >= LAZY_LOOKS {
            for part in core::mem::take(&mut self.lazy).iter() {
                self.counters.left_bytes += self.ours.remove(part);
                self.planner.withdraw(part);
            }
        }
    }

    pub(crate) fn dropped(&mut self, context: &Context, range: ByteRange, dropped: Dropped) {
        let Dropped::Tried {
            before_bytes,
            after_bytes,
        } = dropped
        else {
            self.planner.not_clean(range);
            let ours: alloc::vec::Vec<ByteRange> = self.ours.overlaps_of(range).collect();
            for part in ours {
                self.leave_to_kernel(context, part, Mode::NOREUSE);
            }
            return;
        };
        let gone_bytes =
            before_bytes.map_or(0, |before_bytes| before_bytes.saturating_sub(after_bytes));
        let mut verdict = self
            .planner
            .verified(context.now_ns, range, gone_bytes, after_bytes);
        // A folio across the border goes only together with the other part.
        if verdict == Verdict::GivenUp
            && self.is_busy_next_to(context, range)
            && self.planner.wait_for_neighbours(context.now_ns, range)
        {
            verdict = Verdict::Again;
        }
        if verdict == Verdict::Again {
            // What was given up or truncated since is nothing to try again.
            for part in self.ours.gaps_of(range) {
                self.planner.withdraw(part);
            }
            return;
        }
        // What was written since is to be dropped after its own writeback, and
        // what a read brought in again since by another drop.
        let removed = self.disown_gone(range);
        let left = match verdict {
            Verdict::GivenUp => after_bytes.min(removed),
            Verdict::Gone | Verdict::Again => 0,
        };
        self.counters.left_bytes += left;
        self.counters.dropped_bytes += removed - left;
    }

    /// Takes what is neither busy nor ready out of what is ours; answers how many
    /// bytes that were.
    fn disown_gone(&mut self, range: ByteRange) -> u64 {
        let busy = self.busy_parts(range).next().is_some();
        if !busy && !self.planner.is_ready(range) {
            return self.ours.remove(range);
        }
        let mut removed = 0;
        for part in self.dirty_or_asked_gaps(range) {
            for part in self.planner.not_ready(part) {
                removed += self.ours.remove(part);
            }
        }
        removed
    }

    /// The next action is asked for: a drop that was not answered did nothing.
    pub(crate) fn not_answered(&mut self, context: &Context) {
        while let Some(range) = self.planner.unanswered() {
            let nothing = Dropped::Tried {
                before_bytes: None,
                after_bytes: range.len(),
            };
            self.dropped(context, range, nothing);
        }
    }

    /// True when the page before or after is being written by us, or waits for
    /// its first drop.
    fn is_busy_next_to(&self, context: &Context, range: ByteRange) -> bool {
        let before = ByteRange::new(range.start.saturating_sub(context.page_bytes), range.start);
        let after = ByteRange::new(range.end, range.end.saturating_add(context.page_bytes));
        [before, after]
            .into_iter()
            .filter(|page| !page.is_empty())
            .any(|page| self.planner.is_waiting(page) || self.dirty_or_asked_gaps(page) != [page])
    }

    pub(crate) fn inspected(&mut self, context: &Context, inspected: Inspected) {
        self.inspected_ns = Some(context.now_ns);
        self.unlinked = inspected.unlinked;
        if inspected.unlinked && self.closed_ns.is_some() {
            // Nobody can read it again: the kernel frees the pages unwritten
            // once the last descriptor, perhaps ours, is closed.
            self.counters.dropped_bytes += self.ours.bytes();
            self.let_go();
        }
    }

    /// Others use the file: nothing of it is dropped any more. What is dirty is
    /// still written.
    pub(crate) fn shared(&mut self) {
        self.shared = true;
        let all = ByteRange::new(0, u64::MAX);
        self.residency.keep(all);
        self.give_up_ownership(all);
        self.planner = DropPlanner::new();
        self.lazy.clear();
        self.look = None;
    }

    /// A call for this stream failed for good: everything is left as it is.
    pub(crate) fn failed(&mut self) {
        self.counters.left_bytes += self.ours.bytes();
        self.let_go();
    }

    /// Nothing that is pending is to be done any more.
    fn let_go(&mut self) {
        self.ours.clear();
        self.dirty.clear();
        self.sweep_bytes = 0;
        self.small_bytes = None;
        self.to_send.clear();
        self.to_send_bytes = 0;
        self.lazy.clear();
        self.asked.clear();
        self.asked_bytes = 0;
        self.asked_ranges = 0;
        self.under_way.clear();
        self.window = WriteBehind::new();
        self.look = None;
        self.planner = DropPlanner::new();
        self.update_done();
    }

    /// True when the flush asked for is over.
    pub(crate) fn end_flush_if_settled(&mut self) {
        if self.flush && self.is_settled() {
            self.flush = false;
        }
    }
}
