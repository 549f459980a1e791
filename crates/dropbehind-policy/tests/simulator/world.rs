//! The world of one seed: its state, its clock and its order of events.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use dropbehind_policy::neighbours::Reads;
use dropbehind_policy::residency::ResidencyMap;
use dropbehind_policy::{Action, ByteRange, Disk, StreamConfig, StreamId, Write};

use crate::cache::{Actor, File, OTHERS, PAGE};
use crate::coverage::Coverage;
use crate::disk::SimDisk;
use crate::plan::{MS, Plan, SECOND};
use crate::program::Program;
use crate::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    Flusher(u64),
    Program(usize),
    DiskDone,
    KernelFlusher,
    Reclaim,
    Reader,
    Writer,
    Cutter,
    Crash,
    Audit,
}

/// What a file's writers and its flusher share.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) writes: VecDeque<Write>,
    pub(crate) reads: VecDeque<ByteRange>,
    /// Ranges lost to a full ring, and their modes' bits.
    pub(crate) lost: Option<(ByteRange, u32)>,
    pub(crate) total: u64,
    pub(crate) done: u64,
    pub(crate) limit: u64,
    pub(crate) batch: u64,
    pub(crate) kicked_at: u64,
    pub(crate) quiet: bool,
}

/// One opening of a file: a stream of the policy.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) name: u32,
    pub(crate) file: usize,
    pub(crate) program: usize,
    pub(crate) config: StreamConfig,
    pub(crate) before: Option<ResidencyMap>,
    pub(crate) slot: Slot,
    /// Pages that have to be kept, as far as the policy was told.
    pub(crate) kept: Vec<bool>,
    /// Pages told to be written to be dropped, or to be brought in by a read.
    pub(crate) touched: Vec<bool>,
    pub(crate) attached: bool,
    pub(crate) told_total: u64,
    /// Bytes of pages over bytes written, in writes that were not told.
    pub(crate) untold_excess: u64,
    /// What these were when the writer was let go on.
    pub(crate) passed_excess: u64,
    pub(crate) longest_write: u64,
    pub(crate) settle_asked: bool,
    pub(crate) closed_ns: Option<u64>,
    /// The kernel does the rest: a call failed, or ranges are not exact.
    pub(crate) failed: bool,
    pub(crate) flushed: bool,
    pub(crate) asked: bool,
    pub(crate) only_eager: bool,
    pub(crate) forgotten: bool,
}

impl Opening {
    pub(crate) fn id(&self) -> StreamId {
        StreamId(u64::from(self.name))
    }

    pub(crate) fn over_limit(&self) -> bool {
        self.slot.total - self.slot.done > self.slot.limit
    }
}

#[derive(Debug)]
pub(crate) enum Message {
    Attach(usize),
    Closed(usize),
    Synced(usize),
    Resized(usize, u64),
    Flush(usize),
}

#[derive(Debug)]
pub(crate) enum Flusher {
    Asleep,
    Acting,
    Executing(Action),
    Answering(Action, Option<crate::shell::Answer>),
}

pub(crate) struct World {
    /// Everything that happens is printed.
    pub(crate) traced: bool,
    pub(crate) plan: Plan,
    pub(crate) random: Random,
    pub(crate) now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    event_count: u64,

    pub(crate) files: Vec<File>,
    pub(crate) disk: SimDisk,
    /// Unwritten pages each stream answers for, by its name.
    pub(crate) balance: Vec<i64>,
    pub(crate) programs: Vec<Program>,
    pub(crate) openings: Vec<Opening>,

    pub(crate) policy: Disk,
    pub(crate) flusher: Flusher,
    pub(crate) flusher_turn: u64,
    pub(crate) bell: bool,
    pub(crate) inbox: VecDeque<Message>,
    pub(crate) swept_ns: u64,
    /// Openings before this one belong to a flusher that is gone.
    pub(crate) alive_from: usize,

    neighbours: u64,
    pub(crate) disk_reads: Reads,
    pub(crate) last_event_ns: u64,
    pub(crate) log: Log,
    pub(crate) coverage: Coverage,
}

/// A hash of all actions and their times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) hash: u64,
    pub(crate) actions: u64,
    pub(crate) counts: u64,
    pub(crate) tells: u64,
}

impl Log {
    pub(crate) fn note(&mut self, values: &[u64]) {
        for value in values {
            self.hash = (self.hash ^ value)
                .wrapping_mul(0x0100_0000_01b3)
                .rotate_left(23);
        }
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let plan = Plan::new(&mut random);
        let files = (0..plan.files).map(|_| World::file(&plan, 0)).collect();
        let mut world = World {
            traced: false,
            now: 1,
            events: BinaryHeap::new(),
            event_count: 0,
            files,
            disk: SimDisk::new(plan.nature),
            balance: vec![0],
            programs: plan.programs.iter().cloned().map(Program::new).collect(),
            openings: Vec::new(),
            policy: Disk::new(plan.policy),
            flusher: Flusher::Asleep,
            flusher_turn: 0,
            bell: false,
            inbox: VecDeque::new(),
            swept_ns: 0,
            alive_from: 0,
            neighbours: 0,
            disk_reads: Reads::default(),
            last_event_ns: 0,
            log: Log {
                hash: seed,
                actions: 0,
                counts: 0,
                tells: 0,
            },
            coverage: Coverage::default(),
            plan,
            random,
        };
        world.start();
        world
    }

    fn file(plan: &Plan, number: usize) -> File {
        let mut file = File::new(number, plan.pages);
        file.largest_folio = plan.largest_folio;
        file.folio_tags = plan.folio_tags;
        file
    }

    fn start(&mut self) {
        for number in 0..self.files.len() {
            self.files[number].number = number;
            let users: Vec<&Program> = self
                .programs
                .iter()
                .filter(|program| program.plan.file == number)
                .collect();
            let shared = users.len() > 1 || self.plan.writers_ns.is_some();
            let cached = users
                .first()
                .map_or(0, |program| program.plan.cached_before_in_thousand);
            self.files[number].shared = shared;
            if self.random.below(2) == 0 {
                self.fill(number, cached);
            }
        }
        for number in 0..self.programs.len() {
            let start = self.random.below(50 * MS);
            self.at(start, Event::Program(number));
        }
        for (period, event) in self.periods() {
            if let Some(period) = period {
                let first = self.random.below(period + 1);
                self.at(first, event);
            }
        }
    }

    fn periods(&self) -> [(Option<u64>, Event); 7] {
        let plan = &self.plan;
        [
            (Some(5 * SECOND), Event::KernelFlusher),
            (Some(SECOND), Event::Audit),
            (plan.reclaim_ns, Event::Reclaim),
            (plan.readers_ns, Event::Reader),
            (plan.writers_ns, Event::Writer),
            (plan.cutter_ns, Event::Cutter),
            (plan.crash_ns, Event::Crash),
        ]
    }

    /// An old file, some of it cached by others.
    fn fill(&mut self, number: usize, cached_in_thousand: u64) {
        let file = &mut self.files[number];
        file.size = self.random.below(file.pages() as u64 * PAGE + 1);
        let mut at = 0;
        while at < file.size {
            let length = PAGE * self.random.between(1, 64);
            if self.random.chance(cached_in_thousand) {
                file.read(ByteRange::new(at, at + length), OTHERS, 0);
            }
            at += length;
        }
    }

    pub(crate) fn trace(&self, what: impl FnOnce() -> String) {
        if self.traced {
            println!("{:>15}  {}", self.now, what());
        }
    }

    pub(crate) fn at(&mut self, time: u64, event: Event) {
        self.event_count += 1;
        self.events.push(Reverse((time, self.event_count, event)));
    }

    pub(crate) fn after(&mut self, delay: u64, event: Event) {
        self.at(self.now + delay, event);
    }

    pub(crate) fn programs_done(&self) -> bool {
        self.programs.iter().all(Program::is_done)
    }

    pub(crate) fn alive(&self) -> std::ops::Range<usize> {
        self.alive_from..self.openings.len()
    }

    fn all_forgotten(&self) -> bool {
        self.alive().all(|number| self.openings[number].forgotten)
    }

    /// Runs until every program has ended and every stream is forgotten.
    pub(crate) fn run(&mut self) {
        while let Some(Reverse((time, _, event))) = self.events.pop() {
            self.now = self.now.max(time);
            self.happen(event);
            let over = self.programs_done() && self.all_forgotten() && self.inbox.is_empty();
            if !self.programs_done() {
                self.last_event_ns = self.now;
            }
            if over {
                break;
            }
            let patience = 400 * SECOND + self.disk.stalled_ns;
            assert!(
                self.now < self.last_event_ns + patience,
                "streams of closed files are never done with: {:?}",
                self.openings
                    .iter()
                    .filter(|o| !o.forgotten)
                    .map(|o| o.name)
                    .collect::<Vec<_>>()
            );
            assert!(
                self.now < 4000 * SECOND,
                "programs never end: {:?}",
                self.programs
            );
        }
        self.watch_end();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Flusher(turn) => {
                if turn == self.flusher_turn {
                    self.flusher_step();
                }
            }
            Event::Program(number) => self.program_step(number),
            Event::DiskDone => self.disk_done(),
            Event::KernelFlusher => {
                self.after(5 * SECOND, event);
                let expired = self.now.saturating_sub(30 * SECOND);
                for number in 0..self.files.len() {
                    self.write_back(number, ByteRange::WHOLE, false, expired);
                }
            }
            Event::Audit => {
                self.after(SECOND, event);
                self.watch_now();
            }
            _ if self.programs_done() => {}
            Event::Reclaim => self.reclaim(),
            Event::Reader => self.other_reads(),
            Event::Writer => self.other_writes(),
            Event::Cutter => self.other_cuts(),
            Event::Crash => self.crash(),
        }
    }

    /// Dirty pages go to the disk's queue.
    pub(crate) fn write_back(&mut self, file: usize, range: ByteRange, ours: bool, older: u64) {
        let locked = if ours {
            self.plan.locked_in_thousand
        } else {
            0
        };
        self.write_back_skipping(file, range, ours, older, locked);
    }

    pub(crate) fn write_back_skipping(
        &mut self,
        file: usize,
        range: ByteRange,
        ours: bool,
        older: u64,
        locked_in_thousand: u64,
    ) {
        let (disk, balance) = (&mut self.disk, &mut self.balance);
        self.files[file].start_writeback(
            range,
            ours,
            locked_in_thousand,
            older,
            &mut self.random,
            &mut |name, pages| balance[name as usize] += pages,
            &mut |request| disk.submit(request),
        );
        self.serve();
    }

    fn serve(&mut self) {
        if let Some(done) = self.disk.serve(self.now, &mut self.random) {
            self.at(done, Event::DiskDone);
        }
    }

    fn disk_done(&mut self) {
        if let Some(request) = self.disk.done() {
            let failed = self.random.chance(self.plan.nature.error_in_thousand);
            self.coverage.errors += u64::from(failed);
            let balance = &mut self.balance;
            self.files[request.file].complete(
                request,
                self.now,
                failed && self.plan.nature.redirty,
                &mut |name, pages| balance[name as usize] += pages,
            );
        }
        self.serve();
    }

    /// Neighbours come back, but not for ever: the rest is to be seen too.
    fn again(&mut self, period: Option<u64>, event: Event) {
        self.neighbours += 1;
        if self.neighbours > 400 {
            return;
        }
        let delay = self.random.below(2 * period.unwrap_or(SECOND)) + 1;
        self.after(delay, event);
    }

    fn reclaim(&mut self) {
        self.again(self.plan.reclaim_ns, Event::Reclaim);
        let share = self.random.pick(&[1, 30, 300]);
        for number in 0..self.files.len() {
            self.files[number].reclaim(self.now, share, &mut self.random);
        }
        self.coverage.reclaims += 1;
    }

    fn somewhere(&mut self, file: usize) -> ByteRange {
        let most = self.files[file].pages() as u64;
        let start = self.random.below(most) * PAGE;
        ByteRange::new(
            start,
            (start + self.random.between(1, 64) * PAGE).min(most * PAGE),
        )
    }

    fn other_reads(&mut self) {
        self.again(self.plan.readers_ns, Event::Reader);
        let file = self.random.below(self.files.len() as u64) as usize;
        let range = self.somewhere(file);
        self.files[file].read(range, OTHERS, 0);
        self.coverage.foreign_reads += 1;
    }

    fn other_writes(&mut self) {
        self.again(self.plan.writers_ns, Event::Writer);
        let file = self.random.below(self.files.len() as u64) as usize;
        let mut range = self.somewhere(file);
        if self.random.below(2) == 0 {
            // A hot place of a database, synced by its owner all the time.
            range = ByteRange::new(0, 16 * PAGE);
        }
        let balance = &mut self.balance;
        self.files[file].write(self.now, range, Actor::OTHER, 0, &mut |name, pages| {
            balance[name as usize] += pages;
        });
        if self.random.below(2) == 0 {
            self.write_back(file, range, false, u64::MAX);
        }
        self.coverage.foreign_writes += 1;
    }

    /// Somebody else truncates; the policy is not told.
    fn other_cuts(&mut self) {
        self.again(self.plan.cutter_ns, Event::Cutter);
        let file = self.random.below(self.files.len() as u64) as usize;
        let size = self.random.below(self.files[file].size + 1);
        let balance = &mut self.balance;
        self.files[file].truncate(size, &mut |name, pages| balance[name as usize] += pages);
        self.coverage.foreign_cuts += 1;
    }

    /// The flusher dies and another one starts: nothing is known any more.
    fn crash(&mut self) {
        self.coverage.crashes += 1;
        let unwritten = |files: &[File]| -> u64 { files.iter().map(File::unwritten_bytes).sum() };
        let before = unwritten(&self.files);
        self.policy = Disk::new(self.plan.policy);
        self.flusher = Flusher::Asleep;
        self.flusher_turn += 1;
        self.bell = false;
        self.inbox.clear();
        assert_eq!(before, unwritten(&self.files), "all data is in the cache");
        for file in &mut self.files {
            file.orphan();
        }
        self.balance.iter_mut().skip(1).for_each(|pages| *pages = 0);
        let lost = self.alive();
        self.alive_from = self.openings.len();
        for number in lost {
            self.reopen_after_crash(number);
        }
    }
}
