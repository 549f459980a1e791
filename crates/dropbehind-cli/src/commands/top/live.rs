//! The live view: a loop over what happens.

use super::choice;
use super::draw::draw;
use super::events::{self, Event, Feed};
use super::screen::{self, Screen};
use super::view::{View, Wish};
use crate::error::{Exit, Failure, shown};
use crate::options::TopSettings;
use dropbehind_observer::status::{Samples, discover};
use nix::sys::signal::Signal;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How the view ended.
enum End {
    Quit,
    /// The last observer ended.
    Alone(String),
    Signal(Signal),
    Failed(Failure),
}

pub(super) fn run(settings: &TopSettings) -> Result<Exit, Failure> {
    if !rustix::termios::isatty(io::stdout()) {
        return Err(Failure::new(
            "standard output is no terminal. Use --json or --once, or run it in a terminal.",
        ));
    }
    let endpoints = choice::candidates(settings.socket.as_deref())?;
    let samples = choice::connect(&endpoints[0], settings.interval)?;
    let failed = |error: io::Error| {
        Failure::new(format!(
            "cannot use the terminal: {error}. Check TERM, or use --json or --once."
        ))
    };
    let signals = screen::block_signals().map_err(failed)?;
    let (events, received) = channel();
    let mut live = Live {
        view: View::new(endpoints),
        screen: Screen::enter().map_err(failed)?,
        wanted: Arc::default(),
        events: events.clone(),
        pause: settings.interval,
        discovers: settings.socket.is_none(),
    };
    let keys = events.clone();
    spawn(move || events::read_keys(&keys)).map_err(failed)?;
    spawn(move || events::wait_for_signals(signals, &events)).map_err(failed)?;
    live.feed(samples).map_err(failed)?;
    let end = live.follow(&received).map_err(failed)?;
    // Gives the terminal back first, so that messages appear on the screen from before.
    drop(live);
    match end {
        End::Quit => {}
        End::Alone(name) => complain!("dropbehind: the observer {name} has ended."),
        End::Signal(signal) => screen::die_of(signal),
        End::Failed(failure) => return Err(failure),
    }
    Ok(Exit::Done)
}

fn spawn(job: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().spawn(job).map(drop)
}

struct Live {
    view: View,
    screen: Screen,
    /// The number of the feed that we listen to.
    wanted: Arc<AtomicU64>,
    events: Sender<Event>,
    pause: Duration,
    /// Whether observers that come and go are shown.
    discovers: bool,
}

impl Live {
    fn follow(&mut self, received: &Receiver<Event>) -> io::Result<End> {
        loop {
            let view = &mut self.view;
            self.screen.terminal.draw(|frame| draw(frame, view))?;
            let Ok(first) = received.recv() else {
                return Ok(End::Quit);
            };
            // Events that have piled up meanwhile are drawn once.
            for event in std::iter::once(first).chain(received.try_iter()) {
                if let Some(end) = self.handle(event)? {
                    return Ok(end);
                }
            }
        }
    }

    fn handle(&mut self, event: Event) -> io::Result<Option<End>> {
        match event {
            Event::Sample(number, sample) if self.is_wanted(number) => {
                self.view.take(*sample);
                if self.discovers {
                    self.view.update_endpoints(discover().endpoints);
                }
            }
            Event::Over(number, failure) if self.is_wanted(number) => {
                return self.feed_over(failure);
            }
            Event::Sample(..) | Event::Over(..) | Event::Resized => {}
            Event::InputOver => return Ok(Some(End::Quit)),
            Event::Signal(Signal::SIGTSTP) => self.screen.suspend()?,
            Event::Signal(signal) => return Ok(Some(End::Signal(signal))),
            Event::Key(key) => match self.view.key(key) {
                Wish::Nothing => {}
                Wish::Quit => return Ok(Some(End::Quit)),
                Wish::Suspend => self.screen.suspend()?,
                Wish::Observer(steps) => self.go_on(steps)?,
            },
        }
        Ok(None)
    }

    fn is_wanted(&self, number: u64) -> bool {
        self.wanted.load(Ordering::Relaxed) == number
    }

    /// The observer has ended: shows another one, or ends the view.
    fn feed_over(&mut self, failure: Option<Failure>) -> io::Result<Option<End>> {
        if let Some(failure) = failure {
            return Ok(Some(End::Failed(failure)));
        }
        let gone = self.view.endpoints[self.view.current].clone();
        let name = if self.discovers {
            gone.name()
        } else {
            format!("at {}", shown(&gone.path))
        };
        let mut others = if self.discovers {
            discover().endpoints
        } else {
            Vec::new()
        };
        others.retain(|one| *one != gone);
        for index in 0..others.len() {
            if let Ok(samples) = choice::connect(&others[index], self.pause) {
                self.view.endpoints = others;
                self.view.show(index);
                self.view.message = Some(format!("the observer {name} has ended"));
                self.feed(samples)?;
                return Ok(None);
            }
        }
        Ok(Some(End::Alone(name)))
    }

    /// Shows another observer.
    fn go_on(&mut self, steps: usize) -> io::Result<()> {
        let count = self.view.endpoints.len();
        let index = (self.view.current + steps) % count;
        if index == self.view.current {
            return Ok(());
        }
        match choice::connect(&self.view.endpoints[index], self.pause) {
            Ok(samples) => {
                self.view.show(index);
                self.feed(samples)
            }
            Err(failure) => {
                self.view.message = Some(failure.to_string());
                Ok(())
            }
        }
    }

    /// Listens to the observer that is shown.
    fn feed(&mut self, samples: Samples) -> io::Result<()> {
        let number = self.wanted.load(Ordering::Relaxed) + 1;
        self.wanted.store(number, Ordering::Relaxed);
        let feed = Feed {
            number,
            wanted: Arc::clone(&self.wanted),
            endpoint: self.view.endpoints[self.view.current].clone(),
            pause: self.pause,
            events: self.events.clone(),
        };
        spawn(move || feed.run(samples))
    }
}
