//! `cp --preserve`: owner, permissions and times.

use crate::destination::Destination;
use crate::error::{Doing, Failure};
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::fs::Metadata;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Set-user-ID, set-group-ID, sticky and the nine others.
const PERMISSIONS: u32 = 0o7777;
const SET_ID: u32 = 0o6000;

fn times(source: &Metadata) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: source.atime(),
            tv_nsec: source.atime_nsec(),
        },
        last_modification: Timespec {
            tv_sec: source.mtime(),
            tv_nsec: source.mtime_nsec(),
        },
    }
}

/// The permissions to set: those of the source, but without the set-ID bits if
/// the copy belongs to somebody else than the source.
fn permissions(source: &Metadata, is_owned_alike: bool) -> Mode {
    let mode = source.mode() & PERMISSIONS;
    Mode::from_raw_mode(if is_owned_alike { mode } else { mode & !SET_ID })
}

/// Sets the owner, as far as the user may: as with plain `cp -p`, not being
/// permitted to give files away is no failure.
fn set_owner(
    source: &Metadata,
    chown: impl Fn(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
) -> Result<bool, Errno> {
    let owner = Some(Uid::from_raw(source.uid()));
    let group = Some(Gid::from_raw(source.gid()));
    match chown(owner, group) {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::INVAL) => {
            // The group alone may still be one of the user's own.
            let _ = chown(None, group);
            Ok(false)
        }
        Err(errno) => Err(errno),
    }
}

/// Gives a copied file what its source has.
pub(super) fn preserve(destination: &Destination, source: &Metadata) -> Result<(), Failure> {
    let fd = destination.output.as_fd();
    let set = || {
        let is_owned_alike =
            set_owner(source, |owner, group| rustix::fs::fchown(fd, owner, group))?;
        rustix::fs::fchmod(fd, permissions(source, is_owned_alike))?;
        rustix::fs::futimens(fd, &times(source))
    };
    set().map_err(|errno: Errno| failed(&destination.path, errno))
}

/// The same for what is not opened: directories, links, pipes and devices.
pub(super) fn preserve_node(path: &Path, source: &Metadata) -> Result<(), Failure> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let set = || {
        let is_owned_alike = set_owner(source, |owner, group| {
            rustix::fs::chownat(CWD, path, owner, group, flags)
        })?;
        if !source.is_symlink() {
            rustix::fs::chmodat(
                CWD,
                path,
                permissions(source, is_owned_alike),
                AtFlags::empty(),
            )?;
        }
        rustix::fs::utimensat(CWD, path, &times(source), flags)
    };
    set().map_err(|errno: Errno| failed(path, errno))
}

fn failed(path: &Path, errno: Errno) -> Failure {
    Failure::io(Doing::Preserve, path, &errno.into())
}
