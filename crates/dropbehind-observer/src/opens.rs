//! Opens without fanotify: seccomp(2) stops programs at each open, so that the cache can be
//! looked at before they read.
//!
//! The programs' ancestor, the supervisor, [serves](OpenServer) these opens: only an ancestor may
//! read a program's memory everywhere. It looks at the file (`look.rs`), sends it to the observer
//! (`reported.rs`), and lets the call happen. A second process [stands by](stand_by): it has the
//! same listener, and lets calls happen that the first one has received and does not answer.

pub(crate) mod excess;
mod look;
mod report;
mod reported;
mod server;
mod spare;

pub use report::ReportedOpens;
use report::{Absent, Report};
pub(crate) use report::{Before, Copying, Opened};
pub(crate) use reported::Reported;
pub use server::{OpenServer, Served, StartSpare};
pub use spare::stand_by;

use crate::owners::has_thread;
use dropbehind_linux::{message_sockets, process_stat};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// At most this many ancestors are looked at.
const GENERATIONS: usize = 256;
/// How long a program is held up by an observer that does not read. What cannot be reported is
/// left to the kernel.
const PATIENCE: Duration = Duration::from_millis(100);

/// Returns whether the opens of this process are served already: by an ancestor, or, if the run
/// was left by its own parents, by any process of this user. There can be only one listener for a
/// process.
#[must_use]
pub fn are_served() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !status.lines().any(|line| line == "Seccomp:\t2") {
        return false;
    }
    let parent = |process: &i32| process_stat(*process).ok().map(|stat| stat.parent);
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    // Numbers are reused, so this may lead in a circle.
    let mut ancestors = std::iter::successors(parent(&own), parent).take(GENERATIONS);
    let serves = |process: i32| has_thread(process, server::NAME);
    ancestors.any(serves) || own_processes().any(serves)
}

/// The processes of this user.
fn own_processes() -> impl Iterator<Item = i32> {
    let user = rustix::process::getuid().as_raw();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = processes.filter(move |entry| entry.metadata().is_ok_and(|of| of.uid() == user));
    own.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The server's and the observer's end of a connection.
///
/// # Errors
/// Those of socketpair(2).
pub fn connection() -> io::Result<(OwnedFd, OwnedFd)> {
    message_sockets(PATIENCE)
}
