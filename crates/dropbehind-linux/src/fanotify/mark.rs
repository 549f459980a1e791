//! What a group hears of.

use super::{EventMask, Fanotify};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What a mark is put on.
#[derive(Clone, Copy, Debug)]
pub enum MarkTarget<'a> {
    /// The mount that a path is on: what is done through it, and not what is
    /// done through other mounts of the same file system. A copy of the mount
    /// in another mount namespace is another mount.
    Mount {
        /// Where a relative path begins; [`rustix::fs::CWD`] will do for an
        /// absolute one.
        directory: BorrowedFd<'a>,
        /// Resolved in the caller's mount namespace, except below a directory
        /// of another one, such as `/proc/PID/root`.
        path: &'a Path,
    },
    /// The mount that a descriptor was opened through; not of an `O_PATH` one.
    MountOf(BorrowedFd<'a>),
    /// The whole file system that a path is on, through every mount of it
    /// (since Linux 4.20).
    FileSystem(&'a Path),
    /// The whole file system of an open file (since Linux 4.20); not of an
    /// `O_PATH` descriptor.
    FileSystemOf(BorrowedFd<'a>),
    /// One file or directory. Nothing is opened for it; not of an `O_PATH`
    /// descriptor.
    Inode(BorrowedFd<'a>),
}

/// What a mark means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MarkOptions {
    /// The events are *not* to be heard, though another mark asks for them. It
    /// outlives changes of the file.
    pub ignore: bool,
    /// Of an inode: the mark may go when the kernel evicts the inode, instead
    /// of keeping it in memory (since Linux 5.19).
    pub evictable: bool,
}

impl MarkOptions {
    /// Events are wanted.
    pub const WANTED: Self = Self {
        ignore: false,
        evictable: false,
    };
    /// Events are wanted for as long as the inode is in memory.
    pub const WANTED_EVICTABLE: Self = Self {
        ignore: false,
        evictable: true,
    };
    /// Events are not wanted.
    pub const IGNORED: Self = Self {
        ignore: true,
        evictable: false,
    };
    /// Events are not wanted for as long as the inode is in memory.
    pub const IGNORED_EVICTABLE: Self = Self {
        ignore: true,
        evictable: true,
    };
}

impl Fanotify {
    /// Adds events to what is heard of a target, or to what is ignored of it.
    ///
    /// Events of files that are open already are heard, too, if they are made
    /// through the mount, file system or inode marked.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the mask is empty, or asks for permission events in a group
    ///   of notifications or on a kernel without them; or `evictable` before
    ///   Linux 5.19.
    /// - `EEXIST`: the inode has a mark that is not evictable, and is to have
    ///   an evictable one.
    /// - `ENODEV`: the file system has no number of its own (`f_fsid`), and
    ///   `EXDEV`: it is a part of one with another number (a btrfs subvolume);
    ///   only for groups that report such numbers, which these do not.
    /// - `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`: of the path.
    /// - `EBADF`: the descriptor is of `O_PATH`.
    /// - `EPERM`: the caller has lost `CAP_SYS_ADMIN`, or the file is on a
    ///   file system that forbids it (kernel-internal ones, such as pipes').
    /// - `ENOMEM`.
    pub fn add_mark(
        &self,
        target: MarkTarget<'_>,
        mask: EventMask,
        options: MarkOptions,
    ) -> io::Result<()> {
        self.change(libc::FAN_MARK_ADD, target, mask, options)
    }

    /// Takes events away from what is heard of a target, or from what is
    /// ignored of it. A mark without any is removed.
    ///
    /// # Errors
    ///
    /// - `ENOENT`: there is no such mark (or, of a path, no such file).
    /// - Those of [`Fanotify::add_mark`].
    pub fn remove_mark(
        &self,
        target: MarkTarget<'_>,
        mask: EventMask,
        options: MarkOptions,
    ) -> io::Result<()> {
        // Which marks are evictable was said when they were added.
        let options = MarkOptions {
            evictable: false,
            ..options
        };
        self.change(libc::FAN_MARK_REMOVE, target, mask, options)
    }

    /// Removes all marks of inodes, those that ignore among them.
    ///
    /// # Errors
    ///
    /// None is documented for a valid group.
    pub fn remove_inode_marks(&self) -> io::Result<()> {
        self.mark(
            libc::FAN_MARK_FLUSH | libc::FAN_MARK_INODE,
            EventMask::EMPTY,
            libc::AT_FDCWD,
            Some(Path::new("/")),
        )
    }

    fn change(
        &self,
        change: libc::c_uint,
        target: MarkTarget<'_>,
        mask: EventMask,
        options: MarkOptions,
    ) -> io::Result<()> {
        let (kind, directory, path) = match target {
            MarkTarget::Mount { directory, path } => {
                (libc::FAN_MARK_MOUNT, directory.as_raw_fd(), Some(path))
            }
            MarkTarget::MountOf(fd) => (libc::FAN_MARK_MOUNT, fd.as_raw_fd(), None),
            MarkTarget::FileSystem(path) => (libc::FAN_MARK_FILESYSTEM, libc::AT_FDCWD, Some(path)),
            MarkTarget::FileSystemOf(fd) => (libc::FAN_MARK_FILESYSTEM, fd.as_raw_fd(), None),
            MarkTarget::Inode(fd) => (libc::FAN_MARK_INODE, fd.as_raw_fd(), None),
        };
        let mut flags = change | kind;
        if options.evictable {
            flags |= libc::FAN_MARK_EVICTABLE;
        }
        if !options.ignore {
            return self.mark(flags, mask, directory, path);
        }
        // The newer flag (since Linux 6.0) takes ON_DIR and EVENT_ON_CHILD at
        // their word, where the older one ignores them.
        match self.mark(flags | libc::FAN_MARK_IGNORE_SURV, mask, directory, path) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                let older = libc::FAN_MARK_IGNORED_MASK | libc::FAN_MARK_IGNORED_SURV_MODIFY;
                self.mark(flags | older, mask, directory, path)
            }
            result => result,
        }
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
