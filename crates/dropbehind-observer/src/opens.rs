//! Opens without fanotify: seccomp(2) stops programs at each open, so that the cache can be
//! looked at before they read.
//!
//! The programs' ancestor, the supervisor, [serves](OpenServer) these opens (`serving.rs`): only an
//! ancestor may read a program's memory everywhere. It looks at the file (`look.rs`), sends it to the
//! observer (`reported.rs`), and lets the call happen. A second process [stands by](stand_by): it has the
//! same listener, and lets calls happen that the first one has received and does not answer.

mod counts;
pub(crate) mod excess;
mod look;
mod report;
mod reported;
mod server;
mod serving;
mod spare;
mod unfinished;

use report::{Absent, Report};
pub(crate) use report::{Before, Opened};
pub(crate) use reported::Reported;
pub use server::{OpenServer, Served, StartSpare};
pub use spare::stand_by;

use dropbehind_linux::message_sockets;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long a program is held up by an observer that does not read. What cannot be reported is
/// left to the kernel. The observer may write thousands of small files before it reads on, which
/// takes it more than 0.1 s.
const PATIENCE: Duration = Duration::from_secs(1);
/// A holder that waits for the observer shows the other one this often that it is not stuck.
const SIGN: Duration = Duration::from_millis(40);

/// The server's and the observer's end of a connection.
///
/// # Errors
/// Those of socketpair(2).
pub fn connection() -> io::Result<(OwnedFd, OwnedFd)> {
    message_sockets(SIGN)
}
