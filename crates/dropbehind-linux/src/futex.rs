//! Waiting on a word of memory: futex(2), `FUTEX_WAIT` and `FUTEX_WAKE`.
//!
//! Never uses `FUTEX_PRIVATE_FLAG`: the word may be in memory shared between processes, and a
//! wake from another process doesn't reach a private wait.

use rustix::io::Errno;
use rustix::thread::futex::{Flags, Timespec, wait, wake};
use std::io;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Why [`futex_wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wake {
    /// Woken; possibly for no reason, so check the word again.
    Woken,
    /// The word did not have the expected value, so it never slept.
    Changed,
    /// The timeout expired.
    TimedOut,
    /// A signal was handled.
    Interrupted,
}

/// Sleeps while the word has the expected value, until woken or until `timeout` expires,
/// measured by `CLOCK_MONOTONIC`.
///
/// # Errors
///
/// - `ENOSYS`, `EPERM`: a sandbox without the call.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> io::Result<Wake> {
    // A timeout that doesn't fit is as good as forever.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match wait(word, Flags::empty(), expected, timeout.as_ref()) {
        Ok(()) => Ok(Wake::Woken),
        Err(Errno::AGAIN) => Ok(Wake::Changed),
        Err(Errno::TIMEDOUT) => Ok(Wake::TimedOut),
        Err(Errno::INTR) => Ok(Wake::Interrupted),
        Err(errno) => Err(errno.into()),
    }
}

/// Wakes up to `count` threads that sleep on the word, and returns how many it woke.
///
/// # Errors
///
/// - `ENOSYS`, `EPERM`: a sandbox without the call.
pub fn futex_wake(word: &AtomicU32, count: u32) -> io::Result<u32> {
    // The kernel takes a signed count.
    let count = count.min(i32::MAX.unsigned_abs());
    let woken = wake(word, Flags::empty(), count)?;
    Ok(u32::try_from(woken).unwrap_or(u32::MAX))
}
