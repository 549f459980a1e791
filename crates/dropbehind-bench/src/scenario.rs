//! What is measured: scenarios, and the cases they are made of.

use std::path::{Path, PathBuf};

use crate::job::Task;
use crate::mode::Mode;
use crate::scenarios;

/// Something that programs do, done in each mode.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name; those of a family begin alike.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// The role that the verdict is about.
    pub role: &'static str,
    /// The metric that the verdict is about.
    pub metric: &'static str,
    /// The modes that make sense.
    pub modes: &'static [Mode],
    /// Where it runs.
    pub(crate) stage: Stage,
    /// Its size unless one is given.
    pub(crate) size: Size,
    /// Size of a call.
    pub(crate) block_bytes: u64,
    /// How many of what the scenario has several of.
    pub(crate) count: u64,
    /// Makes its case in a mode.
    pub(crate) build: fn(&Setting<'_>, Mode) -> Case,
}

/// Where a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// In the directory.
    Directory,
    /// On the device, or a loop device on a file in the directory.
    Device,
    /// On a disk of its own, slowed to this speed.
    SlowDisk { bytes_per_second: u64 },
    /// Behind an NFS server of its own, which serves the directory.
    Nfs,
}

/// How much a scenario moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// Percents of the workers' memory limit.
    OfLimit(u64),
    /// So many bytes; and without a memory limit.
    Unlimited(u64),
    /// What the scenario says, whatever size is asked for.
    Own,
}

/// What a case is built from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) scenario: &'a Scenario,
    /// For files.
    pub(crate) dir: &'a Path,
    /// The device, on [`Stage::Device`].
    pub(crate) device: Option<&'a Path>,
    pub(crate) size_bytes: u64,
    /// What the workers may use.
    pub(crate) memory_bytes: u64,
    pub(crate) quick: bool,
}

/// A scenario in a mode, ready to be run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Case {
    /// What must be there before.
    pub(crate) files: Vec<FilePlan>,
    pub(crate) processes: Vec<ProcessPlan>,
    /// Whose pages are counted.
    pub(crate) watch: Vec<PathBuf>,
    /// Whose pages should stay.
    pub(crate) hot: Vec<PathBuf>,
}

/// A file before the case.
#[derive(Clone, Debug)]
pub(crate) struct FilePlan {
    pub(crate) path: PathBuf,
    /// Full of data that is on the disk; empty and new if 0.
    pub(crate) bytes: u64,
}

/// A process of the case.
#[derive(Clone, Debug)]
pub(crate) struct ProcessPlan {
    pub(crate) mode: Mode,
    pub(crate) tasks: Vec<Task>,
}

impl Scenario {
    /// All of them.
    #[must_use]
    pub fn all() -> Vec<Scenario> {
        scenarios::all()
    }

    /// Whether a name on the command line means it: its own, or its family's.
    #[must_use]
    pub fn is_meant_by(&self, name: &str) -> bool {
        self.name
            .strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }
}

impl Setting<'_> {
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The size in whole blocks of `parts` files.
    pub(crate) fn part_bytes(&self, parts: u64) -> u64 {
        let block = self.scenario.block_bytes.max(4096);
        (self.size_bytes / parts / block * block).max(block)
    }
}

impl Case {
    /// One process in the mode that does one task; its files are watched.
    pub(crate) fn of(mode: Mode, task: Task, content_bytes: u64) -> Self {
        let mut case = Self::default();
        case.has_watched(&task.files, content_bytes);
        case.runs(mode, vec![task]);
        case
    }

    pub(crate) fn has(&mut self, paths: &[PathBuf], bytes: u64) {
        self.files.extend(paths.iter().map(|path| FilePlan {
            path: path.clone(),
            bytes,
        }));
    }

    pub(crate) fn has_watched(&mut self, paths: &[PathBuf], bytes: u64) {
        self.has(paths, bytes);
        self.watch.extend_from_slice(paths);
    }

    pub(crate) fn runs(&mut self, mode: Mode, tasks: Vec<Task>) {
        self.processes.push(ProcessPlan { mode, tasks });
    }
}
