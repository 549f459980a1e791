//! What other threads tell the observer's thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use dropbehind_flusher::Notice;
use rustix::event::{EventfdFlags, eventfd};

use crate::rules::Rules;
use crate::small_files::Unshelved;

/// One such message.
pub(crate) enum Input {
    Rules(Arc<dyn Rules>),
    /// A process has files open whose opens no event will report.
    Inherit(i32),
    /// From the flusher.
    Notice(Notice),
    /// From the thread for small files.
    Unshelved(Unshelved),
    CloseAll,
    /// Files may be open whose opens no event reported: events were lost, or the observer has
    /// just begun.
    FindAgain,
    Barrier(Barrier),
}

/// A question how far the thread is, answered with the number of known files.
pub(crate) struct Barrier {
    pub(super) answer: mpsc::Sender<usize>,
    /// It is answered when all files are known that programs had open before, else at the end of
    /// the round that takes it.
    pub(super) when_all_found: bool,
}

/// The channel to the observer's thread.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    sender: mpsc::Sender<Input>,
    wake: Arc<OwnedFd>,
}

impl Inputs {
    pub(super) fn new() -> io::Result<(Inputs, mpsc::Receiver<Input>)> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (sender, inbox) = mpsc::channel();
        let wake = Arc::new(wake);
        Ok((Inputs { sender, wake }, inbox))
    }

    /// Sends this for the next round, without hastening it.
    pub(crate) fn send(&self, input: Input) {
        let _ = self.sender.send(input);
    }

    pub(super) fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Takes note of having been woken.
    pub(super) fn woken(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
    }

    /// Waits until the thread has read all that entered the page cache before this call, and has
    /// acted on it. Returns the number of files that the thread knows; `None` if `timeout`
    /// passed first or the thread has ended.
    pub(crate) fn caught_up(&self, timeout: Duration) -> Option<usize> {
        self.ask(false, timeout)
    }

    /// The same, once it knows the files that programs have open and no event reported, too.
    /// Users may make that take a second, and again.
    pub(crate) fn found_all(&self, timeout: Duration) -> Option<usize> {
        self.ask(true, timeout)
    }

    fn ask(&self, when_all_found: bool, timeout: Duration) -> Option<usize> {
        let (answer, answered) = mpsc::channel();
        self.send(Input::Barrier(Barrier {
            answer,
            when_all_found,
        }));
        self.wake();
        answered.recv_timeout(timeout).ok()
    }
}

impl AsFd for Inputs {
    /// Readable when the thread was woken.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
