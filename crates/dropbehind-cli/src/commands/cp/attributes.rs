//! Owner, permissions, access control lists, extended attributes and times: of sources, and of
//! copies under `--preserve`. All are read and set through descriptors.

use super::acl::{Acl, Kind};
use super::choices::Preserve;
use super::xattrs::Names;
use crate::error::{Doing, Failure, quoted, shown};
use crate::place::proc_path;
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;
/// Those, the sticky bit and the nine permission bits.
const ALL_BITS: u32 = 0o7777;
const PERMISSIONS: u32 = 0o777;

/// The attributes of a source.
#[derive(Debug)]
pub(super) struct Attributes {
    pub(super) metadata: Metadata,
    access: Option<Acl>,
    default: Option<Acl>,
    names: Names,
}

impl Attributes {
    /// The attributes of an open file.
    pub(super) fn of(fd: BorrowedFd<'_>, metadata: Metadata) -> Result<Self, Errno> {
        let names = Names::of(fd)?;
        let list = |kind: Kind| match names.have(kind.name()) {
            true => Acl::of(fd, kind),
            false => Ok(None),
        };
        Ok(Self {
            access: list(Kind::Access)?,
            default: list(Kind::Default)?,
            names,
            metadata,
        })
    }

    /// The nine permission bits of a copy without an access control list, so that nobody may do
    /// more with the copy than with the source.
    pub(super) fn permissions(&self) -> u32 {
        match &self.access {
            Some(acl) => acl.permissions_without(),
            None => self.metadata.mode() & PERMISSIONS,
        }
    }

    /// Gives a copy those that are wanted. It gets `final_mode`, if any, where it does not get
    /// the permissions of the source. What fails does not keep it from the others.
    pub(super) fn preserve(
        &self,
        original: BorrowedFd<'_>,
        copy: BorrowedFd<'_>,
        path: &Path,
        wanted: Preserve,
        final_mode: Option<u32>,
    ) -> Result<(), Failure> {
        let failed = |doing, errno: Errno| Failure::io(doing, path, &errno.into());
        let mut result = Ok(());
        let mut is_owned_alike = false;
        if wanted.ownership {
            match self.set_owner(copy) {
                Ok(alike) => is_owned_alike = alike,
                Err(errno) => result = Err(failed(Doing::PreserveOwner, errno)),
            }
        }
        // Changing the owner would take capabilities away again.
        let set = self.names.copy(original, copy, wanted);
        result = result.and(set.map_err(|errno| failed(Doing::PreserveXattrs, errno)));
        if !self.metadata.is_symlink() {
            let bits = if wanted.mode {
                // The lists come first, since the bits would make an inherited one effective.
                let lists = self.set_lists(copy);
                let mut bits = self.metadata.mode() & ALL_BITS;
                if lists.is_err() {
                    bits = bits & !PERMISSIONS | self.permissions();
                }
                // On a copy with another owner, the set-ID bits would mean that owner.
                if wanted.ownership && !is_owned_alike {
                    bits &= !SET_ID;
                }
                result = result.and(lists.map_err(|errno| match errno {
                    Errno::OPNOTSUPP => no_lists(path),
                    errno => failed(Doing::Preserve, errno),
                }));
                Some(bits)
            } else {
                final_mode
            };
            if let Some(bits) = bits {
                let set = set_mode(copy, bits);
                result = result.and(set.map_err(|errno| failed(Doing::Preserve, errno)));
            }
        }
        if wanted.timestamps {
            let set = set_times(copy, &self.times());
            result = result.and(set.map_err(|errno| failed(Doing::PreserveTimes, errno)));
        }
        result
    }

    /// Sets the owner, as far as the user may. As with plain `cp -p`, it is no failure if a user
    /// other than root may not give files away.
    fn set_owner(&self, copy: BorrowedFd<'_>) -> Result<bool, Errno> {
        let owner = Some(Uid::from_raw(self.metadata.uid()));
        let group = Some(Gid::from_raw(self.metadata.gid()));
        let set = |owner| rustix::fs::chownat(copy, "", owner, group, AtFlags::EMPTY_PATH);
        match set(owner) {
            Ok(()) => Ok(true),
            Err(errno @ (Errno::PERM | Errno::INVAL)) => {
                // The group alone may still be one of the user's own.
                let _ = set(None);
                let now = rustix::fs::fstat(copy)?;
                if (now.st_uid, now.st_gid) == (self.metadata.uid(), self.metadata.gid()) {
                    return Ok(true);
                }
                match rustix::process::geteuid().is_root() {
                    true => Err(errno),
                    false => Ok(false),
                }
            }
            Err(errno) => Err(errno),
        }
    }

    fn set_lists(&self, copy: BorrowedFd<'_>) -> Result<(), Errno> {
        let set = |list: &Option<Acl>, kind| match list {
            Some(acl) => acl.set(copy, kind),
            None => Acl::remove(copy, kind),
        };
        set(&self.access, Kind::Access)?;
        if self.metadata.is_dir() {
            set(&self.default, Kind::Default)?;
        }
        Ok(())
    }

    fn times(&self) -> Timestamps {
        Timestamps {
            last_access: Timespec {
                tv_sec: self.metadata.atime(),
                tv_nsec: self.metadata.atime_nsec(),
            },
            last_modification: Timespec {
                tv_sec: self.metadata.mtime(),
                tv_nsec: self.metadata.mtime_nsec(),
            },
        }
    }
}

/// What becomes of a list where there are none.
fn no_lists(path: &Path) -> Failure {
    Failure::new(format!(
        "cannot give {} the access control list of its source: the file system has none. Who was \
         only named there may not use the copy.",
        shown(path)
    ))
    .like_cp(format!(
        "preserving permissions for {}: Operation not supported",
        quoted(path)
    ))
}

/// The most permission bits that a new directory gets, by the umask or by the list that it
/// inherited, which takes the umask's place.
pub(super) fn most_permissions(directory: &File, umask: u32) -> Result<u32, Errno> {
    let inherited = Acl::of(directory.as_fd(), Kind::Default)?;
    Ok(inherited.map_or(PERMISSIONS & !umask, |acl| acl.permissions_shown()))
}

/// Sets the permission bits, also through an `O_PATH` descriptor.
pub(super) fn set_mode(copy: BorrowedFd<'_>, bits: u32) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(bits);
    match rustix::fs::fchmod(copy, mode) {
        Err(Errno::BADF) => rustix::fs::chmod(proc_path(copy), mode),
        set => set,
    }
}

fn set_times(copy: BorrowedFd<'_>, times: &Timestamps) -> Result<(), Errno> {
    match rustix::fs::futimens(copy, times) {
        // A link in /proc leads to what is open, even if that is itself a link.
        Err(Errno::BADF) => rustix::fs::utimensat(CWD, proc_path(copy), times, AtFlags::empty()),
        set => set,
    }
}
