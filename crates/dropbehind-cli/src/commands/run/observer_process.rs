//! The observer as its supervisor sees it: a process that may die at any time.

use super::messages::{Connection, FromObserver, Heard, ToObserver};
use super::wait_for_end;
use dropbehind_linux::detach;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The hidden command that runs the observer.
pub(crate) const COMMAND: &str = "observe";

/// A running observer, or what is left of one.
#[derive(Debug)]
pub(super) struct ObserverProcess {
    child: Child,
    connection: Connection,
    gone: bool,
}

impl ObserverProcess {
    /// Starts one: this program again, in a session of its own, with nothing
    /// open but the socket between us and, if there is one, the connection by which opens are
    /// reported.
    pub(super) fn start(opens: Option<OwnedFd>) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("dropbehind")
            .arg(COMMAND)
            // So that it keeps no file system busy without need.
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(opens.map_or_else(Stdio::null, Stdio::from))
            .stderr(Stdio::null());
        Ok(Self {
            child: detach(&mut command).spawn()?,
            connection: Connection::new(ours),
            gone: false,
        })
    }

    /// Its process.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has died.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Sends it an order, if it is still there.
    pub(super) fn tell(&mut self, order: &ToObserver) {
        if !self.gone && self.connection.send(order).is_err() {
            self.gone = true;
        }
    }

    /// Returns what it said, if anything.
    pub(super) fn hear(&mut self) -> Option<FromObserver> {
        if self.gone {
            return None;
        }
        match self.connection.hear() {
            Heard::Message(report) => Some(report),
            Heard::Nothing => None,
            Heard::Gone => {
                self.gone = true;
                None
            }
        }
    }

    /// Waits until it has ended. It does so by itself once it has reported and nothing is left
    /// to observe; until then it may keep file systems busy.
    pub(super) fn wait(self) {
        wait_for_end(self.child);
    }

    /// Kills it, and waits for its end.
    pub(super) fn end(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl AsFd for ObserverProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
