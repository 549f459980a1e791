//! The process that stands by while the supervisor answers a program's opens.
//!
//! Its standard descriptors are the listener, the memory that both share, and the connection to
//! the observer. It ends with the last of the program's processes.

use super::wait_for_end;
use crate::error::Exit;
use clap::Args;
use dropbehind_linux::seccomp::{Holders, Listener};
use dropbehind_linux::{Pidfd, detach};
use dropbehind_observer::opens::{self, Served, StartSpare};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// The hidden command that runs it.
pub(crate) const COMMAND: &str = "stand-by";

#[derive(Debug, Args)]
pub(crate) struct StandByArgs {
    /// Which of the two holders it is
    holder: usize,
    /// The other one's process
    other: i32,
}

/// The process that stands by for this one, if it was started.
#[derive(Debug, Default)]
pub(super) struct StandBy(Arc<Mutex<Option<Child>>>);

impl StandBy {
    /// Waits for its end, once no process of the program is left.
    pub(super) fn wait(self) {
        let child = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(child) = child {
            wait_for_end(child);
        }
    }
}

/// Starts processes that stand by for this one.
pub(super) fn starter(stand_by: &StandBy) -> StartSpare {
    let last = Arc::clone(&stand_by.0);
    Box::new(move |served, holder| {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut dead) = last.take() {
            let _ = dead.wait();
        }
        let pass = |fd: &dyn AsFd| fd.as_fd().try_clone_to_owned().map(Stdio::from);
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("dropbehind")
            .arg(COMMAND)
            .arg(holder.to_string())
            .arg(std::process::id().to_string())
            .current_dir("/")
            .stdin(pass(&served.listener)?)
            .stdout(pass(&served.holders)?)
            .stderr(pass(&served.observer)?);
        let child = detach(&mut command).spawn()?;
        let process = i32::try_from(child.id()).map_err(io::Error::other)?;
        *last = Some(child);
        Pidfd::open(process)
    })
}

pub(crate) fn run(args: &StandByArgs) -> Exit {
    // It was executed as /proc/self/exe, so its name is `exe`.
    let _ = rustix::thread::set_name(c"dropbehind");
    let descriptor = |fd: &dyn AsFd| fd.as_fd().try_clone_to_owned();
    let served = || -> io::Result<Served> {
        Ok(Served {
            listener: Listener::new(descriptor(&io::stdin())?),
            holders: Holders::with(descriptor(&io::stdout())?)?,
            observer: descriptor(&io::stderr())?,
        })
    };
    let Ok(served) = served() else {
        return Exit::OwnFailure;
    };
    opens::stand_by(
        served,
        args.holder.min(1),
        args.other,
        starter(&StandBy::default()),
    );
    Exit::Done
}
