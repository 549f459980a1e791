//! Mount namespaces: which one a process is in, what is mounted there, and a
//! new one for oneself. mount_namespaces(7), unshare(2), proc_pid_mountinfo(5).

use crate::file::FileId;
use crate::mounts::Mount;
use crate::poll::{Interest, PollEntry, poll};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// What tells a mount namespace from every other one while it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MountNamespaceId(FileId);

impl MountNamespaceId {
    /// The number that `/proc/PID/ns/mnt` shows: 4026531841.
    pub(crate) fn number(self) -> u64 {
        self.0.inode
    }
}

/// The mount namespace of a process, or of the caller for 0.
///
/// # Errors
///
/// - `ENOENT`, `ESRCH`: there is no such process, or it has ended; one that was
///   not waited for yet is in no namespace any more.
/// - `EACCES`: the process is another user's (`PTRACE_MODE_READ`).
pub fn mount_namespace_of(process: i32) -> io::Result<MountNamespaceId> {
    let path = if process == 0 {
        "/proc/thread-self/ns/mnt".to_owned()
    } else {
        format!("/proc/{process}/ns/mnt")
    };
    let stat = rustix::fs::stat(path)?;
    Ok(MountNamespaceId(FileId::of(&stat)))
}

/// Gives the calling thread a mount namespace of its own, a copy of the present
/// one; that is the whole process where there is one thread.
///
/// Mounts stay as shared as they were: what is mounted on a shared one still
/// appears in both namespaces. Descriptors that are open stay on the mounts
/// of the old namespace; the root and working directories move over.
///
/// # Errors
///
/// - `EPERM`: without `CAP_SYS_ADMIN`.
/// - `ENOSPC`: too many namespaces or mounts (`user.max_mnt_namespaces`).
/// - `ENOMEM`.
pub fn unshare_mount_namespace() -> io::Result<()> {
    // SAFETY: an integer; it changes no memory, and no descriptor table.
    crate::errno::check(unsafe { libc::unshare(libc::CLONE_NEWNS) }.into())
}

/// Everything that is mounted in a process's mount namespace and can be reached
/// from its root directory.
///
/// # Errors
///
/// - `ENOENT`, `ESRCH`, `EINVAL`: there is no such process any more.
/// - `EACCES`: the process is another user's.
pub fn mounts_of(process: i32) -> io::Result<Vec<Mount>> {
    MountWatch::new(process)?.mounts()
}

/// A process's table of mounts, held open to notice changes.
///
/// It goes on working when the process has ended. As long as it is there, so
/// are the mount namespace and its mounts: their file systems stay busy.
#[derive(Debug)]
pub struct MountWatch {
    table: File,
}

impl MountWatch {
    /// Opens the table of a process.
    ///
    /// # Errors
    ///
    /// Those of [`mounts_of`].
    pub fn new(process: i32) -> io::Result<Self> {
        let table = File::open(format!("/proc/{process}/mountinfo"))?;
        Ok(Self { table })
    }

    /// Whether anything was mounted, unmounted or moved since this was asked
    /// last, or since the table was opened.
    ///
    /// # Errors
    ///
    /// - `EINTR`: a signal came in between.
    /// - `ENOMEM`.
    pub fn has_changed(&self) -> io::Result<bool> {
        let mut entry = [PollEntry::new(self.as_fd(), Interest::Urgent)];
        Ok(poll(&mut entry, Some(Duration::ZERO))? > 0)
    }

    /// What is mounted now.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`: the table is huge.
    pub fn mounts(&self) -> io::Result<Vec<Mount>> {
        let mut table = Vec::new();
        let mut file = &self.table;
        file.rewind()?;
        file.read_to_end(&mut table)?;
        Ok(Mount::parse_table(&table).collect())
    }
}

impl AsFd for MountWatch {
    /// For polling with [`Interest::Urgent`]: ready when something changed.
    /// Being told resets it, whoever asked.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}
