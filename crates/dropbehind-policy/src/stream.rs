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

use crate::drop_planner::{DropPlanner, STEP_BYTES, Verdict};
use crate::grace::{AGE_NS, GRACE_NS, SMALL_FILE_BYTES};
use crate::mode::{Mode, Writeback};
use crate::pace::Pace;
use crate::range::ByteRange;
use crate::range_set::RangeSet;
use crate::reason::{Reason, ReasonBytes};
use crate::residency::ResidencyMap;
use crate::write_behind::{CloseKind, WriteBehind, WriteKind};

/// How often a range that is dirty again after its writeback is asked for once
/// more, before it is left to the kernel.
const ASK_TRIES: u8 = 3;
/// How often lazily written pages are looked at. The kernel's own flusher wakes
/// every five seconds.
const LAZY_COUNT_NS: u64 = 1_000_000_000;
/// Lazily written pages are counted in pieces of this size.
const LAZY_PIECE_BYTES: u64 = 4 << 20;
/// Dirty ranges closer than a request are asked for in one call: the kernel
/// walks dirty pages only, so the gap costs nothing.
const RANGES_PER_CALL: usize = 4096;
/// The cache ahead of an overwriting stream is looked at again when the last
/// look is older.
const LOOK_AGE_NS: u64 = 1_000_000_000;
/// How far ahead such a look goes.
const LOOK_BYTES: u64 = 64 << 20;

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

/// What cachestat said of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Bytes in the cache.
    pub cached_bytes: u64,
    /// Bytes that are dirty and not under writeback.
    pub dirty_bytes: u64,
    /// Bytes under writeback.
    pub writeback_bytes: u64,
}

impl Counted {
    /// Bytes not yet on the disk.
    pub fn unwritten_bytes(self) -> u64 {
        self.dirty_bytes + self.writeback_bytes
    }
}

/// What a drop did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The range was clean; so many bytes were cached before and after.
    Tried {
        /// Bytes cached before the call.
        before_bytes: u64,
        /// Bytes cached after the call.
        after_bytes: u64,
    },
    /// The range was not clean, and was left alone.
    NotClean,
}

/// What fstat said of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// No name leads to the file any more.
    pub unlinked: bool,
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
    Drop(ByteRange),
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
    pub default_window_bytes: u64,
    pub request_bytes: u64,
    pub small_over_budget: bool,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    range: ByteRange,
    bytes: u64,
    reason: Reason,
    tries: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counting {
    Asked,
    Lazy,
}

/// One open file.
#[derive(Clone, Debug)]
pub struct Stream {
    config: StreamConfig,
    residency: ResidencyMap,
    size_bytes: u64,
    last_write_end: u64,

    /// Bytes written, as counted by the writers.
    written_bytes: u64,
    /// Of these, bytes seen clean or left to the kernel.
    done_bytes: u64,

    dirty: RangeSet,
    dirty_since_ns: u64,
    dirty_mode: Mode,
    window: WriteBehind,
    window_mode: Mode,
    to_send: VecDeque<Asked>,
    asked: VecDeque<Asked>,
    asked_bytes: u64,
    /// Of the front of `asked`, bytes already seen clean.
    front_clean_bytes: u64,
    next_count_ns: u64,
    lazy: RangeSet,
    lazy_cursor: u64,
    next_lazy_ns: u64,
    counting: Counting,
    /// Brought in by us, and not yet gone.
    ours: RangeSet,
    kept: RangeSet,
    planner: DropPlanner,

    inspected_ns: Option<u64>,
    unlinked: bool,
    looked_ns: u64,
    looked_until: u64,
    look: Option<ByteRange>,
    closed_ns: Option<u64>,
    small_bytes: Option<u64>,
    flush: bool,
    forgotten: bool,
    counters: StreamCounters,
    pub(crate) queued_ns: Option<u64>,
}

impl Stream {
    pub(crate) fn new(now_ns: u64, config: StreamConfig, residency: ResidencyMap) -> Stream {
        Stream {
            config,
            residency,
            size_bytes: config.size_bytes,
            last_write_end: 0,
            written_bytes: 0,
            done_bytes: 0,
            dirty: RangeSet::new(),
            dirty_since_ns: 0,
            dirty_mode: Mode::DONTCACHE,
            window: WriteBehind::new(),
            window_mode: Mode::WRITE_BEHIND,
            to_send: VecDeque::new(),
            asked: VecDeque::new(),
            asked_bytes: 0,
            front_clean_bytes: 0,
            next_count_ns: 0,
            lazy: RangeSet::new(),
            lazy_cursor: 0,
            next_lazy_ns: 0,
            counting: Counting::Asked,
            ours: RangeSet::new(),
            kept: RangeSet::new(),
            planner: DropPlanner::new(),
            inspected_ns: None,
            unlinked: false,
            looked_ns: now_ns,
            looked_until: 0,
            look: None,
            closed_ns: None,
            small_bytes: None,
            flush: false,
            forgotten: false,
            counters: StreamCounters::default(),
            queued_ns: None,
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

    /// The window of this stream now.
    pub(crate) fn window_bytes(&self, context: &Context) -> u64 {
        match self.config.window_bytes {
            Some(fixed) => fixed,
            None => context
                .pace
                .window_bytes(context.default_window_bytes, self.request_bytes(context)),
        }
    }

    fn request_bytes(&self, context: &Context) -> u64 {
        self.config
            .request_bytes
            .unwrap_or(context.request_bytes)
            .max(context.page_bytes)
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

    pub(crate) fn resized(&mut self, context: &Context, size_bytes: u64) {
        self.size_bytes = size_bytes;
        let gone = ByteRange::new(
            crate::range::round_up(size_bytes, context.page_bytes),
            u64::MAX,
        );
        self.residency.truncated(gone.start);
        self.dirty.remove(gone);
        self.lazy.remove(gone);
        self.planner.withdraw(gone);
        self.counters.dropped_bytes += self.ours.remove(gone);
        self.kept.remove(gone);
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
        if mode.drops() {
            self.planner.withdraw(range);
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
    }

    fn wrote_behind(&mut self, context: &Context, range: ByteRange, kind: WriteKind, mode: Mode) {
        if self.config.random {
            self.leave_to_kernel(context, range, mode);
            return;
        }
        let window_bytes = self.window_bytes(context);
        let request_bytes = self.request_bytes(context);
        let before = self.window.unsent();
        self.window_mode = mode;
        let mut part = range;
        while let Some(send) = self.window.wrote(part, kind, window_bytes, request_bytes) {
            self.to_send.push_back(Asked {
                range: send,
                bytes: send.len(),
                reason: Reason::WriteBehind,
                tries: 0,
            });
            part = ByteRange::new(range.end, range.end);
        }
        if self.window.head() > before.end || self.window.head() < before.start {
            // The write was elsewhere; what the window held is the kernel's now.
            self.leave_to_kernel(context, before, mode);
        }
    }

    fn leave_to_kernel(&mut self, context: &Context, range: ByteRange, mode: Mode) {
        if mode.drops() && !range.is_empty() {
            if self.lazy.is_empty() {
                self.next_lazy_ns = context.now_ns + LAZY_COUNT_NS;
            }
            self.lazy.insert(range);
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
        let kept_bytes = self.ours.remove(range);
        if kept_bytes > 0 {
            self.planner.withdraw(range);
            self.lazy.remove(range);
            self.counters.brought_bytes -= kept_bytes.min(self.counters.brought_bytes);
            self.counters.kept_bytes += self.kept.insert(range);
        }
    }

    fn plan_look(&mut self, context: &Context, range: ByteRange) {
        let old_end = self.config.size_bytes;
        // The writer may be two windows ahead of what we have heard of; nearer
        // than that, a look would take its pages for somebody else's.
        let from = (range.end + 2 * self.window_bytes(context)).max(self.looked_until);
        let stale = context.now_ns.saturating_sub(self.looked_ns) > LOOK_AGE_NS;
        if from < old_end && from < range.end + LOOK_BYTES && (stale || self.looked_until > 0) {
            self.look = Some(ByteRange::new(from, old_end.min(from + LOOK_BYTES)));
        }
    }

    /// A read brought `range` in; it is clean, and ours.
    pub(crate) fn read(&mut self, context: &Context, range: ByteRange) {
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
        let mut busy = RangeSet::new();
        for part in self
            .dirty
            .overlaps_of(range)
            .chain(self.lazy.overlaps_of(range))
            .chain([self.window.unsent()])
            .chain(self.to_send.iter().map(|asked| asked.range))
            .chain(self.asked.iter().map(|asked| asked.range))
        {
            busy.insert(part.intersection(range));
        }
        busy.gaps_of(range)
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
        let to_send: u64 = self.to_send.iter().map(|asked| asked.bytes).sum();
        let unsent = self.window.unsent().len();
        self.dirty.bytes() + unsent + to_send + self.asked_bytes - self.front_clean_bytes
    }

    fn update_done(&mut self) {
        let done = self.written_bytes.saturating_sub(self.outstanding_bytes());
        self.done_bytes = self.done_bytes.max(done);
    }

    /// The program's own fsync returned: look at once, nothing to ask for.
    pub(crate) fn synced(&mut self, context: &Context) {
        let mut written: alloc::vec::Vec<ByteRange> = self.dirty.iter().collect();
        self.dirty.clear();
        written.extend(self.to_send.drain(..).map(|asked| asked.range));
        if !self.window.unsent().is_empty() {
            written.push(self.window.unsent());
            self.window = WriteBehind::new();
        }
        for range in written {
            self.push_asked(Asked {
                range,
                bytes: range.len(),
                reason: Reason::Sync,
                tries: 0,
            });
        }
        self.next_count_ns = context.now_ns;
        self.next_lazy_ns = context.now_ns;
    }

    /// All that is pending is to be written and dropped now.
    pub(crate) fn flush(&mut self, context: &Context) {
        self.flush = true;
        self.next_lazy_ns = self.next_lazy_ns.min(context.now_ns);
        let tail = self.window.unsent();
        if self.window_mode.drops() && !tail.is_empty() {
            self.window = WriteBehind::new();
            self.send(tail, Reason::Sync);
        }
    }

    fn send(&mut self, range: ByteRange, reason: Reason) {
        self.to_send.push_back(Asked {
            range,
            bytes: range.len(),
            reason,
            tries: 0,
        });
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
            Some(send) => self.send(send, Reason::Close),
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
        if let Some(front) = self.asked.front() {
            offer(self.next_count_ns, Task::Count(front.range));
        }
        if let Some(range) = self.look {
            offer(context.now_ns, Task::Look(range));
        }
        let flush = self.flush || self.closed_ns.is_some();
        if let Some(due_ns) = self.planner.due_ns(flush, STEP_BYTES) {
            // The planner hands out its range when the task is taken.
            offer(due_ns, Task::Drop(ByteRange::default()));
        }
        if let Some((due_ns, task)) = self.submission(context) {
            offer(due_ns, task);
        }
        if !self.lazy.is_empty() {
            offer(self.next_lazy_ns, Task::Count(self.lazy_piece()));
        }
        if self.closed_ns.is_some() && self.is_settled() {
            offer(context.now_ns, Task::Forget);
        }
        best
    }

    fn submission(&self, context: &Context) -> Option<(u64, Task)> {
        let window_bytes = self.window_bytes(context);
        // Half of what a stream may have outstanding is on its way, the other
        // half fills up meanwhile.
        let room = self.asked_bytes < window_bytes || self.asked.is_empty();
        if !room {
            return None;
        }
        let (due_ns, reason, front) = if let Some(next) = self.to_send.front() {
            (context.now_ns, next.reason, next.range)
        } else if let Some(first) = self.dirty.first() {
            let (due_ns, reason) = self.eager_due(context, window_bytes);
            (due_ns, reason, first)
        } else {
            return None;
        };
        if self.config.block_device {
            return Some((due_ns, Task::StartWriteback(front, reason)));
        }
        let scratch = self.unlinked && self.outstanding_bytes() < window_bytes;
        match self.inspected_ns {
            None => Some((due_ns, Task::Inspect)),
            // A nameless file may get a name (O_TMPFILE, linkat), so it is
            // looked at again; while it is small it need not be written.
            Some(at_ns) if scratch => Some((due_ns.max(at_ns + AGE_NS), Task::Inspect)),
            // Closed small files wait for their grace; who was deleted since
            // is found out just before the write.
            Some(at_ns) if self.small_bytes.is_some() && self.closed_ns > Some(at_ns) => {
                Some((due_ns, Task::Inspect))
            }
            Some(_) => Some((due_ns, Task::StartWriteback(front, reason))),
        }
    }

    fn eager_due(&self, context: &Context, window_bytes: u64) -> (u64, Reason) {
        let batch_bytes = context
            .pace
            .batch_bytes(window_bytes, self.request_bytes(context));
        let usual = if self.dirty_mode.drops() {
            Reason::Dontcache
        } else {
            Reason::WriteThrough
        };
        if self.flush {
            return (context.now_ns, Reason::Sync);
        }
        if self.dirty.bytes() >= batch_bytes && self.small_bytes.is_none() {
            return (self.dirty_since_ns, usual);
        }
        match (self.closed_ns, self.small_bytes) {
            (Some(_), Some(_)) if context.small_over_budget => (context.now_ns, Reason::Budget),
            (Some(closed_ns), Some(_)) => (closed_ns + GRACE_NS, Reason::Close),
            (Some(_), None) => (context.now_ns, Reason::Close),
            (None, _) => (self.dirty_since_ns + AGE_NS, Reason::Age),
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
        ByteRange::new(start, range.end.min(start + LAZY_PIECE_BYTES))
    }

    /// Takes the task on: what is answered next is its outcome.
    pub(crate) fn begin(&mut self, context: &Context, task: Task) -> Task {
        match task {
            Task::StartWriteback(_, reason) => self.begin_writeback(context, reason),
            Task::Count(range) => {
                let front = self.asked.front().map(|asked| asked.range);
                self.counting = if front == Some(range) && self.next_count_ns <= context.now_ns {
                    Counting::Asked
                } else {
                    Counting::Lazy
                };
                task
            }
            Task::Drop(_) => {
                let flush = self.flush || self.closed_ns.is_some();
                Task::Drop(self.planner.take(flush).unwrap_or_default())
            }
            Task::Look(range) => {
                self.look = None;
                // Looked at or not, this part is not asked for again.
                self.looked_until = self.looked_until.max(range.end);
                task
            }
            Task::Forget => {
                self.forgotten = true;
                task
            }
            Task::Inspect => task,
        }
    }

    fn begin_writeback(&mut self, context: &Context, reason: Reason) -> Task {
        let request_bytes = self.request_bytes(context);
        let asked = if let Some(mut next) = self.to_send.pop_front() {
            let whole = next.range;
            // A call that is too long may block for as long on a full queue.
            if whole.len() > request_bytes {
                let cut = cut_at_request(whole, request_bytes);
                next.range = cut;
                next.bytes = cut.len();
                let rest = ByteRange::new(cut.end, whole.end);
                self.to_send.push_front(Asked {
                    range: rest,
                    bytes: rest.len(),
                    ..next
                });
            }
            next
        } else {
            self.take_dirty(request_bytes, reason)
        };
        self.counters.writeback_bytes[asked.reason] += asked.bytes;
        let task = Task::StartWriteback(asked.range, asked.reason);
        let bytes = asked.bytes;
        let was_idle = self.asked.is_empty();
        self.push_asked(asked);
        if was_idle {
            self.next_count_ns = context.now_ns + context.pace.poll_ns(bytes);
        }
        task
    }

    /// Takes dirty ranges in offset order, as many as make one request.
    fn take_dirty(&mut self, request_bytes: u64, reason: Reason) -> Asked {
        let mut span = ByteRange::default();
        let mut bytes = 0;
        let mut taken = 0;
        while let Some(first) = self.dirty.first() {
            let near = taken == 0 || first.start - span.end <= request_bytes;
            if !near || taken == RANGES_PER_CALL || bytes >= request_bytes {
                break;
            }
            let room = request_bytes - bytes;
            let part = if first.len() > room {
                cut_at_request(
                    ByteRange::new(first.start, first.start + room.max(1)),
                    request_bytes,
                )
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
        }
        Asked {
            range: span,
            bytes,
            reason,
            tries: 0,
        }
    }

    fn push_asked(&mut self, asked: Asked) {
        self.asked_bytes += asked.bytes;
        self.asked.push_back(asked);
    }

    // ---- outcomes ---------------------------------------------------------

    /// Answers bytes newly seen clean, for the disk's pace.
    pub(crate) fn counted(&mut self, context: &Context, range: ByteRange, counted: Counted) -> u64 {
        if self.counting == Counting::Lazy {
            self.counted_lazy(context, range, counted);
            return 0;
        }
        let Some(front) = self.asked.front().copied() else {
            return 0;
        };
        let unwritten = counted.unwritten_bytes();
        if counted.writeback_bytes > 0 {
            let clean = front.bytes - front.bytes.min(unwritten);
            let newly = clean.saturating_sub(self.front_clean_bytes);
            self.front_clean_bytes += newly;
            self.next_count_ns = context.now_ns + context.pace.poll_ns(unwritten);
            self.update_done();
            return newly;
        }
        let newly = front.bytes - self.front_clean_bytes.min(front.bytes);
        self.asked.pop_front();
        self.asked_bytes -= front.bytes;
        self.front_clean_bytes = 0;
        self.next_count_ns = context.now_ns;
        if counted.dirty_bytes > 0 {
            self.still_dirty(context, front);
        }
        self.now_clean(front.range);
        self.update_done();
        newly
    }

    /// Pages asked for are dirty and not on their way: written to again, or
    /// skipped by the kernel because they were locked.
    fn still_dirty(&mut self, context: &Context, front: Asked) {
        if self.dirty.touches(front.range) {
            return;
        }
        if front.tries < ASK_TRIES && front.reason != Reason::Sync {
            self.to_send.push_back(Asked {
                tries: front.tries + 1,
                ..front
            });
        } else if self.ours.touches(front.range) {
            self.leave_to_kernel(context, front.range, Mode::NOREUSE);
        }
    }

    /// Hands what is ours and no longer under way over to be dropped.
    fn now_clean(&mut self, range: ByteRange) {
        for part in self.dirty_or_asked_gaps(range) {
            let ours: alloc::vec::Vec<ByteRange> = self.ours.overlaps_of(part).collect();
            for part in ours {
                self.planner.ready(part);
            }
        }
    }

    fn counted_lazy(&mut self, context: &Context, range: ByteRange, counted: Counted) {
        if counted.unwritten_bytes() == 0 {
            self.lazy.remove(range);
            self.now_clean(range);
        }
        self.lazy_cursor = range.end;
        let round_over = self.lazy.first_from(self.lazy_cursor).is_none();
        if round_over {
            self.lazy_cursor = 0;
            self.next_lazy_ns = context.now_ns + LAZY_COUNT_NS;
        }
    }

    pub(crate) fn dropped(&mut self, context: &Context, range: ByteRange, dropped: Dropped) {
        let Dropped::Tried {
            before_bytes,
            after_bytes,
        } = dropped
        else {
            self.leave_to_kernel(context, range, Mode::NOREUSE);
            return;
        };
        let gone_bytes = before_bytes.saturating_sub(after_bytes);
        match self
            .planner
            .verified(context.now_ns, range, gone_bytes, after_bytes)
        {
            Verdict::Gone => self.counters.dropped_bytes += self.ours.remove(range),
            Verdict::Again(again) => {
                self.counters.dropped_bytes +=
                    self.ours.remove(ByteRange::new(range.start, again.start));
            }
            Verdict::GivenUp => {
                let removed = self.ours.remove(range);
                let left = after_bytes.min(removed);
                self.counters.left_bytes += left;
                self.counters.dropped_bytes += removed - left;
            }
        }
    }

    pub(crate) fn inspected(&mut self, context: &Context, inspected: Inspected) {
        self.inspected_ns = Some(context.now_ns);
        self.unlinked = inspected.unlinked;
        if inspected.unlinked && self.closed_ns.is_some() {
            // Nobody can read it again: the kernel frees the pages unwritten
            // once the last descriptor, perhaps ours, is closed.
            self.counters.dropped_bytes += self.ours.bytes();
            self.ours.clear();
            self.dirty.clear();
            self.to_send.clear();
            self.lazy.clear();
            self.asked.clear();
            self.asked_bytes = 0;
            self.front_clean_bytes = 0;
            self.window = WriteBehind::new();
            self.planner = DropPlanner::new();
            self.update_done();
        }
    }

    /// A call for this stream failed for good: everything is left as it is.
    pub(crate) fn failed(&mut self) {
        self.counters.left_bytes += self.ours.bytes();
        self.ours.clear();
        self.dirty.clear();
        self.to_send.clear();
        self.lazy.clear();
        self.asked.clear();
        self.asked_bytes = 0;
        self.front_clean_bytes = 0;
        self.window = WriteBehind::new();
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

/// The start of `range`, up to the last multiple of `request_bytes` within one
/// request's length, so that requests are aligned and extents stay whole.
fn cut_at_request(range: ByteRange, request_bytes: u64) -> ByteRange {
    let end = range.end.min(range.start + request_bytes);
    let aligned = end - end % request_bytes;
    if aligned > range.start {
        ByteRange::new(range.start, aligned)
    } else {
        ByteRange::new(range.start, end)
    }
}
