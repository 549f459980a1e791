//! Being told which process brings which pages into the page cache: the
//! tracepoint `filemap:mm_filemap_add_to_page_cache` by perf_event_open(2).
//!
//! The whole machine is recorded, in one ring a processor. A record is written
//! by who adds the pages, before anybody can use them, into memory that we map: to
//! read it takes no call. It names the inode that the pages belong to, below an
//! overlay, too, and whoever reads, writes, maps or reads ahead.
//!
//! A record that perf hands out costs the program a microsecond. Where the kernel runs
//! a program of ours by bpf(2), that joins pages which follow each other to runs
//! (`cache_trace/runs.rs`). Elsewhere perf records each folio.
//!
//! # What is not told
//!
//! - Pages that were there before the trace was opened, and uses of them.
//! - tmpfs, and files with `O_DIRECT` or DAX: none of these adds to the cache in
//!   the sense of this tracepoint.
//! - What a processor does that came online after the trace was opened.
//!
//! Sources: perf_event_open(2), include/uapi/linux/perf_event.h,
//! include/trace/events/filemap.h, kernel/events/core.c and ring_buffer.c.

mod device_number;
mod error;
pub(crate) mod event;
pub(crate) mod format;
mod inodes;
mod processors;
mod queue;
pub(crate) mod records;
pub(crate) mod ring;
mod runs;
pub(crate) mod tracefs;

pub use device_number::{block_device_number, kernel_device};
pub use error::CacheTraceError;
pub use inodes::{KernelDevices, KernelInode, has_subvolumes};

use event::{Recorded, Tasks};
use format::{Format, Unusable};
use queue::Queue;
use records::Stamped;
use ring::{Ring, Rings};
use runs::Runs;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const TRACEPOINT: &str = "filemap/mm_filemap_add_to_page_cache";

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceRecord {
    /// Pages entered the page cache, still without their data.
    Added {
        /// Whose thread added them, as the process's number in the pid namespace of
        /// who opened the trace. 0 if it has none there; -1 if it was ending, where
        /// perf tells.
        process: i32,
        /// Whose pages they are.
        inode: KernelInode,
        /// The first page's number within the file, in units of
        /// [`page_size`](crate::page_size).
        first_page: u64,
        /// How many they are: those of a folio, or of several that follow each other.
        pages: u64,
    },
    /// A process, not a mere thread, was forked. It has not run so far.
    Forked {
        /// The new process.
        child: i32,
        /// The one whose thread made it.
        parent: i32,
    },
    /// The first thread of a process has ended, and mostly all of it.
    Ended {
        /// The process.
        process: i32,
    },
    /// A process has this name from now on: that of a program that it executed, or one that
    /// it gave itself.
    Named {
        /// The process.
        process: i32,
        /// What it is called, as in [`command_name`](crate::command_name).
        name: ProgramName,
    },
    /// There was no room for so many records of one processor, of pages or forks. The kernel says so with that processor's next record, not before
    /// there is one.
    Lost {
        /// How many.
        records: u64,
    },
}

/// The name of a process's program, at most 15 bytes of it (`TASK_COMM_LEN`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramName {
    /// Zeros follow, at least one.
    bytes: [u8; 16],
}

impl ProgramName {
    /// A name of at most 15 bytes; of a longer one, these.
    #[must_use]
    pub fn new(name: &[u8]) -> Self {
        let mut bytes = [0; 16];
        for (byte, given) in bytes[..15].iter_mut().zip(name) {
            *byte = *given;
        }
        Self { bytes }
    }

    /// The name, which may be of any bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        let len = self.bytes.iter().position(|&byte| byte == 0);
        &self.bytes[..len.unwrap_or(0)]
    }
}

/// A record of all pages that enter the page cache, and of processes.
#[derive(Debug)]
pub struct CacheTrace {
    /// Of forks, and of pages where these are not joined.
    rings: Rings,
    /// Of names: anybody can give himself so many that a ring overflows.
    names: Rings,
    runs: io::Result<Runs>,
    format: Format,
    epoll: OwnedFd,
    pending: Queue,
    /// For records that go over a ring's end.
    joined: Vec<u8>,
}

impl CacheTrace {
    /// Records the whole machine from now on.
    ///
    /// Each processor online gets rings of `ring_bytes`, rounded up to powers of two of
    /// pages or records. Pages that a process adds one after the other make one record
    /// where a program in the kernel may [join](CacheTrace::joins_pages) them, else each
    /// folio is recorded. Records of a run take 40 bytes, of a folio 72, of a fork or an
    /// exit of a thread 48. Rings are locked memory.
    ///
    /// # Errors
    ///
    /// - [`CacheTraceError::NotPermitted`]: without `CAP_PERFMON` (since Linux
    ///   5.8, else `CAP_SYS_ADMIN`), or tracefs cannot be read; to mount it takes
    ///   `CAP_SYS_ADMIN`.
    /// - [`CacheTraceError::NoTracefs`], [`CacheTraceError::NoTracepoint`]: the
    ///   kernel was built without.
    /// - [`CacheTraceError::NoOrder`]: a kernel whose records do not say how
    ///   large a folio is.
    /// - [`CacheTraceError::Other`]: `EMFILE`, `ENOMEM`; `EPERM` of mmap(2) for
    ///   rings larger than `kernel.perf_event_mlock_kb`, without `CAP_IPC_LOCK`.
    pub fn open(ring_bytes: usize) -> Result<Self, CacheTraceError> {
        Self::new(ring_bytes, true)
    }

    /// As [`CacheTrace::open`], with a record of each folio in any case.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn open_unjoined(ring_bytes: usize) -> Result<Self, CacheTraceError> {
        Self::new(ring_bytes, false)
    }

    fn new(ring_bytes: usize, joins: bool) -> Result<Self, CacheTraceError> {
        let (tracepoint, text) = tracefs::tracepoint(TRACEPOINT)?;
        let format = Format::parse(&text).map_err(|error| match error {
            Unusable::NoOrder => CacheTraceError::NoOrder,
            Unusable::Unknown => strange_format(),
        })?;
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
        let runs = if joins {
            Runs::new(tracepoint, &format, ring_bytes)
        } else {
            Err(io::Error::other("not asked for"))
        };
        // Whatever keeps it from that, perf is asked next, and says it if it may not.
        let (recorded, ring_bytes) = match &runs {
            Ok(runs) => {
                add(runs.as_fd())?;
                (Recorded::Nothing, ring_bytes / 4)
            }
            Err(_) => (Recorded::Tracepoint(tracepoint), ring_bytes),
        };
        let rings = Rings::of_all_processors(recorded, Tasks::Forks, ring_bytes)?;
        let names = Rings::of_all_processors(Recorded::Nothing, Tasks::Names, ring_bytes / 4)?;
        for ring in rings.iter() {
            add(ring.event().as_fd())?;
            ring.enable()?;
        }
        // These wake nobody.
        names.iter().try_for_each(Ring::enable)?;
        Ok(Self {
            rings,
            names,
            runs,
            format,
            epoll,
            pending: Queue::default(),
            joined: Vec::new(),
        })
    }

    /// Whether pages that follow each other are joined in the kernel. That takes Linux 6.7,
    /// bpf(2), `CAP_BPF`, and the first pid namespace.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn joins_pages(&self) -> Result<(), &io::Error> {
        self.runs.as_ref().map(|_| ())
    }

    /// Empties all rings, and hands over at once what is new of processes, with its time and
    /// in no order: who has forked and what it is called is asked for before its pages are.
    /// [`CacheTrace::read`] brings all of it once more.
    pub fn gather(&mut self, mut take: impl FnMut(u64, TraceRecord)) {
        for ring in self.rings.iter_mut() {
            ring.drain(&mut self.joined, |bytes| {
                let Some(stamped) = records::parse(bytes, &self.format) else {
                    return;
                };
                match stamped.record {
                    TraceRecord::Added { .. } | TraceRecord::Lost { .. } => {}
                    of_process => take(stamped.time_ns, of_process),
                }
                self.pending.push(stamped);
            });
        }
        for ring in self.names.iter_mut() {
            ring.drain(&mut self.joined, |bytes| {
                let named = records::parse(bytes, &self.format);
                // One that is lost can be asked for, as long as the process is there.
                let is_told =
                    |stamped: &Stamped| matches!(stamped.record, TraceRecord::Named { .. });
                if let Some(stamped) = named.filter(is_told) {
                    take(stamped.time_ns, stamped.record);
                    self.pending.push(stamped);
                }
            });
        }
        if let Ok(runs) = &mut self.runs {
            runs.drain(|stamped| self.pending.push(stamped));
            runs.look_for_misses(|stamped| self.pending.push(stamped));
        }
    }

    /// What was gathered and not read, in no order.
    pub fn gathered(&self) -> impl Iterator<Item = &TraceRecord> {
        self.pending.records()
    }

    /// Hands over, in the order of their time stamps, every record that was
    /// [gathered](CacheTrace::gather) and whose time is at or before `until_ns` of
    /// [`monotonic_ns`]. Later ones are kept for the next call. Joined pages have the
    /// time of the first; the last come at most 50 microseconds later.
    ///
    /// A processor takes the time first and puts the record into its ring then. In
    /// between it may be interrupted, or stopped by a hypervisor: 0.13 ms were seen
    /// on two virtual processors. So a call with the present time may miss a record
    /// that belongs before others it hands over, and the next call brings it. Where
    /// the order matters, ask for what is a few milliseconds old.
    pub fn read(&mut self, until_ns: u64, take: impl FnMut(TraceRecord)) {
        self.pending.take_until(until_ns, take);
    }
}

impl AsFd for CacheTrace {
    /// For polling: readable when 4 KiB or half its size were written into a ring
    /// since that was last the case, or some fifty runs or 4 MiB of pages were. Being
    /// told resets it, or reading does. What is less is told to nobody: look from time
    /// to time.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// The present time of `CLOCK_MONOTONIC`, in nanoseconds.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is negative: it counts from the boot.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// A tracepoint's records are not what we know.
pub(crate) fn strange_format() -> CacheTraceError {
    let strange = io::ErrorKind::InvalidData.into();
    CacheTraceError::Other("reading the tracepoint's format", strange)
}

fn other(call: &'static str) -> impl FnOnce(Errno) -> CacheTraceError {
    move |error| CacheTraceError::Other(call, io::Error::from(error))
}
