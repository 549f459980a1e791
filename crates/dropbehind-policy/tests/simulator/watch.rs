//! What must hold, whatever happens.

use dropbehind_policy::grace::{GRACE_NS, SMALL_FILE_BYTES};
use dropbehind_policy::neighbours::BATCHES;
use dropbehind_policy::pace::{BATCH_MIN_BYTES, POLL_MAX_NS, POLL_SHARED_MAX_NS};
use dropbehind_policy::{Action, ByteRange, Next, Reason};

use crate::cache::PAGE;
use crate::plan::{MS, SECOND};
use crate::program::Phase;
use crate::world::World;

impl World {
    /// Bounds: right after a write, the stream's own dirty and writeback bytes
    /// are no more than its limit when it began the write, and the write.
    pub(crate) fn watch_write(&mut self, number: usize) {
        let opening = &self.openings[number];
        let plan = &self.programs[opening.program].plan;
        let window = self.plan.window_bytes(plan);
        let bounded = opening.only_eager && !opening.failed && window > 0;
        if !bounded || self.files[opening.file].shared {
            return;
        }
        // Redirtied and skipped pages stray; what is left is to be bounded.
        let unwritten = self.balance[opening.name as usize].max(0) as u64 * PAGE;
        let bound = window
            .max(PAGE)
            .saturating_mul(2)
            .saturating_add(opening.longest_write + opening.passed_excess);
        self.coverage.bounds += 1;
        assert!(
            unwritten <= bound,
            "stream {} has {unwritten} bytes dirty or under writeback, its bound is {bound}",
            opening.name
        );
    }

    /// No starvation: a wait ends while the disk gets on.
    pub(crate) fn watch_wait(&mut self, number: usize, since: u64, stalled_before: u64) {
        let stalled = self.disk.stalled_ns - stalled_before;
        let waited = (self.now - since).saturating_sub(stalled);
        let patience = self.patience();
        assert!(
            waited <= patience,
            "stream {} waited for {} ms, {} ms are enough",
            self.openings[number].name,
            waited / MS,
            patience / MS
        );
    }

    /// How long the disk and the flusher need for all that can be pending.
    fn patience(&self) -> u64 {
        let nature = &self.plan.nature;
        let speed = nature.bytes_per_second * nature.slowest_percent / 100;
        let pages: u64 = self.files.iter().map(|file| file.pages() as u64).sum();
        let requests = self.disk.queued() as u64 + 4000;
        let actions = 4000 + 10 * pages;
        // Beside others, it may be that long before what a request has written is noticed.
        let programs = self.plan.programs.iter();
        let sizes = programs.map(|program| program.request_bytes.unwrap_or(u64::MAX));
        let smallest = sizes.min().unwrap_or(u64::MAX).max(PAGE);
        let polls_ns = match self.plan.peers_in_thousand {
            0 => 0,
            _ => (1 + 2 * pages * PAGE / smallest) * POLL_SHARED_MAX_NS,
        };
        2 * SECOND
            + nature.stall_ns
            + 4 * pages * PAGE * 1000 / speed * MS
            + 2 * requests * nature.per_request_ns
            + actions * self.plan.shell_ns
            + polls_ns
    }

    /// The flusher goes to sleep: nobody waits for what it could do.
    pub(crate) fn watch_sleep(&mut self, until: Option<u64>) {
        if self.bell {
            return;
        }
        for number in self.alive() {
            let opening = &self.openings[number];
            let program = &self.programs[opening.program];
            let waits = program.opening == number && matches!(program.phase, Phase::Waiting(..));
            if !waits {
                continue;
            }
            let streams = self.alive().len() as u64;
            let poll_ns = match self.plan.peers_in_thousand {
                0 => POLL_MAX_NS,
                _ => POLL_SHARED_MAX_NS,
            };
            let latest = self.now + poll_ns * (1 + streams / 4);
            assert!(
                until.is_some_and(|due| due <= latest) || opening.slot.total > opening.told_total,
                "stream {} waits, and the flusher sleeps until {until:?}: {:?}",
                opening.name,
                self.policy.stream(opening.id())
            );
        }
    }

    /// The queue is consistent: an answer does not change by being asked for
    /// again, and what is due is not in the past.
    pub(crate) fn watch_queue(&mut self, next: &Next) {
        match *next {
            Next::At(due_ns) => {
                assert!(due_ns > self.now, "due in the past");
                assert_eq!(self.policy.next(self.now), *next);
            }
            Next::Idle => assert_eq!(self.policy.next(self.now), *next),
            Next::Do(_) => {}
        }
    }

    pub(crate) fn watch_action(&mut self, action: &Action) {
        self.log.actions += 1;
        self.trace(|| format!("{action:?}"));
        let number = action.stream().0 as usize - 1;
        assert!(
            number >= self.alive_from,
            "an action for a stream of before the crash"
        );
        assert!(
            !self.openings[number].forgotten,
            "an action for a forgotten stream"
        );
        match *action {
            Action::StartWriteback {
                range,
                reason,
                stream,
                ..
            } => {
                self.log
                    .note(&[1, self.now, stream.0, range.start, range.end]);
                self.log.note(&[reason as u64]);
                self.watch_writeback(number, range, reason);
            }
            Action::Count { stream, range } => {
                self.log
                    .note(&[2, self.now, stream.0, range.start, range.end]);
                self.log.counts += 1;
                assert!(!range.is_empty(), "an empty count");
            }
            Action::Drop { stream, ref ranges } => {
                for range in ranges {
                    self.log
                        .note(&[3, self.now, stream.0, range.start, range.end]);
                    self.watch_drop(number, *range);
                }
            }
            Action::Inspect { stream } => self.log.note(&[4, self.now, stream.0]),
            Action::Forget { stream } => {
                self.log.note(&[6, self.now, stream.0]);
                let counters = self.policy.forgotten(stream);
                assert!(counters.is_some(), "the counters survive");
                assert!(
                    self.openings[number].closed_ns.is_some(),
                    "forgotten while open"
                );
                self.openings[number].forgotten = true;
            }
        }
        self.watch_accounts(number);
    }

    fn watch_writeback(&mut self, number: usize, range: ByteRange, reason: Reason) {
        assert!(!range.is_empty(), "an empty request");
        if self.policy.yields_at(self.now) {
            self.coverage.yielding += 1;
            let batch_bytes = BATCH_MIN_BYTES.max(self.plan.policy.request_bytes);
            let before_bytes = self.policy.asked_bytes().saturating_sub(range.len());
            assert!(
                before_bytes < BATCHES * batch_bytes,
                "{before_bytes} bytes in flight beside readers"
            );
        }
        assert!(
            range.start.is_multiple_of(PAGE),
            "{range:?} begins within a page"
        );
        assert!(
            range.end.is_multiple_of(PAGE),
            "{range:?} ends within a page"
        );
        let opening = &mut self.openings[number];
        let first = !std::mem::replace(&mut opening.asked, true);
        self.coverage.reasons[reason as usize] += 1;
        let program = &self.programs[opening.program];
        let Some(closed_ns) = opening.closed_ns else {
            return;
        };
        // Small files that were closed wait for each other, and for deletion.
        let small = self.files[opening.file].pages() as u64 * PAGE < SMALL_FILE_BYTES;
        let faults = self.plan.failing_in_thousand + self.plan.unanswered_in_thousand;
        let lazy = first && small && opening.only_eager && !opening.flushed && faults == 0;
        if !lazy || program.plan.flush_in_thousand > 0 {
            return;
        }
        let told_ns = closed_ns;
        if reason == Reason::Close {
            assert!(
                self.now >= told_ns + GRACE_NS,
                "a small file was not given its grace"
            );
        }
        let deleted = self.files[opening.file]
            .unlinked_ns
            .is_some_and(|at| at + 20 * MS < self.now);
        let told = told_ns + 20 * MS < self.now;
        if matches!(reason, Reason::Close | Reason::Budget) && told && self.plan.shell_ns < MS {
            assert!(!deleted, "a deleted small file is written because of us");
        }
    }

    /// Nothing is dropped that others had, or that is not ours.
    fn watch_drop(&mut self, number: usize, range: ByteRange) {
        assert!(!range.is_empty(), "an empty drop");
        let opening = &self.openings[number];
        let end = opening.kept.len();
        let first = ((range.start / PAGE) as usize).min(end);
        let last = (range.end.div_ceil(PAGE) as usize).min(end);
        let kept = opening.kept[first..last].iter().position(|kept| *kept);
        assert!(
            kept.is_none(),
            "stream {}: page {} of {range:?} was there before",
            opening.name,
            first + kept.unwrap_or(0)
        );
        let foreign = opening.touched[first..last].iter().position(|ours| !*ours);
        assert!(
            foreign.is_none(),
            "stream {}: page {} of {range:?} is none of ours",
            opening.name,
            first + foreign.unwrap_or(0)
        );
    }

    fn watch_accounts(&mut self, number: usize) {
        let Some(stream) = self.policy.stream(self.openings[number].id()) else {
            return;
        };
        let counters = stream.counters();
        assert_eq!(
            counters.brought_bytes,
            counters.dropped_bytes + counters.left_bytes + stream.brought_bytes(),
            "what was brought in is dropped, left, or still ours"
        );
    }

    /// A stream is done with: all it brought in is gone, or counted as left.
    pub(crate) fn watch_forget(&mut self, number: usize) {
        let opening = &self.openings[number];
        let counters = self.policy.forgotten(opening.id()).copied();
        let counters = counters.unwrap_or_default();
        assert_eq!(
            counters.brought_bytes,
            counters.dropped_bytes + counters.left_bytes
        );
        self.coverage.forgotten += 1;
        self.coverage.left += u64::from(counters.left_bytes > 0);
        self.coverage.kept += u64::from(counters.kept_bytes > 0);
        let file = &mut self.files[opening.file];
        let deleted = file.unlinked_ns.is_some();
        for (at, kept) in opening.kept.iter().enumerate() {
            if *kept {
                let start = at as u64 * PAGE;
                file.disown(opening.name, ByteRange::new(start, start + PAGE));
            }
        }
        let stayed = file.bytes_of(opening.name);
        assert!(
            deleted || stayed <= counters.left_bytes,
            "stream {} is done with {stayed} bytes in the cache, and counts {} as left",
            opening.name,
            counters.left_bytes
        );
    }

    /// Every second: no eagerly written page is forgotten.
    pub(crate) fn watch_now(&mut self) {
        let patience = GRACE_NS + SECOND + self.patience() + self.disk.stalled_ns;
        let Some(since) = self.now.checked_sub(patience) else {
            return;
        };
        for file in &self.files {
            if file.unlinked_ns.is_some() || file.shared {
                continue;
            }
            if let Some(page) = file.forgotten_page(since) {
                let failed = self
                    .openings
                    .iter()
                    .any(|opening| opening.file == file.number && opening.failed);
                assert!(
                    failed,
                    "page {page} of file {} was written eagerly and never asked for",
                    file.number
                );
            }
        }
    }

    /// The world came to rest.
    pub(crate) fn watch_end(&mut self) {
        for number in self.alive() {
            assert!(self.openings[number].forgotten);
        }
        // Polls, a few actions for each event and each page, and no spinning.
        let polls = self.now / dropbehind_policy::pace::POLL_MIN_NS;
        let pages: u64 = self.coverage.written_pages * 4 + self.log.tells * 16;
        let most = polls.saturating_mul(self.openings.len() as u64) + pages + 10_000;
        assert!(
            self.log.actions <= most,
            "{} actions in {} ms",
            self.log.actions,
            self.now / MS
        );
    }
}
