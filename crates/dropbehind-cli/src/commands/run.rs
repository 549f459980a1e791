//! `dropbehind run`: observes an unmodified program from outside.
//!
//! There are three processes. The *program* has a mount namespace of its own, and is otherwise
//! as if it had been started in our place. The *observer* watches that namespace and shares
//! nothing with the program. This one, the *supervisor*, stands in for the program. Either of
//! the latter two may be killed without harm to the program.

pub(crate) mod messages;
pub(crate) mod observer_process;
pub(crate) mod rules;
pub(super) mod source;
pub(crate) mod stand_by;
mod summary;
mod supervisor;

use crate::error::{Exit, Failure, shown};
use crate::options::{OpenSource, RunSettings};
use crate::report_file::InUse;
use crate::stats_file::StatsFile;
use crate::trace_file::INCOMPLETE;
use clap::Args;
use dropbehind::Mode;
use dropbehind::config::Disks;
use dropbehind_linux::seccomp::{Holders, are_stopped_at_opens};
use dropbehind_linux::{Apart, Change, CommandLine, Pidfd, Program, SignalFd, StartState, die_by};
use dropbehind_observer::opens::{self, OpenServer, Served};
use dropbehind_observer::snapshot::KEEPS_ALL;
use messages::Wishes;
use observer_process::ObserverProcess;
use source::{check_stopping, choose_source, is_refusal, no_namespace};
use stand_by::StandBy;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};
use summary::ObservedStats;
use supervisor::{Account, Ended, NoAccount, NotReady, Supervisor};

/// How long an observer may take for what takes no time. One that takes longer was stopped by
/// somebody, or waits for a disk that does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    settings: RunSettings,
    /// The program and its arguments
    #[arg(
        value_name = "CMD",
        required = true,
        trailing_var_arg = true,
        value_hint = clap::ValueHint::CommandWithArguments
    )]
    command: Vec<OsString>,
}

/// At the end of the long help.
pub(super) const AFTER_HELP: &str = "\
The program gets the same environment, limits, descriptors, terminal and signals as without \
dropbehind, but for a mount namespace of its own: mounts that are not shared and that others \
remove while it runs stay busy until it ends. That is with fanotify, which takes CAP_SYS_ADMIN; \
the kernel then also reports which process brings which page into the cache, unless \
DROPBEHIND_NO_TRACE is set. Without root, seccomp stops the program at each open for some \
microseconds instead: what was cached then stays, the rest is dropped, and nobody inside gains \
rights by sudo and the like.

Signals that others send to dropbehind go to the program. So does SIGUSR1, which asks the other \
commands how far they are: for the figures of a run, use `dropbehind top`.

Sizes: a number of bytes such as 4096, 4k, 16MiB or 1.5G. k, KiB and Ki are 1024, kB is 1000; \
so are M, G, T, P and E their powers. 32x64k is a product.

Exit codes:
  2    the command line is wrong; the program was not started
  3    observing is not possible here; the program was not started
  125  dropbehind itself failed; the program was not started
  126  the program cannot be run
  127  there is no such program
       else the program's own; when a signal killed it, dropbehind dies of the same signal";

/// Says something of ours. If nobody can hear it, that is no reason to fail.
fn say(sentence: &str) {
    let _ = writeln!(io::stderr(), "dropbehind: {sentence}");
}

pub(super) fn run(args: &RunArgs) -> Exit {
    match start(args) {
        Ok(exit) => exit,
        Err(failure) => {
            say(&failure.to_string());
            failure.exit
        }
    }
}

/// Waits for a process that ends by itself. If somebody has stopped it, it is left behind.
fn wait_for_end(mut child: Child) {
    let Ok(process) = i32::try_from(child.id()) else {
        return;
    };
    if let Ok(pidfd) = Pidfd::open(process)
        && matches!(pidfd.wait(Some(PATIENCE)), Ok(true))
    {
        let _ = child.wait();
    }
}

/// A failure of ours, before the program was started.
fn own(sentence: impl Into<String>) -> Failure {
    let mut failure = Failure::new(sentence);
    failure.exit = Exit::OwnFailure;
    failure
}

fn start(args: &RunArgs) -> Result<Exit, Failure> {
    let settings = &args.settings;
    let name = shown(Path::new(&args.command[0]));
    let start = StartState::get().map_err(|error| {
        own(format!(
            "cannot tell what {name} would have been given: {error}. Use a dropbehind that was \
             built with its own start-up code."
        ))
    })?;
    let command = CommandLine::new(args.command.iter().cloned())
        .map_err(|error| own(format!("cannot run {name}: {error}. Check the command.")))?;
    let plainly = |failure| plainly(failure, settings, &command, start, &name);
    // Nobody knows what the program is going to read and write.
    let stats_file = settings.stats.as_deref();
    let trace: Vec<InUse> = settings.trace.iter().cloned().map(InUse::File).collect();
    let stats_file = stats_file.map(|path| StatsFile::open(path, &trace));
    let disks = Disks::find(settings.config.as_deref());
    let (stats_file, disks) = match (stats_file.transpose(), disks) {
        (Ok(stats_file), Ok(disks)) => (stats_file, disks),
        (Err(mut failure), _) => {
            failure.exit = Exit::OwnFailure;
            return plainly(failure);
        }
        (_, Err(error)) => {
            let mut failure = Failure::config(&error);
            failure.exit = Exit::OwnFailure;
            return plainly(failure);
        }
    };
    let modes: Vec<Mode> = match settings.mode {
        Some(mode) => vec![mode],
        None => disks.iter().filter_map(|(_, disk)| disk.mode).collect(),
    };
    let mut source = match choose_source(settings.source) {
        Ok(source) => source,
        Err(failure) => return plainly(failure),
    };
    loop {
        if source == Apart::StoppedAtOpens {
            if are_stopped_at_opens() {
                // Another run observes us, and with us the program.
                if settings.verbose || settings.stats.is_some() {
                    say(&format!(
                        "{name} runs inside of another dropbehind run, which observes it and has \
                         the figures."
                    ));
                }
                return Ok(not_run(&name, &command.become_it(start)));
            }
            if !rustix::process::geteuid().is_root() && command.gains_rights() {
                say(&format!(
                    "{name} gives rights to whoever starts it, but gains none here: as an \
                     ordinary user's, the run excludes that (no_new_privs). Start dropbehind with \
                     these rights instead, as in `sudo dropbehind run`."
                ));
            }
        }
        match observed(&command, start, args, disks.clone(), &name, source) {
            Ok(started) => return Ok(started.finish(settings, &modes, stats_file, &name)),
            Err(NotObserved::WithoutNamespace(failure))
                if settings.source == OpenSource::Auto && check_stopping().is_ok() =>
            {
                if settings.verbose {
                    say(&format!(
                        "{failure} So {name} is stopped at each open instead (--source seccomp)."
                    ));
                }
                source = Apart::StoppedAtOpens;
            }
            Err(NotObserved::WithoutNamespace(failure) | NotObserved::Else(failure)) => {
                return plainly(failure);
            }
        }
    }
}

/// Why a program could not be observed.
enum NotObserved {
    /// It could not get a mount namespace of its own. Another source may do.
    WithoutNamespace(Failure),
    Else(Failure),
}

/// What happens if the program cannot be observed.
fn plainly(
    mut failure: Failure,
    settings: &RunSettings,
    command: &CommandLine,
    start: StartState,
    name: &str,
) -> Result<Exit, Failure> {
    if settings.best_effort {
        say(&format!(
            "{failure} Because of --best-effort, {name} runs plainly."
        ));
        return Ok(not_run(name, &command.become_it(start)));
    }
    failure.add(&format!("{name} was not started."));
    Err(failure)
}

/// A program that has ended, and what is needed to report on it.
struct Finished {
    supervisor: Supervisor,
    ended: Ended,
    began: Instant,
}

/// Runs the program to its end; fails if it could not be observed from the beginning.
fn observed(
    command: &CommandLine,
    start: StartState,
    args: &RunArgs,
    disks: Disks,
    name: &str,
    source: Apart,
) -> Result<Finished, NotObserved> {
    let failed = |error: io::Error| {
        NotObserved::Else(own(format!(
            "cannot observe {name}: {error}. Check the limits on open files and processes \
             (ulimit -n -u), and the memory."
        )))
    };
    let began = Instant::now();
    let signals = SignalFd::new().map_err(failed)?;
    let (opens, reported) = match source {
        Apart::MountNamespace => (None, None),
        Apart::StoppedAtOpens => {
            let (opens, reported) = opens::connection().map_err(failed)?;
            (Some(opens), Some(reported))
        }
    };
    let observer = ObserverProcess::start(reported).map_err(|error| {
        NotObserved::Else(own(format!(
            "cannot start the observer: {}",
            no_start(&error)
        )))
    })?;
    let mut supervisor = Supervisor::new(start, signals, observer);
    let mut program = match begin(&mut supervisor, command, start, args, disks, opens) {
        Ok(program) => program,
        Err(reason) => {
            supervisor.dismiss();
            return Err(NotObserved::Else(match reason {
                NotReady::Said {
                    sentence,
                    impossible: true,
                } => Failure::impossible(sentence),
                NotReady::Said { sentence, .. } => own(sentence),
                NotReady::Died => own("the observer died before it could begin.".to_owned()),
                NotReady::Failed(error)
                    if source == Apart::StoppedAtOpens
                        && error.raw_os_error() == Some(nix::libc::EBUSY) =>
                {
                    Failure::impossible(
                        "another program listens to this one's system calls already (seccomp), \
                         and there can be only one. Start dropbehind outside of it.",
                    )
                }
                NotReady::Failed(error)
                    if source == Apart::MountNamespace && is_refusal(&error) =>
                {
                    return Err(NotObserved::WithoutNamespace(no_namespace(&error)));
                }
                NotReady::Failed(error) => return Err(failed(error)),
            }));
        }
    };
    let ended = match supervisor.run(&mut program) {
        Ok(ended) => ended,
        // The program runs, and is not ours to end; it just gets no more signals from us.
        Err(_) => Ended::Program(program.wait_for_end().map_err(failed)?),
    };
    Ok(Finished {
        supervisor,
        ended,
        began,
    })
}

/// Why a process of ours cannot be started, with the next step.
fn no_start(error: &io::Error) -> String {
    use io::ErrorKind::{NotFound, PermissionDenied};
    let files = [
        ("/dev/null", "Make it: mknod -m 666 /dev/null c 1 3."),
        ("/proc/self/exe", "Mount /proc: mount -t proc proc /proc."),
    ];
    if matches!(error.kind(), NotFound | PermissionDenied) {
        for (path, step) in files {
            if let Err(error) = File::open(path) {
                return format!("{path}: {error}. {step}");
            }
        }
    }
    format!("{error}. Check the limits on open files and processes (ulimit -n -u).")
}

/// Puts everything in place for the program, which can then be released.
fn begin(
    supervisor: &mut Supervisor,
    command: &CommandLine,
    start: StartState,
    args: &RunArgs,
    disks: Disks,
    opens: Option<OwnedFd>,
) -> Result<Program, NotReady> {
    supervisor.wait_for_observer()?;
    let wishes = wishes(args, disks, opens.is_some());
    let Some(opens) = opens else {
        let program = Program::start_held(command, start, Apart::MountNamespace)?;
        return supervisor.observe(program, wishes);
    };
    let mut program = Program::start_held(command, start, Apart::StoppedAtOpens)?;
    let listener = program.take_listener().ok_or(NotReady::Died)?;
    let served = Served {
        listener,
        holders: Holders::new()?,
        observer: opens,
    };
    let stand_by = StandBy::default();
    let opens = OpenServer::start(served, stand_by::starter(&stand_by))?;
    supervisor.serve(opens, stand_by);
    supervisor.observe(program, wishes)
}

fn wishes(args: &RunArgs, disks: Disks, opens_reported: bool) -> Wishes {
    let settings = &args.settings;
    // The observer works elsewhere. Only an empty path cannot be made absolute, and then it says
    // that it cannot make the file.
    let trace = settings.trace.as_ref();
    let trace = trace.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()));
    Wishes {
        mode: settings.mode.map(|mode| mode.to_string()),
        disks,
        window_bytes: settings.window_bytes,
        request_bytes: settings.request_bytes,
        max_dirty_bytes: settings.max_dirty_bytes,
        io_priority: settings.io_priority.to_string(),
        reads: settings.reads,
        only: settings.only.clone(),
        except: settings.except.clone(),
        opens_reported,
        settle: settings.settle,
        trace: trace.map(|path| path.into_os_string().into_vec()),
    }
}

/// Reports a program that could not be run, and returns the exit code.
fn not_run(name: &str, error: &io::Error) -> Exit {
    let missing = error.kind() == io::ErrorKind::NotFound;
    let step = if missing {
        "Check the name, and PATH."
    } else if Path::new(name).is_dir() {
        "It is a directory."
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        "Check whether you may execute it (chmod +x)."
    } else {
        "Check what it is: a program for this machine, or a script that begins with #!."
    };
    say(&format!("cannot run {name}: {error}. {step}"));
    if missing {
        Exit::NoProgram
    } else {
        Exit::NotRunnable
    }
}

impl Finished {
    /// Waits for what is left, reports on the run, and ends as the program did.
    fn finish(
        self,
        settings: &RunSettings,
        modes: &[Mode],
        stats_file: Option<StatsFile>,
        name: &str,
    ) -> Exit {
        let change = match self.ended {
            Ended::Program(change) => change,
            Ended::NotStarted(error) => {
                self.supervisor.dismiss();
                return not_run(name, &error);
            }
        };
        let account = self.supervisor.settle(settings.settle);
        tell(account.as_ref(), settings, modes, name);
        let (exit_status, signal) = match change {
            Change::Exited(status) => (Some(status), None),
            Change::Died(signal) | Change::Stopped(signal) => (None, Some(signal)),
        };
        if let Some(file) = stats_file {
            let elapsed = self.began.elapsed();
            let stats = ObservedStats::new(account.as_ref(), elapsed, exit_status, signal);
            if matches!(file, StatsFile::Stderr) && !settings.verbose {
                // The program may have left half a line there.
                let _ = writeln!(io::stderr());
            }
            if let Err(failure) = file.write(&stats) {
                say(&failure.to_string());
            }
        }
        match (exit_status, signal) {
            (Some(status), _) => Exit::Program(u8::try_from(status).unwrap_or(u8::MAX)),
            (None, Some(signal)) => die_by(signal),
            (None, None) => unreachable!("it has ended in one way or the other"),
        }
    }
}

fn tell(account: Result<&Account, &NoAccount>, settings: &RunSettings, modes: &[Mode], name: &str) {
    let account = match account {
        Ok(account) => account,
        Err(reason) => {
            say(&format!(
                "the observer {}; {name} was not affected, and the rest was left to the kernel.",
                match reason {
                    NoAccount::Died => "died",
                    NoAccount::Silent => "does not answer",
                }
            ));
            return;
        }
    };
    if !settings.verbose {
        // Whoever asks for the mode would take what is cached for what is used again, and whoever
        // asks for a trace would take it for all that was done.
        let matters = |note: &&String| {
            settings.mode.is_some() && note.starts_with(KEEPS_ALL)
                || settings.trace.is_some() && note.starts_with(INCOMPLETE)
        };
        let notes = account.snapshot.notes.iter().filter(matters);
        notes.for_each(|note| say(&format!("{note}.")));
        return;
    }
    if account.processes > 0 {
        say(&format!(
            "{name} left {} running; the observer stays until the last one ends.",
            match account.processes {
                1 => "1 process".to_owned(),
                count => format!("{count} processes"),
            }
        ));
    }
    if account.hung {
        say("the observer hung, so these figures are incomplete; the rest was left to the kernel.");
    }
    let mut notes = account.snapshot.notes.iter();
    let keeps =
        modes.iter().any(|mode| !mode.drops()) || notes.any(|note| note.starts_with(KEEPS_ALL));
    for line in summary::lines(account, keeps) {
        say(&line);
    }
}
