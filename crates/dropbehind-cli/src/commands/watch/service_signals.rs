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
pub(super) struct ServiceSignals(Receiver<ServiceSignal>);

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
        Ok(Self(receiver))
    }

    /// The next one, or `None` if none comes in this time.
    pub(super) fn wait(&self, at_most: Duration) -> Option<ServiceSignal> {
        match self.0.recv_timeout(at_most) {
            Ok(order) => Some(order),
            Err(RecvTimeoutError::Timeout) => None,
            // The thread never ends before us; without it nobody could stop us.
            Err(RecvTimeoutError::Disconnected) => Some(ServiceSignal::Leave),
        }
    }
}
