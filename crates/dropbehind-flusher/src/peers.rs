//! The flushers of other programs that write back to the same disk.
//!
//! Each program has a flusher, which knows its own files. Thirty-two of them with
//! a window each would have as much on the way as thirty-two disks take; so they
//! count each other, and share one.

use dropbehind_linux::{DiskInfo, Presence};

/// Many programs start at once, so others are looked for soon after our start,
const FIRST_NS: u64 = 5_000_000;
/// and then twice as long after each look, up to this.
const LAST_NS: u64 = 200_000_000;
/// Shares get no smaller beyond so many.
const MOST: u64 = 63;

pub(crate) struct Peers {
    /// `None` where there is no way to tell: then there is nobody else.
    presence: Option<Presence>,
    present: bool,
    look_ns: u64,
    step_ns: u64,
}

impl Peers {
    pub(crate) fn of(disk: &DiskInfo) -> Peers {
        Peers {
            presence: Presence::new(disk).ok(),
            present: false,
            look_ns: 0,
            step_ns: FIRST_NS,
        }
    }

    /// We write back. Answers how many flushers do, ourselves included, when it
    /// was time to look.
    pub(crate) fn busy(&mut self, now_ns: u64) -> Option<u64> {
        if self.present && now_ns < self.look_ns {
            return None;
        }
        let presence = self.presence.as_mut()?;
        let others = presence.enter().and_then(|()| presence.others(MOST));
        let Ok(others) = others else {
            self.presence = None;
            return Some(1);
        };
        if !self.present {
            self.present = true;
            self.step_ns = FIRST_NS;
        }
        self.look_ns = now_ns + self.step_ns;
        self.step_ns = (self.step_ns * 2).min(LAST_NS);
        Some(1 + others)
    }

    /// We don't write back for now.
    pub(crate) fn idle(&mut self) {
        if let Some(presence) = &mut self.presence {
            presence.leave();
        }
        self.present = false;
    }
}
