//! Counts a file's cached pages, with whichever call works here.

use super::support::Support;
use crate::cachestat::cachestat;
use crate::mincore::resident_ranges;
use crate::page::page_size;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// How long an effect may take before it counts as missing.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How long clean pages that should be dropped may stay.
pub(super) const DROP_PATIENCE: Duration = Duration::from_millis(200);

/// Checks repeatedly until the condition holds or the time is up.
pub(super) fn wait_until(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    let mut pause = Duration::from_micros(200);
    loop {
        if condition() {
            return true;
        }
        if started.elapsed() >= patience {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// How pages are counted on this file system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counting {
    Cachestat,
    Mincore,
    Impossible,
}

impl Counting {
    /// The cached pages of `len` bytes from `offset` on.
    pub(super) fn cached_pages(self, fd: BorrowedFd<'_>, offset: u64, len: u64) -> Option<u64> {
        match self {
            Self::Cachestat => Some(cachestat(fd, offset, len).ok()?.cached_pages),
            Self::Mincore => {
                let ranges = resident_ranges(fd, offset, len).ok()?;
                let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
                Some(bytes / page_size())
            }
            Self::Impossible => None,
        }
    }

    pub(super) fn is_empty(self, fd: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
        self.cached_pages(fd, offset, len) == Some(0)
    }
}

pub(super) fn stayed(after: Option<u64>, before: u64) -> String {
    format!("{} of {before} pages stay", after.unwrap_or(0))
}

/// Whether the pages of a range are gone, or go within a moment.
pub(super) fn went(fd: BorrowedFd<'_>, offset: u64, len: u64, counting: Counting) -> Support {
    if counting == Counting::Impossible {
        return Support::untested("accepted, but its effect cannot be seen");
    }
    if wait_until(DROP_PATIENCE, || counting.is_empty(fd, offset, len)) {
        Support::Works
    } else {
        let after = counting.cached_pages(fd, offset, len);
        Support::ineffective(stayed(after, len.div_ceil(page_size())))
    }
}
