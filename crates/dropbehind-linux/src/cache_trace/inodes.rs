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

/// True where each subvolume has inode numbers of its own, so that files of several may
/// have the same.
#[must_use]
pub fn has_subvolumes(filesystem: FsKind) -> bool {
    matches!(filesystem, FsKind::Btrfs | BCACHEFS)
}

/// An inode as the kernel's tracepoints name it.
///
/// It tells a file from every other one, but on file systems whose inode numbers
/// are those of a subvolume: files of two subvolumes of a btrfs can have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelInode {
    /// The superblock's device (`s_dev`): `MAJOR << 20 | MINOR`.
    pub device: u32,
    /// `i_ino`: `st_ino`, or a [block device's number](crate::block_device_number).
    pub number: u64,
}

/// Which superblock's device stands behind the device numbers that stat(2) tells.
///
/// These are the same on most file systems. A btrfs has one superblock and tells a
/// made-up number for each subvolume.
#[derive(Clone, Debug, Default)]
pub struct KernelDevices {
    /// The superblocks' devices by the mounts' numbers.
    by_mount: HashMap<u64, u32>,
    /// By made-up `st_dev`.
    learned: HashMap<u64, u32>,
}

impl KernelDevices {
    /// Knows no mounts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes these mounts, which may be of several namespaces, for all there are,
    /// and forgets what was learned. To be told when mounts have changed: made-up
    /// numbers are given again.
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

    /// The inode that an open file's pages belong to.
    ///
    /// Where the kernel's device is not the one that stat(2) tells, the file's mount
    /// is looked for among the known ones (statx(2) `STATX_MNT_ID`, since Linux 5.8),
    /// and once more among the caller's own.
    ///
    /// A file of an overlay has no pages of its own, so the trace never names the inode
    /// that this gives for it: ask for the file below. For a block device's node there is
    /// [`block_device_number`](crate::block_device_number).
    ///
    /// # Errors
    ///
    /// - `NotFound`: the file is on a btrfs or bcachefs, and its mount is in none of
    ///   the tables.
    /// - Those of fstat(2).
    pub fn inode_of(&mut self, fd: BorrowedFd<'_>) -> io::Result<KernelInode> {
        let stat = rustix::fs::fstat(fd)?;
        let FileId { device, inode } = FileId::of(&stat);
        Ok(KernelInode {
            device: self.superblock(fd, device)?,
            number: inode,
        })
    }

    fn superblock(&mut self, fd: BorrowedFd<'_>, device: u64) -> io::Result<u32> {
        // Only numbers without a driver can be made up.
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
        let superblock = self.by_mount.get(&mount).copied();
        superblock.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
