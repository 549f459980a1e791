//! Inodes as the kernel's tracepoints name them, and the files that have them.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use dropbehind_flusher::Beginning;
use dropbehind_linux::{
    FileId, FileKind, FileLink, FileStat, KernelDevices, KernelInode, Mount, block_device_number,
    file_stat, filesystem, has_subvolumes, kernel_device, mount_with_id,
};
use dropbehind_policy::Inode;

/// Stands for the kernel's own superblock that block devices' inodes belong to.
const BLOCK_DEVICES: u32 = u32::MAX;

/// Places for inodes, 1 MiB of them.
const PLACES: usize = 1 << 18;
/// Stands for several subvolumes.
const SEVERAL: u32 = u32::MAX;
/// Places are remembered for this long, and at most twice as long. Otherwise, all of them would
/// stand for several subvolumes in time. Files that are open for longer are found again in
/// `/proc`.
const GENERATION: Duration = Duration::from_secs(3600);

/// The subvolumes in which files were open, by superblock and inode number: on btrfs, files in
/// different ones may share both, and the trace does not tell them apart. Users choose how many
/// files they open, so inodes share a fixed number of places, and some seem to be several files'
/// that are not.
#[derive(Debug, Default)]
struct Subvolumes {
    hasher: RandomState,
    /// Each holds a subvolume's device, [`SEVERAL`], or 0.
    places: Vec<u32>,
    /// Those of the generation before.
    before: Vec<u32>,
    /// When this generation began.
    since: Option<Instant>,
}

impl Subvolumes {
    /// The superblock is 0 where it is not known.
    fn place(&self, superblock: u32, number: u64) -> usize {
        let hash = self.hasher.hash_one((superblock, number));
        usize::try_from(hash % PLACES as u64).unwrap_or(0)
    }

    /// Begins another generation, if it is time. Returns whether it did.
    fn age(&mut self, now: Instant) -> bool {
        let is_old = self.since.is_some_and(|since| now - since >= GENERATION);
        if is_old {
            self.before = std::mem::take(&mut self.places);
            self.since = Some(now);
        }
        is_old
    }

    fn opened(&mut self, superblock: u32, subvolume: u32, number: u64) {
        self.since.get_or_insert_with(Instant::now);
        self.places.resize(PLACES, 0);
        let place = self.place(superblock, number);
        let held = &mut self.places[place];
        *held = match *held {
            0 => subvolume,
            held if held == subvolume => subvolume,
            _ => SEVERAL,
        };
    }

    /// Returns whether files of several subvolumes may have this number.
    fn share(&self, superblock: u32, number: u64) -> bool {
        let held = |superblock| {
            let place = self.place(superblock, number);
            let of = |places: &[u32]| places.get(place).copied().unwrap_or(0);
            match (of(&self.places), of(&self.before)) {
                (held, 0) | (0, held) => held,
                (held, before) if held == before => held,
                _ => SEVERAL,
            }
        };
        let (known, unknown) = (held(superblock), held(0));
        known == SEVERAL || unknown != 0 && unknown != known
    }
}

/// Which file has which inode.
#[derive(Debug)]
pub(crate) struct Inodes {
    devices: KernelDevices,
    /// That superblock's device, if it could be learned. Without it, what the trace reports
    /// about raw devices is of no use.
    pub(crate) block_devices_superblock: Option<u32>,
    /// The devices of what is mounted.
    mounted: HashSet<u32>,
    /// Whether any of it has subvolumes, so that files in different ones may have the same inode
    /// number.
    pub(crate) has_subvolumes: bool,
    subvolumes: Subvolumes,
    /// When the observation began.
    pub(crate) beginning: Beginning,
    /// When all events were read last: of a file that was made since, the open that made it may be
    /// read now.
    pub(crate) all_read: Beginning,
}

impl Inodes {
    /// Begins now, with no files.
    pub(crate) fn new(block_devices_superblock: Option<u32>) -> Inodes {
        Inodes {
            devices: KernelDevices::new(),
            block_devices_superblock,
            mounted: HashSet::new(),
            has_subvolumes: false,
            subvolumes: Subvolumes::default(),
            beginning: Beginning::now(),
            all_read: Beginning::now(),
        }
    }

    /// Takes note of what is mounted now.
    pub(crate) fn mounted(&mut self, mounts: &[Mount]) {
        self.devices.set_mounts(mounts);
        let devices = mounts.iter().map(|mount| kernel_device(mount.device));
        self.mounted.extend(devices);
        let types = ["btrfs", "bcachefs"];
        let mut mounts = mounts.iter();
        self.has_subvolumes = mounts.any(|mount| types.contains(&mount.filesystem.as_str()));
    }

    /// Forgets what was open long ago, if it is time. Returns whether it did: then what is still
    /// open has to be [found](Self::found_open) again.
    pub(crate) fn forget_long_ago(&mut self) -> bool {
        self.subvolumes.age(Instant::now())
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
        self.inode_with(&file_stat(file).ok()?, file)
    }

    /// The same of a file that this is known of.
    pub(crate) fn inode_with(&mut self, info: &FileStat, file: BorrowedFd<'_>) -> Option<Inode> {
        if info.kind == FileKind::Block {
            return Some(Inode {
                device: BLOCK_DEVICES,
                number: block_device_number(file).ok()?,
            });
        }
        let inode = self.devices.inode_with(info.id, file).ok()?;
        self.mounted.insert(inode.device);
        Some(Inode {
            device: inode.device,
            number: inode.number,
        })
    }

    /// A file was opened, which a rule may want or not.
    pub(crate) fn opened(&mut self, id: FileId, file: BorrowedFd<'_>) {
        let subvolume = kernel_device(id.device);
        if is_made_up(subvolume) && filesystem(file).is_ok_and(has_subvolumes) {
            let inode = self.devices.inode_of(file).ok();
            let superblock = inode.map_or(0, |inode| inode.device);
            self.subvolumes.opened(superblock, subvolume, id.inode);
        }
    }

    /// A process has a file open, whose open no event may have reported.
    pub(crate) fn found_open(&mut self, process: i32, link: FileLink) {
        let subvolume = kernel_device(link.id.device);
        if !is_made_up(subvolume) {
            return;
        }
        let Some(mount) = link.name().ok().and_then(|named| named.mount()) else {
            return;
        };
        let superblock = self.devices.of_mount(mount).or_else(|| {
            let mount = mount_with_id(process, mount).ok()?;
            Some(kernel_device(mount?.device))
        });
        // On other file systems, the superblock has the same device.
        if superblock != Some(subvolume) {
            let superblock = superblock.unwrap_or(0);
            self.subvolumes.opened(superblock, subvolume, link.id.inode);
        }
    }

    /// Returns whether the inode's file system may have subvolumes.
    pub(crate) fn may_have_subvolumes(&self, inode: Inode) -> bool {
        is_made_up(inode.device)
    }

    /// Returns whether files of several subvolumes may have this inode's number, and were open.
    pub(crate) fn may_be_shared(&self, inode: Inode) -> bool {
        is_made_up(inode.device) && self.subvolumes.share(inode.device, inode.number)
    }

    /// The device by which tracepoints name this inode, if known.
    pub(crate) fn device_of(&self, inode: Inode) -> Option<u32> {
        match inode.device {
            BLOCK_DEVICES => self.block_devices_superblock,
            device => Some(device),
        }
    }

    /// The inode as tracepoints name it, if its device is known.
    pub(crate) fn kernel_inode(&self, inode: Inode) -> Option<KernelInode> {
        Some(KernelInode {
            device: self.device_of(inode)?,
            number: inode.number,
        })
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

    /// Returns false if a file that a process has open has another inode.
    pub(crate) fn may_be(&self, inode: Inode, link: FileLink) -> bool {
        match link.kind {
            FileKind::Block => {
                inode.device == BLOCK_DEVICES
                    && u64::from(kernel_device(link.block_device)) == inode.number
            }
            _ => {
                let device = kernel_device(link.id.device);
                let may_be_there = device == inode.device || is_made_up(device);
                may_be_there && link.id.inode == inode.number && !self.is_block_device(inode)
            }
        }
    }
}

/// Returns whether a device number has no driver and may be made up, like a subvolume's.
fn is_made_up(device: u32) -> bool {
    device >> 20 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subvolumes_are_told_apart_again_once_one_of_them_was_left_alone() {
        let mut subvolumes = Subvolumes::default();
        let began = Instant::now();
        assert!(!subvolumes.age(began));
        subvolumes.opened(1, 2, 10);
        subvolumes.opened(1, 3, 10);
        assert!(subvolumes.share(1, 10));
        let later = |hours| began + Duration::from_secs(1) + hours * GENERATION;
        assert!(subvolumes.age(later(1)));
        subvolumes.opened(1, 2, 10);
        assert!(subvolumes.share(1, 10), "it may still be open there");
        assert!(!subvolumes.age(later(1)));
        assert!(subvolumes.age(later(2)));
        assert!(!subvolumes.share(1, 10));
        subvolumes.opened(1, 3, 10);
        assert!(subvolumes.share(1, 10));
    }

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
