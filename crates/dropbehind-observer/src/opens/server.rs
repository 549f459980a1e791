//! The server of stopped opens: a thread of the supervisor.

use super::excess::Excess;
use super::look::{Found, Inode, LookedAt, Looker, Way, writes};
use super::spare::TICK;
use super::{Absent, Before, Opened, Report};
use crate::budget::Budget;
use crate::shown;
use dropbehind_flusher::CacheMap;
use dropbehind_linux::seccomp::{Holders, Listener, Request, StoppedCall, stopped_calls_may_wait};
use dropbehind_linux::{
    CallUnderWay, Interest, Pidfd, PollEntry, cachestat, keep_descriptors, monotonic_ns, page_size,
    poll, process_stat,
};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The thread's name.
const NAME: &str = "dropbehind-open";
/// What an open makes or truncates is looked at when its thread opens the next file, or after
/// this time. The pause doubles up to [`TICK`] while the open goes on: truncating a large file
/// takes some milliseconds.
const PAUSE: Duration = Duration::from_millis(1);
/// Counting what is cached of one file takes at most one part in this many of the time, once it
/// has taken more of a processor than [`COSTLY_COUNT`]: 10 ms for each cached GiB, or 80 if its
/// pages are scattered.
const COUNT_SHARE: u32 = 25;
const COSTLY_COUNT: Duration = Duration::from_millis(1);
/// What is cached of a file up to this size takes less.
const CHEAP_BYTES: u64 = 4 << 20;
/// As many such files are remembered.
const COSTLY_FILES: usize = 1024;
/// No open is held for longer: the disk may write nothing any more, or others may fill it all the
/// time.
const HELD: Duration = Duration::from_secs(2);
/// The longest wait for that at the end.
const FLUSHING: Duration = Duration::from_secs(1);
/// As many processes are remembered.
const PROCESSES: usize = 4096;

/// Starts another process that stands by as holder number `holder`.
pub type StartSpare = Box<dyn FnMut(&Served, usize) -> io::Result<Pidfd> + Send>;

/// What both holders of a listener have.
#[derive(Debug)]
pub struct Served {
    /// Where opens are received.
    pub listener: Listener,
    /// What was received.
    pub holders: Holders,
    /// The server's end of the connection to the observer.
    pub observer: OwnedFd,
}

/// An open that was let go before its file could be looked at as it is now.
#[derive(Debug)]
struct Unfinished {
    process: i32,
    call: CallUnderWay,
    /// The call is over, as far as can be known.
    is_over: bool,
    what: What,
    /// When it is looked at next.
    next_look: Instant,
    /// How long to wait after that.
    pause: Duration,
}

/// What was cached, and when that was counted.
type Counted = (Before, u64);

#[derive(Debug)]
enum What {
    Made(Way),
    Truncated(LookedAt),
    /// An overlay may copy the file.
    Copied(LookedAt, Counted, Duration),
    /// Nobody could see which file it is.
    Unclear,
    /// Nothing but that it is over is still to be reported.
    Reported,
}

impl Unfinished {
    /// Returns whether the file shows what the open has done.
    fn shows(&self) -> bool {
        match &self.what {
            What::Made(way) => way.is_there(),
            What::Truncated(file) => file.was_modified(),
            What::Copied(file, ..) => file.was_copied(),
            // Nothing shows it while the thread runs.
            What::Unclear | What::Reported => false,
        }
    }
}

/// Why a server stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// No process is left under the filter.
    AllGone,
    /// The caller said so.
    Enough,
}

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
    /// When what is cached of a file may be counted again.
    next_count: HashMap<Inode, Instant>,
    /// The observer has not read for a while. It was waited for once; until it reads again, no
    /// other open waits for it.
    is_behind: bool,
    /// The observer is gone: nothing is looked at any more.
    deaf: bool,
    excess: Excess,
    /// Opens that wait until less is unwritten on this device, and since when.
    held: Vec<(StoppedCall, u64, Instant)>,
    may_hold: bool,
    /// Looking at a file may mean waiting for its server, so while the other holder does, this
    /// one does not look: the server may itself wait for an open.
    pub(super) looks: bool,
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
            next_count: HashMap::new(),
            is_behind: false,
            deaf: false,
            excess: Excess::default(),
            held: Vec::new(),
            may_hold: stopped_calls_may_wait(),
            looks: true,
        }
    }

    /// Serves until no process is left. Each tick, and whenever `wake` is readable or the other
    /// holder has died, asks `each` whether that is enough.
    pub(super) fn serve(
        &mut self,
        wake: Option<&OwnedFd>,
        mut each: impl FnMut(&mut Serving) -> bool,
    ) -> Stopped {
        self.served.holders.begin(self.holder);
        let (mut asked, mut is_woken) = (Instant::now(), false);
        loop {
            if std::mem::take(&mut is_woken) || asked.elapsed() >= TICK {
                asked = Instant::now();
                if each(self) {
                    self.excess = Excess::default();
                    self.let_held_go();
                    self.finish_all();
                    return Stopped::Enough;
                }
            }
            self.finish_due();
            self.let_held_go();
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
                return Stopped::AllGone;
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
    fn let_held_go(&mut self) {
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
        self.finish_where(|open| open.is_over && !matches!(open.what, What::Reported));
        let holds = match call.request {
            Request::Rename => {
                // Before it may get another name.
                self.finish_where(|open| matches!(open.what, What::Made(_)) && open.shows());
                false
            }
            Request::Ring => {
                let process = self.process_of(call.thread);
                self.report_or_miss(&Report::Unstopped { process }, None);
                false
            }
            _ if !self.looks => {
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
        self.finish_where(|open| open.is_over);
        !holds
    }

    /// Handles what an open leads to, which is about to happen.
    fn found(&mut self, call: &StoppedCall, found: Found) {
        let served = Arc::clone(&self.served);
        if let Some(place) = self.looker.left_alone.take() {
            let note = format!(
                "{} is left to the kernel: a process serves it, and opening a file there asks it",
                shown(place)
            );
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
                let Some(before) = self.before(&file) else {
                    return;
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

    /// What is cached of a file; `None` if the kernel does not show it.
    fn before(&mut self, file: &LookedAt) -> Option<Before> {
        if file.size_bytes == 0 || file.is_to_be_truncated() {
            return Some(Before::Absent(Absent::all()));
        }
        if let Some(next) = self.next_count.get(&file.inode) {
            if Instant::now() < *next {
                return Some(Before::Uncounted);
            }
            self.next_count.remove(&file.inode);
        }
        // What it costs is asked of the kernel as well.
        let may_cost = file.size_bytes > CHEAP_BYTES;
        let budget = may_cost.then(|| Budget::new(COSTLY_COUNT));
        let pages = file.size_bytes.div_ceil(page_size());
        let size_bytes = pages * page_size();
        let absent = match cachestat(file.file.as_fd(), 0, file.size_bytes) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                self.is_others(file);
                return None;
            }
            Ok(counted) if counted.cached_pages >= pages => {
                let unwritten_pages = counted.dirty_pages + counted.writeback_pages;
                Absent::none(size_bytes, unwritten_pages * page_size())
            }
            Ok(counted) if counted.cached_pages == 0 && !file.is_overlay => Absent::all(),
            _ => Absent::from(&CacheMap::now(file.file.as_fd()), size_bytes),
        };
        if let Some(budget) = budget.filter(|budget| !budget.lasts()) {
            if self.next_count.len() >= COSTLY_FILES {
                self.next_count.clear();
            }
            let next = Instant::now() + budget.cost() * COUNT_SHARE;
            self.next_count.insert(file.inode, next);
        }
        Some(Before::Absent(absent))
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
    pub(super) fn finish_due(&mut self) {
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

    fn finish_all(&mut self) {
        self.finish_where(|open| !matches!(open.what, What::Reported));
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
        let sent = report.send(observer, file.map(AsFd::as_fd), !self.is_behind);
        self.deaf = sent.as_ref().is_err_and(|error| {
            use io::ErrorKind::{BrokenPipe, ConnectionReset};
            matches!(error.kind(), BrokenPipe | ConnectionReset)
        });
        self.is_behind = sent.is_err();
        self.deaf || !self.is_behind
    }

    /// How many processes that have opened something still run.
    fn count_processes(&self) -> usize {
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

/// Serves stopped opens in a thread.
#[derive(Debug)]
pub struct OpenServer {
    served: Arc<Served>,
    wake: Arc<OwnedFd>,
    flushed: mpsc::Receiver<usize>,
    asked: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl OpenServer {
    /// Starts a spare holder and the thread.
    ///
    /// # Errors
    /// If either cannot be started. Then nobody answers: the programs must not be started.
    pub fn start(served: Served, mut start_spare: StartSpare) -> io::Result<OpenServer> {
        let served = Arc::new(served);
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (done, flushed) = mpsc::channel();
        let asked = Arc::new(AtomicBool::new(false));
        let mut serving = Serving::new(Arc::clone(&served), 0);
        serving.other = Some(start_spare(&served, 1)?);
        let (waker, ask) = (Arc::clone(&wake), Arc::clone(&asked));
        let thread = std::thread::Builder::new().name(NAME.into());
        let thread = thread.spawn(move || {
            // Closing a file that the supervisor has locked must not unlock it.
            let served = Arc::clone(&serving.served);
            let mut kept = vec![
                served.listener.as_fd(),
                served.holders.as_fd(),
                served.observer.as_fd(),
                waker.as_fd(),
            ];
            kept.extend(serving.other.as_ref().map(AsFd::as_fd));
            // If memory is short, it may.
            let _ = keep_descriptors(&kept);
            let mut each = |serving: &mut Serving| {
                // Also if an earlier round has answered, or the poll finds it again at once.
                let _ = rustix::io::read(&*waker, &mut [0; 8]);
                if ask.swap(false, Ordering::SeqCst) {
                    serving.finish_all();
                    let _ = done.send(serving.count_processes());
                }
                serving.replace_dead(&mut start_spare);
                false
            };
            serving.serve(Some(&waker), &mut each);
        })?;
        Ok(OpenServer {
            served,
            wake,
            flushed,
            asked,
            thread,
        })
    }

    /// Reports all opens that were let go, and returns how many processes are known that are still
    /// under the filter.
    pub fn flush(&self) -> usize {
        self.asked.store(true, Ordering::SeqCst);
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        // It ends by itself with the last process.
        let began = Instant::now();
        while !self.thread.is_finished() && began.elapsed() < FLUSHING {
            if let Ok(processes) = self.flushed.recv_timeout(PAUSE) {
                return match self.is_over() {
                    true => 0,
                    false => processes.max(1),
                };
            }
        }
        usize::from(!self.is_over())
    }

    /// Says that opens were let go of which the observer knows nothing, if there are such.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let missed = self.served.holders.missed();
        (missed > 0).then(|| {
            format!(
                "the observer was too slow for up to {missed} opens: those files are left to the kernel"
            )
        })
    }

    /// Returns whether no process is left under the filter.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let mut entry = [PollEntry::new(
            self.served.listener.as_fd(),
            Interest::HangUp,
        )];
        poll(&mut entry, Some(Duration::ZERO)).is_ok() && entry[0].is_hung_up()
    }
}
