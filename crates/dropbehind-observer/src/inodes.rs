//! Inodes as the kernel's tracepoints name them, and the files that have them.

use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use dropbehind_linux::{
    FileKind, FileLink, KernelDevices, KernelInode, Mount, block_device_number, file_stat,
    kernel_device,
};
use dropbehind_policy::{FileNumber, Inode};

use crate::beginning::Beginning;

/// Stands for the kernel's own superblock that block devices' inodes belong to.
const BLOCK_DEVICES: u32 = u32::MAX;

/// Which file has which inode.
#[derive(Debug)]
pub(crate) struct Inodes {
    devices: KernelDevices,
    /// That superblock's device, if it could be learned. Without it, what the trace reports
    /// about raw devices is of no use.
    block_devices_superblock: Option<u32>,
    /// The devices of what is mounted.
    mounted: HashSet<u32>,
    numbers: HashMap<FileNumber, Inode>,
    /// The subvolumes on which files were opened, by their file systems' devices.
    subvolumes: HashMap<u32, HashSet<u64>>,
    /// Whether there is a block device with this number.
    block_devices: HashMap<u64, bool>,
    /// When the observation began.
    pub(crate) beginning: Beginning,
}

impl Inodes {
    /// Begins now, with no files.
    pub(crate) fn new(block_devices_superblock: Option<u32>) -> Inodes {
        Inodes {
            devices: KernelDevices::new(),
            block_devices_superblock,
            mounted: HashSet::new(),
            numbers: HashMap::new(),
            subvolumes: HashMap::new(),
            block_devices: HashMap::new(),
            beginning: Beginning::now(),
        }
    }

    /// Takes note of what is mounted now.
    pub(crate) fn mounted(&mut self, mounts: &[Mount]) {
        self.devices.set_mounts(mounts);
        let devices = mounts.iter().map(|mount| kernel_device(mount.device));
        self.mounted.extend(devices);
    }

    /// Returns whether the trace's records of block devices can be told from the rest.
    pub(crate) fn know_block_devices(&self) -> bool {
        self.block_devices_superblock.is_some()
    }

    /// Takes note of the device of their superblock.
    pub(crate) fn learned_block_devices(&mut self, superblock: u32) {
        self.block_devices_superblock = Some(superblock);
    }

    /// Converts what a tracepoint names to an inode as named here.
    pub(crate) fn traced(&self, device: u32, number: u64) -> Inode {
        let device = match Some(device) == self.block_devices_superblock {
            true => BLOCK_DEVICES,
            false => device,
        };
        Inode { device, number }
    }

    /// The inode that has an open file's pages.
    pub(crate) fn inode_of(&mut self, file: BorrowedFd<'_>) -> Option<Inode> {
        let info = file_stat(file).ok()?;
        if info.kind == FileKind::Block {
            return Some(Inode {
                device: BLOCK_DEVICES,
                number: block_device_number(file).ok()?,
            });
        }
        let inode = self.devices.inode_of(file).ok()?;
        self.mounted.insert(inode.device);
        Some(Inode {
            device: inode.device,
            number: inode.number,
        })
    }

    /// Returns whether files of more than one subvolume of a file system were opened, including
    /// this file's.
    pub(crate) fn uses_several_subvolumes(&mut self, inode: Inode, file: BorrowedFd<'_>) -> bool {
        let Ok(info) = file_stat(file) else {
            return true;
        };
        let used = self.subvolumes.entry(inode.device).or_default();
        used.insert(info.id.device);
        used.len() > 1
    }

    /// Remembers the inode of a file.
    pub(crate) fn learn(&mut self, number: FileNumber, file: BorrowedFd<'_>) -> Option<Inode> {
        let inode = self.inode_of(file)?;
        self.numbers.insert(number, inode);
        Some(inode)
    }

    /// The device by which tracepoints name this inode, if known.
    pub(crate) fn device_of(&self, inode: Inode) -> Option<u32> {
        match inode.device {
            BLOCK_DEVICES => self.block_devices_superblock,
            device => Some(device),
        }
    }

    /// The inode of a known file.
    pub(crate) fn of_number(&self, number: FileNumber) -> Option<Inode> {
        self.numbers.get(&number).copied()
    }

    /// The inode of a known file as tracepoints name it, if its device is known.
    pub(crate) fn kernel_inode(&self, number: FileNumber) -> Option<KernelInode> {
        let inode = self.of_number(number)?;
        Some(KernelInode {
            device: self.device_of(inode)?,
            number: inode.number,
        })
    }

    /// Forgets a file.
    pub(crate) fn forget(&mut self, number: FileNumber) {
        self.numbers.remove(&number);
    }

    /// Returns whether the inode is a block device's.
    pub(crate) fn is_block_device(&self, inode: Inode) -> bool {
        inode.device == BLOCK_DEVICES
    }

    /// The number of a block device without a mounted file system. Only programs that open it
    /// bring in pages of its inode, where a file system would keep its own data.
    pub(crate) fn unmounted_device(&self, inode: Inode) -> Option<u32> {
        let device = u32::try_from(inode.number).ok()?;
        let unmounted = inode.device == BLOCK_DEVICES && !self.mounted.contains(&device);
        unmounted.then_some(device)
    }

    /// Returns false if no program can have the inode open.
    pub(crate) fn may_be_a_file(&mut self, inode: Inode) -> bool {
        if inode.device != BLOCK_DEVICES {
            return true;
        }
        let is_there = self.block_devices.entry(inode.number);
        *is_there.or_insert_with(|| {
            u32::try_from(inode.number).is_ok_and(|device| in_sysfs(device).exists())
        })
    }

    /// Returns false if a file that a process has open has another inode.
    pub(crate) fn may_be(&self, inode: Inode, link: FileLink) -> bool {
        match link.kind {
            FileKind::Block => {
                inode.device == BLOCK_DEVICES
                    && u64::from(kernel_device(link.block_device)) == inode.number
            }
            _ => {
                let device = kernel_device(link.id.device);
                // A device number without a driver may be made up, like a subvolume's.
                let may_be_there = device == inode.device || device >> 20 == 0;
                may_be_there && link.id.inode == inode.number && !self.is_block_device(inode)
            }
        }
    }
}

/// The directory of a block device in sysfs.
pub(crate) fn in_sysfs(device: u32) -> PathBuf {
    let (major, minor) = (device >> 20, device & 0xf_ffff);
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Users choose inode numbers on file systems of their own, and hide their mounts.
    #[test]
    fn only_inodes_of_one_superblock_are_block_devices() {
        let device = 7 << 20 | 2;
        let inodes = Inodes::new(Some(3));
        let of = |superblock| inodes.traced(superblock, u64::from(device));
        assert_eq!(inodes.unmounted_device(of(3)), Some(device));
        assert_eq!(inodes.unmounted_device(of(99)), None);
        assert!(!inodes.is_block_device(of(99)));
        assert_eq!(inodes.device_of(of(3)), Some(3));
        assert_eq!(inodes.device_of(of(99)), Some(99));
        // If that superblock is not known, nothing is a block device.
        let inode = Inodes::new(None).traced(3, u64::from(device));
        assert!(!inodes.is_block_device(inode));
    }
}
