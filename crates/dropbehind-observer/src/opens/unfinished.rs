//! Opens whose outcome is not known yet.

use super::Before;
use super::look::{LookedAt, Way};
use dropbehind_linux::CallUnderWay;
use std::time::{Duration, Instant};

/// An open that was let go before its file could be looked at as it is now.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) process: i32,
    pub(super) call: CallUnderWay,
    /// The call is over, as far as can be known.
    pub(super) is_over: bool,
    pub(super) what: What,
    /// When it is looked at next.
    pub(super) next_look: Instant,
    /// How long to wait after that.
    pub(super) pause: Duration,
}

/// What was cached, and when that was counted.
pub(super) type Counted = (Before, u64);

#[derive(Debug)]
pub(super) enum What {
    Made(Way),
    Truncated(LookedAt),
    /// An overlay may copy the file.
    Copied(LookedAt, Counted, Duration),
    /// Nobody could see which file it is.
    Unclear,
    /// Nothing but that it is over is still to be reported.
    Reported,
}

impl Unfinished {
    /// Returns whether the file shows what the open has done.
    pub(super) fn shows(&self) -> bool {
        match &self.what {
            What::Made(way) => way.is_there(),
            What::Truncated(file) => file.was_modified(),
            What::Copied(file, ..) => file.was_copied(),
            // Nothing shows it while the thread runs.
            What::Unclear | What::Reported => false,
        }
    }
}
