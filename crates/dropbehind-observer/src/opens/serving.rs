//! What a holder of the listener does with opens that were stopped.

use super::counts::Counts;
use super::excess::Excess;
use super::look::{Found, LookedAt, Looker, writes};
use super::server::{Served, StartSpare};
use super::spare::TICK;
use super::unfinished::{Counted, Unfinished, What};
use super::{Before, Opened, PATIENCE, Report};
use crate::shown;
use dropbehind_linux::seccomp::{Request, StoppedCall, stopped_calls_may_wait};
use dropbehind_linux::{
    CallUnderWay, Interest, Pidfd, PollEntry, monotonic_ns, poll, process_stat,
};
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What an open makes or truncates is looked at when its thread opens the next file, or after
/// this time. The pause doubles up to [`TICK`] while the open goes on: truncating a large file
/// takes some milliseconds.
pub(super) const PAUSE: Duration = Duration::from_millis(1);
/// No open is held for longer: the disk may write nothing any more, or others may fill it all the
/// time.
const HELD: Duration = Duration::from_secs(2);
/// As many processes are remembered.
const PROCESSES: usize = 4096;

/// One holder's work.
pub(super) struct Serving {
    pub(super) served: Arc<Served>,
    /// Which of the two holders this is.
    pub(super) holder: usize,
    /// The process that is the other one.
    pub(super) other: Option<Pidfd>,
    looker: Looker,
    unfinished: Vec<Unfinished>,
    /// Those that have opened something.
    processes: HashSet<i32>,
    told_of_others: HashSet<u32>,
    counts: Counts,
    /// The observer has not read for a while. It was waited for once; until it reads again, no
    /// other open waits for it.
    is_behind: bool,
    /// The observer is gone: nothing is looked at any more.
    deaf: bool,
    excess: Excess,
    /// Opens that wait until less is unwritten on this device, and since when.
    held: Vec<(StoppedCall, u64, Instant)>,
    may_hold: bool,
}

impl Serving {
    pub(super) fn new(served: Arc<Served>, holder: usize) -> Serving {
        Serving {
            served,
            holder,
            other: None,
            looker: Looker::new(),
            unfinished: Vec::new(),
            processes: HashSet::new(),
            told_of_others: HashSet::new(),
            counts: Counts::default(),
            is_behind: false,
            deaf: false,
            excess: Excess::default(),
            held: Vec::new(),
            may_hold: stopped_calls_may_wait(),
        }
    }

    /// Serves until no process is left, and returns true then. Each tick, and whenever `wake` is
    /// readable or the other holder has died, asks `each` whether that is enough.
    pub(super) fn serve(
        &mut self,
        wake: Option<&OwnedFd>,
        mut each: impl FnMut(&mut Serving) -> bool,
    ) -> bool {
        self.served.holders.begin(self.holder);
        let (mut asked, mut is_woken) = (Instant::now(), false);
        loop {
            if std::mem::take(&mut is_woken) || asked.elapsed() >= TICK {
                asked = Instant::now();
                if each(self) {
                    self.excess = Excess::default();
                    self.handle_due();
                    self.finish_all();
                    return false;
                }
            }
            let looked = self.handle_due();
            let served = Arc::clone(&self.served);
            let observer = served.observer.as_fd();
            let mut entries = vec![PollEntry::new(served.listener.as_fd(), Interest::Readable)];
            let other = self.other.as_ref().map(AsFd::as_fd);
            let others = wake.map(AsFd::as_fd).into_iter().chain(other);
            entries.extend(others.map(|fd| PollEntry::new(fd, Interest::Readable)));
            if !self.deaf {
                entries.push(PollEntry::new(observer, Interest::Readable));
            }
            let next_look = self.unfinished.iter().map(|open| open.next_look).min();
            let mut timeout = next_look.map_or(TICK, |next| {
                next.saturating_duration_since(Instant::now()).min(TICK)
            });
            if let Some(ends_in) = self.excess.ends_in() {
                timeout = timeout.min(ends_in);
            }
            if !looked {
                timeout = timeout.max(PAUSE);
            }
            // An interruption is no event; any other failure shows when receiving.
            if poll(&mut entries, Some(timeout)).is_ok_and(|ready| ready == 0) {
                continue;
            }
            let (ready, hung_up) = (entries[0].is_ready(), entries[0].is_hung_up());
            if !self.deaf && entries.pop().is_some_and(|entry| entry.is_ready()) {
                self.deaf = !self.excess.hear(observer);
            }
            is_woken = entries[1..].iter().any(PollEntry::is_ready);
            if hung_up {
                // Nobody looks any more whether opens are over.
                self.finish_where(|open| {
                    open.is_over = true;
                    true
                });
                return true;
            }
            if ready
                && let Ok(Some(call)) = served.holders.receive(self.holder, &served.listener)
                && self.stopped(&call)
            {
                // Fails only for one that is gone.
                let _ = served.holders.let_go(self.holder, &served.listener, &call);
            }
        }
    }

    /// Shows the other holder that this one looks at files. Returns false if it may not look now:
    /// the other one is waiting for a file's server, which may itself wait for an open that this
    /// one has to let go.
    fn start_looking(&self) -> bool {
        let holders = &self.served.holders;
        holders.set_looking(self.holder, true);
        let other = 1 - self.holder;
        !(holders.is_looking(other) && is_asleep(holders.thread(other)))
    }

    fn stop_looking(&self) {
        self.served.holders.set_looking(self.holder, false);
    }

    /// Finishes opens that are due, and lets held ones go. Returns false if it could not look at
    /// files for that.
    pub(super) fn handle_due(&mut self) -> bool {
        let may_look = self.start_looking();
        if may_look {
            self.finish_due();
        }
        self.let_held_go(may_look);
        self.stop_looking();
        may_look
    }

    /// Holds an open for writing while too much is unwritten on its device. Returns whether it
    /// does.
    fn holds(&mut self, call: &StoppedCall, found: &Found) -> bool {
        if !self.may_hold || self.excess.ends_in().is_none() {
            return false;
        }
        let device = match found {
            Found::File(file) if writes(file.flags) => Some(file.device()),
            Found::ToBeMade(way) if writes(way.flags) => way.device(),
            _ => None,
        };
        let Some(device) = device.filter(|&device| self.excess.is_on(device)) else {
            return false;
        };
        let holds = self.served.holders.put_off(self.holder, call);
        if holds {
            self.held.push((*call, device, Instant::now()));
        }
        holds
    }

    /// Lets opens go on that were held long enough. They are looked at again: much may have
    /// happened to their files.
    fn let_held_go(&mut self, may_look: bool) {
        if self.held.is_empty() {
            return;
        }
        self.served.holders.looked(self.holder);
        let excess = &mut self.excess;
        let mut free = |&mut (_, device, since): &mut (StoppedCall, u64, Instant)| {
            !excess.is_on(device) || since.elapsed() >= HELD
        };
        let free: Vec<_> = self.held.extract_if(.., &mut free).collect();
        let served = Arc::clone(&self.served);
        for (call, ..) in free {
            match served.listener.waits(&call) {
                true if !may_look => self.put_off(&call, What::Unclear),
                true => {
                    let found = self.looker.look(&call, &served.listener);
                    self.found(&call, found);
                }
                false => self.passed(&call),
            }
            let _ = served.holders.let_go(self.holder, &served.listener, &call);
        }
    }

    /// If the other holder has died, answers for it and starts another.
    pub(super) fn replace_dead(&mut self, start_spare: &mut StartSpare) {
        let lives = |other: &Pidfd| !other.wait(Some(Duration::ZERO)).unwrap_or(false);
        if self.other.as_ref().is_some_and(lives) {
            return;
        }
        let (served, dead) = (&self.served, 1 - self.holder);
        if served.holders.waiting(dead) != 0 {
            served.holders.miss(dead);
        }
        let _ = served.holders.let_go_for(dead, &served.listener);
        served.holders.clear(dead);
        // If that fails, it is tried again at the next tick.
        self.other = start_spare(served, dead).ok();
    }

    /// Does all that is to be done before a call happens. Returns false if it is to wait.
    fn stopped(&mut self, call: &StoppedCall) -> bool {
        if call.thread == 0 || self.deaf {
            return true;
        }
        // What this thread opened before is open by now, or was not possible.
        let opens = self.unfinished.iter_mut();
        let earlier = opens.filter(|open| open.call.thread == call.thread);
        earlier.for_each(|open| open.is_over = true);
        let may_look = self.start_looking();
        let goes_on = self.prepare(call, may_look);
        self.stop_looking();
        goes_on
    }

    fn prepare(&mut self, call: &StoppedCall, may_look: bool) -> bool {
        if may_look {
            self.finish_where(|open| open.is_over && !matches!(open.what, What::Reported));
        }
        let holds = match call.request {
            Request::Rename => {
                if may_look {
                    // Before it may get another name.
                    self.finish_where(|open| matches!(open.what, What::Made(_)) && open.shows());
                }
                false
            }
            Request::Ring => {
                let process = self.process_of(call.thread);
                self.report_or_miss(&Report::Unstopped { process }, None);
                false
            }
            _ if !may_look => {
                let note = "a directory or a server kept dropbehind waiting while programs opened \
                            files: what they use of some of those may stay cached";
                self.report_or_miss(&Report::Note(note.to_owned()), None);
                self.put_off(call, What::Unclear);
                false
            }
            Request::Open { .. } | Request::OpenHow { .. } => {
                let served = Arc::clone(&self.served);
                let found = self.looker.look(call, &served.listener);
                let holds = self.holds(call, &found);
                if !holds {
                    self.found(call, found);
                }
                holds
            }
        };
        // Unless this open was reported instead.
        if may_look {
            self.finish_where(|open| open.is_over);
        }
        !holds
    }

    /// Handles what an open leads to, which is about to happen.
    fn found(&mut self, call: &StoppedCall, found: Found) {
        let served = Arc::clone(&self.served);
        if let Some(note) = self.looker.left_alone.take() {
            self.report(&Report::Note(note), None);
        }
        match found {
            // That may be wrong of a call that does not wait.
            Found::Nothing if !served.listener.waits(call) => self.passed(call),
            Found::Nothing => {}
            // If the open fails, what comes into the cache is not the program's.
            Found::File(_) if self.looker.has_all_descriptors(call.thread) => {
                self.put_off(call, What::Unclear);
            }
            Found::File(file) => {
                self.finish_same(&file);
                let counted_ns = monotonic_ns();
                let Some(before) = self.counts.before(&file) else {
                    return self.is_others(&file);
                };
                let before = (before, counted_ns);
                if !served.listener.waits(call) {
                    return self.passed(call);
                }
                if file.is_to_be_truncated() {
                    return self.put_off(call, What::Truncated(file));
                }
                let copied_born = file.copied_born();
                let (process, thread) = (self.process_of(call.thread), call.thread);
                self.opened((process, thread, true), &file, before.clone(), copied_born);
                self.put_off(
                    call,
                    match copied_born {
                        Some(born) => What::Copied(file, before, born),
                        None => What::Reported,
                    },
                );
            }
            Found::ToBeMade(way) => self.put_off(call, What::Made(way)),
            Found::Unclear => self.put_off(call, What::Unclear),
        }
    }

    /// The kernel shows what is cached of a file only to those who own it or may write to it.
    fn is_others(&mut self, file: &LookedAt) {
        let owner = rustix::fs::fstat(&file.file).map_or(0, |stat| stat.st_uid);
        // Programs and libraries are root's, and of interest to nobody.
        let is_worth_a_word = owner != 0 || file.size_bytes > 64 << 20;
        if is_worth_a_word && self.told_of_others.len() < 3 && self.told_of_others.insert(owner) {
            let path = crate::file_path::path_of(file.file.as_fd());
            self.report(
                &Report::Note(format!(
                    "the kernel does not show what is cached of files that belong to others and \
                     may only be read, such as {}: what is read of them stays",
                    shown(path)
                )),
                None,
            );
        }
    }

    /// Handles an open that does not wait any more. We took so long that the other holder has
    /// answered, or it was interrupted and is stopped again.
    fn passed(&mut self, call: &StoppedCall) {
        if self.served.holders.is_answered(self.holder, call) {
            self.served.holders.miss(self.holder);
        }
        self.put_off(call, What::Unclear);
    }

    fn put_off(&mut self, call: &StoppedCall, what: What) {
        let process = self.process_of(call.thread);
        // A search finds only what is open at that moment.
        let first = match &what {
            What::Unclear => Duration::ZERO,
            _ => PAUSE,
        };
        self.unfinished.push(Unfinished {
            process,
            is_over: false,
            call: CallUnderWay::new(call.thread, call.number),
            what,
            next_look: Instant::now() + first,
            pause: (2 * first).max(PAUSE),
        });
    }

    /// Looks at what opens have made or truncated by now, or failed to.
    fn finish_due(&mut self) {
        let now = Instant::now();
        let is_due = |open: &mut Unfinished| open.next_look <= now;
        let due: Vec<_> = self.unfinished.extract_if(.., is_due).collect();
        for mut open in due {
            if open.shows() {
                self.finish(open);
                continue;
            }
            open.is_over = !open.call.may_go_on();
            match open.is_over {
                true => self.finish(open),
                false => {
                    if matches!(open.what, What::Unclear) {
                        // Once it is over, there is another search.
                        let process = open.process;
                        self.report(&Report::Search { process }, None);
                    }
                    open.next_look = now + open.pause;
                    open.pause = (2 * open.pause).min(TICK);
                    self.unfinished.push(open);
                }
            }
        }
    }

    /// If other threads have made or truncated this file, reports that first: what is cached of it
    /// is theirs.
    fn finish_same(&mut self, file: &LookedAt) {
        self.finish_where(|open| match &open.what {
            What::Made(way) => way.leads_to(file.inode),
            What::Truncated(other) | What::Copied(other, ..) => {
                other.inode == file.inode && open.shows()
            }
            What::Unclear | What::Reported => false,
        });
    }

    /// Finishes all opens, unless that must wait for the other holder.
    pub(super) fn finish_all(&mut self) {
        if self.start_looking() {
            self.finish_where(|open| !matches!(open.what, What::Reported));
        }
        self.stop_looking();
    }

    fn finish_where(&mut self, is_wanted: impl FnMut(&mut Unfinished) -> bool) {
        let wanted: Vec<_> = self.unfinished.extract_if(.., is_wanted).collect();
        for open in wanted {
            self.finish(open);
        }
    }

    /// Reports what an open has made or truncated, or that it is over.
    fn finish(&mut self, mut open: Unfinished) {
        let thread = open.call.thread;
        let whose = (open.process, thread, !open.is_over);
        match &open.what {
            What::Made(way) => match self.looker.made(way, thread) {
                Some(Found::File(file)) => {
                    let before = (Before::Emptied, monotonic_ns());
                    self.opened(whose, &file, before, None);
                }
                // It was renamed or deleted, or could not be made.
                None | Some(Found::Unclear) => return self.search(open.process),
                Some(_) => return,
            },
            What::Truncated(file) => match file.was_modified() {
                true => {
                    let before = (Before::Emptied, monotonic_ns());
                    self.opened(whose, file, before, None);
                }
                // The open has failed, or is not yet over.
                false => return self.search(open.process),
            },
            What::Copied(file, before, born) => {
                self.opened(whose, file, before.clone(), Some(*born));
            }
            What::Unclear => return self.search(open.process),
            What::Reported => {
                if !self.report(&Report::Over { thread }, None) {
                    open.next_look = Instant::now() + TICK;
                    self.unfinished.push(open);
                }
                return;
            }
        }
        if !open.is_over {
            open.what = What::Reported;
            self.unfinished.push(open);
        }
    }

    fn opened(
        &mut self,
        (process, thread, is_under_way): (i32, i32, bool),
        file: &LookedAt,
        (before, counted_ns): Counted,
        copied_born: Option<Duration>,
    ) {
        let opened = Opened {
            process,
            thread,
            is_under_way,
            readable: file.is_readable(),
            writable: writes(file.flags),
            copied_born,
            before,
            counted_ns,
        };
        self.report_or_miss(&Report::Opened(opened), Some(&file.file));
        // This says as well that the thread's earlier open is over.
        self.unfinished.retain(|open| {
            !(open.is_over && open.call.thread == thread && matches!(open.what, What::Reported))
        });
    }

    fn search(&mut self, process: i32) {
        self.report_or_miss(&Report::Search { process }, None);
    }

    fn report_or_miss(&mut self, report: &Report, file: Option<&OwnedFd>) {
        if !self.report(report, file) {
            self.served.holders.miss(self.holder);
        }
    }

    /// Returns false if there was no room for this report.
    fn report(&mut self, report: &Report, file: Option<&OwnedFd>) -> bool {
        if self.deaf {
            return true;
        }
        let observer = self.served.observer.as_fd();
        let file = file.map(AsFd::as_fd);
        let began = Instant::now();
        let mut sent = report.send(observer, file, !self.is_behind);
        while !self.is_behind && sent.as_ref().is_err_and(has_no_room) && began.elapsed() < PATIENCE
        {
            self.served.holders.looked(self.holder);
            sent = report.send(observer, file, true);
        }
        self.deaf = sent.as_ref().is_err_and(|error| {
            use io::ErrorKind::{BrokenPipe, ConnectionReset};
            matches!(error.kind(), BrokenPipe | ConnectionReset)
        });
        self.is_behind = sent.is_err();
        self.deaf || !self.is_behind
    }

    /// How many processes that have opened something still run.
    pub(super) fn count_processes(&self) -> usize {
        let runs = |process: &&i32| process_stat(**process).is_ok_and(|stat| stat.state != 'Z');
        self.processes.iter().filter(runs).count()
    }

    /// The process that a thread belongs to.
    fn process_of(&mut self, thread: i32) -> i32 {
        let process = self.looker.process_of(thread);
        if self.processes.len() >= PROCESSES {
            self.processes.clear();
        }
        self.processes.insert(process);
        process
    }
}

/// Returns whether the observer has to read before more can be sent to it.
fn has_no_room(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::ETOOMANYREFS)
    )
}

/// Returns whether a thread waits for something, other than for a processor or to go on.
fn is_asleep(thread: i32) -> bool {
    process_stat(thread).is_ok_and(|stat| matches!(stat.state, 'S' | 'D'))
}
