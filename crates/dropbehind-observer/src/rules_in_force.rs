//! The rules that hold now, asked about files that are open.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use dropbehind_linux::disk_of;

use crate::rules::{Candidate, Rules, Settings};

/// The rules that hold now.
#[derive(Debug)]
pub(crate) struct RulesInForce {
    rules: Arc<dyn Rules>,
    /// By the device's number: sysfs is slow.
    disk_names: HashMap<u64, String>,
}

impl RulesInForce {
    pub(crate) fn new(rules: Arc<dyn Rules>) -> RulesInForce {
        RulesInForce {
            rules,
            disk_names: HashMap::new(),
        }
    }

    pub(crate) fn replace(&mut self, rules: Arc<dyn Rules>) {
        self.rules = rules;
    }

    /// How to observe this file, which `process` opened by `path`.
    pub(crate) fn settings_for(
        &mut self,
        path: &Path,
        process: i32,
        file: BorrowedFd<'_>,
    ) -> Option<Settings> {
        let disk = disk_name(&mut self.disk_names, file);
        self.rules.settings_for(Candidate {
            path,
            process,
            disk,
        })
    }

    /// The name of the disk that carries a file; empty where it has none.
    pub(crate) fn disk_name(&mut self, file: BorrowedFd<'_>) -> &str {
        disk_name(&mut self.disk_names, file)
    }

    /// False when the paths of files make no difference.
    pub(crate) fn ask_for_paths(&self) -> bool {
        self.rules.ask_for_paths()
    }

    /// True when whoever opens this file gets the same answer.
    pub(crate) fn is_settled(&mut self, path: &Path, file: BorrowedFd<'_>) -> bool {
        let disk = disk_name(&mut self.disk_names, file);
        self.rules.path_alone_for(path, disk)
    }
}

fn disk_name<'names>(names: &'names mut HashMap<u64, String>, file: BorrowedFd<'_>) -> &'names str {
    let device = rustix::fs::fstat(file).map_or(0, |stat| stat.st_dev);
    names
        .entry(device)
        .or_insert_with(|| disk_of(file).map_or_else(|_| String::new(), |disk| disk.name))
}
