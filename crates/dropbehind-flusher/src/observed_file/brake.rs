//! Makes those wait who write to an observed file faster than its disk.
//!
//! Nobody can make another process wait without holding something it needs. A
//! [direct read](dropbehind_linux::DirectReader) of what is not on the disk yet
//! holds the lock that writers need, until that has arrived; the effect is that
//! of the kernel's own limits of dirty pages, for one file.

mod hold;

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dropbehind_linux::DirectReader;

use super::hold_failures::HoldFailures;
use super::unwritten::{Unwritten, UnwrittenCounter, UnwrittenSum};
use crate::lock;

pub(super) use hold::Taken;

/// One of many files may have this much unwritten,
const SHARE_BYTES: u64 = 8 << 20;
/// and where that is too much for all of them together, this: each that is held
/// has a thread.
const SHARE_MIN_BYTES: u64 = 1 << 20;
/// A file of which this share of the limit is unwritten is watched, or of which
/// anything is where all together have half of it.
const WATCHED: u64 = 8;

/// Files are counted again as soon as writers can have come to the limit, at this
/// speed,
const WRITERS_BYTES_PER_MS: u64 = 8 << 20;
/// but no more often than this,
pub(super) const LOOK_MIN: Duration = Duration::from_millis(1);
/// and no less often than this.
pub(super) const LOOK_MAX: Duration = Duration::from_millis(8);

/// What holds the writers of one file.
#[derive(Debug)]
pub(crate) struct Brake {
    limit_bytes: u64,
    /// `None` once the file is not looked after any more: a deleted file's blocks
    /// are free when nobody has it open.
    counter: Mutex<Option<UnwrittenCounter>>,
    /// It is not looked after any more.
    stopped: AtomicBool,
    /// It is watched up to then.
    watched_until: Mutex<Instant>,
    /// Somebody is at it.
    held: AtomicBool,
    failures: Mutex<HoldFailures>,
    /// Its writers cannot be held.
    failed: AtomicBool,
    /// As last counted.
    unwritten_bytes: AtomicU64,
    /// Of all files of the disk.
    sum: Arc<UnwrittenSum>,
    waits: AtomicU64,
    wait_ns: AtomicU64,
}

impl Brake {
    pub(super) fn new(
        counter: UnwrittenCounter,
        limit_bytes: u64,
        sum: Arc<UnwrittenSum>,
    ) -> Brake {
        Brake {
            limit_bytes,
            counter: Mutex::new(Some(counter)),
            stopped: AtomicBool::new(false),
            watched_until: Mutex::new(Instant::now()),
            held: AtomicBool::new(false),
            failures: Mutex::default(),
            failed: AtomicBool::new(false),
            unwritten_bytes: AtomicU64::new(0),
            sum,
            waits: AtomicU64::new(0),
            wait_ns: AtomicU64::new(0),
        }
    }

    /// Ends it for good. Its descriptions are closed when this returns, or when
    /// what is under way does.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.counted(0);
        // Whoever has it looks again.
        if let Ok(mut counter) = self.counter.try_lock() {
            *counter = None;
        }
    }

    /// True when it holds nobody any more.
    pub(super) fn is_over(&self) -> bool {
        self.stopped.load(Ordering::SeqCst) || self.failed.load(Ordering::SeqCst)
    }

    /// It may come near its limit from now on.
    pub(super) fn watch_for(&self, time: Duration) {
        *lock(&self.watched_until) = Instant::now() + time;
    }

    pub(super) fn is_watched(&self) -> bool {
        !self.is_over() && Instant::now() < *lock(&self.watched_until)
    }

    /// True when so much is unwritten that it is to be watched.
    pub(super) fn wants_watching(&self) -> bool {
        let own_bytes = self.unwritten_bytes();
        own_bytes >= self.limit_bytes / WATCHED || own_bytes > 0 && self.is_near()
    }

    /// True when the files of the disk together are not far from the limit.
    pub(super) fn is_near(&self) -> bool {
        self.sum.bytes() >= self.limit_bytes / 2
    }

    /// How often writers were held, and for how long.
    pub(super) fn waits(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.waits), load(&self.wait_ns))
    }

    /// What was unwritten of the file when it was last counted.
    fn unwritten_bytes(&self) -> u64 {
        self.unwritten_bytes.load(Ordering::Relaxed)
    }

    /// Somebody has counted what is unwritten.
    pub(super) fn counted(&self, unwritten_bytes: u64) {
        let before = self
            .unwritten_bytes
            .swap(unwritten_bytes, Ordering::Relaxed);
        self.sum.change(before, unwritten_bytes);
    }

    /// Counts what is unwritten; `None` where nobody is to be held any more.
    pub(super) fn count(&self) -> Option<Unwritten> {
        let found = self.with_counter(|counter| counter.count());
        let found = found.filter(|_| !self.is_over());
        self.counted(found.map_or(0, |found| found.bytes));
        found
    }

    /// What may be unwritten of this file now.
    fn share_bytes(&self) -> u64 {
        let sum_bytes = self.sum.bytes();
        if sum_bytes <= self.limit_bytes {
            return self.limit_bytes;
        }
        let part_of_limit = |bytes: u64| {
            let part = u128::from(self.limit_bytes) * u128::from(bytes) / u128::from(sum_bytes);
            u64::try_from(part).unwrap_or(self.limit_bytes)
        };
        // Equal parts for all would be too much together with what some have beyond.
        let equal_bytes = part_of_limit(self.limit_bytes / self.sum.writers().max(1));
        part_of_limit(self.unwritten_bytes()).max(equal_bytes.clamp(SHARE_MIN_BYTES, SHARE_BYTES))
    }

    /// True when its writers are to wait.
    pub(super) fn is_beyond(&self) -> bool {
        self.unwritten_bytes() > self.share_bytes()
    }

    /// How long its writers take, at least, before they are to wait.
    pub(super) fn room(&self) -> Duration {
        let room_bytes = self.limit_bytes.saturating_sub(self.sum.bytes());
        let room_ns = u128::from(room_bytes) * 1_000_000 / u128::from(WRITERS_BYTES_PER_MS);
        let room = Duration::from_nanos(u64::try_from(room_ns).unwrap_or(u64::MAX));
        room.clamp(LOOK_MIN, LOOK_MAX)
    }

    /// For whoever is to hold the writers; `None` while somebody does, or they
    /// cannot be held.
    pub(super) fn try_take(self: &Arc<Self>) -> Option<Taken> {
        if self.is_over() || !lock(&self.failures).may_try() {
            return None;
        }
        let taken = self.held.swap(true, Ordering::SeqCst);
        (!taken).then(|| Taken::of(Arc::clone(self)))
    }

    fn reader(&self) -> io::Result<Option<DirectReader>> {
        let reader = self.with_counter(|counter| Some(DirectReader::new(counter.as_fd())));
        reader.transpose()
    }

    /// Does something with the counter; when it was stopped meanwhile, closes it.
    fn with_counter<R>(&self, what: impl FnOnce(&mut UnwrittenCounter) -> Option<R>) -> Option<R> {
        let result = lock(&self.counter).as_mut().and_then(what);
        if self.stopped.load(Ordering::SeqCst) {
            *lock(&self.counter) = None;
        }
        result
    }
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

    use dropbehind_testbed::Scratch;

    use super::*;

    pub(super) const MIB: u64 = 1 << 20;
    pub(super) const LIMIT_BYTES: u64 = 64 * MIB;

    pub(super) fn brake(path: &Path, sum: &Arc<UnwrittenSum>) -> Arc<Brake> {
        let counter = UnwrittenCounter::new(File::open(path).unwrap().into());
        Arc::new(Brake::new(counter, LIMIT_BYTES, Arc::clone(sum)))
    }

    pub(super) fn new_file(scratch: &Scratch, name: &str) -> File {
        File::create_new(scratch.file(name)).unwrap()
    }

    #[test]
    fn many_writers_of_little_are_beyond_together() {
        let scratch = Scratch::new().unwrap();
        new_file(&scratch, "one");
        let sum = Arc::default();
        let brakes: Vec<_> = (0..16).map(|_| brake(&scratch.file("one"), &sum)).collect();
        // Less than what one of them is watched from.
        let each_bytes = LIMIT_BYTES / WATCHED - MIB;
        brakes[0].counted(each_bytes);
        assert!(!brakes[0].wants_watching());
        for brake in &brakes {
            brake.counted(each_bytes);
        }
        assert!(brakes.iter().all(|brake| brake.wants_watching()));
        assert!(brakes.iter().all(|brake| brake.is_beyond()));
        // Until they have what they may have together.
        for brake in &brakes {
            brake.counted(LIMIT_BYTES / 16);
        }
        assert!(!brakes.iter().any(|brake| brake.is_beyond()));
        drop(brakes);
        assert_eq!((sum.bytes(), sum.writers()), (0, 0));
    }

    #[test]
    fn one_of_little_goes_on_beside_one_of_much() {
        let scratch = Scratch::new().unwrap();
        new_file(&scratch, "one");
        let sum = Arc::default();
        let [much, little] = [(); 2].map(|()| brake(&scratch.file("one"), &sum));
        much.counted(2 * LIMIT_BYTES);
        little.counted(SHARE_BYTES / 2);
        assert!(much.is_beyond() && !little.is_beyond());
    }
}
