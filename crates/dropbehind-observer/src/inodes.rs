//! Inodes as the kernel's tracepoints name them, and the files that have them.

use std::collections::{HashMap, HashSet};
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

/// From this many files on, a generation is over.
const MANY: usize = 1 << 17;
/// A generation holds no more than this many, in 4.25 MiB: as many as a table of 2^18 places takes.
const MOST: usize = (1 << 18) / 8 * 7;
/// Files are remembered for this long, and at most twice as long, since all numbers would be
/// shared in time. Those that are open for longer are found again in `/proc`.
const GENERATION: Duration = Duration::from_secs(3600);
/// Stands for several subvolumes.
const SEVERAL: u32 = u32::MAX;

/// The subvolumes in which files were open: on btrfs, files in different ones may share superblock
/// and inode number, and the trace does not tell them apart.
///
/// Users choose how many files they open. So what was open before the last generation is
/// forgotten as soon as a search has found what of it still is.
#[derive(Debug, Default)]
struct Subvolumes {
    now: Generation,
    before: Generation,
    /// What is forgotten at the end of the search that is under way.
    ending: Generation,
    /// When this generation began.
    since: Option<Instant>,
}

/// Files that were opened in some time.
#[derive(Debug, Default)]
struct Generation {
    /// Subvolumes, or [`SEVERAL`], by [`Key`].
    files: HashMap<Key, u32>,
    /// There were more than it holds.
    is_incomplete: bool,
}

/// Superblock and inode number in 12 bytes. The superblock is 0 where it is not known.
type Key = [u32; 3];

fn key(superblock: u32, number: u64) -> Key {
    [superblock, (number >> 32) as u32, number as u32]
}

impl Generation {
    fn opened(&mut self, key: Key, subvolume: u32) {
        if let Some(held) = self.files.get_mut(&key) {
            if *held != subvolume {
                *held = SEVERAL;
            }
        } else if self.files.len() < MOST {
            self.files.insert(key, subvolume);
        } else {
            self.is_incomplete = true;
        }
    }

    /// Returns whether this number may have been opened in another subvolume than this one.
    fn has_another(&self, superblock: u32, number: u64, subvolume: u32) -> bool {
        let held = [superblock, 0].map(|superblock| self.files.get(&key(superblock, number)));
        let mut held = held.into_iter().flatten();
        self.is_incomplete || held.any(|held| *held != subvolume)
    }
}

impl Subvolumes {
    /// Returns whether to begin another generation, and to search for all that is open.
    fn is_over(&self, now: Instant) -> bool {
        let is_old = self.since.is_some_and(|since| now - since >= GENERATION);
        is_old || self.now.files.len() >= MANY || self.now.is_incomplete
    }

    fn begin_another(&mut self, now: Instant) {
        self.ending = std::mem::take(&mut self.before);
        self.before = std::mem::take(&mut self.now);
        self.since = Some(now);
    }

    /// What was open when this generation began, and still is, was found by now.
    fn have_searched(&mut self) {
        self.ending = Generation::default();
        self.before.is_incomplete = false;
    }

    fn opened(&mut self, superblock: u32, subvolume: u32, number: u64) {
        self.since.get_or_insert_with(Instant::now);
        self.now.opened(key(superblock, number), subvolume);
    }

    fn has_another(&self, superblock: u32, number: u64, subvolume: u32) -> bool {
        let mut generations = [&self.now, &self.before, &self.ending].into_iter();
        generations.any(|of| of.has_another(superblock, number, subvolume))
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

    /// Returns whether so much was opened, or so long ago, that some is to be forgotten.
    pub(crate) fn have_many(&self) -> bool {
        self.subvolumes.is_over(Instant::now())
    }

    /// Returns whether files were opened that found no room, so that any may share a number.
    pub(crate) fn have_too_many(&self) -> bool {
        self.subvolumes.now.is_incomplete
    }

    /// A search for all that is open begins. At its end, all else that was opened long ago is
    /// forgotten.
    pub(crate) fn search_begins(&mut self) {
        let now = Instant::now();
        if self.subvolumes.is_over(now) {
            self.subvolumes.begin_another(now);
        }
    }

    /// No search is under way any more.
    pub(crate) fn search_ends(&mut self) {
        self.subvolumes.have_searched();
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

    /// Returns whether a file of another subvolume than this one may have this inode's number,
    /// and was open.
    pub(crate) fn may_be_shared(&self, inode: Inode, subvolume: u64) -> bool {
        let subvolume = kernel_device(subvolume);
        let Inode { device, number } = inode;
        is_made_up(device) && self.subvolumes.has_another(device, number, subvolume)
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
        assert!(!subvolumes.is_over(began));
        subvolumes.opened(1, 2, 10);
        assert!(!subvolumes.has_another(1, 10, 2));
        subvolumes.opened(1, 3, 10);
        let later = |hours| began + Duration::from_secs(1) + hours * GENERATION;
        for hours in 1..3 {
            assert!(subvolumes.is_over(later(hours)));
            subvolumes.begin_another(later(hours));
            assert!(!subvolumes.is_over(later(hours)));
            subvolumes.opened(1, 2, 10);
            assert!(
                subvolumes.has_another(1, 10, 2),
                "it may still be open there"
            );
            if hours == 1 {
                subvolumes.have_searched();
                assert!(subvolumes.has_another(1, 10, 2), "it was open not long ago");
            }
        }
        subvolumes.have_searched();
        assert!(!subvolumes.has_another(1, 10, 2));
        assert!(subvolumes.has_another(1, 10, 3));
    }

    #[test]
    fn other_files_share_no_number() {
        let mut subvolumes = Subvolumes::default();
        for number in 0..MANY as u64 {
            subvolumes.opened(1, 2, number);
        }
        let shares = |subvolumes: &Subvolumes, superblock, subvolume| {
            let mut numbers = 0..MANY as u64;
            numbers.any(|number| subvolumes.has_another(superblock, number, subvolume))
        };
        assert!(!shares(&subvolumes, 1, 2));
        assert!(!shares(&subvolumes, 4, 5));
        // Where the superblock of one is not known, it may be the other one's.
        subvolumes.opened(0, 6, 10);
        assert!(subvolumes.has_another(1, 10, 2) && subvolumes.has_another(4, 10, 5));
    }

    #[test]
    fn what_finds_no_room_may_be_any_file_until_a_search_has_found_it() {
        let mut subvolumes = Subvolumes::default();
        let now = Instant::now();
        for number in 0..MOST as u64 {
            assert_eq!(subvolumes.is_over(now), number >= MANY as u64);
            subvolumes.opened(1, 2, number);
        }
        assert!(!subvolumes.has_another(1, 0, 2) && !subvolumes.has_another(4, 7, 5));
        let bytes = subvolumes.now.files.capacity() * size_of::<(Key, u32)>();
        assert!(bytes < 4 << 20, "{bytes}");
        subvolumes.opened(1, 2, MOST as u64);
        assert!(subvolumes.has_another(1, 0, 2) && subvolumes.has_another(4, 7, 5));
        subvolumes.begin_another(now);
        assert!(subvolumes.has_another(4, 7, 5), "it may be open");
        subvolumes.have_searched();
        assert!(!subvolumes.has_another(1, 0, 2) && !subvolumes.has_another(4, 7, 5));
        assert!(subvolumes.has_another(1, 0, 3));
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
