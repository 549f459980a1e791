//! Tests of what stays in the cache, on a machine whose kernel takes pages as it
//! likes.
//!
//! The kernel may reclaim any clean page at any time: DAMON, where it is on, does
//! so without any lack of memory. [`Reclaim`] watches it, so that a test can tell
//! what the kernel took from what we dropped.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::mounted_device::mounted_device;
use crate::residency::page_bytes;
use crate::trace::{Account, Event, Folio, Kept, Trace};

/// What the trace cannot tell apart may be in the way of an attempt, but not of
/// several, while a mistake of ours would be in all of them.
const ATTEMPTS: u32 = 6;
/// DAMON's threads and those that reclaim when memory is short. They serve no
/// program, and no program of ours runs in them.
const KERNEL_THREADS: &str = "comm ~ \"kdamond*\" || comm ~ \"kswapd*\"";
/// What programs reclaim themselves, and drops of all caches. The trace does not tell
/// whose pages those take.
const UNTRACED: [&str; 6] = [
    "pgsteal_direct",
    "pgsteal_khugepaged",
    "pgsteal_proactive",
    "pginodesteal",
    "drop_pagecache",
    "drop_slab",
];

/// What went wrong in an attempt, and may have been the kernel.
pub type Gone = String;

/// Passes if one attempt does. What cannot be the kernel's doing, an attempt
/// asserts.
///
/// # Panics
/// If no attempt passes, or one finds [pages gone](Reclaim::stays) that only we can
/// have dropped.
pub fn in_some_attempt(attempt: impl Fn(&Reclaim) -> Result<(), Gone>) {
    let mut failed = Vec::new();
    for _ in 0..ATTEMPTS {
        let reclaim = Reclaim::watch();
        match attempt(&reclaim) {
            Ok(()) => return,
            Err(gone) => {
                let ours = reclaim.ours.load(Ordering::Relaxed);
                assert!(!ours, "{gone}, and nobody else took any");
                println!("another attempt, since {gone}");
                failed.push(gone);
            }
        }
    }
    panic!("in every attempt: {failed:#?}");
}

/// A trace of what they take.
fn start() -> io::Result<Trace> {
    Trace::start(&[(Event::Delete, KERNEL_THREADS)])
}

/// Why the kernel cannot be watched here, or `None`.
pub(crate) fn missing() -> Option<String> {
    let error = start().err()?;
    Some(format!("cannot trace the kernel: {error}"))
}

/// The pages that the kernel's own threads took from the cache since it was made.
///
/// Where the kernel cannot be traced, it seems to have taken none.
#[derive(Debug)]
pub struct Reclaim {
    watched: Option<Kept<Watched>>,
    untraced: u64,
    /// Whether pages were gone that nobody but us can have taken.
    ours: AtomicBool,
}

/// How much was taken so far that the trace does not show.
fn untraced() -> u64 {
    let counters = fs::read_to_string("/proc/vmstat").expect("the kernel's counters");
    let counters = counters.lines().filter_map(|line| line.split_once(' '));
    let counters = counters.filter(|(name, _)| UNTRACED.contains(name));
    counters
        .map(|(_, count)| count.parse::<u64>().expect("a count"))
        .sum()
}

#[derive(Debug)]
struct Watched {
    trace: Trace,
    /// Pages by their file's inode number.
    taken: HashMap<u64, HashSet<Page>>,
}

/// A page's file system and its number in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Page {
    device: (u32, u32),
    number: u64,
}

impl Reclaim {
    /// Watches from now on.
    pub fn watch() -> Self {
        let watched = start().ok().map(|trace| {
            let taken = HashMap::new();
            Kept::keep(Watched { trace, taken })
        });
        Self {
            watched,
            untraced: untraced(),
            ours: AtomicBool::new(false),
        }
    }

    /// How many bytes of a file or block device the kernel took so far.
    pub fn bytes_of(&self, path: &Path) -> io::Result<u64> {
        let Some(watched) = &self.watched else {
            return Ok(0);
        };
        let file = fs::metadata(path)?;
        let is_device = file.file_type().is_block_device();
        let (inode, device) = if is_device {
            // Its pages belong to an inode of the kernel's own, with the device's
            // number as the kernel writes it (include/linux/kdev_t.h, bdev_add).
            let device = file.st_rdev();
            let major = u64::from(rustix::fs::major(device));
            (major << 20 | u64::from(rustix::fs::minor(device)), None)
        } else {
            (file.st_ino(), Some(mounted_device(path)?))
        };
        let watched = watched.now()?;
        let pages = watched.taken.get(&inode).into_iter().flatten();
        let pages = pages.filter(|page| device.is_none_or(|device| page.device == device));
        Ok(pages.count() as u64 * page_bytes())
    }

    /// Passes when as much of a file is found in the cache as should be, but for
    /// what the kernel took.
    pub fn stays(&self, path: &Path, found_bytes: u64, wanted_bytes: u64) -> Result<(), Gone> {
        let taken_bytes = self.bytes_of(path).expect("a file that can be found");
        if found_bytes + taken_bytes >= wanted_bytes {
            return Ok(());
        }
        if self.watched.is_some() && untraced() == self.untraced {
            self.ours.store(true, Ordering::Relaxed);
        }
        Err(format!(
            "{found_bytes} of {wanted_bytes} bytes of {} are cached, and the kernel took \
             {taken_bytes}",
            path.display()
        ))
    }
}

impl Account for Watched {
    fn read(&mut self) -> io::Result<()> {
        let taken = &mut self.taken;
        self.trace.read(
            |Folio {
                 inode,
                 device,
                 first,
                 count,
                 ..
             }| {
                let pages = taken.entry(inode).or_default();
                pages.extend((first..first + count).map(|number| Page { device, number }));
            },
        )
    }
}
