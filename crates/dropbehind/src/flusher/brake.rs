//! Makes those wait who write to an observed file faster than its disk.
//!
//! Nobody can make another process wait without holding something it needs. A
//! [direct read](dropbehind_linux::direct_read) of what is on its way to the disk
//! holds the lock that writers need, until that has arrived; the effect is that
//! of the kernel's own limits of dirty pages, for one file.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dropbehind_linux::{DirectReader, file_stat, page_size, size_bytes};
use dropbehind_policy::ByteRange;

use crate::handle::lock;
use crate::residency;

/// Somebody looks after the writers of a file of which this share of the limit
/// is unwritten: the disk's own thread may be waiting for the disk.
pub(super) const WATCHED: u64 = 8;
/// Writers are let go when no more than this share of the limit is unwritten, so
/// that the disk has something to do until they are held again.
const RELEASE: (u64, u64) = (3, 4);
/// A writer gets in between two reads, and may write pages that the next one
/// does not wait for; so many reads, and it is looked at anew.
const READS: u32 = 64;
/// What is unwritten is counted at this interval,
const LOOK: Duration = Duration::from_millis(2);
/// and no more than one part in so many of the time.
const LOOK_SHARE: u32 = 25;
/// Nobody looks any more when there was little for so long.
const CALM: Duration = Duration::from_millis(100);
/// A file whose share of what is too much is less than this is not held.
const SHARE_MIN_BYTES: u64 = 8 << 20;

/// What holds the writers of one file.
#[derive(Debug)]
pub(super) struct Brake {
    /// `None` once the file is not looked after any more: a deleted file's blocks
    /// are free when nobody has it open.
    reader: Mutex<Option<DirectReader>>,
    stopped: AtomicBool,
    stopping: Condvar,
    /// Somebody is at it.
    held: AtomicBool,
    /// A read failed; whoever writes is to learn of it first.
    failed: AtomicBool,
    waits: AtomicU64,
    wait_ns: AtomicU64,
}

impl Brake {
    pub(super) fn new(fd: BorrowedFd<'_>) -> io::Result<Brake> {
        Ok(Brake {
            reader: Mutex::new(Some(DirectReader::new(fd)?)),
            stopped: AtomicBool::new(false),
            stopping: Condvar::new(),
            held: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            waits: AtomicU64::new(0),
            wait_ns: AtomicU64::new(0),
        })
    }

    /// True for whoever is to call [`Brake::hold`].
    pub(super) fn try_take(&self) -> bool {
        !self.failed.load(Ordering::SeqCst) && !self.held.swap(true, Ordering::SeqCst)
    }

    /// Ends it for good. Its description is closed when this returns, or when the
    /// read that is under way does.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        match self.reader.try_lock() {
            Ok(mut reader) => *reader = None,
            // Whoever has it looks again.
            Err(_) => self.stopping.notify_all(),
        }
    }

    fn is_over(&self) -> bool {
        self.stopped.load(Ordering::SeqCst) || self.failed.load(Ordering::SeqCst)
    }

    pub(super) fn let_go(&self) {
        self.held.store(false, Ordering::SeqCst);
    }

    /// How often writers were held, and for how long.
    pub(super) fn waits(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.waits), load(&self.wait_ns))
    }

    /// Holds the writers whenever more than `limit_bytes` are unwritten, until
    /// they have been calm for a while. `others_bytes` tells what is unwritten of
    /// other files that count towards the same limit.
    pub(super) fn hold(&self, limit_bytes: u64, others_bytes: impl Fn(u64) -> u64) {
        let mut guard = lock(&self.reader);
        let mut calm_since = Instant::now();
        while calm_since.elapsed() < CALM && !self.is_over() {
            let Some(reader) = guard.as_mut() else {
                break;
            };
            let started = Instant::now();
            if file_stat(reader.as_fd()).is_ok_and(|stat| stat.links == 0) {
                // Its blocks are to be free as soon as it is closed.
                break;
            }
            let all = residency::whole(size_bytes(reader.as_fd()).unwrap_or(0));
            let own_bytes = unwritten_bytes(reader.as_fd(), all);
            if own_bytes >= limit_bytes / WATCHED {
                calm_since = started;
            }
            let sum_bytes = own_bytes + others_bytes(own_bytes);
            let share_bytes = if sum_bytes > limit_bytes {
                let share = u128::from(limit_bytes) * u128::from(own_bytes) / u128::from(sum_bytes);
                u64::try_from(share).map_or(limit_bytes, |share| share.max(SHARE_MIN_BYTES))
            } else {
                limit_bytes
            };
            if own_bytes > share_bytes {
                self.hold_now(reader, share_bytes / RELEASE.1 * RELEASE.0);
            } else {
                let pause = (started.elapsed() * LOOK_SHARE).max(LOOK);
                guard = self
                    .stopping
                    .wait_timeout(guard, pause)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
        }
        if self.is_over() {
            *guard = None;
        }
        drop(guard);
        if self.is_over() {
            // Between the last look and the lock.
            *lock(&self.reader) = None;
        }
        self.let_go();
    }

    fn hold_now(&self, reader: &mut DirectReader, release_bytes: u64) {
        let started = Instant::now();
        for _ in 0..READS {
            if self.is_over() {
                break;
            }
            let all = residency::whole(size_bytes(reader.as_fd()).unwrap_or(0));
            let unwritten = unwritten_bytes(reader.as_fd(), all);
            if unwritten <= release_bytes {
                break;
            }
            let offset = place_of(reader.as_fd(), all, unwritten - release_bytes);
            if reader.read_block(offset).is_err() {
                self.failed.store(true, Ordering::SeqCst);
                break;
            }
        }
        let ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.wait_ns.fetch_add(ns, Ordering::Relaxed);
    }
}

fn unwritten_bytes(fd: BorrowedFd<'_>, range: ByteRange) -> u64 {
    residency::count(fd, range).map_or(0, |counted| counted.unwritten_bytes())
}

/// The page before which there are this many unwritten bytes. Pages are written
/// in the order of their offsets, mostly, so when that one is, the others are.
fn place_of(fd: BorrowedFd<'_>, all: ByteRange, mut bytes_before: u64) -> u64 {
    let page_bytes = page_size();
    let mut range = all;
    while range.len() > page_bytes {
        let middle = range.start + (range.len() / 2).next_multiple_of(page_bytes);
        let left = ByteRange::new(range.start, middle.min(range.end));
        if left.end == range.end {
            break;
        }
        let unwritten = unwritten_bytes(fd, left);
        if bytes_before < unwritten {
            range = left;
        } else {
            bytes_before -= unwritten;
            range = ByteRange::new(left.end, range.end);
        }
    }
    range.start
}
