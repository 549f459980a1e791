//! Which inodes belong to block devices.
//!
//! They are in a file system of the kernel's own, which is mounted nowhere: no table and no call
//! reports its device number. An inode's number there is the device's, but users choose inode
//! numbers on their own file systems, which they may hide. So the device number is learned from
//! what the trace says when we read a page of a device ourselves.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use dropbehind_linux::{
    Access, CacheTrace, Mount, TraceRecord, advise_access, cached_pages, drop_clean, kernel_device,
    page_size, size_bytes,
};

use crate::device::open_device;
use crate::in_time::in_time;
use crate::observer::own_process;

/// At most this many devices are tried: most cannot be opened, or are empty.
const DEVICES: usize = 64;
/// How many of a device's last pages are looked at: some file systems keep copies there.
const PAGES: u64 = 64;

/// Learns the device number of block devices' inodes, as tracepoints name it. `None` if no
/// device can be read; there may be one later.
///
/// The disks of these mounts are tried first, since they are in use anyway. New records of
/// processes are handed over as in [`CacheTrace::gather`].
pub(crate) fn learn_superblock(
    trace: &mut CacheTrace,
    mounts: &[Mount],
    mut take: impl FnMut(u64, TraceRecord),
) -> Option<u32> {
    let mounted = mounts.iter().map(|mount| kernel_device(mount.device));
    let all = mounted.chain(fixed_disks());
    let mut tried = HashSet::new();
    let disks = all.filter(|device| device >> 20 != 0 && tried.insert(*device));
    for device in disks.take(DEVICES) {
        // One device that does not answer is enough.
        let Some(page) = in_time(move || read_a_page(device))? else {
            continue;
        };
        trace.gather(&mut take);
        let own = own_process();
        let superblock = trace.gathered().find_map(|record| match *record {
            TraceRecord::Added {
                process,
                inode,
                first_page,
                pages,
            } if process == own
                && inode.number == u64::from(device)
                && (first_page..first_page + pages).contains(&page) =>
            {
                Some(inode.device)
            }
            _ => None,
        });
        if superblock.is_some() {
            return superblock;
        }
    }
    None
}

/// Returns whether some raw device could be used.
pub(crate) fn are_usable() -> bool {
    let is_there = |device| {
        let file = open_device(device)?;
        Some(size_bytes(file.as_fd()).ok()? > 0)
    };
    fixed_disks().any(|device| is_there(device) == Some(true))
}

/// The disks that are not removable.
fn fixed_disks() -> impl Iterator<Item = u32> {
    let disks = std::fs::read_dir("/sys/block").into_iter().flatten();
    disks.flatten().filter_map(|disk| {
        let fact = |name| std::fs::read_to_string(disk.path().join(name)).ok();
        let is_fixed = fact("removable")?.trim() == "0";
        let number = fact("dev")?;
        let (major, minor) = number.trim().split_once(':')?;
        let number = major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?;
        is_fixed.then_some(number)
    })
}

/// Brings in a page that was not cached, drops it again, and returns its number.
fn read_a_page(device: u32) -> Option<u64> {
    let file = std::fs::File::from(open_device(device)?);
    let pages = size_bytes(file.as_fd()).ok()? / page_size();
    let bytes = page_size();
    let is_cold = |page: &u64| {
        cached_pages(file.as_fd(), page * bytes, bytes).is_ok_and(|cached| cached == 0)
    };
    let page = (pages.saturating_sub(PAGES)..pages).rfind(is_cold)?;
    advise_access(file.as_fd(), Access::Random).ok()?;
    file.read_at(&mut [0], page * bytes).ok()?;
    let _ = drop_clean(file.as_fd(), page * bytes, bytes);
    Some(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropbehind_linux::mounts_of;
    use dropbehind_testbed::{LoopDisk, Need, need};

    #[test]
    fn the_superblock_is_that_of_a_device_that_somebody_reads() {
        need!(Need::Loop, Need::Cachestat);
        let disk = LoopDisk::new(8 << 20).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let mounts = mounts_of(own).unwrap();
        let mut trace = CacheTrace::open(1 << 20).unwrap();
        let superblock = learn_superblock(&mut trace, &mounts, |_, _| {}).unwrap();
        assert!(
            !mounts
                .iter()
                .any(|mount| kernel_device(mount.device) == superblock)
        );

        let file = std::fs::File::open(disk.path()).unwrap();
        let number = dropbehind_linux::block_device_number(file.as_fd()).unwrap();
        file.read_at(&mut [0], 4 << 20).unwrap();
        trace.gather(|_, _| {});
        let is_it = |record: &TraceRecord| {
            matches!(record, TraceRecord::Added { inode, .. }
                if (inode.device, inode.number) == (superblock, number))
        };
        assert!(trace.gathered().any(is_it));
    }

    #[test]
    fn nothing_is_left_of_what_was_read() {
        need!(Need::Loop, Need::Cachestat);
        let disk = LoopDisk::new(8 << 20).unwrap();
        let file = std::fs::File::open(disk.path()).unwrap();
        let number = dropbehind_linux::block_device_number(file.as_fd()).unwrap();
        let page = read_a_page(u32::try_from(number).unwrap()).unwrap();
        let cached = || {
            let page = page * page_size();
            cached_pages(file.as_fd(), page, page_size()).unwrap()
        };
        assert_eq!(cached(), 0);
        // A page that is cached is not chosen.
        file.read_at(&mut [0], page * page_size()).unwrap();
        assert_eq!(cached(), 1);
        assert_ne!(read_a_page(u32::try_from(number).unwrap()), Some(page));
        assert_eq!(cached(), 1);
    }
}
