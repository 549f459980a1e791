//! What rules ask about a process.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use dropbehind_linux::processes::{self, Cgroup};

/// The longest name that the kernel keeps of a program (`TASK_COMM_LEN` - 1).
pub(super) const NAME_BYTES: usize = 15;

/// Facts about one process, for a decision about one file. They are read from `/proc` when first
/// asked for.
///
/// Nothing is kept from one file to the next. A process may change its program with exec, and
/// its group at any time, under the same number and start time. Finding that out takes a read
/// of `/proc/PID/stat`, which was measured to cost as much (9 µs) as reading the facts anew
/// (name 4, executable 2, groups 10 µs).
#[derive(Debug)]
pub(super) struct ProcessFacts<'a> {
    process: i32,
    remembered: Option<&'a str>,
    name: OnceCell<Option<String>>,
    executable: OnceCell<Option<PathBuf>>,
    user: OnceCell<Option<u32>>,
    groups: OnceCell<Option<Vec<Cgroup>>>,
}

impl<'a> ProcessFacts<'a> {
    /// Facts about this process (0 if not known), and the name that is remembered of it.
    pub(super) fn of(process: i32, remembered: Option<&'a str>) -> Self {
        Self {
            process,
            remembered,
            name: OnceCell::new(),
            executable: OnceCell::new(),
            user: OnceCell::new(),
            groups: OnceCell::new(),
        }
    }

    /// Facts about a process of which its program alone is known, if at all: by the path or the
    /// name of its file.
    pub(super) fn of_program(program: Option<&'a str>) -> Self {
        let name = program.and_then(|program| Path::new(program).file_name()?.to_str());
        let cut = name.map(|name| name.get(..NAME_BYTES).unwrap_or(name));
        let process = Self::of(0, cut);
        let _ = process.executable.set(program.map(PathBuf::from));
        process
    }

    fn known<T>(&self, read: fn(i32) -> io::Result<T>) -> Option<T> {
        if self.process <= 0 {
            return None;
        }
        read(self.process).ok()
    }

    /// The name that the kernel has for it: its file's, cut to [`NAME_BYTES`], or one that it
    /// gave itself. `None` if the process is gone and forgotten.
    pub(super) fn name(&self) -> Option<&str> {
        let read = || self.known(processes::command_name);
        self.name.get_or_init(read).as_deref().or(self.remembered)
    }

    /// The program's file. `None` if the process is gone, is a kernel thread, or is not ours to
    /// see.
    pub(super) fn executable(&self) -> Option<&Path> {
        let read = || {
            let path = self.known(processes::executable)?;
            // The file was replaced or removed since, as in an upgrade.
            let bytes = path.as_os_str().as_bytes();
            Some(match bytes.strip_suffix(b" (deleted)") {
                Some(name) => OsStr::from_bytes(name).into(),
                None => path,
            })
        };
        self.executable.get_or_init(read).as_deref()
    }

    /// The user who started it. `None` if the process is gone.
    pub(super) fn user(&self) -> Option<u32> {
        let read = || self.known(processes::process_user);
        *self.user.get_or_init(read)
    }

    /// Its control groups; `None` if the process is gone.
    pub(super) fn groups(&self) -> Option<&[Cgroup]> {
        let read = || self.known(processes::cgroups);
        self.groups.get_or_init(read).as_deref()
    }
}
