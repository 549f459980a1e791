//! Pages that a process adds to a file one after another, recorded as one run.
//!
//! perf would write a record for each folio, which costs the adding thread a microsecond: a
//! third of the time of a 4 KiB write. So a program in the kernel writes runs to memory that we
//! map. Other users of the tracepoint are not affected.
//!
//! Each processor has a ring of runs, of which the last one grows. We take what was added
//! since our last look, including what was added to the last run.

mod arrivals;
mod program;

pub use arrivals::{ArrivalMark, TraceView};

use super::event::{Event, Recorded};
use super::format::Format;
use super::records::{self, Stamped};
use super::{KernelInode, TraceRecord, processors};
use crate::bpf::{ArrayMap, Program, ProgramKind, WakeMap};
use crate::deferred_close::close_deferred;
use crate::kernel::{KernelVersion, kernel_version};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

// A ring starts with counters, in 64-bit words.
/// How many runs were begun.
const HEAD: usize = 0;
/// How many folios were lost for lack of room.
const LOST: usize = 8;
/// How much was added since the last wake-up.
const SINCE_WAKE: usize = 16;
/// How many runs we are done with; in its own cache line.
const TAIL: usize = 64;
/// The runs, used as a ring.
const RUNS: usize = 128;

// A run consists of 64-bit words, too.
/// The process in the upper half, the device in the lower.
const OWNER: usize = 0;
const INODE: usize = 8;
const FIRST_PAGE: usize = 16;
const PAGES: usize = 24;
/// When the run was begun.
const TIME: usize = 32;
const RUN_BYTES: usize = 40;

/// A run has a single time, so none lasts longer than this. Timestamps of two processors are
/// no more precise anyway (see [`CacheTrace::read`](super::CacheTrace::read)).
const RUN_NS: i32 = 50_000;

/// We are woken after this many pages (4 MiB),
const WAKE_PAGES: i32 = 1024;
/// or after some fifty runs: each counts as this many additional pages.
const PAGES_OF_RUN: i32 = 20;

/// The first kernel in which a program can add to a number and see what it was
/// (`BPF_FETCH`), which orders what the program writes.
const SINCE: KernelVersion = KernelVersion {
    major: 5,
    minor: 12,
};

/// The inode of the initial pid namespace, `PROC_PID_INIT_INO` in include/linux/proc_ns.h.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The rings of all processors, and the program that fills them.
#[derive(Debug)]
pub(super) struct Runs {
    written: Arc<Written>,
    wake: WakeMap,
    /// Runs the program on all processors while it is open. The event need not be enabled for
    /// that, so perf records nothing for it.
    event: Option<Event>,
    readers: Vec<Reader>,
    /// The program's misses at the last look.
    misses: u64,
}

/// The rings, and the program that fills them.
#[derive(Debug)]
struct Written {
    rings: ArrayMap,
    count: usize,
    program: Program,
    /// How many runs fit in a ring; a power of two.
    capacity: u64,
    /// The program does not run any more.
    ended: AtomicBool,
}

impl Written {
    /// A word of a run. It may belong to a later run once that many fit in between.
    fn of_run(&self, ring: usize, run: u64, field: usize) -> u64 {
        let place = RUNS + (run & (self.capacity - 1)) as usize * RUN_BYTES;
        self.rings.word(ring, place + field).load(Relaxed)
    }
}

/// How far one ring has been read.
#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    /// The number of the last run at that time.
    tail: u64,
    /// How many of its pages were taken.
    taken: u64,
    lost: u64,
}

impl Runs {
    /// Rings for all online processors, each of as many runs as fit in `ring_bytes`, rounded down
    /// to a power of two.
    ///
    /// # Errors
    ///
    /// - [`io::ErrorKind::Unsupported`]: before Linux 5.12, or we are in a pid namespace, where
    ///   processes have other numbers than the ones that the program sees.
    /// - Those of bpf(2), perf_event_open(2) and its ioctl(2).
    pub(super) fn new(tracepoint: u64, format: &Format, ring_bytes: usize) -> io::Result<Self> {
        let last = processors::online()?.into_iter().max().unwrap_or(0);
        let rings = usize::try_from(last).map_err(io::Error::other)? + 1;
        Self::with_rings(rings, tracepoint, format, ring_bytes)
    }

    /// Rings for the first processors. What others add is reported as lost.
    fn with_rings(
        rings: usize,
        tracepoint: u64,
        format: &Format,
        ring_bytes: usize,
    ) -> io::Result<Self> {
        let unsupported = |why| Err(io::Error::new(io::ErrorKind::Unsupported, why));
        if kernel_version() < SINCE {
            return unsupported("it needs Linux 5.12");
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
        let count = rings;
        let capacity = 1_usize << (ring_bytes / RUN_BYTES).max(2).ilog2();
        let rings = ArrayMap::new(count, RUNS + capacity * RUN_BYTES)?;
        let wake = WakeMap::new()?;
        let instructions = program::write(format, rings.as_fd(), wake.as_fd(), capacity);
        let program = Program::load(ProgramKind::Tracepoint, &instructions)?;
        let online = processors::online()?;
        let first = *online.first().ok_or(io::ErrorKind::NotFound)?;
        let event = Event::open(Recorded::Tracepoint(tracepoint), first, 0)?;
        event.run(program.as_fd())?;
        Ok(Self {
            readers: vec![Reader::default(); count],
            written: Arc::new(Written {
                rings,
                count,
                program,
                capacity: capacity as u64,
                ended: AtomicBool::new(false),
            }),
            wake,
            event: Some(event),
            misses: 0,
        })
    }

    /// For threads that look what has entered the cache.
    pub(super) fn view(&self) -> TraceView {
        TraceView(Arc::clone(&self.written))
    }

    /// Passes on what was added since the last call, and how many folios the program missed because
    /// another program was running on that processor.
    pub(super) fn drain(&mut self, mut take: impl FnMut(Stamped)) {
        self.wake.clear();
        for ring in 0..self.readers.len() {
            let mut reader = self.readers[ring];
            // Acquire: see what was written before the head was moved.
            let head = self.written.rings.word(ring, HEAD).load(Acquire);
            while reader.tail < head {
                if let Some(run) = self.added(ring, &mut reader) {
                    take(run);
                }
                if reader.tail + 1 == head {
                    // The last run may still grow.
                    break;
                }
                reader.tail += 1;
                reader.taken = 0;
            }
            // Release: all was read, so the program may write there now.
            self.written
                .rings
                .word(ring, TAIL)
                .store(reader.tail, Release);
            let lost = self.written.rings.word(ring, LOST).load(Relaxed);
            if lost > reader.lost {
                take(records::loss(lost - reader.lost));
                reader.lost = lost;
            }
            self.readers[ring] = reader;
        }
        let misses = self.written.program.misses().unwrap_or(self.misses);
        if misses > self.misses {
            take(records::loss(misses - self.misses));
            self.misses = misses;
        }
    }

    /// What was added to a run since the last look at it.
    fn added(&self, ring: usize, reader: &mut Reader) -> Option<Stamped> {
        let word = |field| self.written.of_run(ring, reader.tail, field);
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

    /// For polling: readable once enough was added since [`Runs::drain`].
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.written.ended.store(true, Release);
        close_deferred(self.event.take().into_iter().map(Event::into).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_trace::tracefs;
    use dropbehind_testbed::{Need, need};
    use rustix::process::Pid;
    use rustix::thread::{CpuSet, sched_setaffinity};
    use std::io::Write;

    /// A processor that comes online later has no ring, either.
    #[test]
    fn what_a_processor_without_a_ring_adds_is_lost() {
        need!(Need::Root);
        let processors = processors::online().unwrap();
        let last = *processors.iter().max().unwrap();
        if last == 0 {
            eprintln!("SKIPPED: a single processor has the first ring");
            return;
        }
        let (number, text) = tracefs::tracepoint("filemap/mm_filemap_add_to_page_cache").unwrap();
        let format = Format::parse(&text, true).unwrap();
        let mut runs = Runs::with_rings(1, number, &format, 1 << 16).unwrap();
        std::thread::spawn(move || {
            let mut only_last = CpuSet::new();
            only_last.set(last as usize);
            sched_setaffinity(None::<Pid>, &only_last).unwrap();
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&[1; 1 << 16]).unwrap();
        })
        .join()
        .unwrap();
        let mut lost = 0;
        runs.drain(|stamped| {
            if let TraceRecord::Lost { records } = stamped.record {
                lost += records;
            }
        });
        assert!(lost > 0);
    }
}
