//! Mount namespaces: which one a process is in, what is mounted there, and how to get a new
//! one. mount_namespaces(7), unshare(2), proc_pid_mountinfo(5).

use crate::mounts::Mount;
use crate::poll::{Interest, PollEntry, poll};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Identifies a mount namespace while it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MountNamespaceId(u64);

impl MountNamespaceId {
    /// The number that `/proc/PID/ns/mnt` shows, such as 4026531841.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// Reads what a link shows, such as `mnt:[4026531841]`.
    fn parse(shown: &[u8]) -> Option<Self> {
        let number = shown.strip_prefix(b"mnt:[")?.strip_suffix(b"]")?;
        Some(Self(str::from_utf8(number).ok()?.parse().ok()?))
    }
}

/// A mount namespace that keeps existing, with its number, as long as this value. The kernel
/// gives a free number to the next namespace.
#[derive(Debug)]
pub struct HeldMountNamespace {
    id: MountNamespaceId,
    _file: File,
}

impl HeldMountNamespace {
    /// The namespace of a process.
    ///
    /// # Errors
    ///
    /// Those of [`mount_namespace_of`].
    pub fn of(process: i32) -> io::Result<Self> {
        let file = File::open(format!("/proc/{process}/ns/mnt"))?;
        let id = MountNamespaceId(rustix::fs::fstat(&file)?.st_ino);
        Ok(Self { id, _file: file })
    }

    /// Identifies the namespace.
    #[must_use]
    pub fn id(&self) -> MountNamespaceId {
        self.id
    }
}

/// The mount namespace of a process, or of the caller for 0.
///
/// # Errors
///
/// - `ENOENT`, `ESRCH`: there is no such process, or it has ended; a zombie is in no
///   namespace any more.
/// - `EACCES`: the process is another user's (`PTRACE_MODE_READ`).
pub fn mount_namespace_of(process: i32) -> io::Result<MountNamespaceId> {
    let path = if process == 0 {
        "/proc/thread-self/ns/mnt".to_owned()
    } else {
        format!("/proc/{process}/ns/mnt")
    };
    // Following the link would have the kernel make an inode for the namespace, each time.
    let shown = rustix::fs::readlink(path, Vec::new())?;
    MountNamespaceId::parse(shown.as_bytes()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Gives the calling thread its own mount namespace, a copy of the current one. For a
/// single-threaded process, that is the whole process.
///
/// Mounts stay as shared as they were: what is mounted below a shared one still appears in
/// both namespaces. Open descriptors stay on the old namespace's mounts; the root and working
/// directories move to the new one.
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

/// All mounts in a process's mount namespace that can be reached from its root directory.
///
/// # Errors
///
/// - `ENOENT`, `ESRCH`, `EINVAL`: there is no such process any more.
/// - `EACCES`: the process is another user's.
pub fn mounts_of(process: i32) -> io::Result<Vec<Mount>> {
    MountWatch::new(process)?.mounts()
}

/// At most this much of a table is searched for one mount. Tables of container hosts have
/// some hundred kilobytes, but users can make gigabytes.
const SEARCHED_BYTES: u64 = 1 << 20;

/// The mount with this [number](Mount::id), if it is near the start of the table that a
/// process sees.
///
/// # Errors
///
/// Those of [`mounts_of`].
pub fn mount_with_id(process: i32, id: u64) -> io::Result<Option<Mount>> {
    let table = MountWatch::new(process)?.table.take(SEARCHED_BYTES);
    let begin = format!("{id} ");
    for line in BufReader::new(table).split(b'\n') {
        let line = line?;
        if line.starts_with(begin.as_bytes()) {
            // The last line may be cut off.
            return Ok(Mount::parse(&line).filter(|mount| mount.id == id));
        }
    }
    Ok(None)
}

/// A process's mount table, held open to detect changes.
///
/// It keeps working after the process has ended. While it exists, so do the mount namespace
/// and its mounts: their file systems stay busy.
#[derive(Debug)]
pub struct MountWatch {
    table: File,
}

impl MountWatch {
    /// Opens a process's mount table.
    ///
    /// # Errors
    ///
    /// Those of [`mounts_of`].
    pub fn new(process: i32) -> io::Result<Self> {
        let table = File::open(format!("/proc/{process}/mountinfo"))?;
        Ok(Self { table })
    }

    /// Whether anything was mounted, unmounted or moved since the last call, or since the
    /// table was opened.
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
    /// For polling with [`Interest::Urgent`]: ready when something changed. Any poll that
    /// reports it resets it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropbehind_testbed::{Need, Scratch, need};
    use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};

    #[test]
    fn one_mount_is_found_and_a_huge_table_is_not_read() {
        need!(Need::Root);
        let scratch = Scratch::new().unwrap();
        let thread = std::thread::spawn(move || {
            unshare_mount_namespace().unwrap();
            let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            mount_change("/", private).unwrap();
            let thread = crate::thread_id();
            for mount in mounts_of(thread).unwrap() {
                assert_eq!(mount_with_id(thread, mount.id).unwrap(), Some(mount));
            }
            assert_eq!(mount_with_id(thread, u64::MAX).unwrap(), None);
            // A blank takes four characters in the table, and the path appears there twice.
            let mut folder = scratch.file("");
            for _ in 0..8 {
                folder.push(" ".repeat(255));
            }
            std::fs::create_dir_all(&folder).unwrap();
            for _ in 0..80 {
                mount_bind(&folder, &folder).unwrap();
            }
            let last = mounts_of(thread).unwrap().pop().unwrap();
            assert_eq!(mount_with_id(thread, last.id).unwrap(), None);
        });
        thread.join().unwrap();
    }
}
