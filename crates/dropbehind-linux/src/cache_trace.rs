//! Tracing which process brings which pages into the page cache: the tracepoint
//! `filemap:mm_filemap_add_to_page_cache`.
//!
//! This records the whole machine, in one ring per processor. The thread that adds the pages
//! writes the record, before any process can use them, into memory that we map. So reading it
//! takes no system call. It names the inode that the pages belong to, also for a file below
//! an overlay, and the process that reads, writes, maps or reads ahead. A program that we load
//! into the kernel, through bpf(2), writes the records (`cache_trace/runs.rs`): those that perf
//! writes, one for each folio, would cost the thread a microsecond each. perf records forks and
//! the names of processes.
//!
//! # What is not recorded
//!
//! - Pages that were cached before the trace was opened, and uses of them.
//! - tmpfs, and files with `O_DIRECT` or DAX: none of these adds to the cache in a way that
//!   passes this tracepoint.
//! - Processors that came online after the trace was opened.
//!
//! Sources: perf_event_open(2), include/uapi/linux/perf_event.h,
//! include/trace/events/filemap.h, kernel/events/core.c and ring_buffer.c.

mod device_number;
mod error;
pub(crate) mod event;
pub(crate) mod format;
mod inodes;
pub(crate) mod processors;
mod queue;
pub(crate) mod records;
pub(crate) mod ring;
mod runs;
pub(crate) mod tracefs;
mod uses;

pub use device_number::{block_device_number, kernel_device};
pub use error::CacheTraceError;
pub use inodes::{KernelDevices, KernelInode, has_subvolumes};

use crate::kernel::{KernelVersion, kernel_version};
use event::Recorded;
use format::Format;
use queue::Queue;
use records::Stamped;
use ring::Rings;
use runs::Runs;
pub use runs::{ArrivalMark, TraceView};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
pub use uses::{CacheUses, PageUses};

const TRACEPOINT: &str = "filemap/mm_filemap_add_to_page_cache";

/// Before, each folio of a file was a page (`xfs: Support large folios`, the first).
const LARGE_FOLIOS_SINCE: KernelVersion = KernelVersion {
    major: 5,
    minor: 18,
};

/// A record of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceRecord {
    /// Pages entered the page cache, still without data.
    Added {
        /// The process whose thread added them, numbered in the pid namespace of the trace's
        /// opener.
        process: i32,
        /// The file that the pages belong to.
        inode: KernelInode,
        /// The first page's number within the file, in units of
        /// [`page_size`](crate::page_size).
        first_page: u64,
        /// How many pages.
        pages: u64,
    },
    /// A process, not just a thread, was forked. It has not run yet.
    Forked {
        /// The new process.
        child: i32,
        /// The process whose thread forked it.
        parent: i32,
    },
    /// A process's first thread has ended, and usually with it the whole process.
    Ended {
        /// The process.
        process: i32,
    },
    /// A process has a new name: that of a program that it executed, or one that it gave
    /// itself.
    Named {
        /// The process.
        process: i32,
        /// The name, as in [`command_name`](crate::command_name).
        name: ProgramName,
    },
    /// One processor's ring had no room for some records, of pages or forks. Its time is that
    /// at which this was noticed.
    Lost {
        /// How many records; 0 if the ring was so full that some may have been lost, and the
        /// kernel has yet to say how many.
        records: u64,
    },
}

/// The name of a process's program, up to 15 bytes of it (`TASK_COMM_LEN`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProgramName {
    /// Padded with zeros, at least one.
    bytes: [u8; 16],
}

impl ProgramName {
    /// Takes the first 15 bytes of a longer name.
    #[must_use]
    pub fn new(name: &[u8]) -> Self {
        let mut bytes = [0; 16];
        for (byte, given) in bytes[..15].iter_mut().zip(name) {
            *byte = *given;
        }
        Self { bytes }
    }

    /// The name, which may contain any bytes but zeros.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        let len = self.bytes.iter().position(|&byte| byte == 0);
        &self.bytes[..len.unwrap_or(0)]
    }
}

/// A trace of all pages that enter the page cache, and of processes.
#[derive(Debug)]
pub struct CacheTrace {
    /// Records of forks.
    rings: Rings,
    /// Records of names. Kept apart, since any user can make a ring of names overflow.
    names: Rings,
    runs: Runs,
    epoll: OwnedFd,
    pending: Queue,
}

impl CacheTrace {
    /// Records the whole machine from now on.
    ///
    /// Each online processor gets a ring for pages, of a power of two of records, as many as fit in
    /// `ring_bytes`, and smaller ones for the rest, rounded up to powers of two of pages. Pages
    /// that a process adds one after another make one record, of 40 bytes; a fork or a thread's
    /// exit takes 48. Rings are locked memory.
    ///
    /// Before Linux 6.7 the kernel does not count the folios for which it did not run our
    /// program. It does not run it while an update of a BPF map is under way on that processor,
    /// which others can interrupt only where the kernel may be preempted anywhere
    /// (`preempt=full`). So other programs that use BPF there, as root, may hide a page.
    ///
    /// # Errors
    ///
    /// - [`CacheTraceError::NotPermitted`]: without `CAP_PERFMON` and `CAP_BPF`
    ///   (`CAP_SYS_ADMIN` before Linux 5.8), or tracefs cannot be read; mounting it takes
    ///   `CAP_SYS_ADMIN`.
    /// - [`CacheTraceError::NoTracefs`], [`CacheTraceError::NoTracepoint`]: the kernel was
    ///   built without them.
    /// - [`CacheTraceError::NoOrder`]: the kernel has large folios (since Linux 5.18), and its records don't give
    ///   their size.
    /// - [`CacheTraceError::Other`]: `EMFILE`, `ENOMEM`; `EPERM` of mmap(2) for
    ///   rings larger than `kernel.perf_event_mlock_kb`, without `CAP_IPC_LOCK`; `Unsupported`
    ///   before Linux 5.12, and in a pid namespace other than the initial one.
    pub fn open(ring_bytes: usize) -> Result<Self, CacheTraceError> {
        let (tracepoint, text) = tracefs::tracepoint(TRACEPOINT)?;
        let large_folios = kernel_version() >= LARGE_FOLIOS_SINCE;
        let format = Format::parse(&text, large_folios)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(other("epoll_create1"))?;
        let add = |fd: BorrowedFd<'_>| {
            epoll::add(
                &epoll,
                fd,
                epoll::EventData::new_u64(0),
                epoll::EventFlags::IN,
            )
            .map_err(other("epoll_ctl"))
        };
        let runs = Runs::new(tracepoint, &format, ring_bytes)
            .map_err(|error| CacheTraceError::of("the program in the kernel", error))?;
        add(runs.as_fd())?;
        let of_tasks = |recorded| Rings::of_all_processors(recorded, ring_bytes / 4);
        let (rings, names) = (of_tasks(Recorded::Forks)?, of_tasks(Recorded::Names)?);
        for event in rings.events() {
            add(event.as_fd())?;
        }
        rings.enable()?;
        // These don't wake pollers.
        names.enable()?;
        Ok(Self {
            rings,
            names,
            runs,
            epoll,
            pending: Queue::default(),
        })
    }

    /// For other threads to look what has entered the cache since a moment.
    #[must_use]
    pub fn view(&self) -> TraceView {
        self.runs.view()
    }

    /// Empties all rings. Passes on at once, in no order, what is new about processes, with
    /// its time: forks and names are needed before the pages that follow.
    /// [`CacheTrace::read`] brings all of it again.
    pub fn gather(&mut self, mut take: impl FnMut(u64, TraceRecord)) {
        let was_full = self.rings.drain(|bytes| {
            let Some(stamped) = records::parse(bytes) else {
                return;
            };
            if !matches!(stamped.record, TraceRecord::Lost { .. }) {
                take(stamped.time_ns, stamped.record);
            }
            self.pending.push(stamped);
        });
        if was_full {
            // The kernel says how many were lost with the next record that fits.
            self.pending.push(records::loss(0));
        }
        self.names.drain(|bytes| {
            let named = records::parse(bytes);
            // A lost name can still be looked up while the process exists.
            let is_told = |stamped: &Stamped| matches!(stamped.record, TraceRecord::Named { .. });
            if let Some(stamped) = named.filter(is_told) {
                take(stamped.time_ns, stamped.record);
                self.pending.push(stamped);
            }
        });
        self.runs.drain(|stamped| self.pending.push(stamped));
    }

    /// The records that were gathered and not read yet, in no order.
    pub fn gathered(&self) -> impl Iterator<Item = &TraceRecord> {
        self.pending.records()
    }

    /// Passes on, in time order, all [gathered](CacheTrace::gather) records up to `until_ns`
    /// of [`monotonic_ns`]. Later ones are kept for the next call. A record's time is that of its
    /// first page; the last may have come up to 50 microseconds later.
    ///
    /// A processor first takes the time and then writes the record to its ring. In between it
    /// may be interrupted, or stopped by a hypervisor: 0.13 ms were seen on two virtual
    /// processors. So a call with the current time may miss a record that belongs before
    /// others that it passes on, and the next call brings it. Where the order matters, ask
    /// for records that are a few milliseconds old.
    pub fn read(&mut self, until_ns: u64, take: impl FnMut(TraceRecord)) {
        self.pending.take_until(until_ns, take);
    }
}

impl AsFd for CacheTrace {
    /// For polling: readable once 4 KiB, or half its size, were written to a ring since the
    /// last time, or some fifty runs or 4 MiB of pages. Polling or reading resets it. Smaller
    /// amounts wake nobody, so look from time to time.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// The current time of `CLOCK_MONOTONIC`, in nanoseconds.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is negative: the clock starts at boot.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

fn other(call: &'static str) -> impl FnOnce(Errno) -> CacheTraceError {
    move |error| CacheTraceError::Other(call, io::Error::from(error))
}
