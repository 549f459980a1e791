//! Limits of memory cgroups, versions 1 and 2 (cgroups(7)).

use crate::mount_namespace::mounts_of;
use crate::mounts::Mount;
use crate::processes::{Cgroup, cgroups};
use std::fs;
use std::path::{Path, PathBuf};

/// Where a process's memory cgroup is, and how far up the groups above it can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryCgroup {
    top: PathBuf,
    folder: PathBuf,
}

impl MemoryCgroup {
    /// Finds the memory cgroup of a process. `None` if it is in none, or the process sees no mount
    /// of one.
    #[must_use]
    pub fn of(process: i32) -> Option<Self> {
        let (groups, mounts) = (cgroups(process).ok()?, mounts_of(process).ok()?);
        groups.iter().find_map(|group| {
            let mut mounts = mounts.iter().filter(|mount| has_memory(mount, group));
            mounts.find_map(|mount| {
                let below = group.path.strip_prefix(&mount.root).ok()?;
                let top = mount.mount_point.clone();
                let folder = top.join(below);
                folder.is_dir().then_some(Self { top, folder })
            })
        })
    }

    /// How many bytes its members can still have, page cache included, before the kernel takes
    /// some back: what the tightest limit leaves, its own or one of a group above it that shows here.
    /// `None` if there is no limit.
    #[must_use]
    pub fn available_bytes(&self) -> Option<u64> {
        let above = self.folder.ancestors();
        let groups = above.take_while(|folder| folder.starts_with(&self.top));
        groups.filter_map(available_in).min()
    }
}

/// Whether the limits of such a group are in such a mount.
fn has_memory(mount: &Mount, group: &Cgroup) -> bool {
    let mut controllers = group.controllers.split(',');
    match mount.filesystem.as_str() {
        "cgroup2" => group.controllers.is_empty(),
        "cgroup" => controllers.any(|one| one == "memory") && mount.has_option("memory"),
        _ => false,
    }
}

/// Version 1 has the largest number of pages for no limit (`PAGE_COUNTER_MAX`). The sums of all groups
/// take the kernel longer than those of one, and nobody needs them then.
const NO_LIMIT: u64 = 1 << 60;

/// The limit of this group alone, less what its members use, but for their files.
fn available_in(folder: &Path) -> Option<u64> {
    let number = |names: [&str; 2]| {
        let read = |name: &&str| fs::read_to_string(folder.join(name)).ok();
        names.iter().find_map(read)?.trim().parse::<u64>().ok()
    };
    // Version 2 has "max" for none.
    let limit =
        number(["memory.max", "memory.limit_in_bytes"]).filter(|bytes| *bytes < NO_LIMIT)?;
    let usage = number(["memory.current", "memory.usage_in_bytes"])?;
    let stat = fs::read_to_string(folder.join("memory.stat")).ok()?;
    // Version 1 has the members' own next to the totals of all groups below.
    let prefix = match stat.contains("total_inactive_file") {
        true => "total_",
        false => "",
    };
    let of = |name: &str| -> u64 {
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        let found = lines.find(|(key, _)| key.strip_prefix(prefix) == Some(name));
        found.and_then(|(_, bytes)| bytes.parse().ok()).unwrap_or(0)
    };
    let files = of("inactive_file") + of("active_file");
    Some(limit.saturating_sub(usage.saturating_sub(files)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropbehind_testbed::{MemoryCgroup as Bed, need};
    use std::process::{Command, Stdio};

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_lowest_limit_counts_and_files_are_no_use_of_it() {
        need!(all Bed::needs());
        let bed = Bed::new(64 * MIB).unwrap();
        let inner = bed.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let available = || available_in(bed.path()).unwrap();
        // The kernel's own structures count, too.
        assert!(available() > 60 * MIB, "{}", available());
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        let script = format!(
            "dd if=/dev/zero of={} bs=1M count=16 status=none; echo; read line",
            file.path().display()
        );
        let mut command = Command::new("sh");
        command
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = bed.spawn(&mut command).unwrap();
        let mut line = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        let found = MemoryCgroup::of(child.id() as i32).unwrap();
        assert_eq!(found.folder, bed.path());
        let bytes = found.available_bytes().unwrap();
        assert!((50 * MIB..=64 * MIB).contains(&bytes), "{bytes}");
        drop(child.stdin.take());
        child.wait().unwrap();
        let lower = MemoryCgroup {
            folder: inner.clone(),
            ..found
        };
        assert!(lower.available_bytes().unwrap() <= 64 * MIB);
        fs::remove_dir(inner).unwrap();
    }
}
