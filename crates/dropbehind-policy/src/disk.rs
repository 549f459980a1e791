//! All streams of one backing device, served in turn, oldest first.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::action::{Action, Counted, Dropped, Inspected, Next, StreamId};
use crate::grace::{SMALL_FILES_BYTES, SMALL_FILES_COUNT};
use crate::mode::Mode;
use crate::neighbours::{Neighbours, Reads};
use crate::pace::Pace;
use crate::range::ByteRange;
use crate::residency::ResidencyMap;
use crate::stats::Stats;
use crate::stream::{Context, Flight, Stream, StreamConfig};
use crate::write::Write;
use crate::write_behind::DEFAULT_WINDOW_BYTES;

/// What is known about a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskConfig {
    /// The window of streams without one of their own, until the disk's speed is known; see
    /// [`Pace::window_bytes`](crate::pace::Pace::window_bytes).
    pub window_bytes: u64,
    /// The size of one writeback request: the disk's `max_sectors_kb`.
    pub request_bytes: u64,
    /// The system's page size.
    pub page_bytes: u64,
    /// The most small closed files that wait.
    pub small_files: usize,
}

impl Default for DiskConfig {
    fn default() -> DiskConfig {
        DiskConfig {
            window_bytes: DEFAULT_WINDOW_BYTES,
            request_bytes: 1 << 20,
            page_bytes: 4096,
            small_files: SMALL_FILES_COUNT,
        }
    }
}

/// One backing device.
#[derive(Clone, Debug)]
pub struct Disk {
    config: DiskConfig,
    pace: Pace,
    flight: Flight,
    neighbours: Neighbours,
    streams: BTreeMap<StreamId, Stream>,
    /// Streams with work: when each is due, its turn among those due at the same time, and
    /// the stream. The first is the oldest.
    queue: BTreeSet<(u64, u64, StreamId)>,
    turns: u64,
    /// Streams that wait for room on the disk, in turn.
    waiting: BTreeSet<(u64, StreamId)>,
    /// Small closed files that wait within the budget, in order of arrival.
    small: BTreeMap<u64, StreamId>,
    /// Their bytes.
    small_bytes: u64,
    /// Bytes that all streams have requested and not seen clean.
    asked_bytes: u64,
    completed_bytes: u64,
    /// Streams that have requested any.
    busy_streams: u64,
    forgotten: Option<(StreamId, Stats)>,
    /// The stream whose drop has not been answered.
    dropping: Option<StreamId>,
    /// The disk has nothing to write.
    idle: bool,
}

impl Disk {
    /// A disk with no streams.
    pub fn new(config: DiskConfig) -> Disk {
        let config = DiskConfig {
            page_bytes: config.page_bytes.max(1),
            ..config
        };
        let pace = Pace::new();
        Disk {
            config,
            pace,
            flight: Flight::at(&pace, &config),
            neighbours: Neighbours::default(),
            streams: BTreeMap::new(),
            queue: BTreeSet::new(),
            turns: 0,
            waiting: BTreeSet::new(),
            small: BTreeMap::new(),
            small_bytes: 0,
            asked_bytes: 0,
            completed_bytes: 0,
            busy_streams: 0,
            forgotten: None,
            dropping: None,
            idle: false,
        }
    }

    /// The measured speed of writeback, once there is one.
    pub fn bytes_per_second(&self) -> Option<u64> {
        self.pace.bytes_per_second()
    }

    /// Takes the disk's own counters of reads, see [`Neighbours::sampled`]. Without them, we
    /// never yield.
    pub fn neighbours_read(&mut self, now_ns: u64, reads: Reads) {
        self.neighbours.sampled(now_ns, reads);
    }

    /// Sets how many flushers, including this one, currently write back to the disk and share
    /// its window.
    pub fn shared_by(&mut self, flushers: u64) {
        self.pace.shared_by(flushers);
        self.update_flight();
    }

    /// Sets whether other flushers may be about to begin, too.
    pub fn starting(&mut self, starting: bool) {
        self.pace.starting(starting);
        self.update_flight();
    }

    fn update_flight(&mut self) {
        self.flight = Flight::at(&self.pace, &self.config);
    }

    /// Returns whether a stream waits for room on the disk: [`Disk::found_idle`].
    pub fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// How many streams wait for the disk: for what they have requested, or for room.
    pub fn waiting_streams(&self) -> u64 {
        self.busy_streams.max(self.waiting.len() as u64)
    }

    /// Whether the disk has written all that it got, as it counts itself. File systems may have
    /// yet to notice that, so it gets more before completions are counted.
    pub fn found_idle(&mut self, idle: bool) {
        self.idle = idle;
    }

    /// Returns whether others read from the disk, so that less is kept in flight.
    pub fn yields_at(&self, now_ns: u64) -> bool {
        self.neighbours.read_at(now_ns)
    }

    /// How long we have yielded to the disk's readers.
    pub fn yielded_ns(&self) -> u64 {
        self.neighbours.yielded_ns()
    }

    /// Bytes that all streams have requested so far and seen clean.
    pub fn completed_bytes(&self) -> u64 {
        self.completed_bytes
    }

    /// Bytes that all streams have requested and not seen clean.
    pub fn asked_bytes(&self) -> u64 {
        self.asked_bytes
    }

    /// A stream, for its counters.
    pub fn stream(&self, id: StreamId) -> Option<&Stream> {
        self.streams.get(&id)
    }

    /// How many separate ranges of pages all streams together remember as theirs.
    pub fn range_count(&self) -> usize {
        self.streams.values().map(Stream::range_count).sum()
    }

    /// The number of streams, open or with work left.
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// The final counters of the stream of the last [`Action::Forget`].
    pub fn forgotten(&self, id: StreamId) -> Option<&Stats> {
        self.forgotten
            .as_ref()
            .filter(|(forgotten, _)| *forgotten == id)
            .map(|(_, counters)| counters)
    }

    /// The most bytes that a stream's writers may have outstanding: at most two windows, or no
    /// limit if the window is 0. It changes with the disk's speed and with each event, so read it
    /// again along with [`Stream::done_bytes`].
    pub fn limit_bytes(&self, id: StreamId) -> u64 {
        let context = self.context(0);
        self.streams
            .get(&id)
            .map_or(u64::MAX, |stream| stream.limit_bytes(&context))
    }

    /// The current window of streams without one of their own.
    pub fn window_bytes(&self) -> u64 {
        self.pace
            .window_bytes(self.config.window_bytes, self.config.request_bytes)
    }

    /// What the disk writes for each stream that waits for it, in bytes per second; `None`
    /// until it was measured.
    pub fn share_bytes_per_second(&self) -> Option<u64> {
        let speed = self.pace.bytes_per_second()?;
        Some(speed / self.busy_streams.max(1))
    }

    /// How many dirty bytes are worth waking the flusher for.
    pub fn batch_bytes(&self, id: StreamId) -> u64 {
        let context = self.context(0);
        match self.streams.get(&id) {
            Some(stream) => stream.batch_bytes(&context),
            None => self
                .pace
                .batch_bytes(self.config.window_bytes, self.config.request_bytes),
        }
    }

    fn context(&self, now_ns: u64) -> Context {
        Context {
            now_ns,
            page_bytes: self.config.page_bytes,
            pace: self.pace,
            default_window_bytes: self.config.window_bytes,
            request_bytes: self.config.request_bytes,
            busy_streams: self.busy_streams,
            asked_bytes: self.asked_bytes,
            flight: self.flight,
            waiting_streams: self.waiting.len() as u64,
            beside_readers: self.neighbours.read_at(now_ns),
            idle: self.idle,
        }
    }

    /// Applies `change` to a stream and requeues it.
    fn with<T>(
        &mut self,
        now_ns: u64,
        id: StreamId,
        change: impl FnOnce(&mut Stream, &Context) -> T,
    ) -> Option<T> {
        let context = self.context(now_ns);
        let stream = self.streams.get_mut(&id)?;
        let small_before = stream.small_bytes();
        let asked_before = stream.asked_bytes();
        let answer = change(stream, &context);
        stream.move_window(&context);
        stream.try_stuck_at_last();
        let small_changed = stream.small_bytes() != small_before;
        let asked_after = stream.asked_bytes();
        self.asked_bytes = self.asked_bytes - asked_before + asked_after;
        self.busy_streams =
            self.busy_streams - u64::from(asked_before > 0) + u64::from(asked_after > 0);
        if small_changed {
            self.count_small(id);
            self.keep_small_budget(now_ns);
        }
        self.requeue(now_ns, id);
        Some(answer)
    }

    fn requeue(&mut self, now_ns: u64, id: StreamId) {
        let context = self.context(now_ns);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.end_flush_if_settled();
        let due_ns = stream.task(&context).map(|(due_ns, _)| due_ns);
        match (stream.place.waits, stream.waits_for_room(&context)) {
            (None, true) => {
                stream.place.waits = Some(self.turns);
                self.waiting.insert((self.turns, id));
                self.turns += 1;
            }
            (Some(turn), false) => {
                stream.place.waits = None;
                self.waiting.remove(&(turn, id));
            }
            _ => {}
        }
        let old = stream.place.queued;
        if let (Some((old_ns, _)), Some(new_ns)) = (old, due_ns) {
            // A stream that is due keeps its place in the queue: a steady flow of events must
            // not push it back.
            if old_ns == new_ns || old_ns.max(new_ns) <= now_ns {
                return;
            }
        }
        if let Some((old_ns, turn)) = old {
            self.queue.remove(&(old_ns, turn, id));
        }
        // A stream that has just had its turn goes behind all others that are due, however
        // long its own work has been waiting.
        stream.place.queued = due_ns.map(|due_ns| (due_ns.max(stream.place.served_ns), self.turns));
        self.turns += 1;
        if let Some((new_ns, turn)) = stream.place.queued {
            self.queue.insert((new_ns, turn, id));
        }
    }

    fn dequeue(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if let Some((due_ns, turn)) = stream.place.queued.take() {
            self.queue.remove(&(due_ns, turn, id));
        }
    }

    /// Queues the stream that waits for longest, if it has room now. Returns whether it has.
    fn let_one_go_on(&mut self, now_ns: u64) -> bool {
        let Some(&(turn, id)) = self.waiting.first() else {
            return false;
        };
        let context = self.context(now_ns);
        let Some(stream) = self.streams.get_mut(&id) else {
            return false;
        };
        if stream.waits_for_room(&context) {
            return false;
        }
        stream.place.waits = None;
        self.waiting.remove(&(turn, id));
        self.requeue(now_ns, id);
        true
    }

    /// Removes a stream, and what is counted for it.
    fn remove(&mut self, id: StreamId) -> Option<Stream> {
        self.dequeue(id);
        let gone = self.streams.remove(&id)?;
        if let Some(turn) = gone.place.waits {
            self.waiting.remove(&(turn, id));
        }
        if let Some((place, bytes)) = gone.place.small {
            self.small_bytes -= bytes;
            self.small.remove(&place);
        }
        self.asked_bytes -= gone.asked_bytes();
        self.busy_streams -= u64::from(gone.asked_bytes() > 0);
        Some(gone)
    }

    /// Updates whether and how the stream counts among the small files.
    fn count_small(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let bytes = stream.small_bytes();
        stream.place.over_budget &= bytes.is_some();
        let bytes = bytes.filter(|_| !stream.place.over_budget);
        let before = stream.place.small;
        if before.map(|(_, bytes)| bytes) == bytes {
            return;
        }
        let place = before.map_or(self.turns, |(place, _)| place);
        stream.place.small = bytes.map(|bytes| (place, bytes));
        if let Some((place, bytes)) = before {
            self.small_bytes -= bytes;
            self.small.remove(&place);
        }
        if let Some(bytes) = bytes {
            self.turns += u64::from(before.is_none());
            self.small_bytes += bytes;
            self.small.insert(place, id);
        }
    }

    /// Beyond the budget, the oldest small files are due. Each is handled only once: looking
    /// at all waiting files whenever another one comes costs a quarter of a millisecond per
    /// file.
    fn keep_small_budget(&mut self, now_ns: u64) {
        while (self.small_bytes > SMALL_FILES_BYTES || self.small.len() > self.config.small_files)
            && let Some((_, id)) = self.small.pop_first()
        {
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            stream.place.over_budget = true;
            if let Some((_, bytes)) = stream.place.small.take() {
                self.small_bytes -= bytes;
            }
            self.requeue(now_ns, id);
        }
    }

    /// A file was opened. `residency` is what was cached before.
    pub fn opened(&mut self, id: StreamId, config: StreamConfig, residency: ResidencyMap) {
        self.remove(id);
        self.streams.insert(id, Stream::new(config, residency));
    }

    /// What was cached before the stream's first I/O that is to be dropped, if nobody had looked
    /// when it was opened.
    pub fn was_cached(&mut self, now_ns: u64, id: StreamId, residency: ResidencyMap) {
        self.with(now_ns, id, |stream, _| stream.was_cached(residency));
    }

    /// The program wrote `range` in `mode`.
    pub fn wrote(&mut self, now_ns: u64, id: StreamId, range: ByteRange, mode: Mode) {
        self.with(now_ns, id, |stream, context| {
            stream.wrote(context, range, None, mode);
        });
    }

    /// A look at a file that other processes write found `bytes` dirty in `range`.
    pub fn found(&mut self, now_ns: u64, id: StreamId, range: ByteRange, bytes: u64, mode: Mode) {
        self.with(now_ns, id, |stream, context| {
            stream.wrote(context, range, Some(bytes), mode);
        });
    }

    /// The program wrote these ranges one after another: the same as reporting each, but
    /// cheaper.
    pub fn wrote_all(
        &mut self,
        now_ns: u64,
        id: StreamId,
        writes: impl IntoIterator<Item = Write>,
    ) {
        self.with(now_ns, id, |stream, context| {
            for write in writes {
                stream.found(write.range, write.found);
                stream.wrote(context, write.range, None, write.mode);
                stream.move_window(context);
            }
        });
    }

    /// All writes up to the writers' count of `written_bytes` have been reported.
    pub fn written_until(&mut self, now_ns: u64, id: StreamId, written_bytes: u64) {
        self.with(now_ns, id, |stream, _| stream.written_until(written_bytes));
    }

    /// A read brought `range` into the cache.
    pub fn read(&mut self, now_ns: u64, id: StreamId, range: ByteRange) {
        self.with(now_ns, id, |stream, context| stream.read(context, range));
    }

    /// A read of `range` did not bring it in, and it is cached now: what is not ours counts as kept.
    pub fn read_cached(&mut self, now_ns: u64, id: StreamId, range: ByteRange) {
        self.with(now_ns, id, |stream, _| stream.read_cached(range));
    }

    /// Whether the file's users say that they write at random places (`POSIX_FADV_RANDOM`):
    /// nothing is then written behind them.
    pub fn advised(&mut self, now_ns: u64, id: StreamId, random: bool) {
        self.with(now_ns, id, |stream, context| {
            stream.advised(context, random);
        });
    }

    /// The file's size was set.
    pub fn resized(&mut self, now_ns: u64, id: StreamId, size_bytes: u64) {
        self.with(now_ns, id, |stream, context| {
            stream.resized(context, size_bytes);
        });
    }

    /// The trace names `range` as brought in by this I/O, in whole pages. If it is `held`, it is
    /// not dropped before [`Disk::decided`].
    pub fn brought(&mut self, now_ns: u64, id: StreamId, range: ByteRange, held: bool) {
        self.with(now_ns, id, |stream, _| stream.brought(range, held));
    }

    /// The trace names `range` as brought in by others, in whole pages: nothing of this I/O
    /// can have been there any more.
    pub fn taken_over(&mut self, now_ns: u64, id: StreamId, range: ByteRange) {
        self.with(now_ns, id, |stream, _| stream.taken_over(range));
    }

    /// What was held of `range` stays, or is dropped once it is clean and its readers are done
    /// with it.
    pub fn decided(&mut self, now_ns: u64, id: StreamId, range: ByteRange, stays: bool) {
        self.with(now_ns, id, |stream, _| stream.decided(range, stays));
    }

    /// Pages that [`Disk::brought`] reported in `range` are to stay.
    pub fn kept(&mut self, now_ns: u64, id: StreamId, range: ByteRange) {
        self.with(now_ns, id, |stream, _| stream.keep(range));
    }

    /// Pages that [`Disk::brought`] reported in `range` are clean, and their readers are done
    /// with them.
    pub fn passed(&mut self, now_ns: u64, id: StreamId, range: ByteRange) {
        self.with(now_ns, id, |stream, _| stream.passed(range));
    }

    /// The program's fsync of the file returned.
    pub fn synced(&mut self, now_ns: u64, id: StreamId) {
        self.with(now_ns, id, |stream, context| stream.synced(context));
    }

    /// The stream should be written and dropped, since a caller is waiting for that.
    pub fn flush(&mut self, now_ns: u64, id: StreamId) {
        self.with(now_ns, id, |stream, _| stream.flush());
    }

    /// The program closed the file.
    pub fn closed(&mut self, now_ns: u64, id: StreamId) {
        self.with(now_ns, id, |stream, context| stream.closed(context));
    }

    /// Somebody opens the file of a stream that is not forgotten yet: its readers are not done.
    pub fn reopened(&mut self, now_ns: u64, id: StreamId) {
        self.with(now_ns, id, |stream, _| stream.reopened());
    }

    /// The program ends: all that is to be written of the stream is to be requested now, without
    /// waiting for what the disk has in flight. [`Stream::has_to_submit`] says when that is done.
    pub fn submit(&mut self, now_ns: u64, id: StreamId) {
        self.with(now_ns, id, |stream, context| stream.submit(context));
    }

    /// The answer to [`Action::Count`].
    pub fn counted(&mut self, now_ns: u64, id: StreamId, range: ByteRange, counted: Counted) {
        let newly = self.with(now_ns, id, |stream, context| {
            stream.counted(context, range, counted)
        });
        if let Some(bytes) = newly.flatten() {
            let busy = self.asked_bytes > 0;
            self.completed_bytes += bytes;
            self.pace.completed(now_ns, bytes, busy);
            self.update_flight();
        }
    }

    /// The answer to [`Action::Drop`]: the result for each of its ranges. A range that is
    /// missing stayed as it was.
    pub fn dropped(
        &mut self,
        now_ns: u64,
        id: StreamId,
        outcomes: impl IntoIterator<Item = (ByteRange, Dropped)>,
    ) {
        self.dropping = None;
        self.with(now_ns, id, |stream, context| {
            for (range, dropped) in outcomes {
                stream.dropped(context, range, dropped);
            }
            stream.not_answered(context);
        });
    }

    /// The answer to [`Action::Inspect`].
    pub fn inspected(&mut self, now_ns: u64, id: StreamId, inspected: Inspected) {
        self.with(now_ns, id, |stream, context| {
            stream.inspected(context, inspected);
        });
    }

    /// A call for the stream failed, and trying again won't help.
    pub fn failed(&mut self, now_ns: u64, id: StreamId) {
        self.with(now_ns, id, |stream, _| stream.failed());
    }

    /// What to do next.
    pub fn next(&mut self, now_ns: u64) -> Next {
        if let Some(id) = self.dropping.take() {
            self.with(now_ns, id, |stream, context| stream.not_answered(context));
        }
        loop {
            let more = self.let_one_go_on(now_ns);
            let id = match self.queue.first() {
                Some(&(due_ns, _, id)) if due_ns <= now_ns => id,
                _ if more => continue,
                Some(&(due_ns, ..)) => return Next::At(due_ns),
                None => return Next::Idle,
            };
            let context = self.context(now_ns);
            self.dequeue(id);
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            stream.place.served_ns = now_ns;
            let task = match stream.task(&context) {
                Some((task_ns, task)) if task_ns <= now_ns => task,
                _ => {
                    self.requeue(now_ns, id);
                    continue;
                }
            };
            let action = self.with(now_ns, id, |stream, context| {
                stream.begin(context, id, task)
            });
            let Some(action) = action else {
                continue;
            };
            match action {
                Action::StartWriteback { .. } => {
                    self.pace.started(now_ns);
                    self.idle = false;
                }
                Action::Drop { .. } => self.dropping = Some(id),
                Action::Forget { .. } => {
                    let gone = self.remove(id);
                    self.forgotten = gone.map(|gone| (id, gone.counters()));
                }
                _ => {}
            }
            return Next::Do(action);
        }
    }
}
