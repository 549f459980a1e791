//! Waiting for several descriptors: poll(2).

use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interest {
    /// Something to read, or the other end was closed.
    Readable,
    /// A change of state, as reported by mount tables.
    Urgent,
    /// Only an error or a hang-up.
    HangUp,
}

/// A descriptor and what to wait for on it.
#[derive(Debug)]
pub struct PollEntry<'fd> {
    entry: PollFd<'fd>,
}

impl<'fd> PollEntry<'fd> {
    /// Waits for `interest` on `fd`.
    #[must_use]
    pub fn new(fd: BorrowedFd<'fd>, interest: Interest) -> Self {
        let events = match interest {
            Interest::Readable => PollFlags::IN,
            Interest::Urgent => PollFlags::PRI,
            Interest::HangUp => PollFlags::empty(),
        };
        Self {
            entry: PollFd::from_borrowed_fd(fd, events),
        }
    }

    /// Whether the descriptor is ready, or has an error or a hang-up.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.entry.revents().is_empty()
    }

    /// Whether the other end is gone.
    #[must_use]
    pub fn is_hung_up(&self) -> bool {
        self.entry.revents().contains(PollFlags::HUP)
    }
}

/// Waits until any descriptor is ready, and returns how many are: 0 after the timeout.
/// Without a timeout it waits forever.
///
/// # Errors
///
/// - `EINTR`: a signal's handler ran.
/// - `EINVAL`: more entries than the limit on descriptors.
/// - `ENOMEM`.
pub fn poll(entries: &mut [PollEntry<'_>], timeout: Option<Duration>) -> io::Result<usize> {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let mut raw: Vec<PollFd<'_>> = entries.iter().map(|entry| entry.entry.clone()).collect();
    let ready = rustix::event::poll(&mut raw, timeout.as_ref())?;
    for (entry, raw) in entries.iter_mut().zip(raw) {
        entry.entry = raw;
    }
    Ok(ready)
}
