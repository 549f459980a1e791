//! How long a search of `/proc` may take.

use std::time::Duration;

use dropbehind_linux::processor_time;

/// An amount of processor time, counted from now on.
#[derive(Debug)]
pub(crate) struct Budget {
    began: Duration,
    at_most: Duration,
}

impl Budget {
    pub(crate) fn new(at_most: Duration) -> Budget {
        Budget {
            began: processor_time(),
            at_most,
        }
    }

    /// Returns whether there is time left.
    pub(crate) fn lasts(&self) -> bool {
        self.cost() < self.at_most
    }

    /// The processor time used so far.
    pub(crate) fn cost(&self) -> Duration {
        processor_time().saturating_sub(self.began)
    }
}
