//! The flusher's thread, as the library has it: drain the rings, tell, do what
//! the policy says, answer, publish.

use dropbehind_policy::drop_planner::SHORT_BYTES;
use dropbehind_policy::{
    Action, ByteRange, Counted, Dropped, Found, Inspected, Mode, Next, StreamId, Write,
};

use crate::cache::PAGE;
use crate::plan::MS;
use crate::program::Phase;
use crate::world::{Event, Flusher, Message, World};

/// Slots that did not kick are looked at this often.
const SWEEP_NS: u64 = 200 * MS;

/// What a call found.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Nothing,
    Counted(Counted),
    Dropped(Vec<(ByteRange, Dropped)>),
    Inspected(Inspected),
    Failed,
}

impl World {
    pub(crate) fn ring_bell(&mut self) {
        let asleep = matches!(self.flusher, Flusher::Asleep);
        if !self.bell && asleep {
            self.wake_flusher();
        }
        self.bell = true;
    }

    fn wake_flusher(&mut self) {
        let delay = self.shell_delay();
        self.flusher_after(delay);
    }

    fn flusher_after(&mut self, delay: u64) {
        self.flusher_turn += 1;
        self.after(delay, Event::Flusher(self.flusher_turn));
    }

    fn shell_delay(&mut self) -> u64 {
        1 + self.random.below(self.plan.shell_ns)
    }

    pub(crate) fn flusher_step(&mut self) {
        match std::mem::replace(&mut self.flusher, Flusher::Acting) {
            Flusher::Asleep | Flusher::Acting => self.act(),
            Flusher::Executing(action) => {
                let answer = self.execute(&action);
                self.flusher = Flusher::Answering(action, answer);
                let delay = self.shell_delay();
                self.flusher_after(delay);
            }
            Flusher::Answering(action, answer) => {
                if self.plan.interleaved && self.random.below(2) == 0 {
                    self.hear();
                }
                let id = action.stream();
                if let Some(answer) = answer {
                    self.answer(action, answer);
                }
                self.publish(id);
                self.act();
            }
        }
    }

    fn hear(&mut self) {
        if self.bell {
            self.bell = false;
            self.read_inbox();
            self.drain_all();
        } else if self.now - self.swept_ns >= SWEEP_NS {
            self.swept_ns = self.now;
            self.drain_all();
        }
    }

    fn act(&mut self) {
        self.hear();
        if self.random.chance(self.plan.peers_in_thousand) {
            let flushers = 1 + self.random.below(64);
            self.policy.shared_by(flushers);
            self.policy.starting(self.random.chance(300));
            for number in self.alive() {
                self.publish(self.openings[number].id());
            }
        }
        if self.random.chance(self.plan.neighbours_in_thousand) {
            self.disk_reads.count += 10;
            self.disk_reads.bytes += 10 * PAGE;
            self.disk_reads.time_ns += 1_000 * MS * self.random.below(2);
            self.policy.neighbours_read(self.now, self.disk_reads);
        }
        if self.policy.is_waited_for() {
            let idle = self.random.chance(self.plan.idle_in_thousand);
            self.coverage.idle += u64::from(idle);
            self.policy.found_idle(idle);
        }
        let next = self.policy.next(self.now);
        self.watch_queue(&next);
        match next {
            Next::Do(action) => {
                self.watch_action(&action);
                self.flusher = Flusher::Executing(action);
                let delay = self.shell_delay();
                self.flusher_after(delay);
            }
            Next::At(due_ns) => self.sleep(Some(due_ns)),
            Next::Idle => self.sleep(None),
        }
    }

    fn sleep(&mut self, until: Option<u64>) {
        self.watch_sleep(until);
        self.flusher = Flusher::Asleep;
        self.flusher_turn += 1;
        let mut attended = false;
        for number in self.alive() {
            let opening = &mut self.openings[number];
            if !opening.attached || opening.forgotten {
                continue;
            }
            if opening.settle_asked {
                // An action that was never answered may have been the last.
                let id = opening.id();
                self.publish(id);
            }
            let opening = &mut self.openings[number];
            let settled = self
                .policy
                .stream(opening.id())
                .is_none_or(|stream| stream.is_settled());
            opening.slot.quiet |=
                settled && opening.slot.total == opening.slot.done && opening.slot.reads.is_empty();
            attended |= !opening.slot.quiet && opening.closed_ns.is_none();
        }
        let sweep = attended.then_some(self.now + SWEEP_NS);
        if let Some(wake) = until.into_iter().chain(sweep).min() {
            self.at(wake.max(self.now + 1), Event::Flusher(self.flusher_turn));
        }
    }

    fn read_inbox(&mut self) {
        while let Some(message) = self.inbox.pop_front() {
            self.log.tells += 1;
            self.trace(|| format!("told {message:?}"));
            match message {
                Message::Attach(number) => {
                    let opening = &mut self.openings[number];
                    opening.attached = true;
                    let before = opening.before.take().unwrap_or_default();
                    let (id, config) = (opening.id(), opening.config);
                    self.policy.opened(id, config, before);
                    self.drain(number);
                }
                Message::Closed(number) => {
                    self.drain(number);
                    let id = self.openings[number].id();
                    self.policy.closed(self.now, id);
                }
                Message::Synced(number) => {
                    self.drain(number);
                    let id = self.openings[number].id();
                    self.policy.synced(self.now, id);
                    self.publish(id);
                }
                Message::Resized(number, size) => {
                    self.drain(number);
                    let opening = &mut self.openings[number];
                    let end = size.div_ceil(PAGE) as usize;
                    opening.kept[end..].fill(false);
                    let id = opening.id();
                    self.policy.resized(self.now, id, size);
                    self.publish(id);
                }
                Message::Flush(number) => {
                    self.drain(number);
                    let opening = &mut self.openings[number];
                    opening.settle_asked = true;
                    let id = opening.id();
                    self.policy.flush(self.now, id);
                    self.publish(id);
                }
            }
        }
    }

    fn drain_all(&mut self) {
        for number in self.alive() {
            if self.openings[number].attached && !self.openings[number].forgotten {
                self.drain(number);
            }
        }
    }

    fn drain(&mut self, number: usize) {
        let now = self.now;
        let opening = &mut self.openings[number];
        let id = opening.id();
        let slot = &mut opening.slot;
        slot.quiet = false;
        let news = !slot.writes.is_empty() || !slot.reads.is_empty() || slot.lost.is_some();
        if !news && opening.told_total == slot.total {
            return;
        }
        for range in std::mem::take(&mut slot.reads) {
            self.log.tells += 1;
            let pages = (range.start / PAGE) as usize..range.end.div_ceil(PAGE) as usize;
            opening.kept[pages.clone()].fill(false);
            opening.touched[pages].fill(true);
            if self.traced {
                println!("{now:>15}  told {} read {range:?}", id.0);
            }
            self.policy.read(now, id, range);
        }
        let mut told: Vec<Write> = slot.writes.drain(..).collect();
        if let Some((span, modes)) = slot.lost.take() {
            self.coverage.lost_ranges += 1;
            // What is cached there may have been written, by us or by others.
            opening.failed = true;
            let cached = self.files[opening.file].resident(span);
            for bits in (0..12).filter(|bits| modes & 1 << bits != 0) {
                let mode = Mode::from_bits(bits);
                told.extend(cached.iter().map(|range| Write::new(*range, mode)));
            }
        }
        told.sort_by_key(|write| write.found);
        for write in told {
            let Write { range, mode, found } = write;
            self.log.tells += 1;
            let pages = (range.start / PAGE) as usize..range.end.div_ceil(PAGE) as usize;
            match found {
                Found::NotLooked => {}
                Found::Absent => {
                    opening.kept[pages.clone()].fill(false);
                }
                Found::Cached => {
                    let stream = self.policy.stream(id).expect("an open stream");
                    let ours = stream.brought_in(range);
                    let is_ours =
                        |at: u64| ours.iter().any(|part| (part.start..part.end).contains(&at));
                    for at in pages.clone().filter(|at| !is_ours(*at as u64 * PAGE)) {
                        opening.kept[at] = true;
                    }
                }
            }
            if mode.drops() {
                opening.touched[pages.clone()].fill(true);
                for at in pages.filter(|at| opening.kept[*at]) {
                    // Should it go and come back by this write, it is kept
                    // all the same: nothing says that it was gone.
                    let start = at as u64 * PAGE;
                    let page = ByteRange::new(start, start + PAGE);
                    self.files[opening.file].disown(opening.name, page);
                }
            } else {
                opening.kept[pages].fill(true);
            }
            if self.traced {
                println!("{now:>15}  told {} wrote {range:?} {mode}", id.0);
            }
            self.policy.wrote_all(now, id, [write]);
        }
        opening.told_total = opening.slot.total;
        opening.untold_excess = 0;
        self.policy.written_until(now, id, opening.told_total);
        self.publish(id);
    }

    fn number_of(&self, id: StreamId) -> usize {
        // Names are given in order, from 1.
        id.0 as usize - 1
    }

    pub(crate) fn publish(&mut self, id: StreamId) {
        let number = self.number_of(id);
        let Some(stream) = self.policy.stream(id) else {
            return;
        };
        let opening = &mut self.openings[number];
        assert!(
            stream.done_bytes() >= opening.slot.done,
            "done never goes back"
        );
        opening.slot.done = stream.done_bytes();
        opening.slot.limit = self.policy.limit_bytes(id);
        opening.slot.batch = self.policy.batch_bytes(id);
        let settled = stream.is_settled() && opening.slot.total == opening.slot.done;
        let over = opening.over_limit();
        let program = opening.program;
        if self.programs[program].opening != number {
            return;
        }
        match self.programs[program].phase {
            Phase::Waiting(since, stalled_ns) if !over => {
                self.watch_wait(number, since, stalled_ns);
                self.openings[number].passed_excess = self.openings[number].untold_excess;
                self.go_on(program);
            }
            Phase::Settling(_) if settled && self.openings[number].settle_asked => {
                self.openings[number].settle_asked = false;
                self.go_on(program);
            }
            _ => {}
        }
    }

    fn execute(&mut self, action: &Action) -> Option<Answer> {
        let number = self.number_of(action.stream());
        let file = self.openings[number].file;
        if self.random.chance(self.plan.unanswered_in_thousand) {
            self.coverage.unanswered += 1;
            if let Action::StartWriteback { range, .. } = action {
                self.write_back_skipping(file, *range, true, u64::MAX, 1000);
            }
            return None;
        }
        let failing = self.random.chance(self.plan.failing_in_thousand);
        if failing && !matches!(action, Action::Forget { .. }) {
            self.coverage.failing += 1;
            return Some(self.fail(number, action));
        }
        Some(match action {
            Action::StartWriteback { range, .. } => {
                self.write_back(file, *range, true, u64::MAX);
                Answer::Nothing
            }
            Action::Count { range, .. } => Answer::Counted(self.files[file].count(*range)),
            Action::Drop { ranges, .. } => Answer::Dropped(self.drop_all(file, ranges)),
            Action::Inspect { .. } => Answer::Inspected(Inspected {
                unlinked: self.files[file].unlinked_ns.is_some(),
            }),
            Action::Forget { .. } => Answer::Nothing,
        })
    }

    /// The call fails: for good, so that the shell says so, or silently.
    fn fail(&mut self, number: usize, action: &Action) -> Answer {
        if let Action::StartWriteback { range, .. } = action {
            let file = self.openings[number].file;
            self.write_back_skipping(file, *range, true, u64::MAX, 1000);
        }
        if self.random.below(2) == 0 && !matches!(action, Action::Drop { .. }) {
            return Answer::Nothing;
        }
        Answer::Failed
    }

    /// Some of the ranges may stay unanswered: their calls failed for once.
    fn drop_all(&mut self, file: usize, ranges: &[ByteRange]) -> Vec<(ByteRange, Dropped)> {
        let mut outcomes = Vec::new();
        for range in ranges {
            if self.random.chance(self.plan.unanswered_in_thousand) {
                self.coverage.unanswered += 1;
            } else {
                outcomes.push((*range, self.drop_pages(file, *range)));
            }
        }
        self.coverage.drops_of_many += u64::from(ranges.len() > 1);
        outcomes
    }

    fn drop_pages(&mut self, file: usize, range: ByteRange) -> Dropped {
        if range.len() <= SHORT_BYTES {
            // Not counted before: what is dirty after all is written.
            self.write_back(file, range, true, u64::MAX);
        }
        let before = self.files[file].count(range);
        if before.unwritten_bytes() > 0 {
            self.coverage.not_clean += 1;
            return Dropped::NotClean;
        }
        self.files[file].dont_need(range, self.now);
        let after = self.files[file].count(range);
        self.coverage.drops += 1;
        self.coverage.drops_again += u64::from(after.cached_bytes > 0);
        Dropped::Tried {
            before_bytes: (range.len() > SHORT_BYTES).then_some(before.cached_bytes),
            after_bytes: after.cached_bytes,
        }
    }

    fn answer(&mut self, action: Action, answer: Answer) {
        let id = action.stream();
        let number = self.number_of(id);
        let now = self.now;
        self.trace(|| format!("    answer of {}: {answer:?}", id.0));
        match (action, answer) {
            (Action::Count { range, .. }, Answer::Counted(counted)) => {
                self.policy.counted(now, id, range, counted);
            }
            (Action::Drop { .. }, Answer::Dropped(dropped)) => {
                self.policy.dropped(now, id, dropped);
            }
            (Action::Inspect { .. }, Answer::Inspected(inspected)) => {
                self.policy.inspected(now, id, inspected);
            }
            (_, Answer::Failed) => {
                self.openings[number].failed = true;
                self.policy.failed(now, id);
            }
            (Action::Forget { .. }, _) => self.watch_forget(number),
            _ => {}
        }
    }
}
