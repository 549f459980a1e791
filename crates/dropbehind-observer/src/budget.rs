//! How long a search of `/proc` may take.

use std::cell::Cell;
use std::time::Duration;

use dropbehind_linux::processor_time;

/// An amount of processor time, counted from now on.
#[derive(Debug)]
pub(crate) struct Budget {
    began: Duration,
    at_most: Duration,
    spent: Cell<bool>,
}

impl Budget {
    pub(crate) fn new(at_most: Duration) -> Budget {
        Budget {
            began: processor_time(),
            at_most,
            spent: Cell::new(false),
        }
    }

    /// Returns whether there is time left.
    pub(crate) fn lasts(&self) -> bool {
        let lasts = self.cost() < self.at_most;
        self.spent.set(!lasts);
        lasts
    }

    /// Returns whether it ran out.
    pub(crate) fn was_spent(&self) -> bool {
        self.spent.get()
    }

    /// The processor time used so far.
    pub(crate) fn cost(&self) -> Duration {
        processor_time().saturating_sub(self.began)
    }
}
