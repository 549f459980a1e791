//! A file that this process has open through the library, as its users and the flusher see
//! it.

mod appends;
pub(crate) mod claims;
pub(crate) mod fetchers;
mod looks;
pub(crate) mod reader;
pub(crate) mod source;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use dropbehind_linux::{FileId, futex_wait, futex_wake};
use dropbehind_policy::residency::ResidencyMap;
use dropbehind_policy::{ByteRange, Mode, Stats, StreamConfig};

use dropbehind_slot::{Due, Pause, Run, Slot, TURN};

use crate::disk_handle::{DiskHandle, Message};
use crate::flusher::Flusher;
use crate::trace::Label;
use crate::{lock, residency};
use appends::Appends;
use claims::Claims;
pub use claims::Dropping;
pub use looks::CachedBefore;
pub use reader::Reader;

/// A waiting writer checks this often that its flusher is still alive.
const WAIT_STEP: Duration = Duration::from_millis(200);
/// The keeper opens descriptions, and waits for descriptors if there are none. If it takes longer
/// than this, the file is left to the kernel.
const REGISTRATION_PATIENCE: Duration = Duration::from_secs(5);

/// Writes of at least this much pause one by one,
const THROTTLED_BYTES: u64 = 256 << 10;
/// and so do smaller ones, down to this,
const THROTTLED_MIN_BYTES: u64 = 16 << 10;
/// if the disk takes so long for one, as it does when many programs share it. Otherwise, the
/// pause would be shorter than the shortest sleep. A sequential writer's small writes wait at
/// the limit, which is rare. Scattered ones, which the disk takes more slowly than the writer
/// makes them, pause many at once.
const THROTTLED_NS: u64 = 200_000;
/// No sleep is shorter than this: timers have 50 µs of slack (prctl(2), `PR_SET_TIMERSLACK`).
const PAUSE_MIN: Duration = Duration::from_micros(60);

/// No pause of scattered writes is longer than this. If it outlasts the disk's work on them,
/// it shows in their tail latency, and the next pause comes soon anyway.
const NAP_MAX: Duration = Duration::from_micros(200);

/// How far writers may get ahead on a disk about which nothing is known, until the flusher
/// publishes its first limit, which it does at the first batch. By then, many programs that
/// start at once have not noticed each other.
const UNHEARD_LIMIT_BYTES: u64 = 1 << 20;

const UNREGISTERED: u32 = 0;
const PENDING: u32 = 1;
const REGISTERED: u32 = 2;
const REFUSED: u32 = 3;

/// Of a thread that waits until a file is settled: a futex, which is 1 once it is.
pub(crate) type Settled = Arc<AtomicU32>;

/// One open file, as its users and the flusher see it.
#[derive(Debug)]
pub struct OwnFile {
    pub(crate) slot: Slot,
    pub(crate) number: u32,
    pub(crate) file_id: FileId,
    pub(crate) disk: Arc<DiskHandle>,
    flusher: Flusher,
    config: Mutex<StreamConfig>,
    /// The cache before the first I/O that may have to drop. The flusher takes it.
    before: Mutex<Option<ResidencyMap>>,
    /// The flusher has not taken it yet.
    before_is_new: AtomicBool,
    /// When a reader looked (`CLOCK_MONOTONIC`); 0 before that, and [`WRITER_LOOKED`] once a writer
    /// has.
    looked_ns: AtomicU64,
    /// Here and not in the library's file: after a fork, the child's files get new handles. A
    /// lock that another thread held at the fork would stay locked in the child forever.
    pub reader: Mutex<Reader>,
    /// Held during a read, write or seek at the position: the next one must know where it is then.
    pub turns: Mutex<()>,
    pub(crate) claims: Claims,
    /// The file in records that do not come from its flusher.
    pub(crate) label: Label,
    registration: AtomicU32,
    counters: Mutex<Stats>,
    /// Bytes that readers found cached: all that is kept, while they have brought in none. Not below
    /// the reader's lock, which is held while the disk reads.
    found_bytes: AtomicU64,
    /// Bytes that readers dropped themselves because the flusher was behind.
    pub(crate) helped_bytes: AtomicU64,
    appends: Mutex<Appends>,
    /// Where the file ended when somebody looked, or the furthest write since then.
    furthest: AtomicU64,
    /// See [`OwnFile::sees_cached`].
    looks: OnceLock<bool>,
    /// Pages that the program did not write were reported as written: the kernel zeroed them, or a failed
    /// write brought them in.
    zeroed: AtomicBool,
    /// The mode of the last write.
    last_mode: AtomicU8,
    /// The program closed it before the flusher had its description.
    closed_early: AtomicBool,
    /// The program has taken it back, and may have it open.
    given_back: AtomicBool,
    generation: u32,
}

impl OwnFile {
    /// A file on the disk that carries `fd`, whose `st_dev` (`st_rdev` for a block
    /// device) is `device`.
    ///
    /// # Errors
    /// If the disk cannot be determined.
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
            before_is_new: AtomicBool::new(false),
            looked_ns: AtomicU64::new(0),
            reader: Mutex::new(Reader::new(config.size_bytes, config.random)),
            turns: Mutex::default(),
            claims: Claims::default(),
            label: Label::default(),
            registration: AtomicU32::new(UNREGISTERED),
            counters: Mutex::new(Stats::default()),
            found_bytes: AtomicU64::new(0),
            helped_bytes: AtomicU64::new(0),
            appends: Mutex::default(),
            furthest: AtomicU64::new(0),
            looks: OnceLock::new(),
            zeroed: AtomicBool::new(false),
            last_mode: AtomicU8::new(0),
            closed_early: AtomicBool::new(false),
            given_back: AtomicBool::new(false),
            generation: dropbehind_linux::fork_generation(),
        })
    }

    /// Has all disks finish their closed files: those share one descriptor table.
    pub(crate) fn finish_closed_files(&self) {
        for disk in self.flusher.disks() {
            disk.finish_closed_files();
        }
    }

    /// Returns false in the child of a fork: the flusher runs in the parent.
    pub fn is_ours(&self) -> bool {
        self.generation == dropbehind_linux::fork_generation()
    }

    /// Does what is due after a write of `bytes` bytes.
    pub fn slow_down(&self, due: Due, bytes: u64) {
        if due == Due::default() {
            return;
        }
        match due.pause {
            Pause::Wait => self.wait_for_room(),
            _ if self.pauses_for(bytes) => self.pause(bytes),
            Pause::Turn => self.nap(bytes),
            Pause::Nothing => {}
        }
    }

    /// Reports a write that has returned, without waiting for anything. Returns what was due: the
    /// flusher is awake already, but the writer is to slow down.
    pub fn tell_written(
        self: &Arc<Self>,
        fd: BorrowedFd<'_>,
        range: ByteRange,
        bytes: u64,
        mode: Mode,
    ) -> Due {
        self.last_mode.store(mode.to_bits(), Ordering::Relaxed);
        let due = self.push_written(Run::covering(range, mode), bytes);
        self.told(fd, due)
    }

    /// Puts the runs of a write of `bytes` bytes into the slot. There may be none: far out, and if
    /// another thread moved the position meanwhile.
    fn push_written(&self, runs: impl Iterator<Item = Run>, bytes: u64) -> Due {
        let mut uncounted = Some(bytes);
        let mut due = Due::default();
        for run in runs {
            due = due.and(self.slot.wrote(run, uncounted.take().unwrap_or(0)));
        }
        match uncounted {
            Some(bytes) => due.and(self.slot.wrote_somewhere(bytes)),
            None => due,
        }
    }

    fn told(self: &Arc<Self>, fd: BorrowedFd<'_>, due: Due) -> Due {
        if due.kick {
            self.register(fd);
            self.kick();
        }
        due
    }

    /// Returns whether writers are to wait.
    pub fn is_over_limit(&self) -> bool {
        self.slot.over_limit() && !self.disk.is_dead()
    }

    /// Announces a read of `range`, in whole pages: none of it is dropped before
    /// [`OwnFile::read_done`]. Returns the parts that are in the file and not cached.
    pub fn will_read(&self, fd: BorrowedFd<'_>, range: ByteRange) -> Vec<ByteRange> {
        self.claims.claim(range);
        let size_bytes = dropbehind_linux::size_bytes(fd).unwrap_or(0);
        let inside = range.intersection(residency::whole(size_bytes));
        match self.reader.try_lock() {
            Ok(mut reader) => reader.look(fd, self, inside),
            // Another thread's read waits for the disk; this one must not. It counts nothing as kept.
            Err(_) => residency::absent_in(fd, inside),
        }
    }

    /// A read that was announced is over; it brought in `brought`.
    pub fn read_done(
        self: &Arc<Self>,
        fd: BorrowedFd<'_>,
        range: ByteRange,
        brought: Vec<ByteRange>,
    ) {
        self.claims.release(range);
        let _one_at_a_time = lock(&self.reader);
        for part in brought {
            self.read(fd, part);
        }
    }

    /// Reports a finished read, which had brought in `range`. The caller holds the reader's lock:
    /// the ring has room for a single thread that asks first, and so it loses nothing. Of a
    /// range that is only known to lie somewhere in a span, our pages cannot be told from
    /// others'.
    pub(crate) fn read(self: &Arc<Self>, fd: BorrowedFd<'_>, range: ByteRange) {
        let reads = &self.slot.reads;
        let mut kick = false;
        let mut counted = range.len();
        for run in Run::covering(range, Mode::DONTCACHE) {
            if reads.has_room() {
                kick |= self.slot.read(run, counted);
            } else {
                // The reader is far ahead of the flusher.
                reads.count(counted);
                if self.await_registration(fd) {
                    self.disk.post(Message::Read(self.number, run.range()));
                }
            }
            counted = 0;
        }
        if kick {
            self.register(fd);
            self.kick();
        }
    }

    /// Wakes the flusher, unless that has been done already.
    pub(crate) fn kick(&self) {
        let slot = &self.slot;
        // The flusher knows the number only after it attaches the file, and then drains the
        // slot anyway.
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

    /// Returns whether a write of `bytes` bytes pauses by itself.
    fn pauses_for(&self, bytes: u64) -> bool {
        bytes >= THROTTLED_BYTES
            || bytes >= THROTTLED_MIN_BYTES && self.slot.disk_ns(bytes) >= THROTTLED_NS
    }

    /// Sleeps for as long as the disk should get for a write of `bytes` bytes, or until the
    /// disk has caught up.
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

    /// Pauses briefly for the last [`TURN`] scattered writes, each of about `bytes` bytes.
    ///
    /// A futex waiter is woken for each range that is done. With scattered writes that is all
    /// the time, so this just sleeps.
    fn nap(&self, bytes: u64) {
        let pause = Duration::from_nanos(self.slot.scattered_pause_ns(bytes * TURN)).min(NAP_MAX);
        if pause < PAUSE_MIN {
            return;
        }
        let started = Instant::now();
        std::thread::sleep(pause);
        self.count_wait(started);
    }

    /// Waits until no more than the limit is outstanding.
    pub fn wait_for_room(&self) {
        if self.is_refused() {
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

    /// Has the flusher open its own description, once there is work.
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

    /// Records the keeper's answer.
    pub(crate) fn registered(&self, accepted: bool) {
        let state = if accepted { REGISTERED } else { REFUSED };
        self.registration.store(state, Ordering::SeqCst);
        if !accepted {
            // No flusher will ever count this stream's pages as clean.
            self.slot.abandon();
            let _ = futex_wake(self.slot.wait_word(), u32::MAX >> 1);
        }
        let _ = futex_wake(&self.registration, u32::MAX >> 1);
        self.tell_closed_early();
    }

    fn tell_closed_early(&self) {
        let registration = self.registration.load(Ordering::SeqCst);
        let is_answered = matches!(registration, REGISTERED | REFUSED);
        if is_answered && self.closed_early.swap(false, Ordering::SeqCst) {
            match registration {
                REGISTERED => self.disk.post(Message::Closed(self.number)),
                _ => lock(&self.disk.totals).close(self.number),
            }
        }
    }

    fn has_work(&self) -> bool {
        // Pages may have been reported without any bytes.
        let is_known = self.registration.load(Ordering::Acquire) != UNREGISTERED;
        is_known || self.slot.writes.total() > 0 || self.slot.reads.total() > 0
    }

    /// Waits until the flusher has its own description, if there is work for it. Returns
    /// false if there is none, or no flusher.
    fn await_registration(self: &Arc<Self>, fd: BorrowedFd<'_>) -> bool {
        if !self.has_work() || !self.is_ours() {
            return false;
        }
        self.register(fd);
        self.await_keeper()
    }

    /// Waits until the flusher has its own description, if it is about to get one: it opens that by a
    /// descriptor of the program's, perhaps the one that the caller closes next.
    pub fn await_open(&self) {
        if self.registration.load(Ordering::Acquire) == PENDING {
            self.await_keeper();
        }
    }

    /// Waits for the keeper's answer. Returns false if there is none in time, or no flusher.
    fn await_keeper(&self) -> bool {
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

    /// Tells the flusher that the program takes the file back, and may keep it open: without a name,
    /// its pages are still in use.
    pub fn give_back(self: &Arc<Self>, fd: BorrowedFd<'_>) {
        self.given_back.store(true, Ordering::SeqCst);
        self.close(fd);
    }

    pub(crate) fn was_given_back(&self) -> bool {
        self.given_back.load(Ordering::SeqCst)
    }

    /// Tells the flusher that the program closed the file. No read is under way any more, even if
    /// one was announced.
    pub fn close(self: &Arc<Self>, fd: BorrowedFd<'_>) {
        self.claims.release_all();
        self.end_appends(fd);
        if self.await_registration(fd) {
            self.tell_found();
            self.disk.post(Message::Closed(self.number));
        } else {
            // The keeper may still wait for the file's server.
            self.closed_early.store(true, Ordering::SeqCst);
            self.tell_closed_early();
        }
    }

    fn is_refused(&self) -> bool {
        self.registration.load(Ordering::SeqCst) == REFUSED
    }

    /// Tells the flusher that the program's fsync returned.
    pub fn synced(self: &Arc<Self>, fd: BorrowedFd<'_>) {
        if self.await_registration(fd) {
            self.disk.post(Message::Synced(self.number));
        }
    }

    /// Returns whether pages of the file were reported as written, even if the kernel only zeroed its
    /// last one. If so, pages that look clean may be ones that the disk never got. Only the flusher can
    /// ask about that, through its own description.
    pub(crate) fn was_written(&self) -> bool {
        self.slot.writes.total() > 0 || self.zeroed.load(Ordering::SeqCst)
    }

    /// Tells the flusher that the file's size was set.
    fn tell_resized(&self, size_bytes: u64) {
        lock(&self.config).size_bytes = size_bytes;
        self.furthest.store(size_bytes, Ordering::Relaxed);
        if self.looked_ns.load(Ordering::Acquire) != 0
            && let Some(before) = lock(&self.before).as_mut()
        {
            before.truncated(size_bytes.next_multiple_of(dropbehind_linux::page_size()));
        }
        let registration = self.registration.load(Ordering::Acquire);
        // The keeper may have taken the size of before just now.
        if registration != UNREGISTERED && self.await_keeper() {
            self.disk.post(Message::Resized(self.number, size_bytes));
        }
    }

    /// Waits until everything is clean and dropped. Returns false if time runs out first, or if
    /// the file is left to the kernel.
    pub fn settle(self: &Arc<Self>, fd: BorrowedFd<'_>, timeout: Duration) -> bool {
        let started = Instant::now();
        lock(&self.reader).settle(fd, self);
        if !self.await_registration(fd) {
            return !self.has_work();
        }
        self.tell_found();
        let settled = Settled::default();
        self.disk
            .post(Message::Flush(self.number, Settled::clone(&settled)));
        loop {
            let left = timeout.saturating_sub(started.elapsed());
            let _ = futex_wait(&settled, 0, Some(left.min(WAIT_STEP)));
            if settled.load(Ordering::SeqCst) != 0 {
                return true;
            }
            if left.is_zero() || self.disk.is_dead() {
                return false;
            }
            // Other threads may have read ahead since, and read no further.
            lock(&self.reader).settle(fd, self);
        }
    }

    /// Tells the flusher what was cached before it was read.
    fn tell_found(&self) {
        let found = lock(&self.reader).take_found();
        if !found.is_empty() {
            let found = found.iter().collect();
            self.disk.post(Message::FoundCached(self.number, found));
        }
    }

    /// The parts of `range` that this file brought in, without those that a read or write is about to
    /// use; none if the flusher cannot be asked.
    pub fn brought_in(self: &Arc<Self>, fd: BorrowedFd<'_>, range: ByteRange) -> Vec<ByteRange> {
        if !self.await_registration(fd) {
            return Vec::new();
        }
        let (answer, asked) = mpsc::channel();
        self.disk.post(Message::Brought(self.number, range, answer));
        let ours = asked
            .recv_timeout(REGISTRATION_PATIENCE)
            .unwrap_or_default();
        ours.into_iter()
            .flat_map(|part| self.claims.unclaimed_of(part))
            .collect()
    }

    /// Starts a drop of `range`, which lasts until the result is dropped; `None` if a read or write is
    /// about to use any of it.
    pub fn begin_drop(&self, range: ByteRange) -> Option<Dropping<'_>> {
        self.claims.begin_drop(range)
    }

    /// The file's counters. The bytes read are not included: the library's file counts those.
    pub fn stats(&self) -> Stats {
        let slot = &self.slot;
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut counters = *lock(&self.counters);
        if !self.has_work() {
            counters.kept_bytes = load(&self.found_bytes);
        }
        if self.is_refused() {
            let mode = Mode::from_bits(self.last_mode.load(Ordering::Relaxed));
            let written = slot.writes.total() * u64::from(mode.drops());
            let brought = written + slot.reads.total();
            counters.brought_bytes = brought.next_multiple_of(dropbehind_linux::page_size());
            // Its readers drop behind themselves.
            counters.dropped_bytes = load(&self.helped_bytes).min(counters.brought_bytes);
            counters.left_bytes = counters.brought_bytes - counters.dropped_bytes;
        }
        Stats {
            bytes_written: slot.writes.total(),
            waits: load(&slot.waits),
            wait_ns: load(&slot.wait_ns),
            kicks: load(&slot.kicks),
            kicks_coalesced: load(&slot.kicks_coalesced),
            ..counters
        }
    }

    pub(crate) fn store_counters(&self, counters: &Stats) {
        *lock(&self.counters) = *counters;
    }
}
