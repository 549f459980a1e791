//! One disk's thread: drains slots, asks the policy, makes the calls.

mod calls;
mod inbox;
mod looks;
mod slots;

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use dropbehind_linux::{
    Description, DiskStatistics, InFlight, TIME_SLICE_MIN, descriptor_limit, futex_wait,
    set_thread_time_slice, thread_id,
};
use dropbehind_policy::grace::SMALL_FILES_COUNT;
use dropbehind_policy::neighbours::{Reads, SAMPLE_NS};
use dropbehind_policy::residency::ResidencyMap;
use dropbehind_policy::write_behind::DEFAULT_WINDOW_BYTES;
use dropbehind_policy::{Disk, DiskConfig, Next, StreamConfig, StreamId, Write};
use rustix::thread::set_current_timer_slack;

use crate::disk_handle::DiskHandle;
use crate::lock;
use crate::observed_file::source::ObservedSource;
use crate::own_file::source::OwnSource;
use crate::peers::Peers;
use crate::trace::Label;

/// A thread without files ends after this long.
const IDLE_EXIT: Duration = Duration::from_secs(5);
/// A lane whose writer is in the middle of a push is drained again this soon.
const RETRY_DRAIN: Duration = Duration::from_micros(100);
/// While there is work, slots that did not kick are drained this often: pages that never add
/// up to a batch would grow old there.
const SWEEP: Duration = Duration::from_millis(200);

/// Who sleeps no longer than this sleeps it out. On a fast disk that is every pause between polls, and
/// a wake-up by a writer would cost both of them more than it gains: the disk is busy meanwhile.
const NAP: Duration = Duration::from_micros(600);
/// The disk's count of requests is read no more often than this: that takes as long as several polls.
const IN_FLIGHT_NS: u64 = 400_000;

/// A file that is handed to the disk's thread.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) number: u32,
    pub(crate) config: StreamConfig,
    /// The file's residency before any of our I/O.
    pub(crate) before: ResidencyMap,
    pub(crate) entry: Entry,
}

/// A file on the disk, with the flusher's own description of it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) description: Arc<Description>,
    pub(crate) source: Source,
    pub(crate) label: Label,
}

/// Whose I/O it is, and how the thread hears of it.
#[derive(Debug)]
pub(crate) enum Source {
    /// This process's, reported in a slot.
    Own(OwnSource),
    /// Other processes', seen through the kernel's trace and by counting.
    Observed(Box<ObservedSource>),
}

struct DiskThread {
    shared: Arc<DiskHandle>,
    disk: Disk,
    entries: HashMap<u32, Entry>,
    /// When each observed file is due for a look.
    looks: BTreeSet<(u64, u32)>,
    /// No look is due before this time.
    looks_from_ns: u64,
    /// Ranges of observed files as last counted, and those that may have been added since.
    ranges: usize,
    new_ranges: usize,
    started: Instant,
    peers: Peers,
    /// The disk's own counters, and its count of requests; `None` for a virtual disk.
    statistics: Option<DiskStatistics>,
    in_flight: Option<InFlight>,
    /// That count is not read again before this time.
    in_flight_from_ns: u64,
    swept_ns: u64,
    sampled_ns: u64,
    incomplete: bool,
    /// Failed counts in a row.
    count_failures: u32,
    /// Without cachestat, by stream.
    unmoved: HashMap<u32, calls::Unmoved>,
    no_sync_file_range: bool,
    idle_since_ns: Option<u64>,
    /// Dropped once nothing is left to do, which wakes the threads that wait for it.
    drains: Vec<mpsc::Sender<()>>,
    /// The same, once nothing is left to request.
    submissions: Vec<mpsc::Sender<()>>,
    /// Scratch space for the ranges drained from a slot; reused.
    told: Vec<Write>,
}

pub(crate) fn run(shared: Arc<DiskHandle>) {
    // When woken on a processor where a writer is in the middle of its 3 ms slice, this
    // thread would wait for the rest of the slice, even beside an idle processor, and so
    // would the disk. If the call fails, that happens, and nothing else changes.
    let _ = set_thread_time_slice(TIME_SLICE_MIN);
    // The usual slack is 50 µs, half of a pause between polls.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    let mut thread = DiskThread {
        disk: Disk::new(DiskConfig {
            window_bytes: DEFAULT_WINDOW_BYTES,
            request_bytes: shared.disk.request_bytes.max(dropbehind_linux::page_size()),
            page_bytes: dropbehind_linux::page_size(),
            small_files: most_small_files(),
        }),
        entries: HashMap::new(),
        looks: BTreeSet::new(),
        looks_from_ns: 0,
        ranges: 0,
        new_ranges: 0,
        started: Instant::now(),
        peers: Peers::of(&shared.disk),
        statistics: DiskStatistics::of(&shared.disk).ok(),
        in_flight: InFlight::of(&shared.disk).ok(),
        in_flight_from_ns: 0,
        swept_ns: 0,
        sampled_ns: 0,
        incomplete: false,
        count_failures: 0,
        unmoved: HashMap::new(),
        no_sync_file_range: false,
        idle_since_ns: None,
        drains: Vec::new(),
        submissions: Vec::new(),
        told: Vec::new(),
        shared: Arc::clone(&shared),
    };
    if catch_unwind(AssertUnwindSafe(|| thread.serve())).is_err() {
        // All data is in the page cache; the programs go on with plain buffered I/O.
        shared.dead.store(true, Ordering::SeqCst);
        shared.note("the flusher of this disk failed: its files are left to the kernel".into());
        for own in thread.own_sources() {
            own.abandon();
        }
    }
}

/// How many small closed files of this disk may wait. They take a quarter of the descriptors that the
/// process may have, since open files and those that are being written need some, too.
fn most_small_files() -> usize {
    let limit = descriptor_limit(thread_id()).unwrap_or(u64::MAX) / 4;
    usize::try_from(limit).map_or(SMALL_FILES_COUNT, |limit| limit.min(SMALL_FILES_COUNT))
}

/// Nanoseconds since the thread started, plus one: in some places, zero means "at once".
fn now_ns(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX - 1) + 1
}

impl DiskThread {
    fn now_ns(&self) -> u64 {
        now_ns(self.started)
    }

    fn own_sources(&self) -> impl Iterator<Item = &OwnSource> {
        self.entries
            .values()
            .filter_map(|entry| match &entry.source {
                Source::Own(own) => Some(own),
                Source::Observed(_) => None,
            })
    }

    fn own(&mut self, number: u32) -> Option<&mut OwnSource> {
        match &mut self.entries.get_mut(&number)?.source {
            Source::Own(own) => Some(own),
            Source::Observed(_) => None,
        }
    }

    fn observed(&mut self, number: u32) -> Option<&mut ObservedSource> {
        match &mut self.entries.get_mut(&number)?.source {
            Source::Own(_) => None,
            Source::Observed(observed) => Some(observed),
        }
    }

    fn serve(&mut self) {
        // Before the first writer learns how far it may get ahead.
        self.share_disk(self.now_ns());
        loop {
            // Cleared before any counter is read, so that later writes kick again.
            self.shared.bell.answer();
            self.incomplete = false;
            self.read_inbox();
            self.finish_closed_files();
            self.drain_kicked();
            let now_ns = self.now_ns();
            if now_ns.saturating_sub(self.swept_ns) >= SWEEP.as_nanos() as u64 {
                self.swept_ns = now_ns;
                self.drain_all();
            }
            self.share_with_peers(now_ns);
            self.yield_to_readers(now_ns);
            self.keep_disk_busy();
            let look_ns = self.look_around();
            let until_ns = self.act(look_ns);
            self.end_submissions();
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
    fn share_with_peers(&mut self, now_ns: u64) {
        if self.disk.asked_bytes() > 0 {
            self.share_disk(now_ns);
        }
    }

    fn share_disk(&mut self, now_ns: u64) {
        let own_bytes = self.disk.completed_bytes();
        if let Some(flushers) = self.peers.busy(now_ns, own_bytes, self.statistics.as_ref()) {
            self.disk.shared_by(flushers);
            self.disk.starting(self.peers.is_starting());
            let before = self.shared.flushers.swap(flushers, Ordering::Relaxed);
            if flushers != before {
                // Their writers may have more room now.
                let numbers: Vec<u32> = self.entries.keys().copied().collect();
                numbers.into_iter().for_each(|number| self.publish(number));
            }
        }
    }

    /// While something is in flight, checks whether others read from the disk.
    fn yield_to_readers(&mut self, now_ns: u64) {
        let since_ns = now_ns.saturating_sub(self.sampled_ns);
        if self.disk.asked_bytes() == 0 || since_ns < SAMPLE_NS {
            return;
        }
        self.sampled_ns = now_ns;
        if let Some(Ok(counters)) = self.statistics.as_ref().map(DiskStatistics::read) {
            let reads = Reads {
                count: counters.read_ios,
                bytes: counters.read_bytes,
                time_ns: counters.read_ticks_ms.saturating_mul(1_000_000),
            };
            self.disk.neighbours_read(now_ns, reads);
            let yielded_ns = self.disk.yielded_ns();
            self.shared.yielded_ns.store(yielded_ns, Ordering::Relaxed);
        }
    }

    /// While files wait for room on the disk, checks whether it has written all that it got. A
    /// file system may take half a millisecond longer to say so of its pages: ext4 first
    /// records in another thread that their blocks are written.
    fn keep_disk_busy(&mut self) {
        let now_ns = self.now_ns();
        if self.disk.is_waited_for()
            && now_ns >= self.in_flight_from_ns
            && let Some(in_flight) = &self.in_flight
        {
            self.in_flight_from_ns = now_ns + IN_FLIGHT_NS;
            let idle = in_flight.writes().is_ok_and(|writes| writes == 0);
            self.disk.found_idle(idle);
        }
    }

    /// Does what the policy wants until a look is due. Returns the time when there is more to
    /// do, or `None`.
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
            self.shared.flushers.store(1, Ordering::Relaxed);
        }
        if let Some(nap) = timeout.filter(|timeout| *timeout <= NAP) {
            // To writers the thread is awake, so they make no system call for it.
            if !self.shared.bell.is_rung() {
                std::thread::sleep(nap);
            }
            return;
        }
        if let Some(asleep) = self.shared.bell.try_sleep() {
            let _ = futex_wait(self.shared.bell.word(), asleep, timeout);
        }
    }

    /// Returns whether a slot may fill without a kick.
    fn has_unquiet(&self) -> bool {
        self.own_sources().any(|own| own.fills_silently())
    }

    /// Marks slots quiet in which nothing is left to do, so that their next write kicks.
    /// Returns true if a write came in between.
    fn quiet_down(&mut self) -> bool {
        let now_ns = self.now_ns();
        let mut again = false;
        for entry in self.entries.values_mut() {
            if let Source::Own(own) = &mut entry.source {
                again |= own.quiet_down(now_ns, &self.disk);
            }
        }
        if again {
            self.drain_all();
        }
        again
    }

    /// Wakes the threads that wait for everything to be written and dropped.
    fn end_drains(&mut self) {
        if self.drains.is_empty() {
            return;
        }
        let drained = self.entries.values().all(|entry| match &entry.source {
            Source::Own(own) => !own.closed && own.is_settled(&self.disk),
            Source::Observed(observed) => observed.is_settled(&self.disk),
        });
        if drained {
            self.drains.clear();
        }
    }

    /// Wakes the threads that wait for everything to be requested.
    fn end_submissions(&mut self) {
        if self.submissions.is_empty() {
            return;
        }
        let pending = self.entries.keys().any(|number| {
            let stream = self.disk.stream(StreamId((*number).into()));
            stream.is_some_and(|stream| stream.has_to_submit())
        });
        if !pending {
            self.submissions.clear();
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
}
