//! Where a benchmark ran.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use dropbehind_linux::{DiskInfo, disk_of, filesystem};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::machine::meminfo_bytes;

/// The machine as far as results depend on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// The kernel's release.
    pub kernel: String,
    /// Processor architecture.
    pub architecture: String,
    /// What the processor calls itself.
    pub processor: String,
    /// Processors online.
    pub cpus: u64,
    /// All memory.
    pub memory_bytes: u64,
    /// The file system, or `block device`.
    pub filesystem: String,
    /// The disk below it.
    pub disk: DiskFacts,
    /// `vm.dirty_*` and the like, name and value.
    pub sysctls: Vec<(String, String)>,
    /// Transparent huge pages.
    pub huge_pages: String,
    /// Whether dropbehind was built without optimisation.
    pub debug_build: bool,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskFacts {
    /// The kernel's name.
    pub name: String,
    /// What the device calls itself.
    pub model: String,
    /// I/O scheduler.
    pub scheduler: String,
    /// Largest request.
    pub request_bytes: u64,
    /// How far the kernel reads ahead.
    pub read_ahead_bytes: u64,
    /// Whether it says that it has moving parts.
    pub rotational: bool,
    /// `write back` or `write through`.
    pub write_cache: String,
    /// Whether it is no disk but a file system without one.
    #[serde(rename = "virtual")]
    pub is_virtual: bool,
}

const SYSCTLS: [&str; 7] = [
    "vm.dirty_background_bytes",
    "vm.dirty_background_ratio",
    "vm.dirty_bytes",
    "vm.dirty_ratio",
    "vm.dirty_expire_centisecs",
    "vm.dirty_writeback_centisecs",
    "vm.swappiness",
];

fn word(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

impl DiskFacts {
    pub(crate) fn of(disk: &DiskInfo) -> Self {
        let queue = |name: &str| word(&format!("/sys/dev/block/{}/{name}", disk.id));
        let mut model = queue("device/model");
        if model.is_empty() {
            model = queue("loop/backing_file");
        }
        Self {
            name: disk.name.clone(),
            model,
            scheduler: disk.scheduler.clone(),
            request_bytes: disk.request_bytes,
            read_ahead_bytes: disk.read_ahead_bytes,
            rotational: disk.rotational,
            write_cache: queue("queue/write_cache"),
            is_virtual: disk.virtual_,
        }
    }
}

impl Environment {
    /// That of a directory, or of a block device.
    pub(crate) fn of(place: &Path) -> Result<Self, Error> {
        let failed = |error| Error::io("looking at", place, &error);
        let opened = fs::File::open(place).map_err(failed)?;
        let disk = disk_of(opened.as_fd()).map_err(failed)?;
        let filesystem = if opened.metadata().map_err(failed)?.is_dir() {
            filesystem(opened.as_fd()).map_err(failed)?.to_string()
        } else {
            "block device".to_owned()
        };
        let uname = rustix::system::uname();
        let cpuinfo = word("/proc/cpuinfo");
        let processor = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map_or_else(String::new, |(_, name)| name.trim().to_owned());
        Ok(Self {
            kernel: uname.release().to_string_lossy().into_owned(),
            architecture: uname.machine().to_string_lossy().into_owned(),
            processor,
            cpus: cpus(),
            memory_bytes: meminfo_bytes("MemTotal").unwrap_or(0),
            filesystem,
            disk: DiskFacts::of(&disk),
            sysctls: SYSCTLS
                .iter()
                .map(|name| {
                    let path = format!("/proc/sys/{}", name.replace('.', "/"));
                    ((*name).to_owned(), word(&path))
                })
                .collect(),
            huge_pages: word("/sys/kernel/mm/transparent_hugepage/enabled"),
            debug_build: cfg!(debug_assertions),
        })
    }
}

/// Processors online.
pub(crate) fn cpus() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}
