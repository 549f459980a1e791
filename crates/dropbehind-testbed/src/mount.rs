//! Freshly made, mounted file systems.

use std::any::Any;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::mount_point::MountPoint;
use crate::{Fs, LoopDisk, Need, Scratch};

/// A file system made for one test, unmounted and removed on drop.
pub struct MountedFs {
    filesystem: Fs,
    device: PathBuf,
    before_unmount: Option<Box<dyn FnOnce() + Send + Sync>>,
    // Dropped in this order. Removing the folder also ends copies of the mount
    // in other mount namespaces, which would keep the disk busy.
    mount_point: MountPoint,
    _scratch: Scratch,
    _disk: Box<dyn Any + Send + Sync>,
}

impl MountedFs {
    /// What a machine must have for this bed.
    pub fn needs(filesystem: Fs) -> Vec<Need> {
        let mut needs = LoopDisk::needs();
        needs.extend(filesystem.needs());
        needs
    }

    /// Makes a file system on a loop device of `size_bytes`, or of the size
    /// it needs at least.
    pub fn new(filesystem: Fs, size_bytes: u64) -> io::Result<Self> {
        let disk = LoopDisk::new(size_bytes.max(filesystem.smallest_disk_bytes()))?;
        let device = disk.path().to_owned();
        Self::on_disk(filesystem, &device, disk)
    }

    /// Formats and mounts `device`, which lives as long as `disk`.
    pub(crate) fn on_disk(
        filesystem: Fs,
        device: &Path,
        disk: impl Any + Send + Sync,
    ) -> io::Result<Self> {
        let scratch = Scratch::new()?;
        let folder = scratch.file("mounted");
        fs::create_dir(&folder)?;
        filesystem.make_on(device)?;
        Ok(Self {
            filesystem,
            device: device.to_owned(),
            before_unmount: None,
            mount_point: filesystem.mount(device, &folder)?,
            _disk: Box::new(disk),
            _scratch: scratch,
        })
    }

    /// Has something done before the unmount, which writes all dirty data.
    pub(crate) fn before_unmount(mut self, act: impl FnOnce() + Send + Sync + 'static) -> Self {
        self.before_unmount = Some(Box::new(act));
        self
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.mount_point.path()
    }

    /// The path of `name` in its root folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// The block device below it.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Its kind.
    pub fn filesystem(&self) -> Fs {
        self.filesystem
    }
}

impl Drop for MountedFs {
    fn drop(&mut self) {
        if let Some(act) = self.before_unmount.take() {
            act();
        }
    }
}

impl fmt::Debug for MountedFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MountedFs")
            .field("filesystem", &self.filesystem)
            .field("device", &self.device)
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}
