//! Errors that were marked as seen because we waited on a description of our own.
//!
//! The flusher waits with sync_file_range only where cachestat is missing (before Linux 6.5).
//! The program's descriptors still report the error, but the kernel no longer reports it to
//! files opened later. So we do, once per file, to files of this library in this process.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use dropbehind_linux::FileId;

use crate::lock;

/// Errors remembered so far; also serves as the clock for what a file has seen.
static COUNT: AtomicU64 = AtomicU64::new(0);
static ERRORS: LazyLock<Mutex<HashMap<FileId, (u64, i32)>>> = LazyLock::new(Mutex::default);

/// What a file opened now has seen: its descriptor reports every later error.
pub fn now() -> u64 {
    COUNT.load(Ordering::SeqCst)
}

/// Remembers a writeback error.
pub fn remember(file: FileId, error: &io::Error) {
    let at = COUNT.fetch_add(1, Ordering::SeqCst) + 1;
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    lock(&ERRORS).insert(file, (at, errno));
}

/// A descriptor of the file has reported its error, so the kernel would not report it to
/// files opened from now on, either.
pub fn told(file: FileId) {
    if now() > 0 {
        lock(&ERRORS).remove(&file);
    }
}

/// The error that the kernel would have reported to a file opened at `opened`, if we had not
/// marked it as seen. Returned once.
pub fn take_for(file: FileId, opened: u64) -> Option<io::Error> {
    if now() == 0 {
        return None;
    }
    let mut errors = lock(&ERRORS);
    let &(at, errno) = errors.get(&file)?;
    if at > opened {
        // It happened while the file was open, so the file's own descriptor reports it.
        return None;
    }
    errors.remove(&file);
    Some(io::Error::from_raw_os_error(errno))
}
