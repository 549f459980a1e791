//! A disk that takes far less than it claims.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::loop_disk::{LoopDevice, sparse_file};
use crate::mount_point::MountPoint;
use crate::residency::page_bytes;
use crate::{Fs, Need, Scratch};

/// A disk whose writeback fails: a device of 2 GiB whose image lies on a tmpfs
/// that holds 64 MiB. Writes succeed into the page cache; writing back what is
/// too much fails, and the next fsync must say so.
///
/// The device takes requests of one page. Of a larger one the tmpfs may take a part, and
/// then the loop driver reports success (`lo_complete_rq` in drivers/block/loop.c).
#[derive(Debug)]
pub struct FailingDisk {
    // Dropped in this order, from the top of the stack to its bottom.
    mounted: Option<MountPoint>,
    device: LoopDevice,
    memory: MountPoint,
    _scratch: Scratch,
}

impl FailingDisk {
    /// What the disk claims to hold.
    pub const CLAIMED_BYTES: u64 = 2 << 30;
    /// What it takes besides its file system's own data, roughly.
    pub const REAL_BYTES: u64 = 64 << 20;
    /// Write this much to one file to be sure that writeback fails.
    pub const TOO_MUCH_BYTES: u64 = 256 << 20;

    /// What a machine must have for this bed; `None` is the raw device.
    pub fn needs(filesystem: Option<Fs>) -> Vec<Need> {
        let mut needs = vec![Need::Loop];
        needs.extend(filesystem.into_iter().flat_map(Fs::needs));
        needs
    }

    /// One with ext4 without a journal, which fails the data alone.
    pub fn new() -> io::Result<Self> {
        Self::formatted(Fs::Ext4NoJournal)
    }

    /// One with a file system of choice. Those that journal may notice the
    /// failure in their own writes first, and shut down or go read-only.
    pub fn formatted(filesystem: Fs) -> io::Result<Self> {
        let mut disk = Self::raw()?;
        let folder = disk._scratch.file("mounted");
        fs::create_dir(&folder)?;
        // Room for what the tools write: XFS zeroes a log of 64 MiB.
        disk.memory.resize_tmpfs(Self::CLAIMED_BYTES)?;
        filesystem.make_on(disk.device())?;
        disk.mounted = Some(filesystem.mount(disk.device(), &folder)?);
        let used = rustix::fs::statvfs(disk.memory.path())?;
        let used_bytes = (used.f_blocks - used.f_bfree) * used.f_frsize;
        disk.memory.resize_tmpfs(used_bytes + Self::REAL_BYTES)?;
        Ok(disk)
    }

    /// One without a file system.
    pub fn raw() -> io::Result<Self> {
        let scratch = Scratch::new()?;
        let folder = scratch.file("memory");
        fs::create_dir(&folder)?;
        let memory = MountPoint::tmpfs(&folder, Self::REAL_BYTES)?;
        let image = sparse_file(&folder.join("image"), Self::CLAIMED_BYTES)?;
        let device = LoopDevice::attach(&image)?;
        device.limit_requests(Some(page_bytes() / 1024))?;
        Ok(Self {
            mounted: None,
            device,
            memory,
            _scratch: scratch,
        })
    }

    /// The block device.
    pub fn device(&self) -> &Path {
        self.device.path()
    }

    /// The folder it is mounted at; the device itself when it is raw.
    pub fn path(&self) -> &Path {
        self.mounted
            .as_ref()
            .map_or(self.device(), MountPoint::path)
    }

    /// The path of `name` in its root folder; the device itself when raw.
    pub fn file(&self, name: &str) -> PathBuf {
        if self.mounted.is_some() {
            self.path().join(name)
        } else {
            self.device().to_owned()
        }
    }

    /// Lets the disk take all it claims from now on. Data whose writeback has
    /// failed is not written again: the kernel has marked it clean.
    pub fn heal(&self) -> io::Result<()> {
        // Metadata of the tmpfs itself needs a little besides the image.
        self.memory.resize_tmpfs(Self::CLAIMED_BYTES + (64 << 20))
    }
}

impl Drop for FailingDisk {
    fn drop(&mut self) {
        // The device's next user is to have it as it was.
        let _ = self.device.limit_requests(None);
    }
}
