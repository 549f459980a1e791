//! Inodes as the kernel's tracepoints name them.

use super::device_number::kernel_device;
use crate::file::{FileId, FsKind, filesystem};
use crate::mounts::Mount;
use rustix::fs::{AtFlags, StatxFlags, major};
use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;

/// The `f_type` of bcachefs, include/uapi/linux/magic.h of Linux 6.7.
const BCACHEFS: FsKind = FsKind::Other(0xCA45_1A4E);

/// Whether each subvolume has its own inode numbers, so that files in different ones may
/// share a number.
#[must_use]
pub fn has_subvolumes(filesystem: FsKind) -> bool {
    matches!(filesystem, FsKind::Btrfs | BCACHEFS)
}

/// An inode as the kernel's tracepoints name it.
///
/// Unique to a file, except on file systems with inode numbers per subvolume: files in two
/// subvolumes of a btrfs may have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelInode {
    /// The superblock's device (`s_dev`): `MAJOR << 20 | MINOR`.
    pub device: u32,
    /// `i_ino`: `st_ino`, or a [block device's number](crate::block_device_number).
    pub number: u64,
}

/// Maps the device numbers that stat(2) returns to superblocks' devices.
///
/// They are the same on most file systems. A btrfs has one superblock, but stat(2) returns a
/// made-up number for each subvolume.
#[derive(Clone, Debug, Default)]
pub struct KernelDevices {
    /// The superblocks' devices by mount ID.
    by_mount: HashMap<u64, u32>,
    /// By made-up `st_dev`.
    learned: HashMap<u64, u32>,
}

impl KernelDevices {
    /// Creates a map that knows no mounts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces all known mounts by these, which may come from several namespaces, and
    /// forgets what was learned. Call it when mounts have changed, since made-up numbers are
    /// reused.
    pub fn set_mounts<'a>(&mut self, mounts: impl IntoIterator<Item = &'a Mount>) {
        self.learned.clear();
        self.by_mount.clear();
        self.add_mounts(mounts);
    }

    fn add_mounts<'a>(&mut self, mounts: impl IntoIterator<Item = &'a Mount>) {
        let devices = mounts
            .into_iter()
            .map(|mount| (mount.id, kernel_device(mount.device)));
        self.by_mount.extend(devices);
    }

    /// The superblock's device of a known mount, by the mount's ID.
    #[must_use]
    pub fn of_mount(&self, mount: u64) -> Option<u32> {
        self.by_mount.get(&mount).copied()
    }

    /// The inode that an open file's pages belong to.
    ///
    /// If the kernel's device may differ from the one that stat(2) returns, looks for the
    /// file's mount among the known ones (statx(2) `STATX_MNT_ID`, since Linux 5.8), and then
    /// among the caller's own.
    ///
    /// A file on an overlay has no pages of its own, so the trace never names the inode that
    /// this returns for it: ask for the file below. For a block device, use
    /// [`block_device_number`](crate::block_device_number).
    ///
    /// # Errors
    ///
    /// - `NotFound`: the file is on btrfs or bcachefs, and its mount is in no known table.
    /// - Those of fstat(2).
    pub fn inode_of(&mut self, fd: BorrowedFd<'_>) -> io::Result<KernelInode> {
        let id = FileId::of(&rustix::fs::fstat(fd)?);
        self.inode_with(id, fd)
    }

    /// The same of a file with this ID, without asking for it.
    ///
    /// # Errors
    ///
    /// - `NotFound`: as above.
    pub fn inode_with(&mut self, id: FileId, fd: BorrowedFd<'_>) -> io::Result<KernelInode> {
        Ok(KernelInode {
            device: self.superblock(fd, id.device)?,
            number: id.inode,
        })
    }

    fn superblock(&mut self, fd: BorrowedFd<'_>, device: u64) -> io::Result<u32> {
        // Only device numbers without a driver may be made up.
        if major(device) != 0 {
            return Ok(kernel_device(device));
        }
        if let Some(&learned) = self.learned.get(&device) {
            return Ok(learned);
        }
        let is_made_up = has_subvolumes(filesystem(fd)?);
        let superblock = if is_made_up {
            self.superblock_of_mount(fd)?
        } else {
            kernel_device(device)
        };
        self.learned.insert(device, superblock);
        Ok(superblock)
    }

    fn superblock_of_mount(&mut self, fd: BorrowedFd<'_>) -> io::Result<u32> {
        let statx = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
        if statx.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mount = statx.stx_mnt_id;
        if !self.by_mount.contains_key(&mount) {
            let table = std::fs::read("/proc/thread-self/mountinfo")?;
            let own: Vec<Mount> = Mount::parse_table(&table).collect();
            self.add_mounts(&own);
        }
        self.of_mount(mount)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
