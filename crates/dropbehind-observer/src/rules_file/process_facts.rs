//! What rules ask about a process.

use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::cgroup::Membership;

/// The longest name that the kernel keeps of a program (`TASK_COMM_LEN` - 1).
pub(super) const COMM_BYTES: usize = 15;

/// One process while one file is decided about; read from `/proc` when first
/// asked for.
///
/// Nothing is kept from one file to the next. A process changes its program
/// with exec and its group at any time, under the same number and start time;
/// to find that out takes a read of `/proc/PID/stat`, which was measured to
/// cost as much (9 µs) as reading the facts anew (name 4, executable 2,
/// groups 10 µs).
#[derive(Debug)]
pub(super) struct ProcessFacts {
    process: i32,
    comm: OnceCell<Option<OsString>>,
    executable: OnceCell<Option<PathBuf>>,
    groups: OnceCell<Vec<Membership>>,
}

impl ProcessFacts {
    /// Of this process; 0 is nobody known.
    pub(super) fn of(process: i32) -> Self {
        Self {
            process,
            comm: OnceCell::new(),
            executable: OnceCell::new(),
            groups: OnceCell::new(),
        }
    }

    fn file(&self, name: &str) -> Option<PathBuf> {
        (self.process > 0).then(|| PathBuf::from(format!("/proc/{}/{name}", self.process)))
    }

    /// The name the kernel has for it: of its file, cut to [`COMM_BYTES`], or
    /// what it gave itself. `None` if it is gone.
    pub(super) fn comm(&self) -> Option<&OsStr> {
        let read = || {
            let mut name = std::fs::read(self.file("comm")?).ok()?;
            name.pop_if(|last| *last == b'\n');
            Some(OsString::from_vec(name))
        };
        self.comm.get_or_init(read).as_deref()
    }

    /// The program's file. `None` if it is gone, a kernel's thread, or not ours
    /// to see.
    pub(super) fn executable(&self) -> Option<&Path> {
        let read = || {
            let path = std::fs::read_link(self.file("exe")?).ok()?;
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
    pub(super) fn groups(&self) -> &[Membership] {
        self.groups.get_or_init(|| {
            let text = self
                .file("cgroup")
                .and_then(|path| std::fs::read(path).ok());
            Membership::parse(&String::from_utf8_lossy(&text.unwrap_or_default()))
        })
    }
}
