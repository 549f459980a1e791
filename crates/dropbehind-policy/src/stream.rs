//! One open file: its dirty, requested, clean and dropped ranges.
//!
//! A byte written through us is in one of these sets until it is done with:
//!
//! ```text
//!            eager               to be sent, asked for       counted clean
//!  written ────────▶ sweep ─────────────────────▶ requests ──────────────▶ planner ──▶ dropped
//!     │   behind ┌▶ window ───────────────────────▲ │                         ▲
//!     └──────────┴▶ lazy (the kernel writes it) ────┼─────────────────────────┘
//!                        ▲     dirty all the same   │
//!                        └──────────────────────────┘
//! ```
//!
//! Pages that are to stay leave the picture once they are clean. `ownership` knows whose each
//! page is, and so which ones go to the planner.

mod context;
mod lazy;
mod lifecycle;
mod outcomes;
mod ownership;
mod phase;
mod progress;
mod provenance;
mod request;
mod requests;
mod sweep;
mod tasks;

use alloc::vec::Vec;

use crate::drop_planner::{DropPlanner, STEP_BYTES};
use crate::mode::{Mode, Writeback};
use crate::range::{ByteRange, round_up};
use crate::range_list::gaps_between;
use crate::reason::{Reason, ReasonBytes};
use crate::residency::ResidencyMap;
use crate::stats::Stats;
use crate::write::Found;
use crate::write_behind::{Moved, WriteBehind, WriteKind};

pub(crate) use context::{Context, Flight};
use lazy::Lazy;
use ownership::Ownership;
use phase::Phase;
use progress::Progress;
use request::Request;
use requests::Requests;
use sweep::Sweep;

/// What is known about a file when it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamConfig {
    /// Fixed window, in bytes; `None` derives it from the disk's speed.
    pub window_bytes: Option<u64>,
    /// Fixed request size, in bytes; `None` takes the disk's.
    pub request_bytes: Option<u64>,
    /// Size of the file when it was opened.
    pub size_bytes: u64,
    /// Whether it is open with `O_APPEND`.
    pub o_append: bool,
    /// Whether it is a raw block device: never deleted, never small.
    pub block_device: bool,
    /// Whether write-behind is off (`POSIX_FADV_RANDOM`).
    pub random: bool,
    /// Whether [`Disk::brought`](crate::Disk::brought) names the pages that this I/O brings
    /// in.
    pub traced: bool,
    /// Whether other processes use it: what they have mapped can be dropped once they are done.
    pub observed: bool,
}

/// One open file.
#[derive(Clone, Debug)]
pub struct Stream {
    config: StreamConfig,
    size_bytes: u64,
    last_write_end: u64,

    progress: Progress,
    writeback_bytes: ReasonBytes,

    ownership: Ownership,
    sweep: Sweep,
    window: WriteBehind,
    window_mode: Mode,
    requests: Requests,
    lazy: Lazy,
    planner: DropPlanner,

    /// Whether the last write is to be written back at once.
    eager: bool,
    /// Whether the count under way is of a piece of `lazy`.
    counting_lazy: bool,
    /// Whether a request was sent since the last drop.
    sent_since_drop: bool,
    inspection: Inspection,
    phase: Phase,
    /// Everything pending is to be written and dropped.
    flush: bool,
    /// Bytes that are to be requested now, however much the disk has to do.
    submit_bytes: u64,

    /// The stream's place among those of its disk.
    pub(crate) place: Place,
}

/// What is known about the file's name.
#[derive(Clone, Copy, Debug, Default)]
struct Inspection {
    /// When the name was last checked.
    at_ns: Option<u64>,
    /// Whether the file had none then.
    unlinked: bool,
    /// Whether anything has been done for the file since.
    worked: bool,
}

/// A stream's place among those of its disk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// The place in the queue of streams that are due.
    pub(crate) queued: Option<(u64, u64)>,
    /// When the stream last had its turn.
    pub(crate) served_ns: u64,
    /// The turn among those that wait for room beside readers.
    pub(crate) waits: Option<u64>,
    /// The place among the small files that wait, and the bytes it counts with.
    pub(crate) small: Option<(u64, u64)>,
    /// Too many small files wait, and this is one of the oldest.
    pub(crate) over_budget: bool,
}

impl Stream {
    pub(crate) fn new(config: StreamConfig, residency: ResidencyMap) -> Stream {
        Stream {
            config,
            size_bytes: config.size_bytes,
            last_write_end: 0,
            progress: Progress::default(),
            writeback_bytes: ReasonBytes::default(),
            ownership: Ownership::new(&config, residency),
            sweep: Sweep::new(),
            window: WriteBehind::default(),
            window_mode: Mode::WRITE_BEHIND,
            requests: Requests::default(),
            lazy: Lazy::new(),
            planner: DropPlanner::default(),
            eager: false,
            counting_lazy: false,
            sent_since_drop: false,
            inspection: Inspection::default(),
            phase: Phase::Open,
            flush: false,
            submit_bytes: 0,
            place: Place::default(),
        }
    }

    /// Returns whether the count under way is of pages whose writeback the kernel starts.
    pub fn is_counting_lazy(&self) -> bool {
        self.counting_lazy
    }

    /// What the stream has done so far.
    pub fn counters(&self) -> Stats {
        Stats {
            writeback_bytes: self.writeback_bytes,
            peak_dirty_bytes: self.progress.peak_dirty_bytes(),
            ..*self.ownership.counters()
        }
    }

    /// Bytes that were written and that writers need not wait for any more.
    pub fn done_bytes(&self) -> u64 {
        self.progress.done_bytes()
    }

    /// Clean bytes that wait to be dropped.
    pub fn droppable_bytes(&self) -> u64 {
        self.planner.ready_bytes()
    }

    /// Bytes brought in that are still to be dropped.
    pub fn brought_bytes(&self) -> u64 {
        self.ownership.ours_bytes()
    }

    /// The parts of `range` that were brought in and are still to be dropped.
    pub fn brought_in(&self, range: ByteRange) -> Vec<ByteRange> {
        self.ownership.ours_of(range)
    }

    /// The parts of `range` in which nothing is known to be dirty or under way.
    pub fn idle_parts(&self, range: ByteRange) -> Vec<ByteRange> {
        gaps_between(range, self.busy_parts(range).collect())
    }

    /// The parts of `range` that are dirty, under way, or about to be dropped, in order.
    pub fn busy_in(&self, range: ByteRange) -> Vec<ByteRange> {
        let ready = self.planner.ready_parts(range);
        let mut busy: Vec<ByteRange> = self.busy_parts(range).chain(ready).collect();
        busy.sort_unstable();
        busy
    }

    /// The parts of `range` between the ranges of a request under way. Only when the request
    /// is over will it be known whether pages there are cached or dirty, and whose they are.
    pub fn undecided(&self, range: ByteRange) -> Vec<ByteRange> {
        if self.phase == Phase::Deleted {
            return Vec::new();
        }
        let unexplained = self.unexplained(range).into_iter();
        unexplained
            .flat_map(|part| gaps_between(part, self.idle_parts(part)))
            .collect()
    }

    /// Bytes that were reported and not seen clean since, including those left to the kernel.
    pub fn unclean_bytes(&self) -> u64 {
        self.outstanding_bytes() + self.lazy.bytes()
    }

    /// The parts of `range` that neither we brought in nor others had, as far as is known:
    /// pages cached there came after the first look.
    pub fn unexplained(&self, range: ByteRange) -> Vec<ByteRange> {
        self.ownership.unexplained(range)
    }

    /// How many separate ranges of pages the stream remembers as its own.
    pub fn range_count(&self) -> usize {
        self.ownership.ours_count()
    }

    /// Returns whether the current run of writes is written back behind its writer.
    pub fn is_written_behind(&self) -> bool {
        self.window.is_streaming()
    }

    /// Returns whether the file was found to have neither a name nor a user.
    pub fn is_deleted(&self) -> bool {
        self.phase == Phase::Deleted
    }

    /// Returns whether nothing of ours is dirty, requested, or waiting to be dropped.
    pub fn is_settled(&self) -> bool {
        self.sweep.is_empty()
            && self.requests.is_empty()
            && self.lazy.is_empty()
            && self.planner.is_empty()
            && self.ownership.is_sorted()
            && (self.window.unsent().is_empty() || !self.window_mode.drops())
    }

    /// A caller waits, or a descriptor is held, until everything is written and dropped.
    fn is_awaited(&self) -> bool {
        self.flush || self.phase.is_closed()
    }

    /// The parts of `range` that are dirty or under way, set by set, each ascending.
    fn busy_parts(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        self.sweep
            .parts_of(range)
            .chain(self.lazy.parts_of(range))
            .chain(self.written_of_window(self.window.unsent().intersection(range)))
            .chain(self.requests.parts_of(range))
    }

    /// The parts of `unsent`, which the window holds, that were written: the window is one
    /// piece even if writes skipped parts of it.
    fn written_of_window(&self, unsent: ByteRange) -> Vec<ByteRange> {
        if unsent.is_empty() {
            // The case in all modes but write-behind, and asked for each scattered page.
            return Vec::new();
        }
        gaps_between(unsent, self.unexplained(unsent))
    }

    /// Bytes written that are neither seen clean nor left to the kernel.
    fn outstanding_bytes(&self) -> u64 {
        self.sweep.bytes() + self.window.unsent().len() + self.requests.bytes()
    }

    /// Bytes requested and not seen clean.
    pub(crate) fn asked_bytes(&self) -> u64 {
        self.requests.asked_bytes()
    }

    /// The bytes to be written of a small closed file.
    pub(crate) fn small_bytes(&self) -> Option<u64> {
        self.phase.small_bytes()
    }

    /// How many dirty bytes are worth a request.
    pub(crate) fn batch_bytes(&self, context: &Context) -> u64 {
        context.batch_bytes(&self.config)
    }

    /// How many bytes writers may count beyond [`Stream::done_bytes`]: the stream's share of what
    /// may be in flight, and as much again or what write-behind holds back, less the clean bytes
    /// that are about to be dropped.
    ///
    /// A waiting writer has more than a batch pending outside the write-behind window, which
    /// only the writer itself moves on. So there is always work that ends the wait, even if
    /// what may be in flight shrinks meanwhile.
    pub(crate) fn limit_bytes(&self, context: &Context) -> u64 {
        if context.window_bytes(&self.config) == 0 {
            return u64::MAX;
        }
        let unsent_bytes = self.window.unsent().len();
        // A file without a name is written once it has as much as may be in flight, however
        // many streams there are.
        let ahead_bytes = match self.inspection.unlinked {
            false => context.ahead_bytes(&self.config),
            true => context.window_bytes(&self.config),
        };
        let held_bytes = unsent_bytes.max(ahead_bytes);
        // Writers count bytes, the disk writes pages. One byte in each page of a file is
        // little to the former and all of it to the latter.
        let counted_bytes = self.progress.dirty_bytes();
        let uncounted_bytes = self.outstanding_bytes().saturating_sub(counted_bytes);
        // What waits to be dropped is still in the cache. A disk that has just finished a
        // lump makes room only as fast as drops go.
        let undropped_bytes = self.planner.ready_bytes().saturating_sub(STEP_BYTES);
        held_bytes
            .saturating_add(ahead_bytes)
            .saturating_sub(uncounted_bytes)
            .saturating_sub(undropped_bytes)
    }

    pub(crate) fn was_cached(&mut self, map: ResidencyMap) {
        self.ownership.was_cached(map);
    }

    /// A look right before a write of `range` found this.
    pub(crate) fn found(&mut self, range: ByteRange, found: Found) {
        match found {
            Found::NotLooked => {}
            Found::Absent => self.ownership.absent(range),
            Found::Cached => self.ownership.others_had(range),
        }
    }

    /// What was written beyond the new end is not forgotten: it may be newer than the
    /// truncation, and already reported. If nothing is cached there, the calls to write,
    /// count and drop it have no effect.
    pub(crate) fn resized(&mut self, context: &Context, size_bytes: u64) {
        self.size_bytes = size_bytes;
        let end = round_up(size_bytes, context.page_bytes);
        self.ownership.truncated(end);
        let beyond = self.window.truncated(end);
        self.leave_to_kernel(context, beyond, self.window_mode);
        // Nobody reads there any more, so nothing else will mark it as passed.
        for unsorted in self.ownership.unsorted_of(ByteRange::new(end, u64::MAX)) {
            self.passed(unsorted);
        }
        self.update_done();
    }

    /// `found_bytes`: a look found the write, with so much of the range dirty.
    pub(crate) fn wrote(
        &mut self,
        context: &Context,
        range: ByteRange,
        found_bytes: Option<u64>,
        mode: Mode,
    ) {
        let range = range.page_aligned_outward(context.page_bytes);
        if range.is_empty() || self.phase == Phase::Deleted {
            return;
        }
        let size_page = self.size_bytes - self.size_bytes % context.page_bytes;
        let kind = WriteKind {
            o_append: self.config.o_append,
            appending: self.config.o_append || range.start >= size_page,
            found_bytes,
        };
        self.planner.withdraw(range);
        if mode.drops() {
            self.ownership.wrote(range);
        } else {
            self.keep(range);
        }
        self.eager = mode.writeback == Writeback::Eager;
        match mode.writeback {
            Writeback::Lazy => self.leave_to_kernel(context, range, mode),
            Writeback::Eager => {
                self.lazy.remove(range);
                self.sweep.wrote(context.now_ns, range, mode);
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
        self.phase = Phase::Open;
        self.ownership.reopened();
    }

    pub(crate) fn advised(&mut self, context: &Context, random: bool) {
        self.config.random = random;
        if random {
            let unsent = self.window.unsent();
            self.leave_to_kernel(context, unsent, self.window_mode);
            self.window = WriteBehind::default();
            self.update_done();
        }
    }

    fn wrote_behind(&mut self, context: &Context, range: ByteRange, kind: WriteKind, mode: Mode) {
        if self.config.random {
            self.leave_to_kernel(context, range, mode);
            return;
        }
        let window_bytes = context.window_bytes(&self.config);
        let request_bytes = context.request_bytes(&self.config);
        if window_bytes == 0 {
            self.window_mode = mode;
            self.leave_to_kernel(context, range, mode);
            return;
        }
        if self.window.continues(range, window_bytes) {
            // What lies before the window was sent, and is now dirty again.
            let head = self.window.unsent().start;
            let sent = range.intersection(ByteRange::new(0, head));
            self.leave_to_kernel(context, sent, mode);
        }
        let [ended, moved] = self.window.wrote(range, kind, window_bytes, request_bytes);
        if let Some(ended) = ended {
            self.moved(context, ended);
        }
        self.window_mode = mode;
        if let Some(moved) = moved {
            self.moved(context, moved);
            self.move_window(context);
        }
    }

    /// Sends what is out of the window. The window also shrinks by itself, and the writer,
    /// who would send the rest, may be waiting for just that.
    pub(crate) fn move_window(&mut self, context: &Context) {
        if self.window.unsent().is_empty() {
            return;
        }
        let window_bytes = context.window_bytes(&self.config);
        let request_bytes = context.request_bytes(&self.config);
        while let Some(moved) = self.window.moved(window_bytes, request_bytes) {
            self.moved(context, moved);
        }
    }

    fn moved(&mut self, context: &Context, moved: Moved) {
        match moved {
            Moved::Send(send) => self
                .requests
                .send(Request::whole(send, Reason::WriteBehind)),
            Moved::Leave(range) if self.window_mode.drops() => {
                for part in self.written_of_window(range) {
                    self.leave_to_kernel(context, part, self.window_mode);
                }
            }
            Moved::Leave(_) => {}
        }
    }

    fn leave_to_kernel(&mut self, context: &Context, range: ByteRange, mode: Mode) {
        if mode.drops() {
            self.lazy.leave(context.now_ns, range);
        }
    }

    /// `range` is to stay, so it need not be counted until it is clean.
    pub(crate) fn keep(&mut self, range: ByteRange) {
        for part in self.ownership.keep(range) {
            self.lazy.remove(part);
        }
    }

    /// A read brought in `range`; it is clean, and ours.
    pub(crate) fn read(&mut self, context: &Context, range: ByteRange) {
        if self.phase == Phase::Deleted {
            return;
        }
        let range = range.page_aligned_outward(context.page_bytes);
        self.ownership.absent(range);
        self.ownership.bring(range);
        // Between the ranges of a request under way, it is dropped once the request is over.
        for part in self.idle_parts(range) {
            self.planner.ready(part);
        }
    }

    /// We read `range`, which is cached.
    pub(crate) fn read_cached(&mut self, range: ByteRange) {
        self.ownership.keep_others(range);
    }

    /// The parts of `range` that are ours are clean, and no reader needs them any more.
    pub(crate) fn passed(&mut self, range: ByteRange) {
        if self.phase == Phase::Deleted {
            return;
        }
        self.ownership.sorted(range);
        for ours in self.ownership.ours_of(range) {
            for part in self.idle_parts(ours) {
                self.ready(part);
            }
        }
    }

    /// `part` is ours and clean, so it can be dropped. Pages beside it that resisted are tried
    /// with it: a folio may reach across the border.
    fn ready(&mut self, part: ByteRange) {
        if self.ownership.has_held() {
            for part in gaps_between(part, self.ownership.held_of(part)) {
                self.planner.ready(part);
            }
        } else {
            self.planner.ready(part);
        }
        if self.ownership.has_stuck() {
            for near in self.ownership.take_stuck(DropPlanner::folios_of(part)) {
                for idle in self.idle_parts(near) {
                    self.planner.ready(idle);
                }
            }
        }
    }

    /// Writers have counted `written_bytes` up to now, and all ranges up to there have been
    /// reported.
    pub(crate) fn written_until(&mut self, written_bytes: u64) {
        let outstanding_bytes = self.outstanding_bytes();
        self.progress.wrote(written_bytes, outstanding_bytes);
    }

    fn update_done(&mut self) {
        let outstanding_bytes = self.outstanding_bytes();
        self.progress.update(outstanding_bytes);
    }

    /// The trace names `range` as brought in by this I/O. If it is `held`, it is not dropped
    /// before [`Stream::decided`].
    pub(crate) fn brought(&mut self, range: ByteRange, held: bool) {
        if self.phase != Phase::Deleted {
            // Earlier decisions about it were for pages that have since been evicted.
            self.planner.withdraw(range);
            self.ownership.traced(range, held);
        }
    }

    /// What was held of `range` stays, or is dropped once it is clean.
    pub(crate) fn decided(&mut self, range: ByteRange, stays: bool) {
        self.ownership.release(range);
        match stays {
            true => {
                // A flush may have let it go already.
                self.planner.withdraw(range);
                for part in self.ownership.reuse(range) {
                    self.lazy.remove(part);
                }
            }
            false => self.now_clean(range),
        }
    }

    /// The trace names `range` as brought in by others, so it was not cached before and is
    /// not dropped. The kernel writes what they write.
    pub(crate) fn taken_over(&mut self, range: ByteRange) {
        self.ownership.take_over(range);
        self.planner.withdraw(range);
        self.lazy.remove(range);
    }
}
