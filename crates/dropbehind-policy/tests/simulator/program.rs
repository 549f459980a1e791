//! The programs, and the library's side of them: rings, counters and waits.

use dropbehind_policy::residency::ResidencyMap;
use dropbehind_policy::{ByteRange, Found, RangeSet, StreamConfig, Write, Writeback};

use crate::cache::{Actor, File, PAGE};
use crate::plan::{Habit, MS, ProgramPlan};
use crate::world::{Event, Message, Opening, Slot, World};

/// Undropped bytes of reads from which on the library kicks.
const READ_KICK_BYTES: u64 = 4 << 20;

/// After so many writes and actions the programs come to an end: a thousand
/// short stories tell more than ten long ones.
const EVENTS: u64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Closed,
    Running,
    /// Over its limit, since then, and how much of that the disk stalled.
    Waiting(u64, u64),
    /// In fsync, up to this request of the disk.
    Syncing(u64),
    /// Until all is written and dropped, since then.
    Settling(u64),
    /// Closed; the file is deleted next.
    Deleting,
    Done,
}

#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) plan: ProgramPlan,
    pub(crate) phase: Phase,
    pub(crate) opening: usize,
    file: usize,
    opened: u64,
    left_bytes: u64,
    cursor: u64,
    unlinked: bool,
}

impl Program {
    pub(crate) fn new(plan: ProgramPlan) -> Program {
        Program {
            file: plan.file,
            plan,
            phase: Phase::Closed,
            opening: 0,
            opened: 0,
            left_bytes: 0,
            cursor: 0,
            unlinked: false,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }
}

impl World {
    pub(crate) fn program_step(&mut self, number: usize) {
        match self.programs[number].phase {
            Phase::Closed => self.open(number),
            Phase::Running => self.operate(number),
            Phase::Syncing(request) => {
                let file = self.programs[number].file;
                if self.disk.has_pending(file, request) {
                    self.after(MS, Event::Program(number));
                } else {
                    self.post(Message::Synced(self.programs[number].opening));
                    self.go_on(number);
                }
            }
            Phase::Deleting => {
                self.unlink(number);
                self.next_opening(number);
            }
            Phase::Waiting(..) | Phase::Settling(_) | Phase::Done => {}
        }
    }

    /// The program's next operation comes after a while.
    pub(crate) fn go_on(&mut self, number: usize) {
        self.programs[number].phase = Phase::Running;
        let think = self.programs[number].plan.think_ns;
        let delay = self.random.below(2 * think + 1) + 200;
        self.after(delay, Event::Program(number));
    }

    fn open(&mut self, number: usize) {
        let plan = self.programs[number].plan.clone();
        if plan.habit == Habit::SmallFiles || self.programs[number].unlinked {
            // Files are created anew, and replaced.
            let mut file = File::new(self.files.len(), self.plan.pages.min(64));
            file.largest_folio = self.plan.largest_folio;
            file.folio_tags = self.plan.folio_tags;
            self.programs[number].file = file.number;
            self.programs[number].unlinked = false;
            self.files.push(file);
        }
        let program = &mut self.programs[number];
        program.opened += 1;
        program.left_bytes = plan.budget_bytes;
        program.cursor = match plan.habit {
            Habit::Append => self.files[program.file].size,
            _ => 0,
        };
        let file = program.file;
        self.programs[number].opening = self.attach(number, file);
        if plan.unlink_early {
            self.unlink(number);
        }
        self.go_on(number);
    }

    fn attach(&mut self, number: usize, file: usize) -> usize {
        let plan = &self.programs[number].plan;
        let cache = &self.files[file];
        let config = StreamConfig {
            window_bytes: plan.window_bytes,
            request_bytes: plan.request_bytes,
            size_bytes: cache.size,
            o_append: plan.habit == Habit::Append,
            block_device: false,
            random: plan.random_advice,
            traced: false,
            observed: false,
        };
        let mut kept = vec![plan.residency_unknown; cache.pages()];
        let before = if plan.residency_unknown {
            ResidencyMap::unknown()
        } else {
            let mut map = ResidencyMap::unknown();
            let resident = cache.resident(ByteRange::WHOLE);
            for range in &resident {
                kept[(range.start / PAGE) as usize..(range.end / PAGE) as usize].fill(true);
            }
            map.observed(ByteRange::WHOLE, resident);
            map
        };
        let name = self.balance.len() as u32;
        self.balance.push(0);
        let mut slot = Slot {
            quiet: true,
            ..Slot::default()
        };
        // Until it is attached, a slot has the limits of the configuration.
        let window = self.plan.window_bytes(plan);
        slot.limit = if window == 0 {
            u64::MAX
        } else {
            window.saturating_mul(2)
        };
        slot.batch = 1 << 18;
        let opening = Opening {
            name,
            file,
            program: number,
            config,
            before: Some(before),
            slot,
            kept,
            touched: vec![false; cache.pages()],
            attached: false,
            told_total: 0,
            untold_excess: 0,
            passed_excess: 0,
            longest_write: 0,
            settle_asked: false,
            closed_ns: None,
            failed: false,
            flushed: false,
            asked: false,
            only_eager: true,
            forgotten: false,
        };
        self.trace(|| format!("open {} file {file} {config:?}", opening.name));
        self.openings.push(opening);
        let opening = self.openings.len() - 1;
        self.post(Message::Attach(opening));
        opening
    }

    /// The program runs on; its file gets a new flusher, if it is open.
    pub(crate) fn reopen_after_crash(&mut self, lost: usize) {
        let number = self.openings[lost].program;
        let current = self.programs[number].opening == lost;
        let closed = self.openings[lost].closed_ns.is_some();
        self.openings[lost].forgotten = true;
        if !current || closed {
            return;
        }
        let file = self.openings[lost].file;
        self.programs[number].opening = self.attach(number, file);
        if matches!(
            self.programs[number].phase,
            Phase::Waiting(..) | Phase::Settling(_)
        ) {
            self.go_on(number);
        }
    }

    fn operate(&mut self, number: usize) {
        let plan = self.programs[number].plan.clone();
        if self.log.actions + self.coverage.writes > EVENTS {
            self.programs[number].left_bytes = 0;
            self.programs[number].opened = plan.openings;
        }
        let opening = self.programs[number].opening;
        if self.programs[number].left_bytes == 0 {
            self.close(number);
        } else if self.random.chance(plan.sync_in_thousand) {
            let file = self.programs[number].file;
            self.write_back(file, ByteRange::WHOLE, false, u64::MAX);
            self.programs[number].phase = Phase::Syncing(self.disk.last_number());
            self.coverage.syncs += 1;
            self.after(MS, Event::Program(number));
        } else if self.random.chance(plan.flush_in_thousand) {
            self.programs[number].phase = Phase::Settling(self.now);
            self.openings[opening].flushed = true;
            self.coverage.flushes += 1;
            self.post(Message::Flush(opening));
        } else if self.random.chance(plan.truncate_in_thousand) {
            let file = self.programs[number].file;
            let size = self.random.below(self.files[file].size + PAGE);
            let size = size.min(self.files[file].pages() as u64 * PAGE);
            let size = if self.random.below(2) == 0 { 0 } else { size };
            let balance = &mut self.balance;
            self.files[file].truncate(size, &mut |name, pages| balance[name as usize] += pages);
            self.programs[number].cursor = self.programs[number].cursor.min(size);
            self.coverage.truncations += 1;
            self.post(Message::Resized(opening, size));
            self.go_on(number);
        } else if plan.habit == Habit::Reading {
            self.read(number);
            self.go_on(number);
        } else {
            self.write(number);
        }
    }

    fn next_range(&mut self, number: usize) -> ByteRange {
        let (plan, cursor, file) = {
            let program = &self.programs[number];
            (program.plan.clone(), program.cursor, program.file)
        };
        let most = self.files[file].pages() as u64 * PAGE;
        let (low, high) = plan.write_bytes;
        let length = self.random.between(low, high).min(most);
        let start = match plan.habit {
            Habit::Sequential | Habit::Rewriting | Habit::SmallFiles | Habit::Reading => cursor,
            Habit::Append => self.files[file].size,
            Habit::Random => self.random.below(most),
            Habit::Hot if self.random.below(20) > 0 => self.random.below(8) * PAGE,
            Habit::Hot => self.random.below(most),
            Habit::Overlapping => {
                let back = self.random.below(3 * length);
                (cursor + length / 2).saturating_sub(back)
            }
            Habit::Sparse => cursor + PAGE - 1,
        };
        let start = if start + length > most {
            self.random.below(2) * self.random.below(most - length + 1)
        } else {
            start
        };
        self.programs[number].cursor = start + length;
        ByteRange::new(start, start + length)
    }

    fn write(&mut self, number: usize) {
        let range = self.next_range(number);
        let plan = &self.programs[number].plan;
        let (other, in_thousand) = plan.other_mode;
        let own = plan.mode;
        let mode = if self.random.chance(in_thousand) {
            other
        } else {
            own
        };
        let number_of = self.programs[number].opening;
        let pinned = self.pinned();
        let opening = &mut self.openings[number_of];
        let file = &mut self.files[opening.file];
        let actor = Actor {
            owner: opening.name,
            eager: mode.writeback == Writeback::Eager && !opening.failed,
        };
        opening.only_eager &= mode.writeback == Writeback::Eager;
        let paged = range.page_aligned_outward(PAGE);
        let looks = self.programs[number].plan.looks && mode.drops();
        let cached = looks.then(|| RangeSet::from_iter(file.resident(paged)));
        let balance = &mut self.balance;
        file.write(self.now, range, actor, pinned, &mut |name, pages| {
            balance[name as usize] += pages;
        });
        if !mode.drops() {
            // The pages are wanted, whoever brought them in.
            file.disown(opening.name, range);
        }
        opening.longest_write = opening.longest_write.max(paged.len());
        opening.untold_excess += paged.len() - range.len();
        let writes = match cached {
            None => vec![Write::new(paged, mode)],
            Some(cached) => {
                self.coverage.looks += 1;
                let found = |found| move |range| Write { range, mode, found };
                let there = cached.overlaps_of(paged).map(found(Found::Cached));
                there
                    .chain(cached.gaps_of(paged).map(found(Found::Absent)))
                    .collect()
            }
        };
        let mut crowded = false;
        for write in writes {
            crowded |= push(&mut opening.slot, self.plan.ring, write);
        }
        opening.slot.total += range.len();
        self.coverage.writes += 1;
        self.coverage.written_pages += paged.len() / PAGE;
        self.programs[number].left_bytes =
            self.programs[number].left_bytes.saturating_sub(range.len());
        self.watch_write(number_of);
        self.openings[number_of].passed_excess = self.openings[number_of].untold_excess;
        let slot = &mut self.openings[number_of].slot;
        let due = crowded || slot.quiet || slot.total - slot.kicked_at >= slot.batch;
        if due {
            slot.kicked_at = slot.total;
        }
        if self.openings[number_of].over_limit() {
            self.coverage.waits += 1;
            self.programs[number].phase = Phase::Waiting(self.now, self.disk.stalled_ns);
            self.ring_bell();
            return;
        }
        if due {
            self.ring_bell();
        }
        self.go_on(number);
    }

    /// Looks before, reads, and reports what it brought in.
    fn read(&mut self, number: usize) {
        let opening = &mut self.openings[self.programs[number].opening];
        let file = &mut self.files[opening.file];
        if file.size == 0 {
            self.programs[number].left_bytes = 0;
            return;
        }
        let cursor = self.programs[number].cursor;
        let start = if cursor >= file.size { 0 } else { cursor };
        let length = self.programs[number].plan.write_bytes.1.max(PAGE);
        let range = ByteRange::new(start, start + length);
        let brought = file.read(range, opening.name, 0);
        self.programs[number].cursor = range.end;
        self.programs[number].left_bytes = self.programs[number].left_bytes.saturating_sub(length);
        if !self.programs[number].plan.mode.drops() {
            file.disown(opening.name, range);
            return;
        }
        self.coverage.reads += brought.len() as u64;
        let mut waiting = 0;
        for part in brought {
            waiting += part.len();
            opening.slot.reads.push_back(part);
        }
        if opening.slot.quiet || waiting >= READ_KICK_BYTES || opening.slot.reads.len() > 8 {
            self.ring_bell();
        }
    }

    fn pinned(&mut self) -> u64 {
        if self.random.chance(self.plan.pinned_in_thousand) {
            self.coverage.pinned += 1;
            return self.now.saturating_add(self.plan.pinned_ns);
        }
        0
    }

    fn close(&mut self, number: usize) {
        let opening = self.programs[number].opening;
        self.openings[opening].closed_ns = Some(self.now);
        self.post(Message::Closed(opening));
        match self.programs[number].plan.unlink_after_ns {
            Some(delay) if !self.programs[number].unlinked => {
                self.programs[number].phase = Phase::Deleting;
                self.after(delay, Event::Program(number));
            }
            _ => self.next_opening(number),
        }
    }

    fn next_opening(&mut self, number: usize) {
        let program = &mut self.programs[number];
        program.phase = if program.opened < program.plan.openings {
            Phase::Closed
        } else {
            Phase::Done
        };
        let many = program.plan.openings > 100;
        let delay = self.random.below(if many { MS } else { 20 * MS });
        self.after(delay, Event::Program(number));
    }

    fn unlink(&mut self, number: usize) {
        let file = self.programs[number].file;
        self.trace(|| format!("unlinked file {file}"));
        // Others may still have it open, and go on.
        self.files[file].unlinked_ns.get_or_insert(self.now);
        self.programs[number].unlinked = true;
        self.coverage.unlinks += 1;
    }

    pub(crate) fn post(&mut self, message: Message) {
        self.inbox.push_back(message);
        self.ring_bell();
    }
}

/// Puts a run into the ring, or extends the last one; true when it is crowded.
fn push(slot: &mut Slot, ring: usize, write: Write) -> bool {
    let range = write.range;
    if let Some(last) = slot.writes.back_mut() {
        let adjacent = range.start >= last.range.start && range.start <= last.range.end;
        if (last.mode, last.found) == (write.mode, write.found) && adjacent {
            last.range.end = last.range.end.max(range.end);
            return false;
        }
    }
    if slot.writes.len() >= ring {
        let (span, modes) = slot.lost.unwrap_or((range, 0));
        let span = ByteRange::new(span.start.min(range.start), span.end.max(range.end));
        let modes = match write.found {
            // It stays, and the kernel writes it.
            Found::Cached => modes,
            _ => modes | 1 << write.mode.to_bits(),
        };
        slot.lost = Some((span, modes));
        return true;
    }
    slot.writes.push_back(write);
    slot.writes.len() * 2 >= ring
}
