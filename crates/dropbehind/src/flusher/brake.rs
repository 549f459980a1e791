//! Makes those wait who write to an observed file faster than its disk.
//!
//! Nobody can make another process wait without holding something it needs. A
//! [direct read](dropbehind_linux::DirectReader) of what is not on the disk yet
//! holds the lock that writers need, until that has arrived; the effect is that
//! of the kernel's own limits of dirty pages, for one file.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dropbehind_linux::{DirectReader, file_stat, page_size};
use dropbehind_policy::ByteRange;

use crate::handle::lock;
use crate::residency;

/// Writers are let go when no more than this share of the limit is unwritten, so
/// that the disk has something to do until they are held again.
const RELEASE: (u64, u64) = (3, 4);
/// A read waits for so much: a writer that is told to stop waits no longer than
/// the disk takes for it.
const STEP_BYTES: u64 = 8 << 20;
/// A writer gets in between two reads; so many of them, and it is looked at anew.
const READS: u32 = 64;
/// A file whose share of what is too much is less than this is not held.
const SHARE_MIN_BYTES: u64 = 8 << 20;

/// What holds the writers of one file.
#[derive(Debug)]
pub(super) struct Brake {
    limit_bytes: u64,
    /// To count with. This and the next are `None` once the file is not looked
    /// after any more: a deleted file's blocks are free when nobody has it open.
    description: Mutex<Option<OwnedFd>>,
    /// Opened when writers are held for the first time.
    reader: Mutex<Option<DirectReader>>,
    stopped: AtomicBool,
    /// It is watched up to then.
    watched_until: Mutex<Instant>,
    /// Somebody is at it.
    held: AtomicBool,
    /// It cannot be read so, or a read failed: whoever writes is to learn of it
    /// first.
    failed: AtomicBool,
    /// As last counted.
    unwritten_bytes: AtomicU64,
    waits: AtomicU64,
    wait_ns: AtomicU64,
}

impl Brake {
    pub(super) fn new(description: OwnedFd, limit_bytes: u64) -> Brake {
        Brake {
            limit_bytes,
            description: Mutex::new(Some(description)),
            reader: Mutex::default(),
            stopped: AtomicBool::new(false),
            watched_until: Mutex::new(Instant::now()),
            held: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            unwritten_bytes: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            wait_ns: AtomicU64::new(0),
        }
    }

    /// Ends it for good. Its descriptions are closed when this returns, or when
    /// what is under way does.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Whoever has them looks again.
        if let Ok(mut description) = self.description.try_lock() {
            *description = None;
        }
        if let Ok(mut reader) = self.reader.try_lock() {
            *reader = None;
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

    /// How often writers were held, and for how long.
    pub(super) fn waits(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.waits), load(&self.wait_ns))
    }

    pub(super) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// What was unwritten of the file when it was last counted.
    pub(super) fn unwritten_bytes(&self) -> u64 {
        self.unwritten_bytes.load(Ordering::Relaxed)
    }

    /// Somebody has counted what is unwritten.
    pub(super) fn counted(&self, unwritten_bytes: u64) {
        self.unwritten_bytes
            .store(unwritten_bytes, Ordering::Relaxed);
    }

    /// Counts what is unwritten.
    pub(super) fn count(&self) -> u64 {
        let counted = self.with(&self.description, |description| {
            description.as_ref().map(|fd| unwritten_of(fd.as_fd()).1)
        });
        self.counted(counted.unwrap_or(0));
        self.unwritten_bytes()
    }

    /// What may be unwritten of this file, where `sum_bytes` are of all of them.
    pub(super) fn share_bytes(&self, sum_bytes: u64) -> u64 {
        if sum_bytes <= self.limit_bytes {
            return self.limit_bytes;
        }
        let own_bytes = u128::from(self.unwritten_bytes());
        let share = u128::from(self.limit_bytes) * own_bytes / u128::from(sum_bytes);
        u64::try_from(share).map_or(self.limit_bytes, |share| share.max(SHARE_MIN_BYTES))
    }

    /// True for whoever is to call [`Brake::hold`].
    pub(super) fn try_take(&self) -> bool {
        !self.is_over() && !self.held.swap(true, Ordering::SeqCst)
    }

    pub(super) fn let_go(&self) {
        self.held.store(false, Ordering::SeqCst);
    }

    /// Holds the writers until little more than `share_bytes` are unwritten.
    ///
    /// # Errors
    /// Where they cannot be held; then this is not to be tried again.
    pub(super) fn hold(&self, share_bytes: u64) -> io::Result<()> {
        let held = self.with(&self.reader, |reader| {
            if reader.is_none() {
                let description = lock(&self.description);
                let Some(fd) = description.as_ref() else {
                    return Ok(());
                };
                *reader = Some(DirectReader::new(fd.as_fd())?);
            }
            if let Some(reader) = reader {
                self.hold_with(reader, share_bytes / RELEASE.1 * RELEASE.0);
            }
            Ok(())
        });
        if held.is_err() {
            self.failed.store(true, Ordering::SeqCst);
        }
        self.let_go();
        held
    }

    fn hold_with(&self, reader: &mut DirectReader, release_bytes: u64) {
        let started = Instant::now();
        for _ in 0..READS {
            if self.is_over() {
                break;
            }
            let (all, unwritten_bytes) = unwritten_of(reader.as_fd());
            self.counted(unwritten_bytes);
            if unwritten_bytes <= release_bytes {
                break;
            }
            let step_bytes = (unwritten_bytes - release_bytes).min(STEP_BYTES);
            let start = place_of(reader.as_fd(), all, 0);
            let end = place_of(reader.as_fd(), all, step_bytes);
            let len = (end - start).max(page_size());
            if reader.write_range(start, len).is_err() {
                self.failed.store(true, Ordering::SeqCst);
            }
        }
        let ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.wait_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Does something with one of the descriptions; when it was stopped meanwhile,
    /// closes it.
    fn with<T, R>(&self, slot: &Mutex<Option<T>>, what: impl FnOnce(&mut Option<T>) -> R) -> R {
        let result = what(&mut lock(slot));
        if self.stopped.load(Ordering::SeqCst) {
            *lock(slot) = None;
        }
        result
    }
}

/// The pages of a file, and how much of them is unwritten; none where nobody is
/// to be held.
fn unwritten_of(fd: BorrowedFd<'_>) -> (ByteRange, u64) {
    let size_bytes = match file_stat(fd) {
        // A deleted file's blocks are to be free as soon as it is closed.
        Ok(stat) if stat.links > 0 => stat.size_bytes,
        _ => 0,
    };
    let all = residency::whole(size_bytes);
    (all, unwritten_bytes(fd, all))
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
