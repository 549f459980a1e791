//! A disk with so many streams, on which every event has its measure taken.
//!
//! Deterministic: the same calls, the same actions, on every machine. Time is
//! a number that goes up by what an SSD takes for the bytes.

// The benchmarks and the example use different parts.
#![allow(dead_code)]

use dropbehind_policy::residency::ResidencyMap;
use dropbehind_policy::{
    Action, ByteRange, Counted, Disk, DiskConfig, Dropped, Found, Mode, Next, StreamConfig,
    StreamId, Write,
};

const BLOCK_BYTES: u64 = 1 << 20;
const PAGE_BYTES: u64 = 4096;
/// What one drain of a slot brings while pages are written in scattered order,
/// and how many of them before the disk gets its turn: 16 MiB in all.
const DRAIN_PAGES: u64 = 64;
const SCATTERED_DRAINS: u64 = 64;
const SCATTERED_PAGES: u64 = 1 << 18;
const SCATTER: u64 = 100_003;
/// 1 GB/s.
const NS_PER_BYTE: u64 = 1;

/// Many streams of one disk.
pub(crate) struct Load {
    disk: Disk,
    now_ns: u64,
    streams: u64,
    /// Bytes each stream has written.
    written: Vec<u64>,
    turn: u64,
    told: Vec<Write>,
    /// What was done, in all.
    pub(crate) actions: u64,
}

impl Load {
    /// So many streams are open; each has written a page, which is dirty.
    pub(crate) fn new(streams: u64) -> Self {
        let mut load = Self {
            disk: Disk::new(DiskConfig::default()),
            now_ns: 1,
            streams,
            written: vec![0; usize::try_from(streams).expect("a number")],
            turn: 0,
            told: Vec::new(),
            actions: 0,
        };
        for id in 0..streams {
            load.open(id);
            load.write(id, PAGE_BYTES);
        }
        load
    }

    fn open(&mut self, id: u64) {
        let config = StreamConfig::default();
        // Nothing was cached before, so all that is written is dropped.
        let mut residency = ResidencyMap::unknown();
        residency.observed(ByteRange::WHOLE, []);
        self.disk.opened(StreamId(id), config, residency);
    }

    /// The next stream in turn.
    fn next_stream(&mut self) -> u64 {
        self.turn += 1;
        // Not the next in memory: 7919 is prime, so all have their turn.
        self.turn * 7919 % self.streams
    }

    fn write(&mut self, id: u64, bytes: u64) {
        let start = &mut self.written[usize::try_from(id).expect("a number")];
        let range = ByteRange::new(*start, *start + bytes);
        *start += bytes;
        let told = *start;
        self.disk
            .wrote(self.now_ns, StreamId(id), range, Mode::DONTCACHE);
        self.disk.written_until(self.now_ns, StreamId(id), told);
    }

    /// A write of one page, by each stream in turn, is told to the policy.
    #[inline(never)]
    pub(crate) fn page_told(&mut self) {
        let id = self.next_stream();
        self.write(id, PAGE_BYTES);
    }

    /// A batch is written by each stream in turn, and all that follows is done:
    /// writeback, counts, drops.
    #[inline(never)]
    pub(crate) fn batch_done(&mut self) {
        let id = self.next_stream();
        self.write(id, BLOCK_BYTES);
        self.now_ns += BLOCK_BYTES * NS_PER_BYTE;
        self.work();
    }

    /// The same by one stream, beside all the others that do nothing.
    #[inline(never)]
    pub(crate) fn batch_done_alone(&mut self) {
        self.write(0, BLOCK_BYTES);
        self.now_ns += BLOCK_BYTES * NS_PER_BYTE;
        self.work();
    }

    /// A small file is written and closed, beside all the others.
    #[inline(never)]
    pub(crate) fn small_file_done(&mut self) {
        self.turn += 1;
        let id = self.streams + self.turn;
        self.open(id);
        let range = ByteRange::new(0, 4 * PAGE_BYTES);
        self.disk
            .wrote(self.now_ns, StreamId(id), range, Mode::DONTCACHE);
        self.disk
            .written_until(self.now_ns, StreamId(id), range.end);
        self.disk.closed(self.now_ns, StreamId(id));
        self.now_ns += range.end * NS_PER_BYTE;
        self.work();
    }

    /// A stream writes pages of a gigabyte in scattered order, as many as a disk
    /// is given at a time; then all that follows is done.
    #[inline(never)]
    pub(crate) fn scattered_done(&mut self) {
        for _ in 0..SCATTERED_DRAINS {
            for _ in 0..DRAIN_PAGES {
                self.turn += 1;
                // Any odd factor makes each page come once in a round.
                let page = self.turn.wrapping_mul(SCATTER) % SCATTERED_PAGES;
                let start = page * PAGE_BYTES;
                let range = ByteRange::new(start, start + PAGE_BYTES);
                self.told.push(Write {
                    range,
                    mode: Mode::DONTCACHE,
                    found: Found::Absent,
                });
            }
            self.written[0] += DRAIN_PAGES * PAGE_BYTES;
            self.disk
                .wrote_all(self.now_ns, StreamId(0), self.told.drain(..));
            self.disk
                .written_until(self.now_ns, StreamId(0), self.written[0]);
        }
        self.settle();
    }

    /// Somebody asks what is next when nothing is due.
    #[inline(never)]
    pub(crate) fn nothing_due(&mut self) -> Next {
        self.disk.next(self.now_ns)
    }

    /// Does all that is due. The disk is done with everything by the next count.
    pub(crate) fn work(&mut self) {
        while let Next::Do(action) = self.disk.next(self.now_ns) {
            self.actions += 1;
            match action {
                Action::Count { stream, range } => {
                    let clean = Counted {
                        cached_bytes: range.len(),
                        ..Counted::default()
                    };
                    self.disk.counted(self.now_ns, stream, range, clean);
                }
                Action::Drop { stream, ranges } => {
                    let gone = ranges.into_iter().map(|range| {
                        let gone = Dropped::Tried {
                            before_bytes: Some(range.len()),
                            after_bytes: 0,
                        };
                        (range, gone)
                    });
                    self.disk.dropped(self.now_ns, stream, gone);
                }
                Action::Inspect { stream } => {
                    let inspected = dropbehind_policy::Inspected { unlinked: false };
                    self.disk.inspected(self.now_ns, stream, inspected);
                }
                Action::StartWriteback { .. } | Action::Forget { .. } => {}
            }
        }
    }

    /// Time passes until nothing of the first page of each is left, so that
    /// what is measured is not the end of the set-up.
    pub(crate) fn settle(&mut self) {
        loop {
            self.work();
            match self.disk.next(self.now_ns) {
                Next::At(due_ns) => self.now_ns = due_ns,
                Next::Idle => return,
                Next::Do(_) => unreachable!("all was done"),
            }
        }
    }
}
