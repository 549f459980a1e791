//! Errors that waiting on a description of our own has marked as seen.
//!
//! Only where cachestat is missing (before Linux 6.5) does the flusher wait
//! with sync_file_range. The program's descriptors still report the error, but
//! the kernel no longer tells a file opened later; so we do, once a file, to
//! files of this library in this process.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use dropbehind_linux::FileId;

use crate::lock;

/// Errors remembered so far; also the clock that says what a file has seen.
static COUNT: AtomicU64 = AtomicU64::new(0);
static ERRORS: LazyLock<Mutex<HashMap<FileId, (u64, i32)>>> = LazyLock::new(Mutex::default);

/// What a file opened now has seen: everything, if its descriptor reports it.
pub fn now() -> u64 {
    COUNT.load(Ordering::SeqCst)
}

/// Remembers an error of writeback.
pub fn remember(file: FileId, error: &io::Error) {
    let at = COUNT.fetch_add(1, Ordering::SeqCst) + 1;
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    lock(&ERRORS).insert(file, (at, errno));
}

/// A descriptor of the file has reported its error: files opened from now on
/// would not be told by the kernel either.
pub fn told(file: FileId) {
    if now() > 0 {
        lock(&ERRORS).remove(&file);
    }
}

/// The error that a file opened at `opened` would have been told by the kernel,
/// had nobody marked it seen. Told once.
pub fn take_for(file: FileId, opened: u64) -> Option<io::Error> {
    if now() == 0 {
        return None;
    }
    let mut errors = lock(&ERRORS);
    let &(at, errno) = errors.get(&file)?;
    if at > opened {
        // Happened while the file was open: its own descriptor reports it.
        return None;
    }
    errors.remove(&file);
    Some(io::Error::from_raw_os_error(errno))
}
