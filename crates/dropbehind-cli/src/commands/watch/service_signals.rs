//! The signals that a service gets.

use nix::sys::signal::{SigSet, Signal};
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceSignal {
    /// Read the rules again.
    Reload,
    /// Say what was done so far.
    Tell,
    /// Finish and end.
    Leave,
}

/// Signals to come.
#[derive(Debug)]
pub(super) struct ServiceSignals {
    received: Receiver<ServiceSignal>,
    /// Received, and not answered yet. Several of one kind ask for no more than one.
    waiting: Vec<ServiceSignal>,
}

impl ServiceSignals {
    /// Begins to receive, in a thread of its own. Must be called before any other thread is
    /// started, since threads inherit the blocked signals.
    pub(super) fn receive() -> io::Result<Self> {
        let mut signals = SigSet::empty();
        for signal in [
            Signal::SIGHUP,
            Signal::SIGUSR1,
            Signal::SIGTERM,
            Signal::SIGINT,
        ] {
            signals.add(signal);
        }
        signals.thread_block()?;
        let (sender, receiver) = mpsc::channel();
        let wait = move || {
            while let Ok(signal) = signals.wait() {
                let order = match signal {
                    Signal::SIGHUP => ServiceSignal::Reload,
                    Signal::SIGUSR1 => ServiceSignal::Tell,
                    _ => ServiceSignal::Leave,
                };
                if sender.send(order).is_err() {
                    return;
                }
            }
        };
        let name = "db-signals".to_owned();
        std::thread::Builder::new().name(name).spawn(wait)?;
        Ok(Self {
            received: receiver,
            waiting: Vec::new(),
        })
    }

    /// The next one, or `None` if none comes in this time. What came to end the watch goes first,
    /// and what came once more meanwhile comes once.
    pub(super) fn wait(&mut self, at_most: Duration) -> Option<ServiceSignal> {
        let at_most = match self.waiting.is_empty() {
            true => at_most,
            false => Duration::ZERO,
        };
        match self.received.recv_timeout(at_most) {
            Ok(order) => self.waiting.push(order),
            Err(RecvTimeoutError::Timeout) => {}
            // The thread never ends before us; without it nobody could stop us.
            Err(RecvTimeoutError::Disconnected) => return Some(ServiceSignal::Leave),
        }
        self.waiting.extend(self.received.try_iter());
        let leave = ServiceSignal::Leave;
        let leaves = self.waiting.iter().position(|order| *order == leave);
        if let Some(leaves) = leaves {
            // A second one ends the wait for what is left to do.
            self.waiting.swap_remove(leaves);
            self.waiting.retain(|order| *order == leave);
            return Some(leave);
        }
        let next = *self.waiting.first()?;
        self.waiting.retain(|order| *order != next);
        Some(next)
    }
}
