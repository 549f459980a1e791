//! What the live view waits for; each comes from a thread of its own.

use super::choice;
use crate::error::Failure;
use dropbehind_observer::snapshot::Snapshot;
use dropbehind_observer::status::{Endpoint, Samples};
use nix::sys::signal::{SigSet, Signal};
use ratatui::crossterm::event::{self, KeyEvent};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// The longest pause after a sample. During it, nobody notices that the observer has ended.
const REST: Duration = Duration::from_millis(100);

/// Something happened.
pub(super) enum Event {
    /// A sample of the feed with this number.
    Sample(u64, Box<Snapshot>),
    /// The feed with this number is over: the observer ended, or failed in this way.
    Over(u64, Option<Failure>),
    Key(KeyEvent),
    /// The terminal has a new size.
    Resized,
    /// The terminal is gone.
    InputOver,
    Signal(Signal),
}

/// Reads keys until the terminal is gone.
pub(super) fn read_keys(events: &Sender<Event>) {
    loop {
        let event = match event::read() {
            Ok(event::Event::Key(key)) => Event::Key(key),
            Ok(event::Event::Resize(..)) => Event::Resized,
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => Event::InputOver,
        };
        let over = matches!(event, Event::InputOver);
        if events.send(event).is_err() || over {
            return;
        }
    }
}

/// Waits for signals.
pub(super) fn wait_for_signals(set: SigSet, events: &Sender<Event>) {
    while let Ok(signal) = set.wait() {
        if events.send(Event::Signal(signal)).is_err() {
            return;
        }
    }
}

/// Passes on the samples of one observer.
pub(super) struct Feed {
    pub(super) number: u64,
    /// The number of the feed that is wanted.
    pub(super) wanted: Arc<AtomicU64>,
    pub(super) endpoint: Endpoint,
    pub(super) pause: Duration,
    pub(super) events: Sender<Event>,
}

impl Feed {
    /// Runs until the observer ends, or until another feed is wanted.
    pub(super) fn run(self, mut samples: Samples) {
        loop {
            match self.pass_on(samples) {
                None => return,
                Some(failure @ Some(_)) => return self.over(failure),
                Some(None) => self.rest(),
            }
            // An observer that needs room drops clients that took nothing for long, such as a
            // stopped `top`. It then still runs.
            match choice::connect(&self.endpoint, self.pause) {
                Ok(again) => samples = again,
                Err(_) => return self.over(None),
            }
        }
    }

    /// Returns `None` if nobody wants these samples any more, else why there are no more.
    fn pass_on(&self, samples: Samples) -> Option<Option<Failure>> {
        for sample in samples {
            if self.wanted.load(Ordering::Relaxed) != self.number {
                return None;
            }
            match sample {
                Ok(sample) => {
                    let event = Event::Sample(self.number, Box::new(sample));
                    self.events.send(event).ok()?;
                    self.rest();
                }
                Err(error) => return Some(Some(choice::no_sample(&self.endpoint.path, &error))),
            }
        }
        Some(None)
    }

    /// A user's server may send without a pause. It then waits for us, and keys come in between.
    fn rest(&self) {
        std::thread::sleep(REST.min(self.pause / 2));
    }

    fn over(&self, failure: Option<Failure>) {
        // Nobody listens while the command ends.
        let _ = self.events.send(Event::Over(self.number, failure));
    }
}
