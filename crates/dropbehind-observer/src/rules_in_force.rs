//! The rules in force, asked about files that are open.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use dropbehind_linux::{FileKind, FileStat, FsKind, disk_of, filesystem, filesystem_tag};
use dropbehind_policy::Mode;

use crate::names::Names;
use crate::rules::{Candidate, Rules, Settings};

/// The name of a disk, empty if there is none, and whether overlayfs is above it.
type Carrier = (Arc<str>, bool);

/// The rules in force.
#[derive(Debug)]
pub(crate) struct RulesInForce {
    pub(crate) rules: Arc<dyn Rules>,
    /// The names of programs, which rules ask for.
    pub(crate) names: Names,
    /// By device number, each with the last [file system](filesystem_tag) that has it: sysfs is slow.
    carriers: HashMap<u64, (u64, Carrier)>,
    /// Nobody tells what is used again. Modes that keep that do as the [rules
    /// say](Rules::unless_uses_are_known).
    pub(crate) uses_are_unknown: bool,
}

impl RulesInForce {
    pub(crate) fn new(rules: Arc<dyn Rules>) -> RulesInForce {
        RulesInForce {
            rules,
            names: Names::default(),
            carriers: HashMap::new(),
            uses_are_unknown: false,
        }
    }

    /// Whether pages may wait until it is known whether they are used again.
    pub(crate) fn keep_reused(&self) -> bool {
        self.rules.have_mode(Mode::keeps_reused) && !self.uses_are_unknown
    }

    /// How to observe this file on `disk`, which `process` opened by `path`; `None` if it is left
    /// alone. `size` is asked if that makes a difference.
    pub(crate) fn settings_for(
        &self,
        path: &Path,
        process: i32,
        disk: &str,
        size: impl FnOnce() -> Option<u64>,
    ) -> Option<Settings> {
        let name = self.names.of(process);
        let mut settings = self.rules.settings_for(Candidate {
            path,
            process,
            name: name.as_deref(),
            size_bytes: self.rules.ask_for_sizes().then(size).flatten(),
            disk,
        })?;
        if settings.mode.keeps_reused() && self.uses_are_unknown {
            settings.mode.residency = self.rules.unless_uses_are_known(disk);
        }
        (!settings.mode.is_buffered()).then_some(settings)
    }

    /// What carries a file.
    pub(crate) fn carrier(&mut self, info: &FileStat, file: BorrowedFd<'_>) -> Carrier {
        let device = match info.kind {
            FileKind::Block => info.special_device,
            _ => info.id.device,
        };
        let tag = filesystem_tag(file, device);
        match self.carriers.get(&device) {
            Some((known, carrier)) if *known == tag => carrier.clone(),
            _ => {
                let disk = disk_of(file).map_or_else(|_| "".into(), |disk| disk.name.into());
                let is_overlay = filesystem(file).is_ok_and(|kind| kind == FsKind::Overlay);
                let carrier = (disk, is_overlay);
                self.carriers.insert(device, (tag, carrier.clone()));
                carrier
            }
        }
    }
}
