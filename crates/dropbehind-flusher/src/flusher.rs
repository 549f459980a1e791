//! The flusher: the threads that carry out what the policy decides.
//!
//! One *keeper* thread opens a description of our own for each file that has
//! work, in a descriptor table of its own. One thread a disk, started by the
//! keeper when first needed and ended when idle, drains the slots of its files,
//! asks the policy what to do and does it. Nothing of this is in the program's
//! descriptor table, so nothing of it is inherited, counted against its limits,
//! or able to release its record locks.

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use dropbehind_linux::{DiskId, IoPriority};

use crate::disk_handle::DiskHandle;
use crate::keeper::Keeper;
use crate::lock;
use crate::observed_file::ObservedPages;
use crate::own_file::OwnFile;
use crate::stats::Stats;

/// Whoever waits for a disk's thread checks this often that it still runs.
const WAIT_STEP: Duration = Duration::from_millis(200);

/// Writes back, counts and drops for any number of files on any disks.
///
/// Cheap to clone; clones are the same flusher. Most programs use the shared
/// one, which every file of the library does unless told otherwise.
#[derive(Clone, Debug)]
pub struct Flusher {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    io_priority: IoPriority,
    keeper: Arc<Keeper>,
    disks: Mutex<Disks>,
    generation: u32,
    /// Descriptors are the process's own.
    pub(crate) observing: bool,
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
        // and one of them goes.
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
            stats.add(&lock(&disk.totals).stats());
        }
        stats
    }

    /// What was done for the files of each disk, and how their pages stand.
    pub fn disks_stats(&self) -> Vec<DiskStats> {
        let disks = self.disks();
        let stats = disks.iter().map(|disk| {
            let totals = lock(&disk.totals);
            DiskStats {
                name: disk.name().to_owned(),
                files: totals.open_files(),
                stats: totals.stats(),
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
                    // Nothing is ever sent; the thread drops its end.
                    Err(RecvTimeoutError::Disconnected) | Ok(()) => return true,
                }
            }
        })
    }

    /// False in a child of a fork: the threads live in the parent.
    pub fn is_ours(&self) -> bool {
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
    pub(crate) fn register(&self, handle: &Arc<OwnFile>, fd: RawFd) {
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
    /// Files that it writes back or drops now.
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
