//! Failing the Nth system call of a kind.
//!
//! A command runs under a seccomp filter that reports chosen system calls to
//! this process before they happen. All are let through but the chosen one,
//! or all from it on, which return an error instead: a failing disk at the
//! worst moment, or a kernel that is too old for a call. The command's
//! threads, children and whatever they execute are covered as well, and
//! nothing in them needs to be changed, static programs included.

mod call_filter;
mod call_table;
mod handshake;
mod listener;
mod process_tree;
mod program;

use std::io::{self, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::context::Context;
use handshake::Handshake;
use listener::{Ending, Plan};
use process_tree::ProcessTree;

pub use call_filter::CallFilter;
pub use program::main;

/// Which system call of a command fails, and how.
///
/// ```no_run
/// use std::process::Command;
/// use dropbehind_testbed::{CallFilter, FailNth};
///
/// let calls = [CallFilter::new("write").unwrap()];
/// let seen = FailNth::count(calls.clone()).run(Command::new("ls")).unwrap().calls_seen;
/// for nth in 1..=seen {
///     let outcome = FailNth::once(calls.clone(), nth, libc::EIO).run(Command::new("ls")).unwrap();
///     assert_eq!(outcome.status.code(), Some(2), "{:?}", outcome.failed_call);
/// }
/// ```
#[derive(Clone, Debug)]
pub struct FailNth {
    /// Which calls count.
    pub calls: Vec<CallFilter>,
    /// Which of them fails, from 1 on; 0 lets all through and only counts.
    pub nth: u64,
    /// What it returns.
    pub errno: i32,
    /// Whether all later ones fail as well.
    pub sticky: bool,
    /// After this time the command and all its children are killed.
    pub timeout: Duration,
}

/// How a command under [`FailNth`] ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its exit status.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    /// How many calls counted, the failed ones included.
    pub calls_seen: u64,
    /// The first call that failed, with the file or request it was about.
    pub failed_call: Option<String>,
    /// Whether it was killed because its time was over.
    pub timed_out: bool,
}

impl FailNth {
    /// Lets everything through and counts.
    pub fn count(calls: impl Into<Vec<CallFilter>>) -> Self {
        Self::once(calls, 0, 0)
    }

    /// Fails the Nth call, and only that.
    pub fn once(calls: impl Into<Vec<CallFilter>>, nth: u64, errno: i32) -> Self {
        let timeout = Duration::from_secs(60);
        Self {
            calls: calls.into(),
            nth,
            errno,
            sticky: false,
            timeout,
        }
    }

    /// Fails all calls from the Nth on.
    pub fn from(calls: impl Into<Vec<CallFilter>>, nth: u64, errno: i32) -> Self {
        Self {
            sticky: true,
            ..Self::once(calls, nth, errno)
        }
    }

    /// Fails every call: with `ENOSYS`, a kernel that does not have it.
    pub fn every(calls: impl Into<Vec<CallFilter>>, errno: i32) -> Self {
        Self::from(calls, 1, errno)
    }

    /// Kills the command after another time than a minute.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Runs a command with nothing to read and collects its output. This ends
    /// when the last process that the command started has ended.
    pub fn run(&self, mut command: Command) -> io::Result<Outcome> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.run_attached(command)
    }

    /// Like [`run`](Self::run), but leaves the command's input and output as
    /// they are set. What is not a pipe cannot be collected.
    pub fn run_attached(&self, mut command: Command) -> io::Result<Outcome> {
        let deadline = Instant::now() + self.timeout;
        let tree = ProcessTree::prepare(&mut command);
        let handshake = Handshake::prepare(&mut command, &self.calls)?;
        let plan = Plan {
            calls: self.calls.clone(),
            nth: self.nth,
            errno: self.errno,
            sticky: self.sticky,
            deadline,
        };
        // Spawning waits for the exec, which is among the calls reported, so
        // the reports must be answered from another thread.
        let supervisor = thread::Builder::new()
            .name("fail-nth".to_owned())
            .spawn(move || {
                handshake
                    .listener()
                    .and_then(|listener| plan.carry_out(&listener))
            })?;
        let spawned = command.spawn().context(|| format!("starting {command:?}"));
        // Its hooks hold what the supervisor waits for if nothing was started.
        drop(command);
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => {
                // It has nothing to add: the child told the spawn.
                let _ = supervisor.join();
                return Err(error);
            }
        };
        let stdout = collect(child.stdout.take());
        let stderr = collect(child.stderr.take());
        let watched = supervisor
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("panicked")));
        if !matches!(
            watched,
            Ok(Ending {
                timed_out: false,
                ..
            })
        ) {
            tree.kill(child.id());
        }
        let status = child.wait()?;
        let ending = watched.context(|| "supervising the command")?;
        Ok(Outcome {
            status,
            stdout: stdout.join().unwrap_or_default(),
            stderr: stderr.join().unwrap_or_default(),
            calls_seen: ending.calls_seen,
            failed_call: ending.failed_call,
            timed_out: ending.timed_out,
        })
    }
}

/// Reads a pipe to its end in a thread, so that two pipes cannot block each
/// other.
fn collect(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is still what was written.
            let _ = pipe.read_to_end(&mut all);
        }
        all
    })
}
