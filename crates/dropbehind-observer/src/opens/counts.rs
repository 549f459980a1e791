//! Counting what is cached of a file before it is opened.

use super::look::{Inode, LookedAt};
use super::{Absent, Before};
use crate::budget::Budget;
use dropbehind_flusher::CacheMap;
use dropbehind_linux::{cachestat, page_size};
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Counting what is cached of one file takes at most one part in this many of the time, once it
/// has taken more of a processor than [`COSTLY_COUNT`]: 10 ms for each cached GiB, or 80 if its
/// pages are scattered.
const COUNT_SHARE: u32 = 25;
const COSTLY_COUNT: Duration = Duration::from_millis(1);
/// What is cached of a file up to this size takes less.
const CHEAP_BYTES: u64 = 4 << 20;
/// As many such files are remembered.
const COSTLY_FILES: usize = 1024;

/// Counts what is cached of files.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// When that of a costly file may be counted again.
    next: HashMap<Inode, Instant>,
}

impl Counts {
    /// What is cached of a file; `None` if the kernel does not show it.
    pub(super) fn before(&mut self, file: &LookedAt) -> Option<Before> {
        if file.size_bytes == 0 || file.is_to_be_truncated() {
            return Some(Before::Absent(Absent::all()));
        }
        if let Some(next) = self.next.get(&file.inode) {
            if Instant::now() < *next {
                return Some(Before::Uncounted);
            }
            self.next.remove(&file.inode);
        }
        // What it costs is asked of the kernel as well.
        let may_cost = file.size_bytes > CHEAP_BYTES;
        let budget = may_cost.then(|| Budget::new(COSTLY_COUNT));
        let pages = file.size_bytes.div_ceil(page_size());
        let size_bytes = pages * page_size();
        let absent = match cachestat(file.file.as_fd(), 0, file.size_bytes) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                return None;
            }
            Ok(counted) if counted.cached_pages >= pages => {
                let unwritten_pages = counted.dirty_pages + counted.writeback_pages;
                Absent::none(size_bytes, unwritten_pages * page_size())
            }
            Ok(counted) if counted.cached_pages == 0 && !file.is_overlay => Absent::all(),
            _ => Absent::from(&CacheMap::now(file.file.as_fd()), size_bytes),
        };
        if let Some(budget) = budget.filter(|budget| !budget.lasts()) {
            if self.next.len() >= COSTLY_FILES {
                self.next.clear();
            }
            let next = Instant::now() + budget.cost() * COUNT_SHARE;
            self.next.insert(file.inode, next);
        }
        Some(Before::Absent(absent))
    }
}
