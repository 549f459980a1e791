//! Where something is: a name in an open directory.
//!
//! Each call resolves a path anew, and others may replace any part of it with a symbolic link
//! meanwhile. Inside a tree, each call gets one name and the descriptor of its directory, so
//! only that name can be replaced.

use crate::error::{Failure, quoted, shown};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

/// A name in an open directory, or what the user typed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) directory: BorrowedFd<'a>,
    /// One component, unless it was typed.
    pub(crate) name: &'a Path,
    /// For messages; never opened inside of trees.
    pub(crate) path: &'a Path,
    /// Whether a symbolic link of this name stands for what it points to.
    pub(crate) follows_links: bool,
}

impl<'a> Place<'a> {
    /// What the user typed, who may mean what a link points to.
    pub(crate) fn typed(path: &'a Path) -> Self {
        Self {
            directory: CWD,
            name: path,
            path,
            follows_links: true,
        }
    }

    /// What the user typed; if that is a link, the link itself.
    pub(crate) fn typed_itself(path: &'a Path) -> Self {
        Self {
            follows_links: false,
            ..Self::typed(path)
        }
    }

    /// An entry of a directory.
    pub(crate) fn within(directory: &'a impl AsFd, name: &'a Path, path: &'a Path) -> Self {
        Self {
            directory: directory.as_fd(),
            name,
            path,
            follows_links: false,
        }
    }

    /// Opens whatever has this name now, for looking at it only: no device notices. A link is
    /// opened itself, without `ELOOP`.
    pub(crate) fn pin(&self) -> Result<File, Errno> {
        self.open(OFlags::PATH, Mode::empty())
    }

    /// Opens without following links (a link gives `ELOOP`), and without waiting for a pipe's
    /// other end.
    pub(crate) fn open(&self, flags: OFlags, mode: Mode) -> Result<File, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        let open = |more| rustix::fs::openat(self.directory, self.name, flags | more, mode);
        // An open for looking only, or of a new file, waits for nothing.
        if flags.intersects(OFlags::PATH | OFlags::EXCL) {
            return open(OFlags::NOFOLLOW).map(File::from);
        }
        match open(OFlags::NOFOLLOW | OFlags::NONBLOCK) {
            Err(Errno::AGAIN) => self.open_leased(flags),
            opened => opened.map(File::from),
        }
    }

    /// Opens whatever this place stands for, for looking at it only: what a link points to, where
    /// links are followed.
    pub(crate) fn look(&self) -> Result<File, Errno> {
        if !self.follows_links {
            return self.pin();
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::openat(self.directory, self.name, flags, Mode::empty()).map(File::from)
    }

    /// Opens like [`Place::open`], but follows links where they are to be followed.
    pub(crate) fn reach(&self, flags: OFlags) -> Result<File, Errno> {
        if !self.follows_links {
            return self.open(flags, Mode::empty());
        }
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        let open =
            |more| rustix::fs::openat(self.directory, self.name, flags | more, Mode::empty());
        match open(OFlags::NONBLOCK) {
            // Only a lease does this to a regular file, and others give it up for an open that
            // waits.
            Err(Errno::AGAIN) => open(OFlags::empty()).map(File::from),
            opened => opened.map(File::from),
        }
    }

    /// Opens a file on which another process has a lease, as file servers do: only an open that
    /// waits makes it give that up. Regular files only, so nothing else is waited for.
    fn open_leased(&self, flags: OFlags) -> Result<File, Errno> {
        let pinned = self.pin()?;
        let mode = rustix::fs::fstat(&pinned)?.st_mode;
        if !FileType::from_raw_mode(mode).is_file() {
            return Err(Errno::AGAIN);
        }
        rustix::fs::open(proc_path(pinned.as_fd()), flags, Mode::empty()).map(File::from)
    }

    /// Opens a directory; `ENOTDIR` if it is anything else, even a link. A directory that may
    /// not be read may still take files.
    pub(crate) fn open_directory(&self) -> Result<File, Errno> {
        match self.open(OFlags::DIRECTORY, Mode::empty()) {
            Err(Errno::ACCESS) => self.open(OFlags::DIRECTORY | OFlags::PATH, Mode::empty()),
            opened => opened,
        }
    }

    /// The failure if it is not what it was a moment ago.
    pub(crate) fn was_replaced(&self) -> Failure {
        Failure::new(format!(
            "cannot copy {}: somebody put something else in its place while it was copied. Run \
             the command again.",
            shown(self.path)
        ))
        .like_cp(format!(
            "skipping file {}, as it was replaced while being copied",
            quoted(self.path)
        ))
    }
}

/// Makes reads and writes wait again, which [`Place::open`] prevented.
pub(crate) fn make_blocking(file: &File) -> Result<(), Errno> {
    // No other flag that can be changed is set.
    rustix::fs::fcntl_setfl(file, OFlags::empty())
}

/// A name of an open file, for calls that take no `O_PATH` descriptor.
pub(crate) fn proc_path(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
