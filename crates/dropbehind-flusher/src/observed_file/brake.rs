//! Holds back processes that write to an observed file faster than its disk.
//!
//! The only way to make another process wait is to hold something that it needs. A [direct
//! read](dropbehind_linux::DirectReader) of data that is not on the disk yet holds the lock
//! that writers need until the data has arrived. The effect is that of the kernel's own dirty
//! limits, for one file.

mod apart;
mod hold;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dropbehind_linux::monotonic_ns;
use dropbehind_policy::brake::{HoldFailures, Load, pause_ns};

use super::unwritten::{Found, UnwrittenCounter, UnwrittenSum};
use super::waits::Waits;
use crate::lock;

use apart::ReaderApart;
pub(super) use hold::Taken;

/// How much the writers of an observed file may be ahead of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterLimit {
    /// So many bytes may be dirty or under writeback in all observed files of the disk together;
    /// one of many may have 1 MiB in any case.
    OfDisk(u64),
    /// While the file is written behind, two windows of it, whatever others have.
    TwoWindows,
}

/// Holds the writers of one file.
#[derive(Debug)]
pub(crate) struct Brake {
    limit: WriterLimit,
    /// The disk's current window, or the file's own.
    window_bytes: Arc<AtomicU64>,
    /// The policy is writing the file behind its writer.
    is_behind: AtomicBool,
    /// `None` once the file is not observed any more: a deleted file's blocks are freed only
    /// when nobody has it open.
    counter: Mutex<Option<UnwrittenCounter>>,
    /// Somebody may have it open.
    open: AtomicBool,
    /// The file is not observed any more.
    stopped: AtomicBool,
    /// The file is watched until then.
    watched_until: Mutex<Instant>,
    /// A thread is holding its writers.
    held: AtomicBool,
    failures: Mutex<HoldFailures>,
    /// Its writers cannot be held. What they have written still counts.
    failed: AtomicBool,
    /// As last counted.
    unwritten_bytes: AtomicU64,
    /// The sum over all files of the disk.
    sum: Arc<UnwrittenSum>,
    waits: Mutex<Waits>,
    /// The devices (`st_dev`) on which programs open such files.
    devices: Vec<u64>,
}

impl Brake {
    pub(super) fn new(
        counter: UnwrittenCounter,
        limit: WriterLimit,
        window_bytes: Arc<AtomicU64>,
        sum: Arc<UnwrittenSum>,
        devices: Vec<u64>,
    ) -> Brake {
        Brake {
            limit,
            window_bytes,
            is_behind: AtomicBool::new(false),
            devices,
            counter: Mutex::new(Some(counter)),
            open: AtomicBool::new(true),
            stopped: AtomicBool::new(false),
            watched_until: Mutex::new(Instant::now()),
            held: AtomicBool::new(false),
            failures: Mutex::default(),
            failed: AtomicBool::new(false),
            unwritten_bytes: AtomicU64::new(0),
            sum,
            waits: Mutex::default(),
        }
    }

    /// Stops it for good. Its descriptions are closed when this returns, or when the work
    /// under way ends.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.counted(0);
        // Whoever has the lock checks `stopped` afterwards.
        if let Ok(mut counter) = self.counter.try_lock() {
            *counter = None;
        }
    }

    /// Returns whether the file is not observed any more.
    pub(super) fn is_over(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Returns whether a limit holds for the file now.
    pub(super) fn is_limited(&self) -> bool {
        !self.is_over() && self.load().limit_bytes < u64::MAX
    }

    /// Watches the file for a while, since it may come near its limit.
    pub(super) fn watch_for(&self, time: Duration) {
        *lock(&self.watched_until) = Instant::now() + time;
    }

    pub(super) fn is_watched(&self) -> bool {
        !self.is_over() && Instant::now() < *lock(&self.watched_until)
    }

    /// How often writers were held, and for how long.
    pub(super) fn waits(&self) -> Waits {
        *lock(&self.waits)
    }

    /// What was unwritten at the last count, and the limit now, which follows the disk's speed as
    /// the window does.
    pub(super) fn load(&self) -> Load {
        let limit_bytes = match self.limit {
            WriterLimit::OfDisk(bytes) => bytes,
            WriterLimit::TwoWindows if self.is_behind.load(Ordering::Relaxed) => {
                self.window_bytes.load(Ordering::Relaxed).saturating_mul(2)
            }
            WriterLimit::TwoWindows => u64::MAX,
        };
        Load {
            limit_bytes,
            own_bytes: self.unwritten_bytes.load(Ordering::Relaxed),
            sum_bytes: self.sum.bytes(),
            writers: self.sum.writers(),
        }
    }

    /// The devices on which programs should not open more files for writing while this much of
    /// closed files is unwritten. Only these hold nobody.
    pub(super) fn devices_in_excess(&self, closed_bytes: u64) -> &[u64] {
        match self.limit {
            WriterLimit::OfDisk(_) if self.load().is_excess(closed_bytes) => &self.devices,
            _ => &[],
        }
    }

    /// Records whether the policy is writing the file behind its writer. If not, nothing has been
    /// requested that the writer could wait for.
    pub(super) fn is_written_behind(&self, written_behind: bool) {
        self.is_behind.store(written_behind, Ordering::Relaxed);
    }

    /// Records a count of what is unwritten.
    pub(super) fn counted(&self, unwritten_bytes: u64) {
        let before = self
            .unwritten_bytes
            .swap(unwritten_bytes, Ordering::Relaxed);
        self.sum.change(before, unwritten_bytes);
    }

    /// Counts what is unwritten; `None` if there is nothing to hold any more. Of a file that was
    /// released, the disk's thread counts that.
    pub(super) fn count(&self) -> Option<Found> {
        if !self.is_counted() {
            return None;
        }
        let found = self.with_counter(|counter| counter.count());
        let found = found.filter(|_| !self.is_over());
        self.counted(found.map_or(0, |found| found.bytes));
        found
    }

    /// Records whether somebody may have it open.
    pub(super) fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Relaxed);
    }

    /// Returns whether somebody may have it open.
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns whether it is counted here.
    pub(super) fn is_counted(&self) -> bool {
        let counter = lock(&self.counter);
        let counter = counter.as_ref();
        counter.is_none_or(|counter| counter.description.is_held())
    }

    /// Takes the right to hold the writers; `None` if another thread has it, or if they
    /// cannot be held.
    pub(super) fn try_take(self: &Arc<Self>) -> Option<Taken> {
        if self.is_over()
            || self.failed.load(Ordering::SeqCst)
            || !lock(&self.failures).may_try(monotonic_ns())
        {
            return None;
        }
        let taken = self.held.swap(true, Ordering::SeqCst);
        (!taken).then(|| Taken {
            brake: Arc::clone(self),
        })
    }

    fn reader(&self) -> io::Result<Option<ReaderApart>> {
        let file = self.with_counter(|counter| Some(counter.description.open()));
        let reader = file.map(|file| file.and_then(ReaderApart::start));
        reader.transpose()
    }

    /// Calls `what` with the counter. If the brake was stopped meanwhile, closes the counter.
    fn with_counter<R>(&self, what: impl FnOnce(&mut UnwrittenCounter) -> Option<R>) -> Option<R> {
        let result = lock(&self.counter).as_mut().and_then(what);
        if self.is_over() {
            *lock(&self.counter) = None;
        }
        result
    }
}

/// How long to wait after a count that took this much of a processor; see [`pause_ns`].
pub(super) fn pause(cost: Duration, room_ns: u64, near: bool) -> Duration {
    let cost_ns = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(pause_ns(cost_ns, room_ns, near))
}

impl Drop for Brake {
    fn drop(&mut self) {
        self.counted(0);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use dropbehind_linux::Description;
    use dropbehind_testbed::Scratch;

    use super::*;

    pub(super) const MIB: u64 = 1 << 20;
    pub(super) const LIMIT_BYTES: u64 = 64 * MIB;

    pub(super) fn brake(path: &Path, sum: &Arc<UnwrittenSum>) -> Arc<Brake> {
        let file = Description::held(File::open(path).unwrap().into());
        let counter = UnwrittenCounter::new(Arc::new(file));
        let limit = WriterLimit::OfDisk(LIMIT_BYTES);
        let (window_bytes, sum) = (Arc::default(), Arc::clone(sum));
        Arc::new(Brake::new(counter, limit, window_bytes, sum, Vec::new()))
    }

    pub(super) fn new_file(scratch: &Scratch, name: &str) -> File {
        File::create_new(scratch.file(name)).unwrap()
    }

    #[test]
    fn the_brakes_of_a_disk_share_one_sum() {
        let scratch = Scratch::new().unwrap();
        new_file(&scratch, "one");
        let sum = Arc::default();
        let brakes: Vec<_> = (0..16).map(|_| brake(&scratch.file("one"), &sum)).collect();
        for brake in &brakes {
            brake.counted(7 * MIB);
        }
        assert!(brakes.iter().all(|brake| brake.load().is_beyond()));
        drop(brakes);
        assert_eq!((sum.bytes(), sum.writers()), (0, 0));
    }
}
