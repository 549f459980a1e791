//! Which names of the sources are the same file, so that those of the copies are, too.

use crate::place::{Place, proc_path};
use crate::unnamed::take_name;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The longest path for one call, below `PATH_MAX`.
const PATH_BYTES: usize = 3000;

/// A file, by device and inode. Unlike data, device nodes of one number are several.
pub(super) type Inode = (u64, u64);

/// The inode of what has this metadata.
pub(super) fn inode(metadata: &Metadata) -> Inode {
    (metadata.dev(), metadata.ino())
}

/// An open directory of the destination, below which copies are found again.
#[derive(Debug)]
pub(super) struct Anchor {
    pub(super) directory: File,
    pub(super) path: PathBuf,
}

/// A copy that was made.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    anchor: Option<Rc<Anchor>>,
    pub(super) path: PathBuf,
    inode: Inode,
}

impl Copy {
    /// Finds the copy again; `ESTALE` if something else has its name now.
    ///
    /// No descriptor is kept for it: a tree may hold more files with several names than a
    /// process may have descriptors.
    pub(super) fn find(&self) -> Result<File, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = match &self.anchor {
            None => rustix::fs::open(&self.path, flags, Mode::empty())?,
            Some(anchor) => {
                let below = self.path.strip_prefix(&anchor.path);
                let below = below.map_err(|_| Errno::STALE)?;
                open_below(anchor.directory.as_fd(), below, flags)?
            }
        };
        let stat = rustix::fs::fstat(&found)?;
        if (stat.st_dev, stat.st_ino) != self.inode {
            return Err(Errno::STALE);
        }
        Ok(found.into())
    }
}

/// Opens a path below a directory without following any link on the way.
fn open_below(directory: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut part = PathBuf::new();
    let mut reached: Option<OwnedFd> = None;
    let go = |from: Option<&OwnedFd>, part: &Path, flags| {
        let from = from.map_or(directory, AsFd::as_fd);
        let resolve = ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(from, part, flags, Mode::empty(), resolve)
    };
    for name in path {
        if part.as_os_str().len() + name.len() > PATH_BYTES {
            let onwards = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            reached = Some(go(reached.as_ref(), &part, onwards)?);
            part = PathBuf::new();
        }
        part.push(name);
    }
    if part.as_os_str().as_bytes().is_empty() {
        part.push(".");
    }
    go(reached.as_ref(), &part, flags)
}

/// The copies of files with several names.
#[derive(Debug, Default)]
pub(super) struct Links {
    copies: HashMap<Inode, Copy>,
    /// The directory that is copied to now.
    pub(super) anchor: Option<Rc<Anchor>>,
}

impl Links {
    /// The copy of a source that was made under another name.
    pub(super) fn earlier(&self, source: &Metadata) -> Option<Copy> {
        self.copies.get(&inode(source)).cloned()
    }

    /// Forgets a copy that failed: another name of the source is copied anew.
    pub(super) fn forget(&mut self, source: &Metadata) {
        self.copies.remove(&inode(source));
    }

    /// Remembers the copy of a source.
    pub(super) fn remember(&mut self, source: &Metadata, path: &Path, copy: Inode) {
        let anchor = self.anchor.clone();
        let anchor = anchor.filter(|anchor| path.starts_with(&anchor.path));
        let copy = Copy {
            anchor,
            path: path.to_owned(),
            inode: copy,
        };
        self.copies.insert(inode(source), copy);
    }
}

/// Gives an open file another name.
pub(super) fn link_to(file: &File, target: &Place<'_>, name: &Path) -> Result<(), Errno> {
    let flags = AtFlags::SYMLINK_FOLLOW;
    // A link in /proc leads to what is open, even if that is itself a link.
    rustix::fs::linkat(CWD, proc_path(file.as_fd()), target.directory, name, flags)
}

/// Puts something new in the place of what is there, which is not gone for a moment.
pub(super) fn replace(
    target: &Place<'_>,
    make: impl Fn(&Path) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let beside = |name: &Path| target.name.with_file_name(name);
    let name = beside(&take_name(|name| make(&beside(name)))?);
    let directory = target.directory;
    let renamed = rustix::fs::renameat(directory, &name, directory, target.name);
    // It is still there if both were names of one file.
    match rustix::fs::unlinkat(directory, &name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => renamed,
        Err(errno) => renamed.and(Err(errno)),
    }
}
