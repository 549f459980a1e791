//! Memory cgroups for the workers, version 2 or 1, whichever there is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::clock::pause_ms;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// Where groups with a memory limit can be made.
#[derive(Clone, Debug)]
pub(crate) struct Hierarchy {
    root: PathBuf,
    version: Version,
}

/// A group; removed on drop, when its members have ended.
#[derive(Debug)]
pub(crate) struct MemoryGroup {
    path: PathBuf,
    version: Version,
}

impl Hierarchy {
    /// Finds it, or says why there is none.
    pub(crate) fn find() -> Result<Self, String> {
        let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mounts: Vec<(&str, &str, &str)> = table
            .lines()
            .filter_map(|line| {
                let mut fields = line.split(' ').skip(1);
                Some((fields.next()?, fields.next()?, fields.next()?))
            })
            .collect();
        // The memory controller is in one of the two only.
        let v1 = mounts.iter().find(|(_, kind, options)| {
            *kind == "cgroup" && options.split(',').any(|one| one == "memory")
        });
        let hierarchy = if let Some((path, ..)) = v1 {
            Self {
                root: path.into(),
                version: Version::V1,
            }
        } else {
            let Some((path, ..)) = mounts.iter().find(|(_, kind, _)| *kind == "cgroup2") else {
                return Err("no cgroup file system is mounted".to_owned());
            };
            let root = PathBuf::from(path);
            delegate_memory(&root)?;
            Self {
                root,
                version: Version::V2,
            }
        };
        // Leave to make one is found out by making one.
        hierarchy
            .group("probe", 64 << 20)
            .map(|_| hierarchy.clone())
            .map_err(|error| format!("no cgroup can be made: {error}"))
    }

    /// `v2` or `v1`.
    pub(crate) fn version(&self) -> &'static str {
        match self.version {
            Version::V1 => "v1",
            Version::V2 => "v2",
        }
    }

    /// Makes a group.
    pub(crate) fn group(&self, name: &str, limit_bytes: u64) -> io::Result<MemoryGroup> {
        let name = format!("dropbehind-bench-{}-{name}", std::process::id());
        let path = self.root.join(name);
        fs::create_dir(&path)?;
        let group = MemoryGroup {
            path,
            version: self.version,
        };
        group.limit(&limit_bytes.to_string())?;
        Ok(group)
    }
}

fn delegate_memory(root: &Path) -> Result<(), String> {
    let lists = |file: &str| {
        fs::read_to_string(root.join(file))
            .is_ok_and(|text| text.split_whitespace().any(|one| one == "memory"))
    };
    if !lists("cgroup.controllers") {
        return Err(format!("{} has no memory controller", root.display()));
    }
    if lists("cgroup.subtree_control") {
        return Ok(());
    }
    fs::write(root.join("cgroup.subtree_control"), "+memory")
        .map_err(|error| format!("the memory controller cannot be switched on: {error}"))
}

impl MemoryGroup {
    fn limit(&self, limit: &str) -> io::Result<()> {
        let name = match self.version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        };
        fs::write(self.path.join(name), limit)
    }

    /// Takes the limit away.
    pub(crate) fn lift(&self) -> io::Result<()> {
        self.limit(match self.version {
            Version::V1 => "-1",
            Version::V2 => "max",
        })
    }

    /// The file that a process enters by.
    pub(crate) fn entrance(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// The most that was used, page cache included.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        let name = match self.version {
            Version::V1 => "memory.max_usage_in_bytes",
            Version::V2 => "memory.peak",
        };
        let text = fs::read_to_string(self.path.join(name)).ok()?;
        text.trim().parse().ok()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Members that were killed take a moment to disappear.
        for _ in 0..200 {
            match fs::remove_dir(&self.path) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => pause_ms(10),
                _ => return,
            }
        }
    }
}
