//! What other threads say to the observer's thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use dropbehind_flusher::Notice;
use rustix::event::{EventfdFlags, eventfd};

use crate::rules::Rules;
use crate::small_files::Unshelved;

/// What they say.
pub(crate) enum Input {
    Rules(Arc<dyn Rules>),
    /// A process has files open of which no event will tell.
    Inherit(i32),
    /// From the flusher.
    Notice(Notice),
    /// From the thread for small files.
    Unshelved(Unshelved),
    CloseAll,
    /// Answered at the end of the round that takes it, with the number of files that
    /// are known.
    Barrier(mpsc::Sender<usize>),
}

/// The way to the observer's thread.
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

    /// For the next round, which this does not hasten.
    pub(crate) fn send(&self, input: Input) {
        let _ = self.sender.send(input);
    }

    pub(super) fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Takes notice of being woken.
    pub(super) fn woken(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
    }

    /// Waits until the thread has read and acted on all that entered the page cache
    /// before this call. Gives the number of files that it knows; `None` when `timeout`
    /// passed first, or when the thread has ended.
    pub(crate) fn caught_up(&self, timeout: Duration) -> Option<usize> {
        let (answer, answered) = mpsc::channel();
        self.send(Input::Barrier(answer));
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
