//! The rules in force, asked about files that are open.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use dropbehind_linux::{FileKind, FileStat, disk_of, filesystem_tag};
use dropbehind_policy::Mode;

use crate::names::Names;
use crate::rules::{Candidate, Rules, Settings};

/// The rules in force.
#[derive(Debug)]
pub(crate) struct RulesInForce {
    pub(crate) rules: Arc<dyn Rules>,
    /// The names of programs, which rules ask for.
    pub(crate) names: Names,
    /// By device number, each with the last [file system](filesystem_tag) that has it: sysfs is slow.
    disk_names: HashMap<u64, (u64, Arc<str>)>,
    /// Nobody tells what is used again. Modes that keep that do as the [rules
    /// say](Rules::unless_uses_are_known).
    pub(crate) uses_are_unknown: bool,
}

impl RulesInForce {
    pub(crate) fn new(rules: Arc<dyn Rules>) -> RulesInForce {
        RulesInForce {
            rules,
            names: Names::default(),
            disk_names: HashMap::new(),
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

    /// The name of the disk that carries a file; empty if there is none.
    pub(crate) fn disk_name(&mut self, info: &FileStat, file: BorrowedFd<'_>) -> Arc<str> {
        let device = match info.kind {
            FileKind::Block => info.special_device,
            _ => info.id.device,
        };
        let tag = filesystem_tag(file, device);
        match self.disk_names.get(&device) {
            Some((known, name)) if *known == tag => Arc::clone(name),
            _ => {
                let name = disk_of(file).map_or_else(|_| "".into(), |disk| disk.name.into());
                self.disk_names.insert(device, (tag, Arc::clone(&name)));
                name
            }
        }
    }
}
