//! Claims to observe mount namespaces and mounts: locks on a file in tracefs.
//!
//! An observer holds a read lock on one byte of tracefs's `README`, which stands for the
//! namespace or mount that it observes. A kernel has one tracefs, the same in all mount,
//! network and pid namespaces, and only root may look into it. So no user can hold such a
//! lock, or keep others from theirs. Asking never waits. Locks end with their process,
//! however it ends, and leave nothing behind.

use crate::cache_trace::tracefs;
use crate::mount_namespace::MountNamespaceId;
use crate::record_lock::{lock_call, span};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// What can be observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The processes in it.
    Namespace(MountNamespaceId),
    /// The files opened through it, by its number ([`mount_number`](crate::mount_number)).
    Mount(u64),
}

impl Claimed {
    /// Namespaces have 32-bit numbers. Mounts count up from 2^31 (`MNT_UNIQUE_ID_OFFSET`,
    /// fs/namespace.c) and could collide with those, so they get the bytes from 2^62 on.
    fn lock(self, kind: i32) -> libc::flock {
        let byte = match self {
            Self::Namespace(namespace) => namespace.number(),
            Self::Mount(mount) => mount | 1 << 62,
        };
        span(kind, byte.cast_signed(), byte.cast_signed())
    }
}

/// One observer's claims, which end when it is dropped.
#[derive(Debug)]
pub struct Claims {
    readme: File,
}

impl Claims {
    /// Opens the file without claiming anything.
    ///
    /// # Errors
    ///
    /// - `EACCES`, `EPERM`: without root's rights outside of user namespaces, or if the
    ///   kernel is locked down.
    /// - `ENODEV`: the kernel has no tracefs.
    pub fn new() -> io::Result<Self> {
        let readme = tracefs::open_readme()?;
        Ok(Self { readme })
    }

    /// Claims that the caller observes this.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: before Linux 3.15.
    /// - `ENOLCK`: the system has no more locks.
    pub fn claim(&self, claimed: Claimed) -> io::Result<()> {
        self.call(libc::F_OFD_SETLK, &mut claimed.lock(libc::F_RDLCK))
    }

    /// Gives up a claim.
    ///
    /// # Errors
    ///
    /// Those of [`claim`](Self::claim).
    pub fn give_up(&self, claimed: Claimed) -> io::Result<()> {
        self.call(libc::F_OFD_SETLK, &mut claimed.lock(libc::F_UNLCK))
    }

    /// Whether another observer claims it.
    ///
    /// # Errors
    ///
    /// `EINVAL`: before Linux 3.15.
    pub fn is_claimed_by_others(&self, claimed: Claimed) -> io::Result<bool> {
        let mut lock = claimed.lock(libc::F_WRLCK);
        self.call(libc::F_OFD_GETLK, &mut lock)?;
        Ok(i32::from(lock.l_type) != libc::F_UNLCK)
    }

    fn call(&self, command: i32, lock: &mut libc::flock) -> io::Result<()> {
        lock_call(self.readme.as_fd(), command, lock)
    }
}
