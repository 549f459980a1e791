//! Processes of the program that entered mount namespaces of their own. What they use is no
//! longer seen, and a note must say so.

use super::inhabitants::Inhabitants;
use crate::error::shown;
use dropbehind_linux::{children, command_name};
use std::collections::BTreeSet;
use std::time::Duration;

/// The pause before the first look; each one after that is twice as long.
const FIRST: Duration = Duration::from_millis(4);
/// The longest pause. A look takes about 20 microseconds a process.
const LONGEST: Duration = Duration::from_millis(500);
/// At most this many names are reported.
const NAMES: usize = 5;

/// The emigrants seen so far, by their programs' names.
#[derive(Debug)]
pub(super) struct Emigrants {
    program: i32,
    home: Inhabitants,
    names: BTreeSet<String>,
    pause: Duration,
}

impl Emigrants {
    /// For a program and its children, which begin among these inhabitants.
    pub(super) fn of(program: i32, home: &Inhabitants) -> Self {
        Self {
            program,
            home: *home,
            names: BTreeSet::new(),
            pause: FIRST,
        }
    }

    /// How long to wait for the next look.
    pub(super) fn pause(&self) -> Duration {
        self.pause
    }

    /// Looks through the tree of processes. A process that ends within a pause is missed.
    pub(super) fn look(&mut self) {
        self.pause = (self.pause * 2).min(LONGEST);
        let mut rest = vec![self.program];
        while let Some(process) = rest.pop() {
            if self.names.len() == NAMES {
                return;
            }
            if self.home.lacks(process) {
                self.names.extend(command_name(process).map(shown));
            } else {
                rest.extend(children(process).unwrap_or_default());
            }
        }
    }

    /// The sentence about them, if there were any.
    pub(super) fn note(self) -> Option<String> {
        let names = self.names.into_iter().collect::<Vec<_>>().join(", ");
        (!names.is_empty()).then(|| {
            format!(
                "of programs in mount namespaces of their own ({names}) most files were not \
                 observed; use `dropbehind watch` for them"
            )
        })
    }
}
