//! Temporary folders on a disk-backed file system.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FlockOperation;

use crate::context::Context;
use crate::left_behind;

/// What every scratch folder's name begins with.
pub(crate) const PREFIX: &str = "dropbehind-test-";

/// A folder on a real disk, removed with all it holds when dropped.
///
/// It is made in `DROPBEHIND_TEST_DIR` if that is set; else in the system's
/// temporary folder unless that is a tmpfs, whose pages never go to a disk;
/// else beside the running program, which for tests is the target folder.
///
/// The folder is locked while its owner lives. What a killed test run left
/// behind, mounts included, is removed by the next run that makes a scratch.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    // Closing it gives the folder up, so it must outlive the removal.
    _lock: File,
}

impl Scratch {
    /// Makes an empty folder.
    pub fn new() -> io::Result<Self> {
        static SWEEP: Once = Once::new();
        static NEXT: AtomicU64 = AtomicU64::new(0);

        let base = base_folder()?;
        SWEEP.call_once(|| left_behind::sweep(&base));
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = base.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                // A process of the same id left it, perhaps in another container.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other.context(|| format!("making {}", path.display()))?,
            }
            if let Some(lock) = claim(&path)? {
                return Ok(Self { path, _lock: lock });
            }
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of `name` in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        left_behind::remove(&self.path);
    }
}

/// Locks a scratch folder, or answers `None` if someone else has it or a
/// sweeping process removed it before the lock was held.
pub(crate) fn claim(path: &Path) -> io::Result<Option<File>> {
    let folder = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    if rustix::fs::flock(folder.as_fd(), FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    let still_there = fs::metadata(path).is_ok_and(|now| {
        folder
            .metadata()
            .is_ok_and(|then| (now.dev(), now.ino()) == (then.dev(), then.ino()))
    });
    Ok(still_there.then_some(folder))
}

fn base_folder() -> io::Result<PathBuf> {
    if let Some(chosen) = std::env::var_os("DROPBEHIND_TEST_DIR") {
        let chosen = PathBuf::from(chosen);
        fs::create_dir_all(&chosen).context(|| format!("making {}", chosen.display()))?;
        return fs::canonicalize(chosen);
    }
    let temporary = std::env::temp_dir();
    if !lives_in_memory(&temporary) {
        return fs::canonicalize(temporary);
    }
    let program = std::env::current_exe()?;
    Ok(program.parent().unwrap_or(Path::new("/")).to_owned())
}

fn lives_in_memory(path: &Path) -> bool {
    const RAMFS_MAGIC: u32 = 0x8584_58f6;
    const TMPFS_MAGIC: u32 = 0x0102_1994;
    // Magic numbers are 32 bits wide; the field's width and sign are not the
    // same on all machines.
    rustix::fs::statfs(path)
        .is_ok_and(|found| [TMPFS_MAGIC, RAMFS_MAGIC].contains(&(found.f_type as u32)))
}
