//! A file that this process has open through the library, as its users and the flusher
//! know it.

pub(crate) mod claims;
pub(crate) mod fetchers;
pub(crate) mod reader;
pub(crate) mod source;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use dropbehind_linux::{FileId, futex_wait, futex_wake};
use dropbehind_policy::residency::ResidencyMap;
use dropbehind_policy::{ByteRange, Mode, StreamConfig, StreamCounters};

use dropbehind_slot::{Due, Pause, Run, Slot, TURN};

use crate::disk_handle::{DiskHandle, Message};
use crate::flusher::Flusher;
use crate::stats::Stats;
use crate::{lock, residency};
use claims::Claims;
pub use reader::Reader;

/// A waiting writer checks this often that its flusher still runs.
const WAIT_STEP: Duration = Duration::from_millis(200);
/// The keeper opens descriptions and does nothing else; longer than this it
/// takes only when it is gone.
const REGISTRATION_PATIENCE: Duration = Duration::from_secs(5);

/// Only larger writes pause each: the time of a small one is less than a sleep can
/// be. Those of a sequential writer wait at the limit, which is seldom; scattered
/// ones, of which the disk takes fewer than the writer makes, pause many at once.
const THROTTLED_BYTES: u64 = 256 << 10;
/// Sleeps are not shorter than this: timers have 50 µs of slack (prctl(2),
/// `PR_SET_TIMERSLACK`).
const PAUSE_MIN: Duration = Duration::from_micros(60);

/// Nor longer for scattered writes: one that is longer than the disk takes for
/// them shows in the tail of their latency, and the next pause comes soon.
const NAP_MAX: Duration = Duration::from_micros(200);

/// How far writers may get ahead on a disk of which nothing is known before the
/// flusher has said anything, which it does at the first batch. Of many programs
/// that start at once none has heard of the others by then.
const UNHEARD_LIMIT_BYTES: u64 = 4 << 20;

const UNREGISTERED: u32 = 0;
const PENDING: u32 = 1;
const REGISTERED: u32 = 2;
const REFUSED: u32 = 3;

/// One open file, as its own side and the flusher know it.
#[derive(Debug)]
pub struct OwnFile {
    pub(crate) slot: Slot,
    pub(crate) number: u32,
    pub(crate) file_id: FileId,
    pub(crate) disk: Arc<DiskHandle>,
    flusher: Flusher,
    config: Mutex<StreamConfig>,
    /// The cache as it was before the first I/O; taken by the registration.
    before: Mutex<Option<ResidencyMap>>,
    looked: AtomicBool,
    /// With the line and not with the file: a lock that another thread holds at
    /// a fork stays held in the child for ever.
    pub reader: Mutex<Reader>,
    pub(crate) claims: Claims,
    registration: AtomicU32,
    settled_word: AtomicU32,
    counters: Mutex<StreamCounters>,
    /// Bytes that readers dropped themselves because the flusher was behind.
    pub(crate) helped_bytes: AtomicU64,
    /// Mode of the last append, whose place only the kernel knows.
    append_mode: AtomicU8,
    /// An fsync of the program's failed, perhaps before the flusher had its description.
    failed_sync: AtomicBool,
    generation: u32,
}

impl OwnFile {
    /// A file on the disk that carries `fd`, whose `st_dev` (`st_rdev` for a block
    /// device) is `device`.
    ///
    /// # Errors
    /// Where the disk cannot be told.
    pub fn new(
        flusher: Flusher,
        fd: BorrowedFd<'_>,
        device: u64,
        file_id: FileId,
        config: StreamConfig,
    ) -> io::Result<OwnFile> {
        let disk = flusher.disk_of(fd, device)?;
        let window_bytes = config.window_bytes.unwrap_or_else(|| disk.window_bytes());
        let batch_bytes = (window_bytes / 4).clamp(4096, 1 << 20);
        let limit_bytes = match disk.bytes_per_second() {
            0 => (2 * window_bytes).min(UNHEARD_LIMIT_BYTES),
            _ => 2 * window_bytes,
        };
        Ok(OwnFile {
            slot: Slot::new(limit_bytes, batch_bytes),
            number: disk.next_number(),
            file_id,
            disk,
            flusher,
            config: Mutex::new(config),
            before: Mutex::new(None),
            looked: AtomicBool::new(false),
            reader: Mutex::new(Reader::new(config.size_bytes)),
            claims: Claims::default(),
            registration: AtomicU32::new(UNREGISTERED),
            settled_word: AtomicU32::new(0),
            counters: Mutex::new(StreamCounters::default()),
            helped_bytes: AtomicU64::new(0),
            append_mode: AtomicU8::new(0),
            failed_sync: AtomicBool::new(false),
            generation: dropbehind_linux::fork_generation(),
        })
    }

    /// False in a child of a fork: the flusher lives in the parent.
    pub fn is_ours(&self) -> bool {
        self.generation == dropbehind_linux::fork_generation()
    }

    /// Looks at the cache before the first I/O that may have to drop.
    pub fn look_before(&self, fd: BorrowedFd<'_>, mode: Mode) {
        if !mode.drops() || self.looked.load(Ordering::Acquire) {
            return;
        }
        let mut before = lock(&self.before);
        if self.looked.load(Ordering::Acquire) {
            return;
        }
        let size_bytes = lock(&self.config).size_bytes;
        *before = Some(residency::map_of_file(fd, size_bytes));
        self.looked.store(true, Ordering::Release);
    }

    /// Notes a write that returned, and does what it makes due.
    pub fn wrote(self: &Arc<Self>, fd: BorrowedFd<'_>, range: ByteRange, bytes: u64, mode: Mode) {
        self.append_mode.store(mode.to_bits(), Ordering::Relaxed);
        let mut counted = bytes;
        let mut due = Due::default();
        for run in Run::covering(range, mode) {
            due = due.and(self.slot.wrote(run, counted));
            counted = 0;
        }
        if due == Due::default() {
            return;
        }
        if due.kick {
            self.register(fd);
            self.kick();
        }
        match due.pause {
            Pause::Wait => self.wait(),
            _ if bytes >= THROTTLED_BYTES => self.pause(bytes),
            Pause::Turn => self.nap(bytes),
            Pause::Nothing => {}
        }
    }

    /// Notes a read that is done with `range`, which it brought in.
    pub(crate) fn read(self: &Arc<Self>, fd: BorrowedFd<'_>, range: ByteRange) {
        let mut kick = false;
        let mut counted = range.len();
        for run in Run::covering(range, Mode::DONTCACHE) {
            kick |= self.slot.read(run, counted);
            counted = 0;
        }
        if kick {
            self.register(fd);
            self.kick();
        }
    }

    /// Wakes the flusher, unless somebody did already.
    pub(crate) fn kick(&self) {
        let slot = &self.slot;
        // The flusher knows a number only once it is attached, and then looks
        // at the slot anyway.
        if self.registration.load(Ordering::Acquire) == REGISTERED {
            self.disk.bell.enlist(self.number, &slot.queued);
        }
        match self.disk.bell.ring() {
            None => {
                slot.kicks_coalesced.fetch_add(1, Ordering::Relaxed);
            }
            Some(asleep) => {
                slot.kicks.fetch_add(1, Ordering::Relaxed);
                if asleep {
                    // Only EFAULT is possible, and the word is ours.
                    let _ = futex_wake(self.disk.bell.word(), 1);
                }
            }
        }
    }

    /// Takes as long as the disk should be given for a write of `bytes` bytes,
    /// or until it has caught up.
    fn pause(&self, bytes: u64) {
        let mut pause = Duration::from_nanos(self.slot.pause_ns(bytes));
        if pause < PAUSE_MIN {
            return;
        }
        let started = Instant::now();
        loop {
            let left = pause.saturating_sub(started.elapsed());
            if left < PAUSE_MIN || self.disk.is_dead() {
                break;
            }
            let seen = self.slot.begin_wait();
            let _ = futex_wait(self.slot.wait_word(), seen, Some(left));
            self.slot.end_wait();
            pause = Duration::from_nanos(self.slot.pause_ns(bytes));
        }
        self.count_wait(started);
    }

    /// A short pause for the last [`TURN`] scattered writes, each like this one of
    /// `bytes` bytes.
    ///
    /// Whoever waits for a futex is woken with each range that is done, which for
    /// scattered ones is all the time: this sleeps on nothing.
    fn nap(&self, bytes: u64) {
        let pause = Duration::from_nanos(self.slot.scattered_pause_ns(bytes * TURN)).min(NAP_MAX);
        if pause < PAUSE_MIN {
            return;
        }
        let started = Instant::now();
        std::thread::sleep(pause);
        self.count_wait(started);
    }

    /// Waits until less than two windows are outstanding.
    fn wait(&self) {
        if self.registration.load(Ordering::Acquire) == REFUSED {
            self.slot.abandon();
            return;
        }
        let started = Instant::now();
        while self.slot.over_limit() && !self.disk.is_dead() {
            let seen = self.slot.begin_wait();
            if self.slot.over_limit() {
                let _ = futex_wait(self.slot.wait_word(), seen, Some(WAIT_STEP));
            }
            self.slot.end_wait();
        }
        self.count_wait(started);
    }

    fn count_wait(&self, started: Instant) {
        let waited = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.slot.waits.fetch_add(1, Ordering::Relaxed);
        self.slot.wait_ns.fetch_add(waited, Ordering::Relaxed);
    }

    /// Lets the flusher open its own description, once there is work.
    fn register(self: &Arc<Self>, fd: BorrowedFd<'_>) {
        if self.registration.load(Ordering::Acquire) != UNREGISTERED {
            return;
        }
        let claimed = self.registration.compare_exchange(
            UNREGISTERED,
            PENDING,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if claimed.is_ok() {
            self.flusher.register(self, fd.as_raw_fd());
        }
    }

    /// The keeper's answer.
    pub(crate) fn registered(&self, accepted: bool) {
        let state = if accepted { REGISTERED } else { REFUSED };
        self.registration.store(state, Ordering::Release);
        if !accepted {
            // Nobody will ever count this stream's pages clean.
            self.slot.abandon();
            let _ = futex_wake(self.slot.wait_word(), u32::MAX >> 1);
        }
        let _ = futex_wake(&self.registration, u32::MAX >> 1);
    }

    /// Waits until the flusher has its own description, if there is work for
    /// it; false when there is none, or no flusher.
    fn await_registration(self: &Arc<Self>, fd: BorrowedFd<'_>) -> bool {
        let pending = self.slot.writes.total() > 0 || self.slot.reads.total() > 0;
        if !pending || !self.is_ours() {
            return false;
        }
        self.register(fd);
        let started = Instant::now();
        loop {
            match self.registration.load(Ordering::Acquire) {
                REGISTERED => return !self.disk.is_dead(),
                PENDING if started.elapsed() < REGISTRATION_PATIENCE => {
                    let _ = futex_wait(&self.registration, PENDING, Some(WAIT_STEP));
                }
                _ => return false,
            }
        }
    }

    pub(crate) fn config(&self) -> StreamConfig {
        *lock(&self.config)
    }

    /// The mode in which was appended last.
    pub(crate) fn append_mode(&self) -> Mode {
        Mode::from_bits(self.append_mode.load(Ordering::Relaxed))
    }

    pub(crate) fn take_before(&self) -> ResidencyMap {
        lock(&self.before).take().unwrap_or_default()
    }

    /// The program closed the file, or hands it away.
    pub fn close(self: &Arc<Self>, fd: BorrowedFd<'_>) {
        if self.await_registration(fd) {
            self.disk.post(Message::Closed(self.number));
        }
    }

    /// The program's fsync returned. After one that failed nothing of the file is dropped.
    pub fn synced(self: &Arc<Self>, fd: BorrowedFd<'_>, failed: bool) {
        if failed {
            self.failed_sync.store(true, Ordering::SeqCst);
        }
        if self.await_registration(fd) {
            self.disk.post(Message::Synced(self.number));
        }
    }

    /// True once it was written to: what passes for clean then may be what the disk never
    /// got. Only the flusher can ask for that, with its own description.
    pub(crate) fn was_written(&self) -> bool {
        self.slot.writes.total() > 0
    }

    pub(crate) fn has_failed_sync(&self) -> bool {
        self.failed_sync.load(Ordering::SeqCst)
    }

    /// The file's size was set.
    pub fn resized(&self, size_bytes: u64) {
        lock(&self.config).size_bytes = size_bytes;
        if self.looked.load(Ordering::Acquire)
            && let Some(before) = lock(&self.before).as_mut()
        {
            before.truncated(size_bytes.next_multiple_of(dropbehind_linux::page_size()));
        }
        if self.registration.load(Ordering::Acquire) == REGISTERED {
            self.disk.post(Message::Resized(self.number, size_bytes));
        }
    }

    /// Waits until all is clean and dropped; false when time ran out first.
    pub fn settle(self: &Arc<Self>, fd: BorrowedFd<'_>, timeout: Duration) -> bool {
        if !self.await_registration(fd) {
            return true;
        }
        let started = Instant::now();
        let mut seen = self.settled_word.load(Ordering::SeqCst);
        self.disk.post(Message::Flush(self.number));
        loop {
            if self.settled_word.load(Ordering::SeqCst) != seen {
                if self.slot.outstanding_bytes() == 0 {
                    return true;
                }
                // Somebody wrote on meanwhile.
                seen = self.settled_word.load(Ordering::SeqCst);
                self.disk.post(Message::Flush(self.number));
            }
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() || self.disk.is_dead() {
                return false;
            }
            let _ = futex_wait(&self.settled_word, seen, Some(left.min(WAIT_STEP)));
        }
    }

    /// The parts of `range` that this file brought in; none when the flusher
    /// cannot be asked.
    pub fn brought_in(self: &Arc<Self>, fd: BorrowedFd<'_>, range: ByteRange) -> Vec<ByteRange> {
        if !self.await_registration(fd) {
            return Vec::new();
        }
        let (answer, asked) = mpsc::channel();
        self.disk.post(Message::Brought(self.number, range, answer));
        asked
            .recv_timeout(REGISTRATION_PATIENCE)
            .unwrap_or_default()
    }

    /// The flusher's side of [`OwnFile::settle`].
    pub(crate) fn announce_settled(&self) {
        self.settled_word.fetch_add(1, Ordering::SeqCst);
        let _ = futex_wake(&self.settled_word, u32::MAX >> 1);
    }

    /// What was done for it; of what was read the file's user counts the bytes.
    pub fn stats(&self) -> Stats {
        let slot = &self.slot;
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Stats {
            bytes_written: slot.writes.total(),
            waits: load(&slot.waits),
            wait_ns: load(&slot.wait_ns),
            kicks: load(&slot.kicks),
            kicks_coalesced: load(&slot.kicks_coalesced),
            ..Stats::from(&*lock(&self.counters))
        }
    }

    pub(crate) fn store_counters(&self, counters: &StreamCounters) {
        *lock(&self.counters) = *counters;
    }
}
