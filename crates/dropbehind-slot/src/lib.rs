//! The memory that the writers and the flusher of an open file share.
//!
//! A [`Slot`] is plain `repr(C)` memory made of atomics, without pointers. So the same slot
//! works on the heap of one process and in memory shared between processes. The writer's side
//! is our only code on a program's write path: a few atomic operations, no lock, no
//! allocation, and no system call unless a batch is due.
//!
//! | part | written by | read by |
//! |---|---|---|
//! | [`Lane`]: ranges and their byte count | writers | flusher |
//! | `done`, `limit`, `batch`, `speed`, `quiet` | flusher | writers |
//! | `wait` (a futex), `waiters` | both | both |
//! | [`Doorbell`]: one word a disk | both | both |

#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(loom, test))]
extern crate std;

mod doorbell;
mod lane;
mod run;

pub use doorbell::{Doorbell, NOBODY, Queued};
pub use lane::{Drained, Lane, Pushed, TURN};
pub use run::Run;

use dropbehind_policy::throttle;

use atomic::{AtomicU32, AtomicU64, Ordering, total_order};

/// The atomics of this build: the model checker's or the real ones.
pub(crate) mod atomic {
    #[cfg(not(loom))]
    pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    #[cfg(loom)]
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    /// Marks a place where two sides each store one word and then load the other's, and one
    /// of them must see the other's store. All four accesses are `SeqCst`, which is enough.
    /// The model checker treats `SeqCst` accesses as weaker ones, and needs a fence.
    #[inline(always)]
    pub(crate) fn total_order() {
        #[cfg(loom)]
        fence(Ordering::SeqCst);
    }
}

/// How many ranges a writer may be ahead of the flusher. Random 4 KiB writes make one range
/// each: 1024 are four batches of 1 MiB.
#[cfg(not(loom))]
pub const WRITE_RING: usize = 1024;
/// Reads report whole readahead chunks, so few are enough.
#[cfg(not(loom))]
pub const READ_RING: usize = 64;
/// Small enough for the model checker to fill.
#[cfg(loom)]
pub const WRITE_RING: usize = 2;
/// Small enough for the model checker to fill.
#[cfg(loom)]
pub const READ_RING: usize = 2;

/// One open file, as shared by its writers and its flusher.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    /// Ranges written.
    pub writes: Lane<WRITE_RING>,
    /// Ranges that reads brought into the cache and are done with.
    pub reads: Lane<READ_RING>,
    /// Of the bytes counted in `writes`, those that writers need not wait for.
    done: AtomicU64,
    /// Writers wait while more bytes than this are outstanding.
    limit: AtomicU64,
    /// The flusher is kicked after every this many bytes.
    batch: AtomicU64,
    /// Bytes per second that the disk writes for this file; 0 if unknown.
    speed: AtomicU64,
    /// The total at the last kick.
    kicked_at: AtomicU64,
    /// Bytes that reads brought in and that have been dropped.
    reads_done: AtomicU64,
    /// If not zero, the flusher knows of nothing here and has set no timer.
    quiet: AtomicU32,
    /// A futex; changes when `done` or `limit` has grown.
    wait: AtomicU32,
    /// Writers that wait, or are about to.
    waiters: AtomicU32,
    /// The slot's place in the doorbell's queue.
    pub queued: Queued,
    /// Times a writer waited or paused.
    pub waits: AtomicU64,
    /// Nanoseconds that writers waited or paused.
    pub wait_ns: AtomicU64,
    /// Kicks given to the flusher.
    pub kicks: AtomicU64,
    /// Kicks that found another one pending.
    pub kicks_coalesced: AtomicU64,
}

/// What the writer has to do after it has reported a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Wake the flusher.
    pub kick: bool,
    /// Then check whether to slow down.
    pub pause: Pause,
}

/// How a writer may have to slow down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pause {
    /// Not at all.
    #[default]
    Nothing,
    /// [`TURN`] writes went to different places: see [`Slot::scattered_pause_ns`] for all of
    /// them.
    Turn,
    /// Wait until less is outstanding.
    Wait,
}

impl Due {
    /// What is due for two writes together.
    pub fn and(self, other: Due) -> Due {
        Due {
            kick: self.kick || other.kick,
            pause: self.pause.max(other.pause),
        }
    }
}

impl Slot {
    /// An empty slot, whose first write will kick.
    pub fn new(limit_bytes: u64, batch_bytes: u64) -> Slot {
        Slot {
            writes: Lane::new(),
            reads: Lane::new(),
            done: AtomicU64::new(0),
            limit: AtomicU64::new(limit_bytes),
            batch: AtomicU64::new(batch_bytes),
            speed: AtomicU64::new(0),
            kicked_at: AtomicU64::new(0),
            reads_done: AtomicU64::new(0),
            quiet: AtomicU32::new(1),
            wait: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            queued: Queued::new(),
            waits: AtomicU64::new(0),
            wait_ns: AtomicU64::new(0),
            kicks: AtomicU64::new(0),
            kicks_coalesced: AtomicU64::new(0),
        }
    }

    // ---- the writer's side --------------------------------------------------

    /// Reports that `bytes` bytes were written to the pages of `run`.
    pub fn wrote(&self, run: Run, bytes: u64) -> Due {
        let pushed = self.writes.push(run);
        self.counted(bytes, pushed)
    }

    /// Reports that `bytes` bytes were written somewhere.
    pub fn wrote_somewhere(&self, bytes: u64) -> Due {
        self.counted(bytes, Pushed::default())
    }

    fn counted(&self, bytes: u64, Pushed { crowded, turn }: Pushed) -> Due {
        let total = self.writes.count(bytes);
        total_order();
        if self.outstanding_of(total) > self.limit.load(Ordering::Relaxed) {
            return Due {
                kick: true,
                pause: Pause::Wait,
            };
        }
        let kicked_at = self.kicked_at.load(Ordering::Relaxed);
        let batch = self.batch.load(Ordering::Relaxed);
        let kick = crowded || total.wrapping_sub(kicked_at) >= batch || self.is_quiet();
        if kick {
            self.kicked_at.store(total, Ordering::Relaxed);
        }
        let pause = if turn { Pause::Turn } else { Pause::Nothing };
        Due { kick, pause }
    }

    /// Reports that reads brought in the pages of `run` and are done with them. Returns
    /// whether to wake the flusher.
    pub fn read(&self, run: Run, bytes: u64) -> bool {
        let Pushed { crowded, .. } = self.reads.push(run);
        self.reads.count(bytes);
        total_order();
        crowded || self.is_quiet() || self.undropped_bytes() >= READ_KICK_BYTES
    }

    /// Bytes written that are not done yet.
    pub fn outstanding_bytes(&self) -> u64 {
        self.outstanding_of(self.writes.total())
    }

    fn outstanding_of(&self, total: u64) -> u64 {
        total.saturating_sub(self.done.load(Ordering::SeqCst))
    }

    /// Bytes that reads brought in and that are not known to be dropped.
    pub fn undropped_bytes(&self) -> u64 {
        self.reads
            .total()
            .saturating_sub(self.reads_done.load(Ordering::Acquire))
    }

    /// Returns whether a writer has to wait.
    pub fn over_limit(&self) -> bool {
        self.outstanding_bytes() > self.limit.load(Ordering::SeqCst)
    }

    /// How long a write of `bytes` bytes should currently take; see [`throttle::pause_ns`].
    pub fn pause_ns(&self, bytes: u64) -> u64 {
        self.pause_beyond_ns(throttle::FREE_EIGHTHS, bytes)
    }

    /// The same for scattered writes of `bytes` bytes in total.
    pub fn scattered_pause_ns(&self, bytes: u64) -> u64 {
        self.pause_beyond_ns(throttle::SCATTERED_FREE_EIGHTHS, bytes)
    }

    /// How long the disk takes for `bytes` bytes of this writer; 0 while that is unknown.
    pub fn disk_ns(&self, bytes: u64) -> u64 {
        let speed = self.speed.load(Ordering::Relaxed);
        bytes
            .saturating_mul(1_000_000_000)
            .checked_div(speed)
            .unwrap_or(0)
    }

    fn pause_beyond_ns(&self, free_eighths: u64, bytes: u64) -> u64 {
        let limit = self.limit.load(Ordering::Relaxed);
        let speed = self.speed.load(Ordering::Relaxed);
        let outstanding = self.outstanding_bytes();
        throttle::pause_ns(bytes, outstanding, limit, speed, free_eighths)
    }

    /// Announces a waiter. Returns the value to wait on. Check [`Slot::over_limit`] or
    /// [`Slot::pause_ns`] once more before waiting.
    pub fn begin_wait(&self) -> u32 {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        total_order();
        self.wait.load(Ordering::SeqCst)
    }

    /// Withdraws a waiter.
    pub fn end_wait(&self) {
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// The futex word that waiters wait on.
    pub fn wait_word(&self) -> &AtomicU32 {
        &self.wait
    }

    /// Returns whether the flusher knows of nothing here.
    pub fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::SeqCst) != 0
    }

    // ---- the flusher's side -------------------------------------------------

    /// Publishes how many bytes writers need not wait for. Returns whether to wake waiters on
    /// [`Slot::wait_word`].
    pub fn publish_done(&self, done: u64) -> bool {
        if self.done.load(Ordering::Relaxed) == done {
            return false;
        }
        self.done.store(done, Ordering::SeqCst);
        self.release_waiters()
    }

    /// Returns whether anybody may be asleep on [`Slot::wait_word`].
    fn release_waiters(&self) -> bool {
        total_order();
        if self.waiters.load(Ordering::SeqCst) == 0 {
            return false;
        }
        self.wait.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// Publishes how many of the bytes that reads brought in have been dropped.
    pub fn publish_reads_done(&self, done: u64) {
        self.reads_done.store(done, Ordering::Release);
    }

    /// Publishes what follows from the disk's speed and from what waits to be dropped.
    /// Returns whether to wake waiters on [`Slot::wait_word`], since there is more room.
    pub fn publish_pace(&self, limit_bytes: u64, batch_bytes: u64, bytes_per_second: u64) -> bool {
        self.batch.store(batch_bytes, Ordering::Relaxed);
        self.speed.store(bytes_per_second, Ordering::Relaxed);
        if limit_bytes <= self.limit.load(Ordering::Relaxed) {
            self.limit.store(limit_bytes, Ordering::Relaxed);
            return false;
        }
        self.limit.store(limit_bytes, Ordering::SeqCst);
        self.release_waiters()
    }

    /// Marks the slot quiet: the flusher is about to know of nothing here. Returns false if a
    /// write came in between, so that the flusher must drain again.
    pub fn try_quiet(&self, written_total: u64, read_total: u64) -> bool {
        self.quiet.store(1, Ordering::SeqCst);
        total_order();
        if self.writes.total() == written_total && self.reads.total() == read_total {
            return true;
        }
        self.quiet.store(0, Ordering::SeqCst);
        false
    }

    /// The flusher drains this slot by itself until the next [`Slot::try_quiet`].
    pub fn attend(&self) {
        if self.quiet.load(Ordering::Relaxed) != 0 {
            self.quiet.store(0, Ordering::SeqCst);
        }
    }

    /// Lets all writers go on, for good: there is no flusher any more.
    pub fn abandon(&self) {
        self.limit.store(u64::MAX, Ordering::SeqCst);
        self.batch.store(u64::MAX, Ordering::SeqCst);
        self.quiet.store(0, Ordering::SeqCst);
        self.wait.fetch_add(1, Ordering::SeqCst);
    }
}

/// Reads kick the flusher from this many undropped bytes on: enough for one drop.
const READ_KICK_BYTES: u64 = dropbehind_policy::drop_planner::STEP_BYTES;
