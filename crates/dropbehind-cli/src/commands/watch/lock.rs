//! One watch per machine.

use crate::error::{Doing, Failure, shown};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The lock's file in the directory of runtime files.
pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join("watch.lock")
}

/// Held while a watch runs; the kernel releases it when the watch dies.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock, or says who has it.
    pub(super) fn take(directory: &Path, config: &Path) -> Result<Self, Failure> {
        let path = path(directory);
        let failed = |error| Failure::io(Doing::Create, &path, &error);
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(directory);
        made.map_err(failed)?;
        let mut file = open(&path).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(taken(&mut file)),
            Err(errno) => return Err(failed(errno.into())),
        }
        let owner = format!("{} {}\n", std::process::id(), shown(config));
        let written = file
            .set_len(0)
            .and_then(|()| file.write_all(owner.as_bytes()));
        written.map_err(|error| Failure::io(Doing::Write, &path, &error))?;
        Ok(Self { _file: file })
    }
}

/// Opens the lock's file, which only this user can open: anybody who can open a file can lock it
/// (flock(2)), and keep the watch from starting.
fn open(path: &Path) -> io::Result<File> {
    let open = || {
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(nix::libc::O_NOFOLLOW)
            .open(path)
    };
    let file = open()?;
    let found = file.metadata()?;
    let own = found.uid() == rustix::process::geteuid().as_raw();
    if own && found.mode() & 0o077 == 0 {
        return Ok(file);
    }
    // Another user may have it open already.
    fs::remove_file(path)?;
    open()
}

fn taken(file: &mut File) -> Failure {
    let mut owner = String::new();
    let read = file.read_to_string(&mut owner);
    let owner = read.ok().and_then(|_| owner.trim_end().split_once(' '));
    Failure::new(match owner {
        Some((process, config)) => format!(
            "another watch observes this machine: process {process}, by the rules of {config}. \
             Stop it first (kill {process}, or systemctl stop dropbehind), or add your rules to \
             its own and reload it (kill -HUP {process})."
        ),
        // The other watch has not written its name yet.
        None => "another watch has just begun to observe this machine. Stop it first \
                 (systemctl stop dropbehind)."
            .to_owned(),
    })
}
