//! The world: who takes the next turn, and what time it is.

use crate::cache::File;
use crate::coverage::Coverage;
use crate::disk_thread::Threads;
use crate::kernel::Kernel;
use crate::observer::{Input, Observer};
use crate::plan::{MS, Plan};
use crate::programs::Program;
use crate::random::Random;
use crate::small_files::{Small, SmallMessage};
use crate::watch::Leftovers;

/// After all programs have ended, everything has an end within this.
const END_NS: u64 = 1800 * 1000 * MS;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) random: Random,
    pub(crate) now_ns: u64,
    pub(crate) traced: bool,
    /// All programs have ended.
    pub(crate) ending: bool,
    /// Somebody asked for everything, whatever was held.
    pub(crate) flushed: bool,
    /// Threads that are in the middle of their turn.
    pub(crate) busy: Busy,
    pub(crate) coverage: Coverage,
    pub(crate) files: Vec<File>,
    pub(crate) leftovers: Vec<Leftovers>,
    /// Counted as used again of streams and on the shelf.
    pub(crate) reused_bytes: u64,
    pub(crate) programs: Vec<Program>,
    pub(crate) kernel: Kernel,
    pub(crate) observer: Observer,
    pub(crate) threads: Threads,
    pub(crate) small: Small,
}

/// Threads that are in the middle of their turn, while others take one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Busy {
    observer: bool,
    disk: bool,
    small: bool,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let plan = Plan::new(&mut random);
        let count = plan.files.len();
        let files = plan.files.iter().map(|file| {
            let mut file = File::new(file.most_pages);
            file.size_pages = random.below(file.most_pages() as u64 + 1) as usize;
            file
        });
        let files = files.collect();
        let programs = (0..plan.observed + plan.outsiders).map(|number| Program {
            observed: number < plan.observed,
            opens: Vec::new(),
        });
        World {
            programs: programs.collect(),
            files,
            leftovers: vec![Leftovers::default(); count],
            reused_bytes: 0,
            kernel: Kernel::default(),
            observer: Observer::new(count, &plan),
            threads: Threads::new(),
            small: Small::default(),
            plan,
            random,
            now_ns: 1,
            traced: false,
            ending: false,
            flushed: false,
            busy: Busy::default(),
            coverage: Coverage::default(),
        }
    }

    pub(crate) fn say(&self, what: impl FnOnce() -> String) {
        if self.traced {
            println!("{:>15}  {}", self.now_ns, what());
        }
    }

    /// A moment of work passes.
    pub(crate) fn work(&mut self) {
        self.now_ns += self.random.below(50_000);
    }

    pub(crate) fn run(&mut self) {
        let mut deeds = self.plan.deeds;
        while deeds > 0 {
            deeds -= u64::from(self.turn());
        }
        self.end_programs();
        self.ending = true;
        self.settle();
        self.watch_end();
    }

    /// Somebody takes a turn; true for a program.
    fn turn(&mut self) -> bool {
        self.now_ns += self.random.below(self.plan.step_ns);
        if self.random.chance(10) {
            self.now_ns += self.random.below(3000 * MS);
        }
        match self.random.below(100) {
            0..30 => {
                self.program_step();
                return true;
            }
            30..50 => self.observer_turn(),
            50..70 => {
                self.disk_turn();
            }
            70..80 => {
                self.small_turn();
            }
            80..98 => self.kernel_step(),
            _ => self.wish(),
        }
        false
    }

    fn observer_turn(&mut self) {
        if !std::mem::replace(&mut self.busy.observer, true) {
            self.observer_round();
            self.busy.observer = false;
        }
    }

    /// Returns whether something was done.
    fn disk_turn(&mut self) -> bool {
        let turn = !std::mem::replace(&mut self.busy.disk, true);
        let done = turn && self.disk_step();
        self.busy.disk &= !turn;
        done
    }

    /// Returns whether something was done.
    fn small_turn(&mut self) -> bool {
        let turn = !std::mem::replace(&mut self.busy.small, true);
        let done = turn && self.small_step();
        self.busy.small &= !turn;
        done
    }

    /// In the middle of a drop, the observer goes on.
    pub(crate) fn observe_meanwhile(&mut self) {
        if !self.ending && self.random.chance(self.plan.meddle_in_thousand) {
            self.observer_turn();
        }
    }

    /// Somebody asks for everything.
    fn wish(&mut self) {
        if !self.random.chance(self.plan.wish_in_thousand * 20) {
            return;
        }
        match self.random.below(3) {
            0 => self.observer.inputs.push_back(Input::CloseAll),
            1 => {
                self.coverage.saw("flushes");
                self.threads.flushes = true;
            }
            _ => self.small.inbox.push_back(SmallMessage::Flush),
        }
    }

    /// In the middle of a round, others go on.
    pub(crate) fn interleave(&mut self) {
        if self.ending || !self.random.chance(self.plan.meddle_in_thousand) {
            return;
        }
        self.work();
        match self.random.below(4) {
            0 => self.program_step(),
            1 => self.kernel_step(),
            2 => {
                self.disk_turn();
            }
            _ => {
                self.small_turn();
            }
        }
    }

    fn is_over(&self) -> bool {
        self.observer.known.is_empty()
            && self.threads.watches.is_empty()
            && self.small.shelf.is_empty()
            && self.small.inbox.is_empty()
            && self.observer.inputs.is_empty()
            && self.kernel.events.is_empty()
            && self.kernel.trace.is_empty()
    }

    fn open_ends(&self) -> String {
        let streams = self.threads.watches.keys();
        let streams: Vec<_> = streams.map(|id| self.threads.disk.stream(*id)).collect();
        format!(
            "{:?} {:?} {:?} {streams:?}",
            self.observer.known, self.small.places, self.threads.watches
        )
    }

    fn settle(&mut self) {
        let end_ns = self.now_ns + END_NS;
        let mut idle_ns = MS;
        while !self.is_over() {
            assert!(self.now_ns < end_ns, "it never ends: {}", self.open_ends());
            self.observer_turn();
            let mut busy = self.disk_turn();
            busy |= self.small_turn();
            self.kernel_step();
            idle_ns = match busy {
                true => MS / 10,
                false => (idle_ns * 2).min(100 * MS),
            };
            self.now_ns += idle_ns;
        }
    }
}
