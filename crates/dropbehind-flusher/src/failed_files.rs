//! The files whose writeback failed.
//!
//! The kernel reports a failure once. After that, nothing shows that the cache may have the only copy.
//! So this process remembers it, whatever the file was open with, and so do the children that it forks.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use dropbehind_linux::{FileId, file_stat};

/// So many are remembered one by one.
const FILES_MAX: usize = 1 << 12;

/// When each was made: another file may get its ID.
type Failed = HashMap<FileId, Option<Duration>>;

/// No lock: one that another thread held at a fork would stay locked in the child forever.
static FAILED: ArcSwapOption<Failed> = ArcSwapOption::const_empty();

/// All files count as failed: there were too many, or one could not be identified.
static ALL: AtomicBool = AtomicBool::new(false);

/// Remembers that writeback of a file failed, for as long as the process lives.
pub fn remember_failure(fd: BorrowedFd<'_>) {
    let Some((id, born)) = identity(fd) else {
        return ALL.store(true, Ordering::SeqCst);
    };
    FAILED.rcu(|failed| {
        let mut failed = failed.as_deref().cloned().unwrap_or_default();
        match failed.len() < FILES_MAX {
            true => drop(failed.insert(id, born)),
            false => ALL.store(true, Ordering::SeqCst),
        }
        Some(Arc::new(failed))
    });
}

/// Returns whether writeback of the file has failed before, as far as this process knows.
pub fn remembers_failure(fd: BorrowedFd<'_>) -> bool {
    let failed = FAILED.load();
    let is_one =
        |failed: &Arc<Failed>| identity(fd).is_none_or(|(id, born)| failed.get(&id) == Some(&born));
    ALL.load(Ordering::SeqCst) || failed.as_ref().is_some_and(is_one)
}

fn identity(fd: BorrowedFd<'_>) -> Option<(FileId, Option<Duration>)> {
    let stat = file_stat(fd).ok()?;
    Some((stat.id, stat.born))
}
