//! What the observer has reported about a file and the disk's thread has not read yet.

use std::sync::{Arc, Mutex};

use dropbehind_policy::{Brought, ByteRange, Mode, Unread};

use crate::lock;

/// What the observer reports about a file, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mail {
    Brought(Brought),
    Decided { range: ByteRange, stays: bool },
    Changed { mode: Mode, reads: bool },
    Advised { random: bool },
    Emptied,
}

impl Mail {
    /// What it says to whoever drops the file's pages next.
    pub(super) fn unread(self) -> Option<Unread> {
        match self {
            Mail::Brought(brought) => Some(Unread::Brought(brought)),
            Mail::Decided { range, stays: true } => Some(Unread::Stays(range)),
            Mail::Decided { stays: false, .. }
            | Mail::Changed { .. }
            | Mail::Advised { .. }
            | Mail::Emptied => None,
        }
    }
}

/// What the observer has reported about a file and the disk's thread has not read yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mailbox(Arc<Mutex<Vec<Mail>>>);

impl Mailbox {
    /// Returns whether there was nothing to read, and now is.
    pub(super) fn put(&self, news: impl IntoIterator<Item = Mail>) -> bool {
        let mut told = lock(&self.0);
        let was_empty = told.is_empty();
        told.extend(news);
        was_empty && !told.is_empty()
    }

    pub(crate) fn take(&self) -> Vec<Mail> {
        std::mem::take(&mut *lock(&self.0))
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_read_and_still_counts_is_passed_on() {
        let range = ByteRange::new(0, 4096);
        let decided = |stays| Mail::Decided { range, stays }.unread();
        assert_eq!(decided(true), Some(Unread::Stays(range)));
        assert_eq!(decided(false), None);
        let brought = Brought::new(range, true);
        let unread = Some(Unread::Brought(brought));
        assert_eq!(Mail::Brought(brought).unread(), unread);
    }
}
