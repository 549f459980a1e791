//! What rules ask about a process.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use dropbehind_linux::processes::{self, Cgroup};

/// The longest name that the kernel keeps of a program (`TASK_COMM_LEN` - 1).
pub(super) const NAME_BYTES: usize = 15;

/// One process while one file is decided about; read from `/proc` when first
/// asked for.
///
/// Nothing is kept from one file to the next. A process changes its program
/// with exec and its group at any time, under the same number and start time;
/// to find that out takes a read of `/proc/PID/stat`, which was measured to
/// cost as much (9 µs) as reading the facts anew (name 4, executable 2,
/// groups 10 µs).
#[derive(Debug)]
pub(super) struct ProcessFacts<'a> {
    process: i32,
    remembered: Option<&'a str>,
    name: OnceCell<Option<String>>,
    executable: OnceCell<Option<PathBuf>>,
    groups: OnceCell<Vec<Cgroup>>,
}

impl<'a> ProcessFacts<'a> {
    /// Of this process, 0 is nobody known; and what is remembered of its name.
    pub(super) fn of(process: i32, remembered: Option<&'a str>) -> Self {
        Self {
            process,
            remembered,
            name: OnceCell::new(),
            executable: OnceCell::new(),
            groups: OnceCell::new(),
        }
    }

    fn known<T>(&self, read: fn(i32) -> io::Result<T>) -> Option<T> {
        if self.process <= 0 {
            return None;
        }
        read(self.process).ok()
    }

    /// The name the kernel has for it: of its file, cut to
    /// [`NAME_BYTES`], or what it gave itself. `None` if it is gone and forgotten.
    pub(super) fn name(&self) -> Option<&str> {
        let read = || self.known(processes::command_name);
        self.name.get_or_init(read).as_deref().or(self.remembered)
    }

    /// The program's file. `None` if it is gone, a kernel's thread, or not ours
    /// to see.
    pub(super) fn executable(&self) -> Option<&Path> {
        let read = || {
            let path = self.known(processes::executable)?;
            // It was replaced or removed since, as in an upgrade.
            let bytes = path.as_os_str().as_bytes();
            Some(match bytes.strip_suffix(b" (deleted)") {
                Some(name) => OsStr::from_bytes(name).into(),
                None => path,
            })
        };
        self.executable.get_or_init(read).as_deref()
    }

    /// Its control groups; none if it is gone.
    pub(super) fn groups(&self) -> &[Cgroup] {
        let read = || self.known(processes::cgroups).unwrap_or_default();
        self.groups.get_or_init(read)
    }
}
