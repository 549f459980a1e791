//! What stands in for the trace where the kernel does not report who brings pages in: what was
//! resident at a file's open stays, and the rest goes.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use dropbehind_flusher::CacheMap;
use dropbehind_linux::size_bytes;
use dropbehind_policy::grace::SMALL_FILE_BYTES;
use dropbehind_policy::{Brought, FileNumber};

use super::Files;
use crate::budget::Budget;

/// Looking for files that have grown takes at most one part in this many of the time: 0.3 s may
/// pass between two looks at 10,000 open files.
const GROWTH_SHARE: u32 = 32;

impl Files {
    /// Without the trace, pages of a small file that are cached at its close, and were not at
    /// its open, count as brought in. What of it is still on the shelf counted at an earlier close.
    pub(super) fn see_what_was_brought(&mut self, number: FileNumber) {
        let Some(open) = self.files.get(&number) else {
            return;
        };
        // What a closed file on the shelf has in the cache is known already.
        if self.trace.is_some() || open.observed.is_some() || !self.table.is_open(number) {
            return;
        }
        let Some(before) = &open.before else {
            return;
        };
        let file = match open.file.open() {
            Ok(file) => file,
            Err(error) => {
                self.lack_descriptors(&error);
                return;
            }
        };
        for range in before.brought_since(file.as_fd()) {
            for part in open.shelved.gaps_of(range) {
                self.table.brought_of(number, Brought::new(part, true));
            }
        }
    }

    /// Without the trace, looks for small open files that have grown.
    pub(crate) fn find_grown(&mut self) {
        let is_early = self.next_growth.is_some_and(|next| Instant::now() < next);
        if self.trace.is_some() || is_early {
            return;
        }
        let budget = Budget::new(Duration::MAX);
        let small = self.files.iter().filter(|(number, open)| {
            let has_stream = open.observed.is_some();
            !has_stream && self.table.is_open(**number)
        });
        let grown: Vec<FileNumber> = small
            .filter(|(_, open)| open.file.open().is_ok_and(|file| is_large(file.as_fd())))
            .map(|(number, _)| *number)
            .collect();
        for number in grown {
            self.table.stream(number);
        }
        self.next_growth = Some(Instant::now() + budget.cost() * GROWTH_SHARE);
    }
}

/// What was resident when the file was opened: in an empty one, nothing.
pub(super) fn resident_at_open(file: BorrowedFd<'_>, opened_size_bytes: u64) -> CacheMap {
    match opened_size_bytes {
        0 => CacheMap::empty(),
        _ => CacheMap::now_without_reads_under_way(file),
    }
}

/// Returns whether it is too large to wait for its close.
fn is_large(file: BorrowedFd<'_>) -> bool {
    size_bytes(file).is_ok_and(|bytes| bytes > SMALL_FILE_BYTES)
}
