//! Stands in for the program: whoever waits for us, stops us or sends us signals must find what
//! they would find of the program itself.
//!
//! The program is in our process group, so what the terminal sends reaches it without us. We
//! receive every signal as data, and pass on those of other processes. Only the program's own
//! end and stops end and stop us.

use super::PATIENCE;
use super::messages::{FromObserver, ToObserver, Wishes};
use super::observer_process::ObserverProcess;
use super::stand_by::StandBy;
use dropbehind_linux::{
    Change, Interest, PollEntry, Program, Received, SignalFd, StartState, die_by,
    give_up_inherited_descriptors, poll, process_stat, stop_by,
};
use dropbehind_observer::opens::OpenServer;
use dropbehind_observer::snapshot::Snapshot;
use nix::libc::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// How the program ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// With this exit status, or by this signal.
    Program(Change),
    /// It could not be started at all.
    NotStarted(io::Error),
}

/// The observer's report at the end.
#[derive(Debug)]
pub(super) struct Account {
    /// All that can be is written and dropped.
    pub(super) settled: bool,
    /// The observer hung, so what was done is not all known.
    pub(super) hung: bool,
    /// Processes that the program left behind.
    pub(super) processes: usize,
    /// What was done.
    pub(super) snapshot: Snapshot,
}

/// Why there is no account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoAccount {
    /// The observer died.
    Died,
    /// It does not answer.
    Silent,
}

/// Why nothing was started.
#[derive(Debug)]
pub(super) enum NotReady {
    /// The observer said so, in a sentence.
    Said { sentence: String, impossible: bool },
    /// The observer died.
    Died,
    /// A call failed.
    Failed(io::Error),
}

impl From<io::Error> for NotReady {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Supervisor of one program and one observer.
#[derive(Debug)]
pub(super) struct Supervisor {
    start: StartState,
    signals: SignalFd,
    observer: ObserverProcess,
    /// What answers the program's opens, if it is stopped at them.
    opens: Option<(OpenServer, StandBy)>,
}

/// Signals that end a process unless it handles them.
fn is_deadly(signal: i32) -> bool {
    ![SIGCHLD, SIGCONT, SIGURG, SIGWINCH].contains(&signal) && !is_stop(signal)
}

fn is_stop(signal: i32) -> bool {
    [SIGTSTP, SIGTTIN, SIGTTOU].contains(&signal)
}

/// Waits for any of these, and returns early when a signal's handler runs.
fn wait(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    let entries = fds.iter();
    let mut entries: Vec<_> = entries
        .map(|&fd| PollEntry::new(fd, Interest::Readable))
        .collect();
    match poll(&mut entries, timeout) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        result => result.map(drop),
    }
}

impl Supervisor {
    pub(super) fn new(start: StartState, signals: SignalFd, observer: ObserverProcess) -> Self {
        Self {
            start,
            signals,
            observer,
            opens: None,
        }
    }

    /// Answers the program's opens from here on.
    pub(super) fn serve(&mut self, opens: OpenServer, stand_by: StandBy) {
        self.opens = Some((opens, stand_by));
    }

    /// Waits for the observer's report, before the program runs. A signal that would have ended
    /// the program ends us, after `give_up`.
    fn report_before_start(&mut self, give_up: &mut dyn FnMut()) -> Result<FromObserver, NotReady> {
        loop {
            while let Some(received) = self.signals.read()? {
                self.signal_before_start(received, give_up);
            }
            match self.observer.hear() {
                Some(FromObserver::Failed {
                    sentence,
                    impossible,
                }) => {
                    return Err(NotReady::Said {
                        sentence,
                        impossible,
                    });
                }
                Some(report) => return Ok(report),
                None if self.observer.is_gone() => return Err(NotReady::Died),
                None => wait(&[self.signals.as_fd(), self.observer.as_fd()], None)?,
            }
        }
    }

    fn signal_before_start(&self, received: Received, give_up: &mut dyn FnMut()) {
        let signal = received.signal;
        if self.start.ignores(signal) || self.start.blocks(signal) {
            return;
        }
        if is_stop(signal) {
            stop_by(signal);
        } else if is_deadly(signal) {
            give_up();
            die_by(signal);
        }
    }

    /// Waits until the observer runs.
    pub(super) fn wait_for_observer(&mut self) -> Result<(), NotReady> {
        match self.report_before_start(&mut || {})? {
            FromObserver::Hello => Ok(()),
            _ => Err(NotReady::Died),
        }
    }

    /// Has a program observed that does not run yet. If that fails, it never will.
    pub(super) fn observe(
        &mut self,
        program: Program,
        wishes: Wishes,
    ) -> Result<Program, NotReady> {
        self.observer.tell(&ToObserver::Observe {
            process: program.process(),
            wishes: Box::new(wishes),
        });
        let mut held = Some(program);
        let mut abandon = || {
            if let Some(program) = held.take() {
                let _ = program.abandon();
            }
        };
        let reason = match self.report_before_start(&mut abandon) {
            Ok(FromObserver::Ready) => return held.ok_or(NotReady::Died),
            Ok(_) => NotReady::Died,
            Err(reason) => reason,
        };
        abandon();
        Err(reason)
    }

    /// Lets the program run until it ends.
    pub(super) fn run(&mut self, program: &mut Program) -> io::Result<Ended> {
        program.release()?;
        // The program must be able to close its ends of pipes. A descriptor that stays open here
        // does no other harm.
        let _ = give_up_inherited_descriptors();
        let mut starting = true;
        let mut exec_error = None;
        loop {
            while let Some(received) = self.signals.read()? {
                self.pass_on(program, received);
            }
            match program.change()? {
                Some(Change::Stopped(signal)) => {
                    self.stop_with_program(signal);
                    continue;
                }
                Some(change) => {
                    if starting {
                        exec_error = program.exec_error()?;
                    }
                    // Signals that came until now were meant for the program.
                    while self.signals.read()?.is_some() {}
                    return Ok(match exec_error {
                        Some(error) => Ended::NotStarted(error),
                        None => Ended::Program(change),
                    });
                }
                None => {}
            }
            // The observer has nothing to say now, but its end must be noticed, so that it is no
            // longer polled.
            while self.observer.hear().is_some() {}
            let mut fds = vec![self.signals.as_fd()];
            if starting {
                fds.push(program.outcome());
            }
            if !self.observer.is_gone() {
                fds.push(self.observer.as_fd());
            }
            wait(&fds, None)?;
            if starting && is_ready(program.outcome())? {
                exec_error = program.exec_error()?;
                starting = false;
            }
        }
    }

    fn stop_with_program(&mut self, signal: i32) {
        self.observer.tell(&ToObserver::Stops);
        stop_by(signal);
        self.observer.tell(&ToObserver::GoesOn);
    }

    /// Passes on signals that the program did not get without us.
    fn pass_on(&self, program: &Program, received: Received) {
        let signal = received.signal;
        let wanted = match signal {
            SIGCHLD => false,
            // The observer continues us, and nobody else, because the program goes on.
            SIGCONT if received.sender == Some(self.observer.process()) => false,
            // The whole group most likely got it: only a program that is still stopped needs it.
            SIGCONT => is_stopped(program),
            // When a terminal goes away, only the session leader gets the signal.
            SIGHUP if !received.sent => is_session_leader(),
            _ => received.sent,
        };
        if wanted {
            let _ = program.send_signal(signal);
        }
    }

    /// Has the observer finish what is left, and hears how it went.
    pub(super) fn settle(mut self, limit: Duration) -> Result<Account, NoAccount> {
        let account = self.account(limit);
        if matches!(account, Ok(Account { processes: 0, .. })) {
            self.observer.wait();
        }
        wait_for_stand_by(self.opens);
        account
    }

    fn account(&mut self, limit: Duration) -> Result<Account, NoAccount> {
        let processes = self.opens.as_ref().map(|(opens, _)| opens.flush());
        self.observer.tell(&ToObserver::ProgramEnded { processes });
        let mut deadline = Instant::now() + limit;
        let mut finishing = false;
        loop {
            while let Some(report) = self.observer.hear() {
                if let FromObserver::Settled {
                    settled,
                    hung,
                    processes,
                    mut snapshot,
                } = report
                {
                    let note = self.opens.as_ref().and_then(|(opens, _)| opens.note());
                    snapshot.notes.extend(note);
                    return Ok(Account {
                        settled,
                        hung,
                        processes,
                        snapshot: *snapshot,
                    });
                }
            }
            if self.observer.is_gone() {
                return Err(NoAccount::Died);
            }
            let mut enough = Instant::now() >= deadline;
            while let Ok(Some(received)) = self.signals.read() {
                match received.signal {
                    SIGINT | SIGTERM | SIGQUIT | SIGHUP => enough = true,
                    signal if is_stop(signal) => stop_by(signal),
                    _ => {}
                }
            }
            if enough && finishing {
                // It was told to finish, and did not in time.
                return Err(NoAccount::Silent);
            }
            if enough {
                self.observer.tell(&ToObserver::Finish);
                finishing = true;
                deadline = Instant::now() + PATIENCE;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if wait(&[self.signals.as_fd(), self.observer.as_fd()], Some(left)).is_err() {
                return Err(NoAccount::Silent);
            }
        }
    }

    /// Ends the observer, as there is nothing to observe.
    pub(super) fn dismiss(self) {
        self.observer.end();
        wait_for_stand_by(self.opens);
    }
}

/// It ends once no process of the program is left. If there is one, nobody waits.
fn wait_for_stand_by(opens: Option<(OpenServer, StandBy)>) {
    if let Some((opens, stand_by)) = opens
        && opens.is_over()
    {
        stand_by.wait();
    }
}

fn is_ready(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut entry = [PollEntry::new(fd, Interest::Readable)];
    Ok(poll(&mut entry, Some(Duration::ZERO))? > 0)
}

fn is_stopped(program: &Program) -> bool {
    process_stat(program.process()).is_ok_and(|stat| stat.state == 'T')
}

fn is_session_leader() -> bool {
    rustix::process::getsid(None).is_ok_and(|session| session == rustix::process::getpid())
}
