//! The other half of `run`: the process that observes a program.
//!
//! Its standard input is the socket on which the supervisor speaks; it holds nothing else of the
//! program's. The terminal's signals do not reach it, and other signals have no effect, except
//! for SIGKILL. It ends when nothing is left to observe, whether the supervisor lives or not.

mod emigrants;
mod inhabitants;
mod limits;

use super::run::messages::{Connection, FromObserver, Heard, ToObserver, Wishes};
use super::run::rules::RunRules;
use crate::advice::observers_step;
use crate::error::Exit;
use crate::trace_file::TraceFile;
use dropbehind_linux::{
    Interest, PollEntry, SignalsBlocked, poll, process_stat, return_large_blocks,
};
use dropbehind_observer::status;
use dropbehind_observer::{Observer, ObserverConfig, ObserverError, Source};
use emigrants::Emigrants;
use inhabitants::Inhabitants;
use rustix::process::{Signal, getppid, kill_process};
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often to listen to the supervisor while something else is waited for.
const SLICE: Duration = Duration::from_millis(50);
/// An observer that does nothing for this long waits for a file system's server.
const HANGING: Duration = Duration::from_secs(1);

pub(super) fn run() -> Exit {
    limits::lift();
    // Whoever ends all processes of a service at once is to end the programs; the observer ends
    // with the last of them. Threads inherit this.
    let _blocked = SignalsBlocked::new();
    let socket = io::stdin().as_fd().try_clone_to_owned();
    let Ok(socket) = socket.map(UnixStream::from) else {
        return Exit::OwnFailure;
    };
    let mut supervisor = Connection::new(socket);
    match observe(&mut supervisor) {
        Ok(()) => Exit::Done,
        Err(report) => {
            let _ = supervisor.send(&report);
            Exit::OwnFailure
        }
    }
}

fn failed(sentence: String) -> FromObserver {
    FromObserver::Failed {
        sentence,
        impossible: false,
    }
}

/// Waits for an order, at most for `timeout`.
fn next_order(
    supervisor: &mut Connection,
    timeout: Option<Duration>,
) -> Result<ToObserver, Silence> {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    loop {
        match supervisor.hear() {
            Heard::Message(order) => return Ok(order),
            Heard::Gone => return Err(Silence::Gone),
            Heard::Nothing => {}
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(Silence::Quiet);
        }
        let mut entry = [PollEntry::new(supervisor.as_fd(), Interest::Readable)];
        // An interruption is no event; any other failure shows when reading.
        let _ = poll(&mut entry, left);
    }
}

/// Why there is no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// There is none yet.
    Quiet,
    /// There will be none: the supervisor was killed.
    Gone,
}

fn observe(supervisor: &mut Connection) -> Result<(), FromObserver> {
    let _ = supervisor.send(&FromObserver::Hello);
    let Ok(ToObserver::Observe { process, wishes }) = next_order(supervisor, None) else {
        return Ok(());
    };
    let inhabitants = Inhabitants::of(process)
        .map_err(|error| failed(format!("cannot look at process {process}: {error}.")))?;
    let trace = wishes.trace.clone().map(OsString::from_vec);
    let trace = trace.map(|path| TraceFile::start(Path::new(&path), &[]));
    let trace = trace
        .transpose()
        .map_err(|failure| failed(failure.to_string()))?;
    let observer = begin(process, &wishes)?;
    // Without a socket, `top` does not find the observer; the program is observed all the same.
    let _status = status::run_path(std::process::id())
        .and_then(|path| status::Server::start(path, observer.reporter()));
    let _ = supervisor.send(&FromObserver::Ready);
    let mut emigrants = Emigrants::of(process, &inhabitants);
    // Opens are reported from any namespace, and of its inhabitants most are not the program's.
    let home = (!wishes.opens_reported).then_some(&inhabitants);
    let mut supervisor_stops = false;
    let processes = loop {
        let pause = match supervisor_stops {
            true => Some(SLICE),
            false => home.map(|_| emigrants.pause()),
        };
        match next_order(supervisor, pause) {
            Ok(ToObserver::ProgramEnded { processes }) => break processes,
            Ok(ToObserver::Stops) => supervisor_stops = true,
            Ok(ToObserver::GoesOn) => supervisor_stops = false,
            Ok(_) => {}
            Err(Silence::Quiet) => {
                if supervisor_stops && goes_on(process) {
                    continue_supervisor();
                }
                if home.is_some() {
                    emigrants.look();
                }
            }
            Err(Silence::Gone) => {
                stay(&observer, home, wishes.settle);
                trace.and_then(TraceFile::finish);
                return Ok(());
            }
        }
    };
    let processes = processes.unwrap_or_else(|| inhabitants.count());
    // Processes that still run would leave something to do for as long as they run.
    let settled = processes == 0 && settle(&observer, wishes.settle, supervisor);
    let hung = !settled && !observer.works(HANGING);
    // What stays behind is traced to its end.
    let (trace, stays) = match processes {
        0 => (trace, None),
        _ => (None, trace),
    };
    let incomplete = trace.and_then(TraceFile::finish);
    let mut snapshot = Box::new(observer.snapshot());
    // The supervisor only reports on all files together.
    snapshot.files.clear();
    snapshot.notes.extend(emigrants.note());
    snapshot.notes.extend(incomplete);
    let _ = supervisor.send(&FromObserver::Settled {
        settled,
        hung,
        processes,
        snapshot,
    });
    if processes > 0 {
        stay(&observer, home, wishes.settle);
        stays.and_then(TraceFile::finish);
    }
    observer.stop();
    Ok(())
}

/// Returns whether a process that was stopped goes on, or has ended.
fn goes_on(process: i32) -> bool {
    match process_stat(process).map(|stat| stat.state) {
        Ok('R' | 'S') => true,
        // Its first thread has ended. Others that are left may be stopped.
        Ok('Z') => {
            let threads = std::fs::read_dir(format!("/proc/{process}/task"));
            threads.is_ok_and(|threads| threads.count() <= 1)
        }
        // Stopped, traced, or not clear now.
        _ => false,
    }
}

/// Continues the supervisor if it is stopped. It is our parent, unless it was killed or is in
/// another pid namespace.
fn continue_supervisor() {
    let supervisor = getppid();
    let stat = supervisor.map(|supervisor| process_stat(supervisor.as_raw_nonzero().get()));
    if let (Some(supervisor), Some(Ok(stat))) = (supervisor, stat)
        && stat.state == 'T'
    {
        let _ = kill_process(supervisor, Signal::CONT);
    }
}

fn begin(process: i32, wishes: &Wishes) -> Result<Observer, FromObserver> {
    let rules = RunRules::new(wishes).map_err(|reason| failed(format!("{reason}.")))?;
    let io_priority = wishes.io_priority.parse();
    let opens = wishes.opens_reported.then(|| {
        let opens = io::stdout().as_fd().try_clone_to_owned();
        opens.map(Arc::new)
    });
    let opens = opens
        .transpose()
        .map_err(|error| failed(format!("cannot hear of opens: {error}.")))?;
    return_large_blocks();
    let observer = Observer::new(ObserverConfig {
        source: Source::Namespace { process },
        rules: Arc::new(rules),
        opens,
        io_priority: io_priority.map_err(|error| failed(format!("{error}.")))?,
    })
    .map_err(|error| match &error {
        ObserverError::Failed { error: cause, .. } => failed(format!(
            "cannot observe programs: {error}. {}",
            observers_step(cause)
        )),
        _ => FromObserver::Failed {
            sentence: format!("{error}."),
            impossible: true,
        },
    })?;
    // A watch may have looked at this process before it had an observer's threads. A process that
    // names itself may be another program, so the watch looks again.
    let _ = rustix::thread::set_name(c"dropbehind");
    // No event reports files opened in the old namespace, or by other processes.
    observer.inherit(process);
    Ok(observer)
}

/// Lets everything be written and dropped, until the supervisor has waited long enough.
fn settle(observer: &Observer, limit: Duration, supervisor: &mut Connection) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if observer.settle(left.min(SLICE)) {
            return true;
        }
        match next_order(supervisor, Some(Duration::ZERO)) {
            Ok(ToObserver::Finish) => return false,
            // Nobody waits any more.
            Err(Silence::Gone) => return observer.settle(left),
            _ if left.is_zero() => return false,
            _ => {}
        }
    }
}

/// Keeps observing what the program left behind, until the last of it ends.
fn stay(observer: &Observer, inhabitants: Option<&Inhabitants>, limit: Duration) {
    match inhabitants {
        Some(inhabitants) => inhabitants.wait_until_gone(),
        None => {
            while !observer.opens_are_over() {
                std::thread::sleep(SLICE);
            }
        }
    }
    observer.settle(limit);
}
