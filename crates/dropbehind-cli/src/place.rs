//! Where something is: a name in an open directory.
//!
//! Paths are resolved anew by each call, and others may put a symbolic link in the
//! place of any part of one meanwhile. Inside a tree each call gets one name and the
//! descriptor of its directory, so there is nothing but that name to be replaced.

use crate::error::{Failure, shown};
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
    /// What the user is told; never opened inside of trees.
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

    /// What the user typed, and a link itself if it is one.
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

    /// Opens what has this name now, whatever it is, for looking at it only:
    /// no device notices. `ELOOP` is no error of this.
    pub(crate) fn pin(&self) -> Result<File, Errno> {
        self.open(OFlags::PATH, Mode::empty())
    }

    /// Opens without following a link (then it is `ELOOP`), and without waiting for
    /// the other end if it is a pipe.
    pub(crate) fn open(&self, flags: OFlags, mode: Mode) -> Result<File, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        let open = |more| rustix::fs::openat(self.directory, self.name, flags | more, mode);
        // What is only looked at, or made by this call, is nothing to wait for.
        if flags.intersects(OFlags::PATH | OFlags::EXCL) {
            return open(OFlags::NOFOLLOW).map(File::from);
        }
        match open(OFlags::NOFOLLOW | OFlags::NONBLOCK) {
            Err(Errno::AGAIN) => self.open_leased(flags),
            opened => opened.map(File::from),
        }
    }

    /// Opens a file on which somebody has a lease, as file servers do: only an open that
    /// waits makes them give it up. Regular files only, so nothing else is waited for.
    fn open_leased(&self, flags: OFlags) -> Result<File, Errno> {
        let pinned = self.pin()?;
        let mode = rustix::fs::fstat(&pinned)?.st_mode;
        if !FileType::from_raw_mode(mode).is_file() {
            return Err(Errno::AGAIN);
        }
        rustix::fs::open(proc_path(pinned.as_fd()), flags, Mode::empty()).map(File::from)
    }

    /// Opens a directory; `ENOTDIR` if it is anything else, a link too. One that may
    /// not be read may still be one to put files in.
    pub(crate) fn open_directory(&self) -> Result<File, Errno> {
        match self.open(OFlags::DIRECTORY, Mode::empty()) {
            Err(Errno::ACCESS) => self.open(OFlags::DIRECTORY | OFlags::PATH, Mode::empty()),
            opened => opened,
        }
    }

    /// Why it is not copied, if it is not what it was a moment ago.
    pub(crate) fn was_replaced(&self) -> Failure {
        Failure::new(format!(
            "cannot copy {}: somebody put something else in its place while it was copied. Run \
             the command again.",
            shown(self.path)
        ))
    }
}

/// Lets reads and writes wait again, as [`Place::open`] made them not to.
pub(crate) fn make_blocking(file: &File) -> Result<(), Errno> {
    // No other flag that can be changed was set.
    rustix::fs::fcntl_setfl(file, OFlags::empty())
}

/// A name of an open file, for calls that take no descriptor opened with `O_PATH`.
pub(crate) fn proc_path(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
