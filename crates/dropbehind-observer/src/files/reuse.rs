//! What is used again stays: asks the policy about pages of files in a mode that wants that.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dropbehind_linux::{CacheUses, MemoryCgroup, cachestat, page_size};
use dropbehind_policy::{Brought, ByteRange, FileNumber, Inode, Mode, Residency, Used};

use super::open_file::OpenFile;
use super::{Files, range_of_pages};
use crate::board::lock;
use crate::snapshot::KEEPS_ALL;

/// How much memory is available is asked this often.
const MEMORY: Duration = Duration::from_secs(1);

impl Files {
    /// Notes which cached pages are used while that may count: each read(2) on the machine takes
    /// longer then. Where uses cannot be noted, no mode can know what is used again.
    pub(crate) fn look_for_uses(&mut self) {
        let rules = Arc::clone(&self.rules.rules);
        if !rules.have_mode(Mode::keeps_reused) {
            // No rule asks for uses any more: all that waits is decided about.
            if self.uses.is_some() {
                self.decide(true);
                self.act();
                self.uses = None;
            }
            return;
        }
        if self.uses.is_some() {
            return;
        }
        let uses = match self.trace {
            Some(_) => CacheUses::open().map_err(|error| error.to_string()),
            None => Err("nor who brings in which page".to_owned()),
        };
        self.rules.uses_are_unknown = uses.is_err();
        if let Err(error) = &uses
            && rules.unless_uses_are_known("") == Residency::Keep
        {
            lock(&self.board).note(format!(
                "{KEEPS_ALL} ({error}); the mode dontcache drops it"
            ));
        }
        self.uses = uses.ok();
    }

    /// Pages of a file entered the cache, brought in by this process.
    pub(super) fn bring(&mut self, number: FileNumber, process: i32, brought: Brought) {
        let open = self.files.get(&number);
        let Some(open) = open.filter(|open| brought.ours && open.settings.mode.drops()) else {
            return self.table.brought_of(number, brought);
        };
        // Another process that uses the file may want less of it to stay.
        let user = open.user(process).and_then(|user| user.settings);
        let tries = user.unwrap_or(open.settings).mode.keeps_reused();
        // What waits must hold neither the mount nor the blocks of a deleted file.
        if !tries || !open.file.may_be_released() {
            return self.table.brought_to_drop(number, brought.range);
        }
        let directory = open.path.parent().map(subject);
        let program = self.rules.names.bytes_of(process).map(subject);
        let subjects = [directory, program];
        self.table.brought_to_try(number, brought.range, subjects);
    }

    /// Asks how much memory is available, now and then.
    pub(super) fn ask_for_memory(&mut self) {
        let now = Instant::now();
        if self.next_memory.is_some_and(|next| now < next) {
            return;
        }
        self.next_memory = Some(now + MEMORY);
        if let Some(machine_bytes) = available_memory() {
            let group = self.memory_cgroup.as_ref();
            let group_bytes = group.and_then(MemoryCgroup::available_bytes);
            self.table.reuse.set_memory(machine_bytes, group_bytes);
        }
    }

    /// Decides about pages that have waited for long enough, or about `all` that wait.
    pub(super) fn decide(&mut self, all: bool) {
        if self.table.reuse.waiting_bytes() == 0 {
            return;
        }
        self.ask_for_memory();
        let (uses, inodes) = (self.uses.as_ref(), &self.inodes);
        let look = |inode: Inode, part: ByteRange| {
            let (Some(uses), Some(inode)) = (uses, inodes.kernel_inode(inode)) else {
                return (part, Used::default());
            };
            let (first_page, pages) =
                uses.folios_of(inode, part.start / page_size(), part.len() / page_size());
            let uses = uses.of(inode, first_page, pages);
            let used = Used {
                once: uses.once,
                again: uses.again,
                unknown: uses.unknown,
            };
            (range_of_pages(first_page, pages), used)
        };
        let files = &self.files;
        self.table.decide(all, look, |number, range| {
            files.get(&number).map_or(0, |open| kept_bytes(open, range))
        });
    }
}

/// How many bytes of a range are cached, or were recently evicted by the kernel. What was dropped
/// does not count, since it leaves no shadow entry (mm/workingset.c).
fn kept_bytes(open: &OpenFile, range: ByteRange) -> u64 {
    // Opening a device may wait. Of a shorter file, not enough is around anything.
    if open.file.is_device() || open.opened_size_bytes < range.end {
        return 0;
    }
    let file = open.file.open();
    let stat = file.and_then(|file| cachestat(file.as_fd(), range.start, range.len()));
    stat.map_or(0, |stat| {
        (stat.cached_pages + stat.recently_evicted_pages) * page_size()
    })
}

/// How many bytes programs can have without swapping, page cache included: `MemAvailable` in
/// proc(5).
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// Whom there is to learn about. Numbers of files are lower.
fn subject(name: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish() | 1 << 63
}
