//! The flusher: the threads that do what the policy decides.
//!
//! One *keeper* thread, in its own descriptor table, opens a separate description of each
//! file that has work. One thread for each disk drains the slots of the disk's files, asks
//! the policy what to do and does it. It starts when first needed, and ends when idle. None
//! of the flusher's descriptors are in the program's table, so children don't inherit them,
//! they don't count against the program's limits, and closing them doesn't release its record
//! locks.

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use dropbehind_linux::{DiskId, IoPriority, filesystem_tag};

use crate::disk_handle::{DiskHandle, Message};
use crate::keeper::Keeper;
use crate::lock;
use crate::observed_file::{ExcessSink, ObservedPages};
use crate::own_file::OwnFile;
use crate::process_end;
use dropbehind_policy::Stats;

/// A thread that waits for a disk's thread checks this often that it is still alive.
const WAIT_STEP: Duration = Duration::from_millis(200);
/// Where a thread cannot be woken, it looks this often.
const POLL: Duration = Duration::from_micros(200);

/// Writes back, counts and drops pages for any number of files on any disks.
///
/// Cheap to clone; all clones are the same flusher. Most programs use the shared one, as
/// every file of the library does by default.
#[derive(Clone, Debug)]
pub struct Flusher {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) settings: FlusherBuilder,
    keeper: Arc<Keeper>,
    disks: Mutex<Disks>,
    generation: u32,
}

#[derive(Debug, Default)]
struct Disks {
    by_id: HashMap<DiskId, Arc<DiskHandle>>,
    /// The disk that each `st_dev` or `st_rdev` resolved to, by that and the [file
    /// system](filesystem_tag), since sysfs is slow.
    by_device: HashMap<(u64, u64), Arc<DiskHandle>>,
}

/// Settings for a flusher of one's own.
#[derive(Clone, Debug)]
pub struct FlusherBuilder {
    io_priority: IoPriority,
    /// The threads use the process's own descriptor table.
    pub(crate) observing: bool,
    excess: Option<ExcessSink>,
}

impl FlusherBuilder {
    /// Sets the I/O priority of the threads that write back. The default is the program's own.
    ///
    /// It matters only if the disk's scheduler honours it (bfq, mq-deadline), and for
    /// writeback only as far as the kernel submits it in our threads.
    pub fn io_priority(mut self, priority: IoPriority) -> FlusherBuilder {
        self.io_priority = priority;
        self
    }

    /// Builds a flusher for [observing](Flusher::observe) files that other processes use. Its
    /// threads use the process's own descriptor table. So it is not for a process that holds
    /// record locks on files that it also opens through the library.
    pub fn observing(mut self) -> FlusherBuilder {
        self.observing = true;
        self
    }

    /// Tells this sink while too much is unwritten in observed files whose
    /// [writers are held](crate::Observed::hold_writers).
    pub fn excess(mut self, sink: ExcessSink) -> FlusherBuilder {
        self.excess = Some(sink);
        self
    }

    /// Starts the flusher.
    ///
    /// # Errors
    /// If no thread can be started. Where a sandbox forbids the priority,
    /// [`degraded`](Flusher::degraded) says so.
    pub fn build(self) -> io::Result<Flusher> {
        let inner = Arc::new(Inner {
            keeper: Keeper::start(!self.observing)?,
            settings: self,
            disks: Mutex::new(Disks::default()),
            generation: dropbehind_linux::fork_generation(),
        });
        if !inner.settings.observing {
            process_end::wait_for(&inner);
        }
        Ok(Flusher { inner })
    }
}

static SHARED: ArcSwapOption<Flusher> = ArcSwapOption::const_empty();

impl Flusher {
    /// The flusher that all of the process's files share unless told otherwise.
    /// A child of a fork gets a new one.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn shared() -> io::Result<Flusher> {
        if let Some(shared) = SHARED.load().as_ref()
            && shared.is_ours()
        {
            return Ok(Flusher::clone(shared));
        }
        // No lock here: if another thread held it at a fork, it would stay locked in the
        // child forever. If two threads come here at once, two flushers start and one of them
        // ends.
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
            excess: None,
        }
    }

    /// The I/O priority of the threads that write back.
    pub fn io_priority(&self) -> IoPriority {
        self.inner.settings.io_priority
    }

    /// The counters of all its files, including closed ones.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for disk in self.disks() {
            stats.add(&lock(&disk.totals).stats());
        }
        stats
    }

    /// The counters of each disk's files, and the state of their pages.
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

    /// Cached bytes that observed programs brought in and that are still to be dropped. For
    /// files whose pages are to stay, all their cached bytes.
    pub fn observed_bytes(&self) -> u64 {
        let disks = self.disks();
        let bytes = disks
            .iter()
            .map(|disk| lock(&disk.observed).counted.cached_bytes);
        bytes.sum()
    }

    /// Notes on what does not work here, and what is done instead.
    pub fn degraded(&self) -> Vec<String> {
        let mut notes = self.inner.keeper.notes();
        for disk in self.disks() {
            notes.extend(lock(&disk.notes).iter().cloned());
        }
        notes
    }

    /// Adds a note to those of [`Flusher::degraded`].
    pub fn note(&self, note: String) {
        self.inner.keeper.note(note);
    }

    /// Writes back and drops everything that is pending in this flusher's files, including
    /// closed ones. Returns false if `timeout` passes first.
    pub fn drain(&self, timeout: Duration) -> bool {
        if !self.is_ours() {
            return true;
        }
        let started = Instant::now();
        if !self.await_keeper(started, timeout) {
            return false;
        }
        let asked: Vec<_> = self
            .disks()
            .into_iter()
            .filter_map(|disk| disk.ask(Message::FlushAll).map(|drained| (disk, drained)))
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

    /// Requests writeback of everything that is to be written of this flusher's files, as if
    /// all were closed, and waits until the kernel has taken the requests. That does not wait for
    /// the disk, unless its queue is full. Returns false if `timeout` passes first.
    ///
    /// A process that exits does this by itself. One that is about to call `exec` or `_exit`
    /// may want to.
    pub fn submit(&self, timeout: Duration) -> bool {
        if !self.is_ours() {
            return true;
        }
        let started = Instant::now();
        let are_open = self.await_keeper(started, timeout / 2);
        let disks = self.disks().into_iter();
        let asked: Vec<_> = disks
            .filter_map(|disk| disk.ask(Message::SubmitAll).map(|done| (disk, done)))
            .collect();
        let are_submitted = asked.iter().all(|(disk, done)| {
            // Without blocking on the channel: at the process's end, that needs thread-local
            // values that are gone.
            while done.try_recv() == Err(TryRecvError::Empty) && !disk.is_dead() {
                if started.elapsed() >= timeout {
                    return false;
                }
                std::thread::sleep(POLL);
            }
            true
        });
        are_open && are_submitted
    }

    /// Waits until the keeper has opened all that it was asked for.
    fn await_keeper(&self, started: Instant, timeout: Duration) -> bool {
        while self.inner.keeper.is_busy() {
            if started.elapsed() >= timeout {
                return false;
            }
            std::thread::sleep(POLL);
        }
        true
    }

    /// Returns false in the child of a fork: the threads run in the parent.
    pub fn is_ours(&self) -> bool {
        self.inner.generation == dropbehind_linux::fork_generation()
    }

    pub(crate) fn disks(&self) -> Vec<Arc<DiskHandle>> {
        if !self.is_ours() {
            return Vec::new();
        }
        lock(&self.inner.disks).by_id.values().cloned().collect()
    }

    /// The disk that an open file is on.
    pub(crate) fn disk_of(&self, fd: BorrowedFd<'_>, device: u64) -> io::Result<Arc<DiskHandle>> {
        let device = (device, filesystem_tag(fd, device));
        let mut disks = lock(&self.inner.disks);
        if let Some(known) = disks.by_device.get(&device) {
            return Ok(Arc::clone(known));
        }
        let disk = dropbehind_linux::disk_of(fd)?;
        let handle = disks.by_id.entry(disk.id).or_insert_with(|| {
            let settings = &self.inner.settings;
            let excess = settings.excess.clone();
            Arc::new(DiskHandle::new(disk, settings.io_priority, excess))
        });
        let handle = Arc::clone(handle);
        disks.by_device.insert(device, Arc::clone(&handle));
        Ok(handle)
    }

    /// Asks the keeper to open the flusher's own description of a file.
    pub(crate) fn register(&self, handle: &Arc<OwnFile>, fd: RawFd) {
        self.inner.keeper.register(Arc::clone(handle), fd);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The disks' threads finish their work and then end by themselves.
        self.keeper.stop();
    }
}

/// What a flusher has done for the files of one disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskStats {
    /// The disk's name, as in `/sys/block`.
    pub name: String,
    /// Files that it currently writes back or drops.
    pub files: usize,
    /// The counters of its files, including closed ones.
    pub stats: Stats,
    /// The pages of the observed files.
    pub observed: ObservedPages,
    /// Measured speed of writeback, in bytes a second; 0 until known.
    pub bytes_per_second: u64,
    /// The current window of a stream without a window of its own.
    pub window_bytes: u64,
    /// How many flushers write back to the disk and share its window, including those of
    /// other programs; 1 while there is nothing to write back.
    pub flushers: u64,
    /// Nanoseconds during which less was kept on its way to the disk, for the sake of the
    /// disk's readers.
    pub yielded_ns: u64,
}
