//! Files that observed programs use and of whose open no event told: they were opened
//! before, passed on by another process, or are raw block devices.
//!
//! The kernel says which process brought in pages of which inode; the process has the
//! file open, and `/proc` shows as what.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use dropbehind_linux::{FileId, file_stat, mapped_files, open_files};
use dropbehind_policy::{FileNumber, Inode};

use super::Files;
use crate::open_again::open_again;

/// No more searches are remembered.
const SEARCHES: usize = 4096;
/// To look who has files open takes no more than one part in so many of the time: 5 ms
/// with 300 processes.
const SCAN_SHARE: u32 = 25;

/// What was looked for.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    /// How often a process brought in pages of an inode that was not found, such as a
    /// file system's own data.
    missed: HashMap<(i32, Inode), u32>,
    /// When processes may be looked at again.
    next_scan: Option<Instant>,
}

impl Strangers {
    /// True for the first, second, fourth, eighth time and so on: the process may have
    /// opened the file since.
    fn is_worth_a_search(&mut self, process: i32, inode: Inode) -> bool {
        if self.missed.len() >= SEARCHES {
            self.missed.clear();
        }
        let times = self.missed.entry((process, inode)).or_default();
        *times = times.saturating_add(1);
        times.is_power_of_two()
    }
}

impl Files {
    /// The file with this inode that a process has open.
    pub(super) fn find_stranger(&mut self, process: i32, inode: Inode) -> Option<FileNumber> {
        if !self.programs.has(process) || !self.inodes.may_be_a_file(inode) {
            return None;
        }
        if !self.strangers.is_worth_a_search(process, inode) {
            return None;
        }
        if self.owners.has(process, self.programs.namespace()) {
            return None;
        }
        for open in open_files(process).ok()? {
            if !self.inodes.may_be(inode, &open) {
                continue;
            }
            let Some(file) = open_again(process, &open) else {
                continue;
            };
            if self.inodes.inode_of(file.as_fd()) != Some(inode) {
                continue;
            }
            let info = file_stat(file.as_fd()).ok()?;
            let number = self.admit(file, &info, process)?;
            if let Some(open) = self.files.get_mut(&number) {
                open.close_untold = true;
            }
            self.strangers.missed.remove(&(process, inode));
            return Some(number);
        }
        None
    }

    /// Events merge, and of some files no event tells: whether somebody has them open is
    /// seen in `/proc`.
    pub(crate) fn settle_doubts(&mut self) {
        let now = Instant::now();
        if self.doubtful.is_empty() || self.strangers.next_scan.is_some_and(|next| now < next) {
            return;
        }
        let doubtful = std::mem::take(&mut self.doubtful);
        let mut ids: HashMap<FileId, FileNumber> = doubtful
            .iter()
            .filter_map(|number| Some((self.files.get(number)?.id, *number)))
            .collect();
        for process in self.programs.list() {
            if ids.is_empty() {
                break;
            }
            let open = open_files(process).unwrap_or_default();
            let mapped = mapped_files(process).unwrap_or_default();
            for used in open.iter().chain(&mapped) {
                ids.remove(&used.id);
            }
        }
        for number in ids.into_values() {
            self.table.closed_by_all(number);
        }
        self.strangers.next_scan = Some(Instant::now() + now.elapsed() * SCAN_SHARE);
    }

    /// True when files are to be looked for in `/proc`.
    pub(crate) fn has_doubts(&self) -> Option<Duration> {
        let next = self.strangers.next_scan;
        (!self.doubtful.is_empty()).then(|| {
            next.map_or(Duration::ZERO, |next| {
                next.saturating_duration_since(Instant::now())
            })
        })
    }
}
