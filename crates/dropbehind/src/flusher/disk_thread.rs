//! One disk's thread: drains slots, asks the policy, makes the calls.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use dropbehind_linux::{Sharing, futex_wait, futex_wake};
use dropbehind_policy::drop_planner::SHORT_BYTES;
use dropbehind_policy::neighbours::SAMPLE_NS;
use dropbehind_policy::residency::ResidencyMap;
use dropbehind_policy::write_behind::DEFAULT_WINDOW_BYTES;
use dropbehind_policy::{
    Action, ByteRange, Counted, Disk, DiskConfig, Dropped, Inspected, Mode, Next, StreamCounters,
    StreamId,
};

use super::observed::Watch;
use super::peers::Peers;
use super::{DiskHandle, Message, Notice};
use crate::handle::{Handle, lock};
use crate::{residency, writeback_errors};
use dropbehind_slot::{Drained, NOBODY};

/// A thread without a file ends after this.
const IDLE_EXIT: Duration = Duration::from_secs(5);
/// A lane whose writer is in the middle of a push is looked at again so soon.
const RETRY_DRAIN: Duration = Duration::from_micros(100);
/// Slots that did not kick are looked at this often while anything is going on:
/// pages that never come to a batch grow old there.
const SWEEP: Duration = Duration::from_millis(200);

/// Counts that may fail in a row before another way is taken: a writer may be
/// waiting for them.
const COUNT_PATIENCE: u32 = 100;

/// A file, with the description that the keeper opened for it.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(super) handle: Arc<Handle>,
    pub(super) description: OwnedFd,
    pub(super) sharing: Sharing,
    pub(super) before: ResidencyMap,
    /// What is kept of a file that others use.
    pub(super) watch: Option<Box<Watch>>,
}

pub(super) struct Entry {
    handle: Arc<Handle>,
    pub(super) description: OwnedFd,
    sharing: Sharing,
    size_bytes: u64,
    /// Writers' and readers' counts up to which all ranges have been told.
    written_total: u64,
    read_total: u64,
    /// The slot's counts at the last drain, told or not.
    seen_totals: (u64, u64),
    /// When the last write or read was found in the slot.
    active_ns: u64,
    quiet: bool,
    settle_asked: bool,
    closed: bool,
    pub(super) watch: Option<Box<Watch>>,
}

pub(super) struct DiskThread {
    pub(super) shared: Arc<DiskHandle>,
    pub(super) disk: Disk,
    pub(super) entries: HashMap<u32, Entry>,
    /// When each observed file is to be looked at.
    pub(super) looks: BTreeSet<(u64, u32)>,
    started: Instant,
    peers: Peers,
    swept_ns: u64,
    sampled_ns: u64,
    incomplete: bool,
    no_cachestat: bool,
    /// Counts that failed, one after the other.
    count_failures: u32,
    no_sync_file_range: bool,
    idle_since_ns: Option<u64>,
    /// Those who wait until nothing is left to do let go of their end then.
    drains: Vec<mpsc::Sender<()>>,
    /// What a drain took out of a slot; kept for its memory.
    told: Vec<(ByteRange, Mode)>,
}

pub(super) fn run(shared: Arc<DiskHandle>) {
    let mut thread = DiskThread {
        disk: Disk::new(DiskConfig {
            window_bytes: DEFAULT_WINDOW_BYTES,
            request_bytes: shared.disk.request_bytes.max(dropbehind_linux::page_size()),
            page_bytes: dropbehind_linux::page_size(),
        }),
        entries: HashMap::new(),
        looks: BTreeSet::new(),
        started: Instant::now(),
        peers: Peers::of(&shared.disk),
        swept_ns: 0,
        sampled_ns: 0,
        incomplete: false,
        no_cachestat: false,
        count_failures: 0,
        no_sync_file_range: false,
        idle_since_ns: None,
        drains: Vec::new(),
        told: Vec::new(),
        shared: Arc::clone(&shared),
    };
    if catch_unwind(AssertUnwindSafe(|| thread.serve())).is_err() {
        // All data is in the kernel's page cache; the programs go on, buffered.
        shared.dead.store(true, Ordering::SeqCst);
        shared.note("the flusher of this disk failed: its files are left to the kernel".into());
        for entry in thread.entries.values() {
            entry.handle.slot.abandon();
            let _ = futex_wake(entry.handle.slot.wait_word(), u32::MAX >> 1);
            entry.handle.announce_settled();
        }
    }
}

impl DiskThread {
    pub(super) fn now_ns(&self) -> u64 {
        // One, so that no event is at zero, which means "at once" to some.
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX) + 1
    }

    fn serve(&mut self) {
        // Before the first writer is told how far it may get ahead.
        if let Some(flushers) = self.peers.busy(self.now_ns()) {
            self.disk.shared_by(flushers);
        }
        loop {
            // Cleared before any counter is read: who writes later, kicks anew.
            self.shared.bell.answer();
            self.read_inbox();
            self.drain_kicked();
            let now_ns = self.now_ns();
            if now_ns.saturating_sub(self.swept_ns) >= SWEEP.as_nanos() as u64 {
                self.swept_ns = now_ns;
                self.drain_all();
            }
            self.mind_peers(now_ns);
            self.mind_neighbours(now_ns);
            let look_ns = self.look_around();
            let until_ns = self.act(look_ns);
            if self.shared.bell.is_rung() || self.look_is_due() {
                continue;
            }
            if self.quiet_down() {
                continue;
            }
            self.end_drains();
            if self.may_end() {
                return;
            }
            self.sleep(until_ns);
        }
    }

    /// Shares the disk with the flushers of other programs.
    fn mind_peers(&mut self, now_ns: u64) {
        if self.disk.asked_bytes() > 0
            && let Some(flushers) = self.peers.busy(now_ns)
        {
            self.disk.shared_by(flushers);
        }
    }

    /// Looks, where other programs' files are written back, how the disk's
    /// readers fare. A program that uses the library waits for its own
    /// writeback, and is bounded by that.
    fn mind_neighbours(&mut self, now_ns: u64) {
        let since_ns = now_ns.saturating_sub(self.sampled_ns);
        if self.looks.is_empty() || self.disk.asked_bytes() == 0 || since_ns < SAMPLE_NS {
            return;
        }
        self.sampled_ns = now_ns;
        if let Ok(counters) = dropbehind_linux::disk_counters(&self.shared.disk) {
            let read_ns = counters.read_ticks_ms.saturating_mul(1_000_000);
            self.disk
                .neighbours_read(now_ns, counters.read_ios, read_ns);
            let yielded_ns = self.disk.yielded_ns();
            self.shared.yielded_ns.store(yielded_ns, Ordering::Relaxed);
        }
    }

    /// Does what the policy wants, until a look is due; answers when there is
    /// more to do, or `None`.
    fn act(&mut self, look_ns: Option<u64>) -> Option<u64> {
        loop {
            match self.disk.next(self.now_ns()) {
                Next::Do(action) => {
                    self.execute(action);
                    if self.shared.bell.is_rung() || self.look_is_due() {
                        return None;
                    }
                }
                Next::At(due_ns) => return Some(look_ns.unwrap_or(due_ns).min(due_ns)),
                Next::Idle => return look_ns,
            }
        }
    }

    fn look_is_due(&self) -> bool {
        let first = self.looks.first();
        first.is_some_and(|&(due_ns, _)| due_ns <= self.now_ns())
    }

    fn sleep(&mut self, until_ns: Option<u64>) {
        let now_ns = self.now_ns();
        let mut timeout = until_ns.map(|due| Duration::from_nanos(due.saturating_sub(now_ns)));
        if self.incomplete {
            timeout = Some(timeout.unwrap_or(RETRY_DRAIN).min(RETRY_DRAIN));
        } else if self.has_unquiet() {
            timeout = Some(timeout.unwrap_or(SWEEP).min(SWEEP));
        } else if self.entries.is_empty() {
            timeout = Some(timeout.unwrap_or(IDLE_EXIT).min(IDLE_EXIT));
        }
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return;
        }
        if self.disk.asked_bytes() == 0 && timeout.is_none_or(|timeout| timeout >= SWEEP) {
            self.peers.idle();
        }
        if let Some(asleep) = self.shared.bell.try_sleep() {
            let _ = futex_wait(self.shared.bell.word(), asleep, timeout);
        }
    }

    /// True while a slot may fill without a kick.
    fn has_unquiet(&self) -> bool {
        self.entries
            .values()
            .any(|entry| !entry.quiet && entry.watch.is_none())
    }

    /// Marks the slots quiet in which nothing is left to do, so that their next
    /// write kicks; true when a write came in between.
    ///
    /// Not those in which something has just happened: most likely more is to
    /// come, and each small write would kick.
    fn quiet_down(&mut self) -> bool {
        let mut again = false;
        let now_ns = self.now_ns();
        for (number, entry) in &mut self.entries {
            let active = now_ns.saturating_sub(entry.active_ns) < SWEEP.as_nanos() as u64;
            if entry.quiet || entry.closed || active || entry.watch.is_some() {
                continue;
            }
            let id = StreamId(u64::from(*number));
            let settled = self
                .disk
                .stream(id)
                .is_none_or(|stream| stream.is_settled());
            let slot = &entry.handle.slot;
            if settled && slot.outstanding_bytes() == 0 {
                // The counts that were told, not those of now: a write that
                // came meanwhile found the slot attended and did not kick.
                entry.quiet = slot.try_quiet(entry.written_total, entry.read_total);
                again |= !entry.quiet;
            }
        }
        if again {
            self.drain_all();
        }
        again
    }

    /// Tells those who wait for everything to be written and dropped.
    fn end_drains(&mut self) {
        if self.drains.is_empty() {
            return;
        }
        let drained = self.entries.iter().all(|(number, entry)| {
            let stream = self.disk.stream(StreamId(u64::from(*number)));
            let searched = |watch: &Watch| !watch.thorough_wanted;
            entry.handle.slot.outstanding_bytes() == 0
                && !entry.closed
                && entry.watch.as_deref().is_none_or(searched)
                && stream.is_none_or(|stream| stream.is_settled())
        });
        if drained {
            self.drains.clear();
        }
    }

    fn may_end(&mut self) -> bool {
        if !self.entries.is_empty() {
            self.idle_since_ns = None;
            return false;
        }
        let now_ns = self.now_ns();
        let since_ns = *self.idle_since_ns.get_or_insert(now_ns);
        if now_ns - since_ns < IDLE_EXIT.as_nanos() as u64 {
            return false;
        }
        let mut inbox = lock(&self.shared.inbox);
        if !inbox.messages.is_empty() {
            return false;
        }
        inbox.thread_runs = false;
        true
    }

    // ---- what the program's side tells -------------------------------------

    fn read_inbox(&mut self) {
        loop {
            let Some(message) = lock(&self.shared.inbox).messages.pop_front() else {
                return;
            };
            let now_ns = self.now_ns();
            match message {
                Message::Attach(attachment) => self.attach(now_ns, *attachment),
                Message::Closed(number) => {
                    self.drain(number);
                    if let Some(entry) = self.entries.get_mut(&number) {
                        entry.closed = true;
                    }
                    self.disk.closed(now_ns, StreamId(number.into()));
                }
                Message::Synced(number) => {
                    self.drain(number);
                    self.disk.synced(now_ns, StreamId(number.into()));
                }
                Message::Resized(number, size_bytes) => {
                    self.drain(number);
                    if let Some(entry) = self.entries.get_mut(&number) {
                        entry.size_bytes = size_bytes;
                    }
                    self.disk
                        .resized(now_ns, StreamId(number.into()), size_bytes);
                }
                Message::Flush(number) => self.flush(now_ns, number),
                Message::Touched(number) => self.touched(now_ns, number),
                Message::Left(number) => self.left(number),
                Message::Shared(number) => self.keep_shared(now_ns, number),
                Message::Brought(number, range, answer) => {
                    self.drain(number);
                    let stream = self.disk.stream(StreamId(number.into()));
                    let ours = stream.map(|stream| stream.brought_in(range));
                    // Who asked may have lost patience.
                    let _ = answer.send(ours.unwrap_or_default());
                }
                Message::FlushAll(done) => {
                    self.drains.push(done);
                    let numbers: Vec<u32> = self.entries.keys().copied().collect();
                    for number in numbers {
                        self.flush(now_ns, number);
                    }
                }
            }
        }
    }

    fn attach(&mut self, now_ns: u64, attachment: Attachment) {
        let Attachment {
            handle,
            description,
            sharing,
            before,
            watch,
        } = attachment;
        let number = handle.number;
        let config = handle.config();
        let id = StreamId(number.into());
        self.disk.opened(now_ns, id, config, before);
        handle.slot.attend();
        let observed = watch.is_some();
        let others_use_it = watch.as_ref().is_some_and(|watch| watch.options.shared);
        lock(&self.shared.totals)
            .open
            .insert(number, Arc::clone(&handle));
        self.entries.insert(
            number,
            Entry {
                handle,
                description,
                sharing,
                size_bytes: config.size_bytes,
                written_total: 0,
                read_total: 0,
                seen_totals: (0, 0),
                active_ns: now_ns,
                quiet: false,
                settle_asked: false,
                closed: false,
                watch,
            },
        );
        if others_use_it {
            self.keep_shared(now_ns, number);
        }
        if observed {
            self.touched(now_ns, number);
        } else {
            self.drain(number);
        }
    }

    fn touched(&mut self, now_ns: u64, number: u32) {
        let Some(watch) = self
            .entries
            .get_mut(&number)
            .and_then(|entry| entry.watch.as_mut())
        else {
            return;
        };
        watch.interval_ns = 0;
        watch.changed_ns = now_ns;
        watch.idle_told = false;
        // Who opens a file does not close it in the next moment, mostly; what
        // happens at once is seen a little later in one look.
        let due_ns = now_ns + super::look::LOOK_MIN_NS / 2;
        if watch.next_look_ns <= now_ns || watch.next_look_ns > due_ns {
            self.queue_look(number, due_ns);
        }
    }

    /// Others use an observed file.
    fn keep_shared(&mut self, now_ns: u64, number: u32) {
        if let Some(entry) = self.entries.get(&number)
            && let Some(watch) = &entry.watch
        {
            lock(&watch.state).shared = true;
            self.disk.shared(now_ns, StreamId(number.into()));
        }
    }

    /// A user of an observed file closed it.
    fn left(&mut self, number: u32) {
        let Some(watch) = self
            .entries
            .get_mut(&number)
            .and_then(|entry| entry.watch.as_mut())
        else {
            return;
        };
        watch.closed = true;
        watch.left = true;
        self.look_at(number, true);
    }

    fn flush(&mut self, now_ns: u64, number: u32) {
        self.drain(number);
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        entry.settle_asked = true;
        if let Some(watch) = &mut entry.watch {
            watch.flushed = true;
            return self.look_at(number, true);
        }
        self.disk.flush(now_ns, StreamId(number.into()));
        self.publish(number);
    }

    // ---- slots --------------------------------------------------------------

    fn drain_kicked(&mut self) {
        let mut number = self.shared.bell.take_list();
        while number != NOBODY {
            if !self.entries.contains_key(&number) {
                // It joined the list after it was attached: that stands in the
                // inbox by now.
                self.read_inbox();
            }
            let Some(entry) = self.entries.get(&number) else {
                // Whoever is behind it in the list is found by the sweep.
                self.drain_all();
                return;
            };
            let next = self.shared.bell.delist(&entry.handle.slot.queued);
            self.drain(number);
            number = next;
        }
    }

    fn drain_all(&mut self) {
        // The list stays as it is: a slot taken out of it that is still linked
        // would be linked to itself by the next kick.
        let numbers: Vec<u32> = self.entries.keys().copied().collect();
        for number in numbers {
            self.drain(number);
        }
    }

    fn drain(&mut self, number: u32) {
        let now_ns = self.now_ns();
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        if entry.watch.is_some() {
            return;
        }
        let id = StreamId(number.into());
        let handle = Arc::clone(&entry.handle);
        handle.slot.attend();
        entry.quiet = false;
        let disk = &mut self.disk;

        let read_total = handle.slot.reads.total();
        let reads = handle
            .slot
            .reads
            .drain(|run| disk.read(now_ns, id, run.range()));
        if let Some((span, _)) = reads.lost {
            for part in residency::cached_parts(entry.description.as_fd(), span) {
                disk.read(now_ns, id, part);
            }
        }
        if reads.complete {
            entry.read_total = read_total;
        }

        let written_total = handle.slot.writes.total();
        if entry.seen_totals != (written_total, read_total) {
            entry.seen_totals = (written_total, read_total);
            entry.active_ns = now_ns;
        }
        let mut appended = false;
        let o_append = handle.config().o_append;
        let told = &mut self.told;
        let writes = handle.slot.writes.drain(|run| {
            if o_append {
                appended = true;
            } else {
                told.push((run.range(), run.mode()));
            }
        });
        disk.wrote_all(now_ns, id, told.drain(..));
        if appended {
            Self::drain_appended(disk, now_ns, id, entry);
        }
        if let Some((span, modes)) = writes.lost {
            let parts = residency::cached_parts(entry.description.as_fd(), span);
            for mode in Drained::lost_modes(modes) {
                disk.wrote_all(now_ns, id, parts.iter().map(|part| (*part, mode)));
            }
        }
        if writes.complete {
            entry.written_total = written_total;
            disk.told(now_ns, id, written_total);
        }
        self.incomplete = !(writes.complete && reads.complete);
        self.publish(number);
    }

    /// Where an append went only the kernel knows, without a call in the
    /// writer's path: the file has grown up to there.
    fn drain_appended(disk: &mut Disk, now_ns: u64, id: StreamId, entry: &mut Entry) {
        let Ok(size_bytes) = dropbehind_linux::size_bytes(entry.description.as_fd()) else {
            return;
        };
        let range = ByteRange::new(entry.size_bytes, size_bytes);
        entry.size_bytes = size_bytes;
        let mode = entry.handle.append_mode();
        disk.wrote(now_ns, id, range, mode);
    }

    pub(super) fn publish(&mut self, number: u32) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        let id = StreamId(number.into());
        let slot = &entry.handle.slot;
        let Some(stream) = self.disk.stream(id) else {
            return;
        };
        slot.publish_reads_done(entry.read_total.saturating_sub(stream.droppable_bytes()));
        entry.handle.store_counters(&stream.counters());
        if let Some(speed) = self.disk.bytes_per_second() {
            self.shared.bytes_per_second.store(speed, Ordering::Relaxed);
            let window_bytes = self.disk.window_bytes();
            self.shared
                .window_bytes
                .store(window_bytes, Ordering::Relaxed);
        }
        let more_room = slot.publish_pace(
            self.disk.limit_bytes(id),
            self.disk.batch_bytes(id),
            self.disk.share_bytes_per_second().unwrap_or(0),
        );
        if slot.publish_done(stream.done_bytes()) || more_room {
            let _ = futex_wake(slot.wait_word(), u32::MAX >> 1);
        }
        if entry.settle_asked && stream.is_settled() && slot.outstanding_bytes() == 0 {
            entry.settle_asked = false;
            entry.handle.announce_settled();
        }
    }

    // ---- calls --------------------------------------------------------------

    fn execute(&mut self, action: Action) {
        let (Action::StartWriteback { stream, .. }
        | Action::Count { stream, .. }
        | Action::Drop { stream, .. }
        | Action::Inspect { stream }
        | Action::Look { stream, .. }
        | Action::Forget { stream }) = &action;
        let number = u32::try_from(stream.0).unwrap_or(u32::MAX);
        match action {
            Action::StartWriteback { range, .. } => self.start_writeback(number, range),
            Action::Count { range, .. } => self.count(number, range),
            Action::Drop { ranges, .. } => self.drop_ranges(number, ranges),
            Action::Inspect { .. } => self.inspect(number),
            Action::Look { range, .. } => self.look(number, range),
            Action::Forget { .. } => return self.forget(number),
        }
        self.publish(number);
    }

    fn start_writeback(&mut self, number: u32, range: ByteRange) {
        let Some(entry) = self.entries.get(&number) else {
            return;
        };
        let fd = entry.description.as_fd();
        if !self.no_sync_file_range {
            match dropbehind_linux::start_writeback(fd, range.start, range.len()) {
                Err(error) if is_missing(&error) => {
                    self.no_sync_file_range = true;
                    self.shared.note(format!(
                        "no sync_file_range ({error}): posix_fadvise starts writeback instead"
                    ));
                }
                // An error of writeback itself stands in the file's error state
                // and comes out of the program's own fsync.
                _ => return,
            }
        }
        if dropbehind_linux::drop_clean(fd, range.start, range.len()).is_err() {
            let now_ns = self.now_ns();
            self.disk.failed(now_ns, StreamId(number.into()));
        }
    }

    fn count(&mut self, number: u32, range: ByteRange) {
        let Some(entry) = self.entries.get(&number) else {
            return;
        };
        let counted = match self.cachestat(entry.description.as_fd(), range) {
            Ok(counted) => {
                self.count_failures = 0;
                Some(counted)
            }
            Err(error) if is_missing(&error) || self.count_failures >= COUNT_PATIENCE => {
                self.note_no_cachestat(&error);
                self.wait_instead(number, range)
            }
            // Interrupted, or no memory: ask again at the next poll.
            Err(_) => {
                self.count_failures += 1;
                Some(Counted {
                    writeback_bytes: range.len(),
                    ..Counted::default()
                })
            }
        };
        // What was written by then is not to look like something left over.
        self.drain(number);
        let now_ns = self.now_ns();
        let id = StreamId(number.into());
        match counted {
            Some(counted) => self.disk.counted(now_ns, id, range, counted),
            None => self.disk.failed(now_ns, id),
        }
    }

    fn cachestat(&self, fd: BorrowedFd<'_>, range: ByteRange) -> io::Result<Counted> {
        if self.no_cachestat {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        residency::count(fd, range)
    }

    fn note_no_cachestat(&mut self, error: &io::Error) {
        if error.raw_os_error() == Some(libc::ENOSYS) {
            self.no_cachestat = true;
        }
        self.shared.note(format!(
            "no cachestat ({error}): completion is waited for on a description of our own"
        ));
    }

    /// Before Linux 6.5: waits for the range on a description of our own. That
    /// takes nothing from the program's descriptors, but marks an error seen,
    /// so it is remembered for files opened later.
    fn wait_instead(&mut self, number: u32, range: ByteRange) -> Option<Counted> {
        let entry = self.entries.get(&number)?;
        if entry.sharing != Sharing::Own {
            return None;
        }
        let fd = entry.description.as_fd();
        if let Err(error) = dropbehind_linux::write_and_wait(fd, range.start, range.len()) {
            if is_missing(&error) {
                return None;
            }
            writeback_errors::remember(entry.handle.file_id, &error);
        }
        Some(Counted::default())
    }

    fn drop_ranges(&mut self, number: u32, ranges: Vec<ByteRange>) {
        let Some(entry) = self.entries.get(&number) else {
            return;
        };
        let id = StreamId(number.into());
        let mut outcomes = Vec::with_capacity(ranges.len());
        for range in ranges {
            match self.drop_range(entry, range) {
                Ok(dropped) => outcomes.push((range, dropped)),
                Err(error) if is_missing(&error) => {
                    self.shared
                        .note(format!("clean pages cannot be dropped ({error})"));
                    let now_ns = self.now_ns();
                    return self.disk.failed(now_ns, id);
                }
                // Not answered: it stayed, and is tried again.
                Err(_) => {}
            }
        }
        let now_ns = self.now_ns();
        self.disk.dropped(now_ns, id, outcomes);
    }

    fn drop_range(&self, entry: &Entry, range: ByteRange) -> io::Result<Dropped> {
        let fd = entry.description.as_fd();
        match entry.handle.claims.begin_drop(range) {
            // Somebody is about to read it. Later, then.
            None => Ok(Dropped::NotClean),
            // To count so little before, too, costs as much as to drop it.
            Some(_dropping) if range.len() <= SHORT_BYTES && !self.no_cachestat => {
                residency::drop_short(fd, range)
            }
            Some(_dropping) => match self.cachestat(fd, range) {
                Ok(before) => residency::drop_counted(fd, range, before),
                Err(error) if is_missing(&error) => residency::drop_mapped(fd, range),
                Err(error) => Err(error),
            },
        }
    }

    fn inspect(&mut self, number: u32) {
        let Some(entry) = self.entries.get(&number) else {
            return;
        };
        // When it can't be told, the file counts as one with a name.
        let unlinked = rustix::fs::fstat(&entry.description).is_ok_and(|stat| stat.st_nlink == 0);
        let now_ns = self.now_ns();
        self.disk
            .inspected(now_ns, StreamId(number.into()), Inspected { unlinked });
    }

    fn look(&mut self, number: u32, range: ByteRange) {
        let Some(entry) = self.entries.get(&number) else {
            return;
        };
        if let Ok(resident) = residency::resident_in(entry.description.as_fd(), range) {
            // What the program wrote there meanwhile is not somebody else's.
            self.drain(number);
            let now_ns = self.now_ns();
            self.disk
                .looked(now_ns, StreamId(number.into()), range, resident);
        }
    }

    fn forget(&mut self, number: u32) {
        let Some(entry) = self.entries.remove(&number) else {
            return;
        };
        let counters = entry.handle.counters();
        lock(&self.shared.totals).close(number, &counters);
        entry.handle.announce_settled();
        if let Some(watch) = entry.watch {
            self.finish(number, *watch, entry.description, counters);
        }
    }

    fn finish(
        &mut self,
        number: u32,
        watch: Watch,
        description: OwnedFd,
        counters: StreamCounters,
    ) {
        self.looks.remove(&(watch.next_look_ns, number));
        self.account(watch.accounted, Counted::default());
        let mut state = *lock(&watch.state);
        state.counters = counters;
        if let Some(brake) = &watch.brake {
            brake.stop();
            (state.waits, state.wait_ns) = brake.waits();
        }
        state.counted = residency::count(description.as_fd(), residency::whole(state.size_bytes))
            .unwrap_or_default();
        *lock(&watch.state) = state;
        let _ = watch.options.notices.send(Notice::Finished {
            key: watch.options.key,
            description,
            state,
        });
    }

    /// The pages of an observed file have changed from one count to the next.
    pub(super) fn account(&self, before: Counted, now: Counted) {
        let mut pages = lock(&self.shared.observed);
        pages.change(before, now);
    }
}

/// Errors that another try will not mend: no such call, or not permitted.
fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ENOSYS
                | libc::EPERM
                | libc::EACCES
                | libc::EOPNOTSUPP
                | libc::EBADF
                | libc::ESPIPE
                | libc::EINVAL
        )
    )
}
