//! What a group gets events for.

use super::{EventMask, Fanotify};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What a mark is put on.
#[derive(Clone, Copy, Debug)]
pub enum MarkTarget<'a> {
    /// The mount that a path is on: covers what is done through this mount, but not through
    /// other mounts of the same file system. A copy in another mount namespace is another
    /// mount.
    Mount {
        /// Where a relative path starts; [`rustix::fs::CWD`] will do for an absolute one.
        directory: BorrowedFd<'a>,
        /// Resolved in the caller's mount namespace, except below a directory
        /// of another one, such as `/proc/PID/root`.
        path: &'a Path,
    },
    /// The whole file system that a path is on, through every mount of it
    /// (since Linux 4.20).
    FileSystem(&'a Path),
    /// One file or directory. The kernel doesn't open it; not for an `O_PATH` descriptor.
    Inode(BorrowedFd<'a>),
}

/// How long a mark lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MarkLife {
    /// Until it is removed.
    Kept,
    /// For inodes: only while the inode is in memory anyway (since Linux 5.19).
    Evictable,
}

impl Fanotify {
    /// Adds events for a target.
    ///
    /// Files that are already open count, too, if the mount, file system or inode they are
    /// used through is marked.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the mask is empty, or [`MarkLife::Evictable`] before Linux 5.19.
    /// - `EEXIST`: an evictable mark was requested, and the inode has one that is not
    ///   evictable.
    /// - `ENODEV`: the file system has no number of its own (`f_fsid`), and
    ///   `EXDEV`: it is a part of one with another number (a btrfs subvolume);
    ///   only for groups that report such numbers, which these do not.
    /// - `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`: from the path.
    /// - `EBADF`: an `O_PATH` descriptor.
    /// - `EPERM`: the caller has lost `CAP_SYS_ADMIN`, or the file is on a file system that
    ///   forbids marks (internal ones of the kernel, such as that of pipes).
    /// - `ENOMEM`.
    pub fn add_mark(
        &self,
        target: MarkTarget<'_>,
        mask: EventMask,
        life: MarkLife,
    ) -> io::Result<()> {
        let life = match life {
            MarkLife::Kept => 0,
            MarkLife::Evictable => libc::FAN_MARK_EVICTABLE,
        };
        self.change(libc::FAN_MARK_ADD | life, target, mask)
    }

    /// Removes events for a target. A mark without events is removed.
    ///
    /// # Errors
    ///
    /// - `ENOENT`: there is no such mark (or no such path).
    /// - Those of [`Fanotify::add_mark`].
    pub fn remove_mark(&self, target: MarkTarget<'_>, mask: EventMask) -> io::Result<()> {
        self.change(libc::FAN_MARK_REMOVE, target, mask)
    }

    /// Removes all marks.
    pub(super) fn flush_marks(&self) {
        for kind in [
            libc::FAN_MARK_INODE,
            libc::FAN_MARK_MOUNT,
            libc::FAN_MARK_FILESYSTEM,
        ] {
            // Fails only for file systems before Linux 4.20, which has no such marks.
            let flags = libc::FAN_MARK_FLUSH | kind;
            let _ = self.mark(flags, EventMask::EMPTY, libc::AT_FDCWD, None);
        }
    }

    fn change(
        &self,
        flags: libc::c_uint,
        target: MarkTarget<'_>,
        mask: EventMask,
    ) -> io::Result<()> {
        let (kind, directory, path) = match target {
            MarkTarget::Mount { directory, path } => {
                (libc::FAN_MARK_MOUNT, directory.as_raw_fd(), Some(path))
            }
            MarkTarget::FileSystem(path) => (libc::FAN_MARK_FILESYSTEM, libc::AT_FDCWD, Some(path)),
            MarkTarget::Inode(fd) => (libc::FAN_MARK_INODE, fd.as_raw_fd(), None),
        };
        self.mark(flags | kind, mask, directory, path)
    }

    fn mark(
        &self,
        flags: libc::c_uint,
        mask: EventMask,
        directory: libc::c_int,
        path: Option<&Path>,
    ) -> io::Result<()> {
        let path = path
            .map(|path| CString::new(path.as_os_str().as_bytes()))
            .transpose()?;
        // SAFETY: the path is null, which means the descriptor itself, or a
        // string that ends with a zero and outlives the call.
        let returned = unsafe {
            libc::fanotify_mark(
                self.fd.as_raw_fd(),
                flags,
                mask.0,
                directory,
                path.as_ref().map_or(std::ptr::null(), |path| path.as_ptr()),
            )
        };
        crate::errno::check(returned.into())
    }
}
