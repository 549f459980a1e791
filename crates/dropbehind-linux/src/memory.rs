//! The machine's memory, and this process's.

use std::fs;
use std::path::Path;

use crate::processes::cgroups;

/// How many bytes programs can have without swapping, page cache included: `MemAvailable` in
/// proc(5), since Linux 3.14. `None` without `/proc`.
#[must_use]
pub fn available_memory() -> Option<u64> {
    of_machine("MemAvailable:")
}

/// How many bytes this process can have: the machine's memory, or the lowest limit of its memory
/// cgroup and those above it (`memory.max`, in version 1 `memory.limit_in_bytes`;
/// Documentation/admin-guide/cgroup-v2.rst). `None` without `/proc`.
///
/// Limits show where the hierarchy is mounted at its usual place, `/sys/fs/cgroup`.
#[must_use]
pub fn own_memory() -> Option<u64> {
    let machine = of_machine("MemTotal:")?;
    let own = i32::try_from(std::process::id()).ok()?;
    let groups = cgroups(own).unwrap_or_default();
    let limits = groups.iter().filter_map(|group| {
        let mut controllers = group.controllers.split(',');
        let (root, limit) = if group.controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.max")
        } else if controllers.any(|controller| controller == "memory") {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            return None;
        };
        lowest_limit(Path::new(root), &group.path, limit)
    });
    Some(limits.fold(machine, u64::min))
}

/// The lowest limit from the group at `path` up to the root. In a container, the path may be that
/// on the host, while only the container's own group is mounted, as the root.
fn lowest_limit(root: &Path, path: &Path, limit: &str) -> Option<u64> {
    let path = path.strip_prefix("/").unwrap_or(path);
    let groups = path.ancestors().map(|group| root.join(group));
    // The file says `max` where there is no limit.
    let limit_of = |group: &Path| {
        fs::read_to_string(group.join(limit))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    groups.filter_map(|group| limit_of(&group)).min()
}

/// A line of `/proc/meminfo`, in bytes.
fn of_machine(field: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// From now on, blocks of 128 KiB and more return to the kernel as soon as they are freed, where
/// the C library can: glibc raises that limit to the size of any larger block that is freed, up
/// to 32 MiB, unless it is set (mallopt(3), `M_MMAP_THRESHOLD`).
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only changes how malloc(3) gets memory.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
    }
}

/// Returns unused memory to the kernel, where the C library can: glibc's malloc_trim(3) also
/// does so in the middle of its heaps. It takes a millisecond for some ten megabytes.
pub fn return_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only touches memory that malloc(3) has not handed out.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_above_a_group_counts() {
        let root = std::env::temp_dir().join(format!("dropbehind-limits-{}", std::process::id()));
        let set = |group: &str, limit: &str| {
            fs::create_dir_all(root.join(group)).unwrap();
            fs::write(root.join(group).join("memory.max"), limit).unwrap();
        };
        let lowest = |path: &str| lowest_limit(&root, Path::new(path), "memory.max");
        set("a/b", "max\n");
        assert_eq!(lowest("/a/b"), None);
        set("a", "4096\n");
        assert_eq!(lowest("/a/b"), Some(4096));
        assert_eq!(lowest("/"), None, "not that of a group below");
        set("", "8192\n");
        assert_eq!(lowest("/a/b"), Some(4096));
        assert_eq!(lowest("/of/the/host"), Some(8192));
        fs::remove_dir_all(&root).unwrap();
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod malloc_tests {
    use super::*;

    fn is_mapped(address: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut ranges = maps.lines().filter_map(|line| {
            let (from, to) = line.split(' ').next()?.split_once('-')?;
            let number = |hex| usize::from_str_radix(hex, 16).ok();
            Some(number(from)?..number(to)?)
        });
        ranges.any(|range| range.contains(&address))
    }

    #[test]
    fn a_large_block_returns_though_a_larger_one_was_freed() {
        return_large_blocks();
        drop(vec![1_u8; 16 << 20]);
        // Another test may get that address in the same moment.
        let returns = |_| {
            let block = vec![1_u8; 8 << 20];
            let address = block.as_ptr() as usize;
            drop(block);
            !is_mapped(address)
        };
        assert!((0..10).any(returns));
    }
}
