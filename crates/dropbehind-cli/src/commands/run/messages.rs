//! What supervisor and observer say to each other: lines of JSON over a socket.
//!
//! Either side may die at any moment. The other one then sees the end of the stream, and ignores
//! an unfinished line.

use dropbehind::config::Disks;
use dropbehind_linux::{Interest, PollEntry, poll};
use dropbehind_observer::snapshot::Snapshot;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// What is to be done with a program's files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Wishes {
    /// Its mode, as in `--mode`; `None` takes the disk's, or else the default.
    pub(crate) mode: Option<String>,
    /// What is in force for each disk, unless set otherwise.
    pub(crate) disks: Disks,
    pub(crate) window_bytes: Option<u64>,
    pub(crate) request_bytes: Option<u64>,
    pub(crate) max_dirty_bytes: Option<u64>,
    /// As in `--io-priority`.
    pub(crate) io_priority: String,
    pub(crate) reads: bool,
    pub(crate) only: Vec<String>,
    pub(crate) except: Vec<String>,
    /// Opens are reported by the supervisor, through the observer's standard output.
    pub(crate) opens_reported: bool,
    /// How long to wait for what is left once the last process is gone.
    pub(crate) settle: Duration,
    /// The file for the trace, an absolute path as bytes.
    pub(crate) trace: Option<Vec<u8>>,
}

/// From the supervisor to the observer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToObserver {
    /// Observe the mount namespace of this process, and say when that works.
    Observe {
        /// A child of the supervisor, which is not yet the program.
        process: i32,
        /// What is to be done.
        wishes: Box<Wishes>,
    },
    /// The program is stopped, and so will be the supervisor. A stopped process does not notice
    /// that its child goes on.
    Stops,
    /// The supervisor is not stopped any more.
    GoesOn,
    /// The program has ended: finish what is left, and report.
    ProgramEnded {
        /// How many processes it left behind, if the supervisor knows.
        processes: Option<usize>,
    },
    /// Nobody wants to wait any longer: report now.
    Finish,
}

/// From the observer to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromObserver {
    /// It runs.
    Hello,
    /// Nothing that the program does will be missed.
    Ready,
    /// It cannot observe.
    Failed {
        /// A sentence with the next step.
        sentence: String,
        /// The kernel or the user lacks something: this is not a failure.
        impossible: bool,
    },
    /// The answer to the last orders.
    Settled {
        /// All that can be is written and dropped.
        settled: bool,
        /// The observer waits for a file system whose server does not answer, and does not know
        /// all that was done.
        hung: bool,
        /// Processes that the program left behind and that still run; the observer stays with
        /// them.
        processes: usize,
        /// What was done.
        snapshot: Box<Snapshot>,
    },
}

/// What was read from the stream.
#[derive(Debug)]
pub(crate) enum Heard<T> {
    /// A message.
    Message(T),
    /// No whole message yet.
    Nothing,
    /// The other side is gone, or talks nonsense.
    Gone,
}

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            received: Vec::new(),
        }
    }

    /// Sends a message, unless the other side is gone.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.write_all(&line)
    }

    /// Returns the next message, without waiting for it. To be called until it returns
    /// [`Heard::Nothing`]: poll does not report what was received already.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Heard<T> {
        if let Some(message) = self.take_line() {
            return message;
        }
        // The stream itself blocks, so that no message is sent in part.
        let mut entry = [PollEntry::new(self.stream.as_fd(), Interest::Readable)];
        if !matches!(poll(&mut entry, Some(Duration::ZERO)), Ok(1)) {
            return Heard::Nothing;
        }
        let mut chunk = [0; 16 << 10];
        match self.stream.read(&mut chunk) {
            Ok(0) => Heard::Gone,
            Ok(read) => {
                self.received.extend_from_slice(&chunk[..read]);
                self.take_line().unwrap_or(Heard::Nothing)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Heard::Nothing,
            Err(_) => Heard::Gone,
        }
    }

    fn take_line<T: DeserializeOwned>(&mut self) -> Option<Heard<T>> {
        let end = self.received.iter().position(|&byte| byte == b'\n')?;
        let line: Vec<u8> = self.received.drain(..=end).collect();
        Some(serde_json::from_slice(&line).map_or(Heard::Gone, Heard::Message))
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_arrive_whole_or_not_at_all() {
        let (mut raw, theirs) = UnixStream::pair().unwrap();
        let mut theirs = Connection::new(theirs);
        raw.write_all(b"\"Hel").unwrap();
        assert!(matches!(theirs.hear::<FromObserver>(), Heard::Nothing));
        raw.write_all(b"lo\"\n\"Ready\"\n{\"Set").unwrap();
        let heard = theirs.hear();
        assert!(matches!(heard, Heard::Message(FromObserver::Hello)));
        let heard = theirs.hear();
        assert!(matches!(heard, Heard::Message(FromObserver::Ready)));
        drop(raw);
        assert!(matches!(theirs.hear::<FromObserver>(), Heard::Gone));
    }
}
