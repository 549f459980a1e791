//! Owner, permissions and times: of sources, and of copies under `--preserve`. All is
//! asked of descriptors and set through them.

use crate::error::{Doing, Failure};
use crate::place::proc_path;
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::fs::Metadata;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;
/// These, the sticky bit and the nine others.
const ALL_BITS: u32 = 0o7777;
const PERMISSIONS: u32 = 0o777;

/// What a source has.
#[derive(Debug)]
pub(super) struct Attributes {
    pub(super) metadata: Metadata,
}

impl Attributes {
    /// The nine permission bits.
    pub(super) fn permissions(&self) -> u32 {
        self.metadata.mode() & PERMISSIONS
    }

    /// Gives a copy all of it.
    pub(super) fn preserve(&self, copy: BorrowedFd<'_>, path: &Path) -> Result<(), Failure> {
        let failed = |errno: Errno| Failure::io(Doing::Preserve, path, &errno.into());
        let is_owned_alike = self.set_owner(copy).map_err(failed)?;
        if !self.metadata.is_symlink() {
            let mut bits = self.metadata.mode() & ALL_BITS;
            // The set-ID bits of a copy that belongs to somebody else mean another.
            if !is_owned_alike {
                bits &= !SET_ID;
            }
            set_mode(copy, bits).map_err(failed)?;
        }
        set_times(copy, &self.times()).map_err(failed)
    }

    /// Sets the owner, as far as the user may: as with plain `cp -p`, not being
    /// permitted to give files away is no failure.
    fn set_owner(&self, copy: BorrowedFd<'_>) -> Result<bool, Errno> {
        let owner = Some(Uid::from_raw(self.metadata.uid()));
        let group = Some(Gid::from_raw(self.metadata.gid()));
        let set = |owner| rustix::fs::chownat(copy, "", owner, group, AtFlags::EMPTY_PATH);
        match set(owner) {
            Ok(()) => Ok(true),
            Err(Errno::PERM | Errno::INVAL) => {
                // The group alone may still be one of the user's own.
                let _ = set(None);
                Ok(false)
            }
            Err(errno) => Err(errno),
        }
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

/// Sets the permission bits, also through a descriptor that is only for looking.
pub(super) fn set_mode(copy: BorrowedFd<'_>, bits: u32) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(bits);
    match rustix::fs::fchmod(copy, mode) {
        Err(Errno::BADF) => rustix::fs::chmod(proc_path(copy), mode),
        set => set,
    }
}

fn set_times(copy: BorrowedFd<'_>, times: &Timestamps) -> Result<(), Errno> {
    match rustix::fs::futimens(copy, times) {
        // A link in /proc leads to what is open, even if that is a link itself.
        Err(Errno::BADF) => rustix::fs::utimensat(CWD, proc_path(copy), times, AtFlags::empty()),
        set => set,
    }
}
