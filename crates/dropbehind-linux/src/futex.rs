//! Waiting on a word of memory: futex(2), `FUTEX_WAIT` and `FUTEX_WAKE`.
//!
//! Never with `FUTEX_PRIVATE_FLAG`: the word may lie in memory that processes
//! share, and a private wait is not found by a wake from another one.

use rustix::io::Errno;
use rustix::thread::futex::{Flags, Timespec, wait, wake};
use std::io;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Why [`futex_wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wake {
    /// Woken; possibly for no reason, so look at the word again.
    Woken,
    /// The word did not have the expected value: never slept.
    Changed,
    /// The time is up.
    TimedOut,
    /// A signal was handled.
    Interrupted,
}

/// Sleeps while the word has the expected value, until woken; at most for
/// `timeout`, measured by `CLOCK_MONOTONIC`.
///
/// # Errors
///
/// - `ENOSYS`, `EPERM`: a sandbox without the call.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> io::Result<Wake> {
    // A time that doesn't fit is as good as forever.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match wait(word, Flags::empty(), expected, timeout.as_ref()) {
        Ok(()) => Ok(Wake::Woken),
        Err(Errno::AGAIN) => Ok(Wake::Changed),
        Err(Errno::TIMEDOUT) => Ok(Wake::TimedOut),
        Err(Errno::INTR) => Ok(Wake::Interrupted),
        Err(errno) => Err(errno.into()),
    }
}

/// Wakes up to `count` of those who sleep on the word, and says how many were
/// woken.
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
