//! The flusher: the threads that carry out what the policy decides.
//!
//! One *keeper* thread opens a description of our own for each file that has
//! work, in a descriptor table of its own. One thread a disk, started by the
//! keeper when first needed and ended when idle, drains the slots of its files,
//! asks the policy what to do and does it. Nothing of this is in the program's
//! descriptor table, so nothing of it is inherited, counted against its limits,
//! or able to release its record locks.

mod brake;
mod brakes;
mod disk_thread;
mod hold_failures;
mod keeper;
pub(crate) use keeper::spawn;
mod look;
mod observed;
mod observed_pages;
mod peers;
mod processor_time;
mod unwritten;

use std::collections::HashMap;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use dropbehind_linux::{Disk, DiskId, IoPriority, futex_wake};
use dropbehind_policy::write_behind::DEFAULT_WINDOW_BYTES;
use dropbehind_policy::{ByteRange, StreamCounters};

use crate::fetchers::Fetchers;
use crate::handle::{Handle, lock};
use crate::stats::Stats;
use dropbehind_slot::Doorbell;
use keeper::Keeper;
pub use observed::{Notice, NoticeSink, ObserveOptions, Observed, ObservedState, Provenance};
pub use observed_pages::ObservedPages;

/// Who waits for a disk's thread looks after its health this often.
const WAIT_STEP: Duration = Duration::from_millis(200);

/// Writes back, counts and drops for any number of files on any disks.
///
/// Cheap to clone; clones are the same flusher. Most programs use the shared
/// one, which every [`crate::File`] does unless told otherwise.
#[derive(Clone, Debug)]
pub struct Flusher {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    io_priority: IoPriority,
    keeper: Arc<Keeper>,
    disks: Mutex<Disks>,
    generation: u32,
    /// Descriptors are the process's own.
    observing: bool,
}

#[derive(Debug, Default)]
struct Disks {
    by_id: HashMap<DiskId, Arc<DiskHandle>>,
    /// What `st_dev` or `st_rdev` was resolved to: sysfs is slow.
    by_device: HashMap<u64, Arc<DiskHandle>>,
}

/// Settings of a flusher of one's own.
#[derive(Clone, Debug)]
pub struct FlusherBuilder {
    io_priority: IoPriority,
    observing: bool,
}

impl FlusherBuilder {
    /// I/O priority of the flusher's threads; default: the program's own.
    ///
    /// It counts where the disk's scheduler honours it (bfq, mq-deadline), and
    /// for writeback only in so far as the kernel submits in our thread.
    pub fn io_priority(mut self, priority: IoPriority) -> FlusherBuilder {
        self.io_priority = priority;
        self
    }

    /// For [observing](Flusher::observe) files that other processes use. Its
    /// threads use the process's own descriptor table then, so this is not for a
    /// process that has record locks on files it also opens through the library.
    pub fn observing(mut self) -> FlusherBuilder {
        self.observing = true;
        self
    }

    /// Starts the flusher.
    ///
    /// # Errors
    /// When no thread can be started, or a priority needs a privilege.
    pub fn build(self) -> io::Result<Flusher> {
        let keeper = Keeper::start(self.io_priority, !self.observing)?;
        Ok(Flusher {
            inner: Arc::new(Inner {
                io_priority: self.io_priority,
                keeper,
                disks: Mutex::new(Disks::default()),
                generation: dropbehind_linux::fork_generation(),
                observing: self.observing,
            }),
        })
    }
}

static SHARED: ArcSwapOption<Flusher> = ArcSwapOption::const_empty();

impl Flusher {
    /// The flusher that all files of the process share unless told otherwise.
    /// A child of a fork gets a new one.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn shared() -> io::Result<Flusher> {
        if let Some(shared) = SHARED.load().as_ref()
            && shared.is_ours()
        {
            return Ok(Flusher::clone(shared));
        }
        // No lock here: a lock held by another thread at the fork would stay
        // held in the child for ever. Two threads at once start two flushers,
        // and one of them is let go.
        let made = Arc::new(Flusher::builder().build()?);
        let before = SHARED.load_full();
        match before {
            Some(other) if other.is_ours() => Ok(Flusher::clone(&other)),
            before => {
                let current = SHARED.compare_and_swap(&before, Some(Arc::clone(&made)));
                match current.as_ref() {
                    Some(other) if other.is_ours() => Ok(Flusher::clone(other)),
                    _ => Ok(Flusher::clone(&made)),
                }
            }
        }
    }

    /// A flusher of one's own.
    pub fn builder() -> FlusherBuilder {
        FlusherBuilder {
            io_priority: IoPriority::Inherit,
            observing: false,
        }
    }

    /// The I/O priority of its threads.
    pub fn io_priority(&self) -> IoPriority {
        self.inner.io_priority
    }

    /// What all its files did, those closed included.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for disk in self.disks() {
            lock(&disk.totals).add_to(&mut stats);
        }
        stats
    }

    /// What was done for the files of each disk, and how their pages stand.
    pub fn disks_stats(&self) -> Vec<DiskStats> {
        let disks = self.disks();
        let stats = disks.iter().map(|disk| {
            let mut stats = Stats::default();
            let totals = lock(&disk.totals);
            totals.add_to(&mut stats);
            DiskStats {
                name: disk.disk.name.clone(),
                files: totals.open.len(),
                stats,
                observed: *lock(&disk.observed),
                bytes_per_second: disk.bytes_per_second(),
                window_bytes: disk.window_bytes(),
                flushers: disk.flushers.load(Ordering::Relaxed),
                yielded_ns: disk.yielded_ns.load(Ordering::Relaxed),
            }
        });
        stats.collect()
    }

    /// Bytes cached at this moment that observed programs brought in and that are still
    /// to be dropped; of files whose pages are to stay, all that is cached.
    pub fn observed_bytes(&self) -> u64 {
        let disks = self.disks();
        let bytes = disks
            .iter()
            .map(|disk| lock(&disk.observed).counted.cached_bytes);
        bytes.sum()
    }

    /// What does not work here and was replaced by the next best way.
    pub fn degraded(&self) -> Vec<String> {
        let mut notes = self.inner.keeper.notes();
        for disk in self.disks() {
            notes.extend(lock(&disk.notes).iter().cloned());
        }
        notes
    }

    /// Writes and drops all that is pending in files of this flusher, closed
    /// ones included; false when `timeout` passed first.
    pub fn drain(&self, timeout: Duration) -> bool {
        if !self.is_ours() {
            return true;
        }
        let started = Instant::now();
        while self.inner.keeper.is_busy() {
            if started.elapsed() >= timeout {
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let asked: Vec<_> = self
            .disks()
            .into_iter()
            .filter_map(|disk| disk.ask_to_drain().map(|drained| (disk, drained)))
            .collect();
        asked.iter().all(|(disk, drained)| {
            loop {
                let left = timeout.saturating_sub(started.elapsed());
                match drained.recv_timeout(left.min(WAIT_STEP)) {
                    Err(RecvTimeoutError::Timeout) if disk.is_dead() => return true,
                    Err(RecvTimeoutError::Timeout) if left.is_zero() => return false,
                    Err(RecvTimeoutError::Timeout) => {}
                    // Nothing is ever sent; the thread lets go of its end.
                    Err(RecvTimeoutError::Disconnected) | Ok(()) => return true,
                }
            }
        })
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.inner.generation == dropbehind_linux::fork_generation()
    }

    fn disks(&self) -> Vec<Arc<DiskHandle>> {
        if !self.is_ours() {
            return Vec::new();
        }
        lock(&self.inner.disks).by_id.values().cloned().collect()
    }

    /// The disk that carries an open file.
    pub(crate) fn disk_of(&self, fd: BorrowedFd<'_>, device: u64) -> io::Result<Arc<DiskHandle>> {
        let mut disks = lock(&self.inner.disks);
        if let Some(known) = disks.by_device.get(&device) {
            return Ok(Arc::clone(known));
        }
        let disk = dropbehind_linux::disk_of(fd)?;
        let handle = disks
            .by_id
            .entry(disk.id)
            .or_insert_with(|| Arc::new(DiskHandle::new(disk)));
        let handle = Arc::clone(handle);
        disks.by_device.insert(device, Arc::clone(&handle));
        Ok(handle)
    }

    /// Asks the keeper to open a description of our own.
    pub(crate) fn register(&self, handle: &Arc<Handle>, fd: RawFd) {
        self.inner.keeper.register(Arc::clone(handle), fd);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The disks' threads finish what they have and end by themselves.
        self.keeper.stop();
    }
}

/// What a flusher did for the files of one disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskStats {
    /// The disk's name, as in `/sys/block`.
    pub name: String,
    /// Files that are looked after now.
    pub files: usize,
    /// What was done, closed files included.
    pub stats: Stats,
    /// The pages of the observed files.
    pub observed: ObservedPages,
    /// Measured speed of writeback, in bytes a second; 0 until known.
    pub bytes_per_second: u64,
    /// The window now of a stream that has none of its own.
    pub window_bytes: u64,
    /// How many flushers write back to the disk and share its window, those of
    /// other programs included; 1 while there is nothing to write back.
    pub flushers: u64,
    /// Nanoseconds for which less was on its way so that readers of the disk
    /// would not suffer.
    pub yielded_ns: u64,
}

/// What the program's side tells a disk's thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// The keeper opened a description for this file.
    Attach(Box<disk_thread::Attachment>),
    Closed(u32),
    Synced(u32),
    Resized(u32, u64),
    Flush(u32),
    /// An observed file is in use.
    Touched(u32),
    /// A user of an observed file closed it.
    Left(u32),
    /// Somebody said who brought in which pages of an observed file.
    Told(u32),
    /// Somebody reads an observed file of which reads are to be kept.
    WasRead(u32),
    /// Which parts of a range did this file bring in?
    Brought(u32, ByteRange, mpsc::Sender<Vec<ByteRange>>),
    /// Everything is to be written and dropped; the sender is let go of when it
    /// is.
    FlushAll(mpsc::Sender<()>),
}

/// One disk, as its files and its thread share it.
#[derive(Debug)]
pub(crate) struct DiskHandle {
    pub(crate) bell: Doorbell,
    disk: Disk,
    inbox: Mutex<Inbox>,
    numbers: AtomicU32,
    dead: AtomicBool,
    totals: Mutex<Totals>,
    notes: Mutex<Vec<String>>,
    /// Pages of the observed files.
    observed: Mutex<ObservedPages>,
    /// Who holds their writers.
    brakes: brakes::Brakes,
    /// Measured speed of writeback, 0 until known.
    bytes_per_second: AtomicU64,
    /// The window that follows from it.
    window_bytes: AtomicU64,
    /// Who shares that window, ourselves included.
    flushers: AtomicU64,
    /// How long the disk's readers were yielded to.
    yielded_ns: AtomicU64,
    /// Who reads ahead for the readers of its files.
    pub(crate) fetchers: Arc<Fetchers>,
}

#[derive(Debug, Default)]
struct Inbox {
    messages: VecDeque<Message>,
    thread_runs: bool,
}

impl DiskHandle {
    fn new(disk: Disk) -> DiskHandle {
        DiskHandle {
            bell: Doorbell::new(),
            disk,
            inbox: Mutex::default(),
            numbers: AtomicU32::new(0),
            dead: AtomicBool::new(false),
            totals: Mutex::default(),
            notes: Mutex::default(),
            observed: Mutex::default(),
            brakes: brakes::Brakes::default(),
            bytes_per_second: AtomicU64::new(0),
            window_bytes: AtomicU64::new(DEFAULT_WINDOW_BYTES),
            flushers: AtomicU64::new(1),
            yielded_ns: AtomicU64::new(0),
            fetchers: Arc::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.disk.name
    }

    /// Hands a file to the disk's thread, which is started when there is none.
    fn attach(self: &Arc<Self>, attachment: disk_thread::Attachment) -> io::Result<()> {
        let mut inbox = lock(&self.inbox);
        inbox
            .messages
            .push_back(Message::Attach(Box::new(attachment)));
        if !inbox.thread_runs {
            let own = Arc::clone(self);
            let name = format!("dropbehind/{}", self.disk.name);
            if let Err(error) = keeper::spawn(&name, move || disk_thread::run(own)) {
                inbox.messages.pop_back();
                return Err(error);
            }
            inbox.thread_runs = true;
        }
        drop(inbox);
        if self.bell.ring() == Some(true) {
            let _ = futex_wake(self.bell.word(), 1);
        }
        Ok(())
    }

    pub(crate) fn next_number(&self) -> u32 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// How much the kernel reads ahead in one call, at most.
    pub(crate) fn read_ahead_bytes(&self) -> u64 {
        // A virtual disk's figures are made up; this is the kernel's default.
        const DEFAULT_BYTES: u64 = 128 << 10;
        if self.disk.virtual_ {
            return DEFAULT_BYTES;
        }
        let larger = self.disk.read_ahead_bytes.max(self.disk.request_bytes);
        larger.max(DEFAULT_BYTES)
    }

    /// How much the kernel reads ahead by itself, at most. btrfs reads 4 MiB
    /// whatever the disk's setting (fs/btrfs/disk-io.c).
    pub(crate) fn kernel_read_ahead_bytes(&self) -> u64 {
        self.disk.read_ahead_bytes.max(4 << 20)
    }

    /// The window now of a file that has none of its own.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.window_bytes.load(Ordering::Relaxed)
    }

    /// The measured speed of writeback; 0 while nothing is known.
    pub(crate) fn bytes_per_second(&self) -> u64 {
        self.bytes_per_second.load(Ordering::Relaxed)
    }

    /// True when the thread of this disk panicked: its files run on, buffered.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Has everything written and dropped: the answer is closed when that is
    /// done. `None` when there is no thread, and so nothing to do.
    fn ask_to_drain(&self) -> Option<mpsc::Receiver<()>> {
        let (done, drained) = mpsc::channel();
        let mut inbox = lock(&self.inbox);
        if !inbox.thread_runs {
            return None;
        }
        inbox.messages.push_back(Message::FlushAll(done));
        drop(inbox);
        if self.bell.ring() == Some(true) {
            let _ = futex_wake(self.bell.word(), 1);
        }
        Some(drained)
    }

    /// Tells the disk's thread something.
    pub(crate) fn post(&self, message: Message) {
        lock(&self.inbox).messages.push_back(message);
        if self.bell.ring() == Some(true) {
            let _ = futex_wake(self.bell.word(), 1);
        }
    }

    fn note(&self, note: String) {
        let mut notes = lock(&self.notes);
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}

/// The counters of a disk's files: closed ones summed, open ones each.
#[derive(Debug, Default)]
struct Totals {
    gone: StreamCounters,
    gone_slots: SlotTotals,
    open: HashMap<u32, Arc<Handle>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct SlotTotals {
    bytes_written: u64,
    waits: u64,
    wait_ns: u64,
    kicks: u64,
    kicks_coalesced: u64,
}

impl SlotTotals {
    fn of(handle: &Handle) -> SlotTotals {
        let slot = &handle.slot;
        SlotTotals {
            bytes_written: slot.writes.total(),
            waits: slot.waits.load(Ordering::Relaxed),
            wait_ns: slot.wait_ns.load(Ordering::Relaxed),
            kicks: slot.kicks.load(Ordering::Relaxed),
            kicks_coalesced: slot.kicks_coalesced.load(Ordering::Relaxed),
        }
    }
}

impl Totals {
    fn add_to(&self, stats: &mut Stats) {
        stats.add_counters(&self.gone);
        stats.bytes_written += self.gone_slots.bytes_written;
        stats.waits += self.gone_slots.waits;
        stats.wait_ns += self.gone_slots.wait_ns;
        stats.kicks += self.gone_slots.kicks;
        stats.kicks_coalesced += self.gone_slots.kicks_coalesced;
        for handle in self.open.values() {
            stats.add_counters(&handle.counters());
            stats.add_slot(&handle.slot);
            stats.bytes_written += handle.slot.writes.total();
        }
    }

    fn close(&mut self, number: u32, counters: &StreamCounters) {
        let Some(handle) = self.open.remove(&number) else {
            return;
        };
        let mut sum = Stats::default();
        sum.add_counters(&self.gone);
        sum.add_counters(counters);
        self.gone = sum.to_counters();
        let slot = SlotTotals::of(&handle);
        self.gone_slots.bytes_written += slot.bytes_written;
        self.gone_slots.waits += slot.waits;
        self.gone_slots.wait_ns += slot.wait_ns;
        self.gone_slots.kicks += slot.kicks;
        self.gone_slots.kicks_coalesced += slot.kicks_coalesced;
    }
}
