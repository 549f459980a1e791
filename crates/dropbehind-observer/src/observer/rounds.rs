//! The observer's thread. In rounds, it reads what happened to files and who brought what into
//! the page cache, and acts on it.
//!
//! Two queues report this, and only one thing orders them: an event is in its queue before the
//! program goes on. So opens are read first, then the trace up to the moment before that, and a
//! close counts in the next round. By then, all that the program brought in before the close is
//! known.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use dropbehind_flusher::{Beginning, ReportedTrace};
use dropbehind_linux::{
    CacheTrace, Event, EventBuffer, EventMask, FileAdviceTrace, FileKind, FileStat, Interest,
    PollEntry, TraceRecord, file_stat, monotonic_ns, poll, thread_id,
};
use dropbehind_policy::{ByteRange, Inode, Mode};

use super::inputs::Barrier;
use super::{Input, Inputs, Shared, own_process};
use crate::block_inodes::learn_superblock;
use crate::board::lock;
use crate::files::{Close, Files, range_of_pages};
use crate::opens::Reported;
use crate::rules::Rules;
use crate::source::Marks;

/// Events are read this many at a time, or fewer where descriptors are scarce: each opens one.
const EVENTS: usize = 256;
/// The most events that a watch reads in a round. The kernel's queue holds no more
/// (`fs.fanotify.max_queued_events`), so this covers all that happened before the round. Users
/// may make events faster than they can be read.
const QUEUE: usize = 16_384;
/// From so many on, there may be more.
const MANY: usize = 4096;
/// The pause between rounds while something happens: what happens meanwhile costs less together.
/// A round makes several system calls, however little there is to do. At 2 GB/s, 8 MiB enter the
/// cache meanwhile.
const GATHER: Duration = Duration::from_millis(4);
/// The pause between two steps of a search.
const STEP: Duration = Duration::from_millis(1);
/// The longest pause while only pages of no interest enter the cache. The trace is not waited for
/// then: it would wake us every 4 MiB.
const OTHERS: Duration = Duration::from_millis(8);
/// While nothing happens, the pause doubles up to this. The trace wakes us sooner, after some 50
/// records.
const QUIET: Duration = Duration::from_millis(50);
/// The longest pause while no file is known.
const REST: Duration = Duration::from_millis(500);

/// If no disk could be read to learn what the trace calls raw devices, there may be one later.
/// This is the shortest time between two attempts.
pub(super) const LEARNING: Duration = Duration::from_secs(1);

/// The kernel does not report that a directory above a mount was renamed. So while no path leads
/// to a file system, the mount table is read this often.
const MOUNTS: Duration = Duration::from_secs(1);

pub(super) struct Rounds {
    pub(super) shared: Arc<Shared>,
    pub(super) reported: Option<Reported>,
    pub(super) marks: Marks,
    /// To be in force once all that happened before they came has been read.
    pub(super) next_rules: Option<Arc<dyn Rules>>,
    pub(super) trace: Option<CacheTrace>,
    /// What programs say about their use of files, while that counts.
    pub(super) advice: Option<FileAdviceTrace>,
    pub(super) files: Files,
    pub(super) inputs: Inputs,
    pub(super) inbox: mpsc::Receiver<Input>,
    /// To be answered at the end of this round, or as soon as all that programs had open already
    /// was looked at.
    pub(super) barriers: Vec<Barrier>,
    /// Closes that were read in the last round and count in this one.
    pub(super) closes: Vec<Close>,
    /// Something was mounted or unmounted.
    pub(super) remounted: bool,
    /// When to read the mount table again, if no path leads to some file system.
    pub(super) next_mounts: Instant,
    /// When to try again to learn what the trace calls raw devices.
    pub(super) next_learning: Instant,
    /// Pages entered the cache in the last round, and all of them were of no interest.
    pub(super) others_only: bool,
}

/// How many files may be held, or be closed and hold a descriptor, given the limit on those: an
/// event that finds none left is lost, with its file. A file on an overlay holds two.
pub(super) fn most_held() -> usize {
    use rustix::process::{Resource, getrlimit};
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / 4).unwrap_or(usize::MAX)
}

impl Rounds {
    pub(super) fn run(mut self) {
        self.shared.thread.store(thread_id(), Ordering::Relaxed);
        let mut buffer = EventBuffer::new(EVENTS.min(self.files.most_held / 4));
        let mut pause = GATHER;
        while !self.shared.stopping.load(Ordering::SeqCst) {
            self.wait(pause);
            let busy = self.round(&mut buffer);
            let slowest = match self.files.count() {
                0 => REST,
                _ => QUIET,
            };
            pause = match busy {
                true => GATHER,
                false => (pause * 2).min(slowest),
            };
            if !self.closes.is_empty() {
                pause = GATHER;
            }
            let searches = self.files.have_heirs() || self.files.have_outdated();
            if searches {
                pause = STEP;
            }
            if let Some(doubts) = self.files.doubts_due() {
                pause = pause.min(doubts.max(STEP));
            }
        }
    }

    /// Waits for something to happen, `pause` at most.
    fn wait(&mut self, mut pause: Duration) {
        let mut wake = [PollEntry::new(self.inputs.as_fd(), Interest::Readable)];
        if self.others_only {
            pause = pause.min(OTHERS);
        }
        let gather = pause.min(GATHER);
        if poll(&mut wake, Some(gather)).is_ok_and(|ready| ready > 0) {
            return self.inputs.woken();
        }
        pause -= gather;
        let mut entries = vec![PollEntry::new(self.inputs.as_fd(), Interest::Readable)];
        let watches = self.marks.watches();
        entries.extend(watches.map(|watch| PollEntry::new(watch, Interest::Urgent)));
        let watched = entries.len();
        let fanotify = self.files.fanotify.as_deref().map(AsFd::as_fd);
        let opens = fanotify.or_else(|| self.reported.as_ref()?.opens());
        // While events wait there, it is always readable.
        let opens = opens.filter(|_| !self.files.opens_wait);
        entries.extend(opens.map(|opens| PollEntry::new(opens, Interest::Readable)));
        if let Some(trace) = self.trace.as_ref().filter(|_| !self.others_only) {
            entries.push(PollEntry::new(trace.as_fd(), Interest::Readable));
        }
        if poll(&mut entries, Some(pause)).is_err() {
            return;
        }
        if entries[0].is_ready() {
            self.inputs.woken();
        }
        // The poll resets it.
        self.remounted |= entries[1..watched].iter().any(PollEntry::is_ready);
    }

    /// Marks what was mounted since the last round.
    fn follow_mounts(&mut self) {
        let changed = std::mem::take(&mut self.remounted) || self.marks.have_changed();
        let now = Instant::now();
        if changed || now >= self.next_mounts && self.files.miss_mounts() {
            self.next_mounts = now + MOUNTS;
            let mut notes = Vec::new();
            let rules = &*self.files.rules.rules;
            let fanotify = self.files.fanotify.as_ref();
            let _ = self.marks.refresh(rules, fanotify, &mut notes);
            self.files.mounted(&self.marks);
            for note in notes {
                lock(&self.shared.reporter.board).user_note(note);
            }
        }
    }

    fn note(&self, note: impl AsRef<str> + Into<String>) {
        lock(&self.shared.reporter.board).note(note);
    }

    /// Returns whether anything happened.
    fn round(&mut self, buffer: &mut EventBuffer) -> bool {
        self.files.begin_round();
        // All that enters the cache before this is reported in this round.
        let mark = self.files.trace.as_ref().map(ReportedTrace::mark);
        let inputs = self.take_inputs();
        self.files.look_at_heirs();
        // Taken before the events are read, so that every file in use by then is known.
        let until_ns = monotonic_ns();
        let began = Beginning::now();
        self.follow_mounts();
        let mut closes = Vec::new();
        let events = self.read_events(buffer, &mut closes);
        let traced = self.read_trace(until_ns);
        self.files.programs.trace_read();
        if let Some(advice) = &mut self.advice {
            for said in advice.read() {
                self.files.advised(said);
            }
        }
        self.files.note_failed_writeback();
        if self.trace.is_some() {
            std::mem::swap(&mut self.closes, &mut closes);
        }
        for close in closes {
            self.files.closed(close);
        }
        self.files.close_unused();
        self.files.find_grown();
        self.files.act();
        self.files.tell_excess();
        if let (Some(reported), Some(mark)) = (&self.files.trace, mark) {
            reported.reported_until(mark);
        }
        if !self.files.opens_wait {
            self.files.opens_were_read();
            if events < MANY {
                self.files.inodes.all_read = began;
            }
        }
        self.files.settle_doubts();
        self.files.shrink();
        if let Some(rules) = self.next_rules.take() {
            self.files.rules.rules = rules;
            // They may name other file systems.
            self.remounted = true;
            self.listen_to_advice();
            self.files.look_for_uses();
            self.files.rules_changed();
        } else if self.files.have_outdated() {
            self.files.apply_rules();
        }
        // The files of events that wait are not known yet.
        let count = self.files.count().max(usize::from(self.files.opens_wait));
        let waits = self.files.have_heirs();
        let outdated = self.files.have_outdated();
        self.barriers.retain(|barrier| {
            let keeps = barrier.when_all_found && waits || outdated;
            if !keeps {
                let _ = barrier.answer.send(count);
            }
            keeps
        });
        inputs + events > 0 || traced
    }

    /// Records what programs say about their use of files, if that may count by now.
    pub(super) fn listen_to_advice(&mut self) {
        let heed_advice = self.files.rules.rules.have_mode(Mode::heeds_advice);
        if self.trace.is_none() || self.advice.is_some() || !heed_advice {
            return;
        }
        match FileAdviceTrace::open() {
            Ok(advice) => self.advice = Some(advice),
            Err(error) => self.note(format!(
                "the kernel does not report what programs advise about files ({error}): \
                 posix_fadvise(2) changes nothing here"
            )),
        }
    }

    fn take_inputs(&mut self) -> usize {
        let mut taken = 0;
        while let Ok(input) = self.inbox.try_recv() {
            taken += 1;
            let files = &mut self.files;
            match input {
                Input::Rules(rules) => self.next_rules = Some(rules),
                Input::Inherit(process) => files.inherit(process),
                Input::Notice(notice) => files.notice(notice),
                Input::Unshelved(unshelved) => files.unshelved(unshelved),
                Input::CloseAll => files.close_all(),
                Input::FindAgain => files.find_again(),
                Input::Barrier(barrier) => self.barriers.push(barrier),
            }
        }
        taken
    }

    fn read_events(&mut self, buffer: &mut EventBuffer, closes: &mut Vec<Close>) -> usize {
        if let Some(reported) = &mut self.reported {
            // Finishing these files takes no more opens.
            let shelved = self.shared.reporter.small.totals().files_with_descriptor;
            let waits = shelved >= self.files.most_held;
            self.files.opens_wait = waits;
            let opens = reported.read(&mut self.files, waits);
            let events = &self.shared.reporter.events;
            events.fetch_add(opens as u64, Ordering::Relaxed);
            if reported.over {
                self.shared.opens_over.store(true, Ordering::SeqCst);
            }
            return opens;
        }
        let Some(fanotify) = self.files.fanotify.clone() else {
            return 0;
        };
        let own = own_process();
        let (mut read, mut refused) = (0, 0);
        loop {
            // Finishing these files takes no more events.
            let shelved = self.shared.reporter.small.totals().files_with_descriptor;
            let waits = shelved + self.closes.len() + closes.len() >= self.files.most_held;
            self.files.opens_wait = waits;
            if waits {
                return read;
            }
            let events: io::Result<Vec<Event>> = fanotify.read(buffer).map(Iterator::collect);
            let events = match events {
                Ok(events) => events,
                Err(error) => {
                    // Before Linux 6.13, it takes one event off the queue.
                    refused += 1;
                    let is_empty = error.kind() == io::ErrorKind::WouldBlock;
                    if is_empty || refused > QUEUE || self.refused(&error) {
                        return read;
                    }
                    continue;
                }
            };
            if events.is_empty() {
                return read;
            }
            read += events.len();
            // The processes may be gone, but the rings have their names by now.
            if let Some(trace) = &mut self.trace {
                trace.gather(|time_ns, record| self.files.rules.names.take(time_ns, record));
            }
            let mut no_descriptors = false;
            for event in events {
                match &event.error {
                    Some(error) => no_descriptors |= self.refused(error),
                    None => self.happened(own, event, closes),
                }
            }
            if no_descriptors {
                return read;
            }
            if read >= QUEUE && !self.files.programs.are_of_a_run() {
                self.files.opens_wait = true;
                return read;
            }
        }
    }

    /// The file of an event could not be opened. Returns whether there were no descriptors.
    fn refused(&mut self, error: &io::Error) -> bool {
        self.files.unknown_opened();
        self.files.lack_descriptors(error)
    }

    fn happened(&mut self, own: i32, event: Event, closes: &mut Vec<Close>) {
        let reporter = &self.shared.reporter;
        let by_us = event.process == own;
        if !by_us {
            reporter.events.fetch_add(1, Ordering::Relaxed);
        }
        if event.overflow {
            reporter.overflows.fetch_add(1, Ordering::Relaxed);
            self.files.find_again();
            return self.note(
                "the kernel's queue of events overflowed: open files were searched for anew. A larger \
                 fs.fanotify.max_queued_events (sysctl) lets more wait",
            );
        }
        if event.mask.contains(EventMask::ON_DIR) {
            return;
        }
        let Event { mask, process, .. } = event;
        let opened = mask.contains(EventMask::OPEN) && !by_us;
        let closed = mask.intersects(EventMask::CLOSE_WRITE | EventMask::CLOSE_NOWRITE);
        // Other than through a mapping.
        let wrote = mask.contains(EventMask::MODIFY);
        let read = mask.contains(EventMask::ACCESS);
        if !(opened || closed || wrote || read) {
            return;
        }
        let Some(file) = event.file else { return };
        let Ok(info) = file_stat(file.as_fd()) else {
            return;
        };
        if info.kind == FileKind::Other {
            return;
        }
        let FileStat { id, size_bytes, .. } = info;
        if wrote || read {
            self.files.used(file.as_fd(), id, process, wrote, read);
        }
        let file = if opened {
            self.files.opened(file, info, process);
            None
        } else {
            Some(file)
        };
        let number = self.files.known(id);
        // A file whose open was missed is looked for in a run only. Otherwise the closes of
        // everybody's files would take descriptors until the next round.
        let in_run = self.files.programs.are_of_a_run();
        let file = file.filter(|_| number.is_none() && in_run);
        // If no rule wants an open, its close is of no interest either.
        if closed && (file.is_some() || number.is_some()) {
            closes.push(Close {
                id,
                number,
                file,
                process,
                by_writer: mask.contains(EventMask::CLOSE_WRITE),
                size_bytes,
                merged: opened,
                by_us,
            });
        }
    }

    /// Returns whether anything of interest has entered the cache.
    fn read_trace(&mut self, until_ns: u64) -> bool {
        let Some(trace) = &mut self.trace else {
            return false;
        };
        let files = &mut self.files;
        let superblock = files.inodes.block_devices_superblock;
        if superblock.is_none() && Instant::now() >= self.next_learning {
            let began = Instant::now();
            let take = |time_ns, record| files.rules.names.take(time_ns, record);
            let learned = learn_superblock(trace, self.marks.mounts(), take);
            files.inodes.block_devices_superblock = learned;
            // A disk that does not answer is not asked again for a while.
            self.next_learning = Instant::now() + LEARNING.max(began.elapsed() * 1000);
        }
        trace.gather(|time_ns, record| files.rules.names.take(time_ns, record));
        // Of folios that one process brought in one after another.
        let mut run: Option<(i32, Inode, ByteRange)> = None;
        let (mut any, mut of_interest) = (false, false);
        let (mut any_lost, mut lost) = (false, 0);
        trace.read(until_ns, |record| {
            any = true;
            match record {
                TraceRecord::Added {
                    process,
                    inode,
                    first_page,
                    pages,
                } => {
                    let inode = files.inodes.traced(inode.device, inode.number);
                    let added = range_of_pages(first_page, pages);
                    match &mut run {
                        Some((by, to, range))
                            if (*by, *to, range.end) == (process, inode, added.start) =>
                        {
                            range.end = added.end;
                        }
                        _ => {
                            let ended = run.replace((process, inode, added));
                            of_interest |= end_run(files, ended);
                        }
                    }
                }
                TraceRecord::Forked { child, parent } => {
                    of_interest |= end_run(files, run.take());
                    files.programs.forked(parent, child);
                }
                // These were taken when they were gathered.
                TraceRecord::Named { .. } | TraceRecord::Ended { .. } => {}
                TraceRecord::Lost { records } => {
                    any_lost = true;
                    lost += records;
                }
            }
        });
        of_interest |= end_run(files, run);
        self.others_only = any && !of_interest;
        // A loss has the time at which it was noticed, and may have happened before all that
        // was read now. It is read later as well, for what comes until then.
        let is_loss = |record: &TraceRecord| matches!(record, TraceRecord::Lost { .. });
        if any_lost || trace.gathered().any(is_loss) {
            files.programs.missed_forks();
            files.records_lost();
            lock(&self.shared.reporter.board).figures.lost_records += lost;
        }
        of_interest
    }
}

/// Returns whether the pages are of interest.
fn end_run(files: &mut Files, run: Option<(i32, Inode, ByteRange)>) -> bool {
    run.is_some_and(|(process, inode, range)| files.brought(process, inode, range))
}
