//! Pages that one process adds to a file one after the other, told as one run.
//!
//! perf hands out a record for each folio, which costs who adds it a microsecond: a third
//! of what a write of 4 KiB takes. Here a program in the kernel writes runs into
//! memory that we map. Others who record the tracepoint get what they got before.
//!
//! Each processor has a ring of runs, in which its last one grows. We take what was added
//! since we last looked, of the last run, too.

mod program;

use super::event::{Event, Recorded, Tasks};
use super::format::Format;
use super::records::Stamped;
use super::{KernelInode, TraceRecord, monotonic_ns, processors};
use crate::bpf::{ArrayMap, Program, WakeMap};
use crate::deferred_close::close_deferred;
use crate::kernel::{KernelVersion, kernel_version};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

// A ring begins with numbers, in words of 64 bits.
/// How many runs were begun.
const HEAD: usize = 0;
/// How many folios found no room.
const LOST: usize = 8;
/// How much happened since we were woken.
const UNTOLD: usize = 16;
/// How many runs were done with, by us: in a cache line of its own.
const TAIL: usize = 64;
/// The runs, used round and round.
const RUNS: usize = 128;

// A run consists of such words, too.
/// The process, and the device in the lower half.
const OWNER: usize = 0;
const INODE: usize = 8;
const FIRST_PAGE: usize = 16;
const PAGES: usize = 24;
/// When it was begun.
const TIME: usize = 32;
const RUN_BYTES: usize = 40;

/// A run has one time, so none goes on for longer than this. Stamps of two processors are
/// not in a better order anyway (see [`CacheTrace::read`](super::CacheTrace::read)).
const RUN_NS: i32 = 50_000;

/// We are woken after so many pages, 4 MiB of them.
const WAKE_PAGES: i32 = 1024;
/// And after some fifty runs: each counts as so many pages more.
const PAGES_OF_RUN: i32 = 20;

/// The first kernel that counts how often a tracepoint's program was not run.
const COUNTS_MISSES: KernelVersion = KernelVersion { major: 6, minor: 7 };

/// The inode of the first pid namespace, `PROC_PID_INIT_INO` of include/linux/proc_ns.h.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The rings of all processors, and what fills them.
#[derive(Debug)]
pub(super) struct Runs {
    rings: ArrayMap,
    wake: WakeMap,
    program: Program,
    /// It runs the program on all processors, as long as it is open. It need not be enabled
    /// for that, so nothing is recorded for it.
    event: Option<Event>,
    readers: Vec<Reader>,
    /// As of its misses last time.
    misses: u64,
    /// How many runs a ring has, a power of two.
    capacity: u64,
}

/// How far one ring was read.
#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    /// The run that was the last.
    tail: u64,
    /// So many of its pages were taken.
    taken: u64,
    lost: u64,
}

impl Runs {
    /// Rings of at least `ring_bytes` for all processors that are online.
    ///
    /// # Errors
    ///
    /// - [`io::ErrorKind::Unsupported`]: a kernel that does not tell what is missed (before
    ///   Linux 6.7), or a pid namespace, in which processes have other numbers than the
    ///   program gets to see.
    /// - Those of bpf(2), perf_event_open(2) and its ioctl(2).
    pub(super) fn new(tracepoint: u64, format: &Format, ring_bytes: usize) -> io::Result<Self> {
        let unsupported = |why| Err(io::Error::new(io::ErrorKind::Unsupported, why));
        if kernel_version() < COUNTS_MISSES {
            return unsupported("it needs Linux 6.7");
        }
        if std::fs::metadata("/proc/self/ns/pid")?.ino() != FIRST_PID_NAMESPACE {
            return unsupported("bpf(2) gives the numbers of processes in another pid namespace");
        }
        if cfg!(not(all(
            target_endian = "little",
            target_pointer_width = "64"
        ))) {
            return unsupported("it needs a 64-bit little-endian machine");
        }
        let processors = processors::online()?;
        let last = processors.iter().max().copied().unwrap_or(0);
        let rings = usize::try_from(last).map_err(io::Error::other)? + 1;
        let capacity = (ring_bytes / RUN_BYTES).next_power_of_two().max(2);
        let rings = ArrayMap::new(rings, RUNS + capacity * RUN_BYTES)?;
        let wake = WakeMap::new()?;
        let instructions = program::write(format, rings.as_fd(), wake.as_fd(), capacity);
        let program = Program::load(&instructions)?;
        let first = *processors.first().ok_or(io::ErrorKind::NotFound)?;
        let event = Event::open(Recorded::Tracepoint(tracepoint), Tasks::Untold, first, 0)?;
        event.run(program.as_fd())?;
        Ok(Self {
            readers: vec![Reader::default(); last as usize + 1],
            rings,
            wake,
            program,
            event: Some(event),
            misses: 0,
            capacity: capacity as u64,
        })
    }

    /// Hands over what was added since the last call.
    pub(super) fn drain(&mut self, mut take: impl FnMut(Stamped)) {
        self.wake.clear();
        for ring in 0..self.readers.len() {
            let mut reader = self.readers[ring];
            // Acquire: what was written before the head was moved is seen.
            let head = self.rings.word(ring, HEAD).load(Acquire);
            while reader.tail < head {
                if let Some(run) = self.added(ring, &mut reader) {
                    take(run);
                }
                if reader.tail + 1 == head {
                    // The last one may grow.
                    break;
                }
                reader.tail += 1;
                reader.taken = 0;
            }
            // Release: the program may write there now that all was read.
            self.rings.word(ring, TAIL).store(reader.tail, Release);
            let lost = self.rings.word(ring, LOST).load(Relaxed);
            if lost > reader.lost {
                take(loss(lost - reader.lost));
                reader.lost = lost;
            }
            self.readers[ring] = reader;
        }
    }

    /// What was added to a ring's run since it was last looked at.
    fn added(&self, ring: usize, reader: &mut Reader) -> Option<Stamped> {
        let run = RUNS + (reader.tail & (self.capacity - 1)) as usize * RUN_BYTES;
        let word = |offset| self.rings.word(ring, run + offset).load(Relaxed);
        let pages = word(PAGES);
        let taken = std::mem::replace(&mut reader.taken, pages);
        let owner = word(OWNER);
        (pages > taken).then(|| Stamped {
            time_ns: word(TIME),
            record: TraceRecord::Added {
                process: (owner >> 32) as i32,
                inode: KernelInode {
                    device: owner as u32,
                    number: word(INODE),
                },
                first_page: word(FIRST_PAGE) + taken,
                pages: pages - taken,
            },
        })
    }

    /// Hands over how many folios the program did not see, as some other was at work on that
    /// processor.
    pub(super) fn look_for_misses(&mut self, mut take: impl FnMut(Stamped)) {
        let misses = self.program.misses().unwrap_or(self.misses);
        if misses > self.misses {
            take(loss(misses - self.misses));
            self.misses = misses;
        }
    }

    /// For polling: readable when enough happened since [`Runs::drain`].
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

fn loss(records: u64) -> Stamped {
    Stamped {
        time_ns: monotonic_ns(),
        record: TraceRecord::Lost { records },
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        close_deferred(self.event.take().into_iter().map(Event::into).collect());
    }
}
