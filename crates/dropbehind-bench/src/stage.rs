//! Where a scenario runs: made before its first case, gone after its last.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use dropbehind_linux::{DiskInfo, LoopDevice, attach_loop_device, disk_of};

use crate::device::FreeDevice;
use crate::error::Error;
use crate::files::{Folder, fill, free_bytes};
use crate::nfs;
use crate::process::Launcher;
use crate::scenario::{Scenario, Stage};
use crate::slow_disk::SlowDisk;

/// A stage that is set.
#[derive(Debug)]
pub(crate) struct SetStage {
    /// For files.
    pub(crate) dir: PathBuf,
    /// The device of [`Stage::Device`].
    pub(crate) device: Option<PathBuf>,
    /// What carries it.
    pub(crate) disk: DiskInfo,
    /// What is to be known about it.
    pub(crate) note: Option<String>,
    _parts: Parts,
}

/// What is taken down with it.
#[derive(Debug)]
enum Parts {
    Nothing,
    Loop { _device: LoopDevice },
    Slow { _disk: SlowDisk },
}

/// Why a scenario cannot run here: a reason to skip it, or an error.
#[derive(Debug)]
pub(crate) enum NoStage {
    Skip(String),
    Failed(Error),
}

impl From<Error> for NoStage {
    fn from(error: Error) -> Self {
        NoStage::Failed(error)
    }
}

impl SetStage {
    /// Sets the stage of a scenario that moves so much.
    pub(crate) fn set(
        scenario: &Scenario,
        launcher: &Launcher,
        folder: &Folder,
        device: Option<&Path>,
        size_bytes: u64,
    ) -> Result<Self, NoStage> {
        match (scenario.stage, device) {
            (Stage::Directory, _) => Self::directory(folder),
            (Stage::Device, Some(device)) => Self::device(device, size_bytes),
            (Stage::Device, None) => Self::loop_device(folder, size_bytes),
            (Stage::SlowDisk { bytes_per_second }, _) => {
                Self::slow_disk(launcher, folder, bytes_per_second, size_bytes)
            }
            (Stage::Nfs, _) => Self::nfs(folder),
        }
    }

    fn directory(folder: &Folder) -> Result<Self, NoStage> {
        Ok(Self {
            dir: folder.path().to_owned(),
            device: None,
            disk: carrier(folder.path())?,
            note: None,
            _parts: Parts::Nothing,
        })
    }

    fn device(device: &Path, size_bytes: u64) -> Result<Self, NoStage> {
        let found = FreeDevice::check(device)?;
        if found.bytes < size_bytes {
            return Err(NoStage::Skip(format!(
                "{} holds {} MiB, and {} MiB are to be moved. Give a smaller --size",
                device.display(),
                found.bytes >> 20,
                size_bytes >> 20
            )));
        }
        Ok(Self {
            dir: PathBuf::new(),
            device: Some(device.to_owned()),
            disk: carrier(device)?,
            note: None,
            _parts: Parts::Nothing,
        })
    }

    /// A device on a file, where the user names none.
    fn loop_device(folder: &Folder, size_bytes: u64) -> Result<Self, NoStage> {
        let image = folder.path().join("disk");
        if free_bytes(folder.path()) < size_bytes + (size_bytes / 10) {
            return Err(NoStage::Skip(format!(
                "{} MiB are not free for a device. Give one with --device, or a smaller --size",
                size_bytes >> 20
            )));
        }
        let failed = |error| Error::io("making", &image, &error);
        fill(&image, size_bytes.next_multiple_of(1 << 20)).map_err(failed)?;
        let backing = File::options()
            .read(true)
            .write(true)
            .open(&image)
            .map_err(failed)?;
        let device = attach_loop_device(backing.as_fd()).map_err(|error| {
            NoStage::Skip(format!(
                "no loop device can be attached ({error}). Run as root, or give a device with \
                 --device"
            ))
        })?;
        Ok(Self {
            dir: folder.path().to_owned(),
            disk: carrier(device.path())?,
            device: Some(device.path().to_owned()),
            note: Some(format!(
                "on {}, a loop device with direct I/O on a file in the directory; --device \
                 measures a real one",
                device.path().display()
            )),
            _parts: Parts::Loop { _device: device },
        })
    }

    /// The server itself is another for each case.
    fn nfs(folder: &Folder) -> Result<Self, NoStage> {
        if let Some(why) = nfs::missing() {
            return Err(NoStage::Skip(why));
        }
        let note = "NFS-Ganesha serves the directory on the loopback, in the memory cgroup; clients \
                    use libnfs and stand for other machines, and under `run` the server's reads \
                    are left alone (--no-reads)";
        Ok(Self {
            note: Some(note.to_owned()),
            ..Self::directory(folder)?
        })
    }

    fn slow_disk(
        launcher: &Launcher,
        folder: &Folder,
        bytes_per_second: u64,
        size_bytes: u64,
    ) -> Result<Self, NoStage> {
        let dir = folder.path().join("slow");
        let disk =
            SlowDisk::new(launcher, &dir, bytes_per_second, size_bytes).map_err(NoStage::Skip)?;
        Ok(Self {
            device: None,
            disk: carrier(&dir)?,
            note: Some(format!(
                "on ext4 on a disk in memory, slowed to {} MB/s; its own processor time is not \
                 counted",
                bytes_per_second / 1_000_000
            )),
            dir,
            _parts: Parts::Slow { _disk: disk },
        })
    }

    /// What is synced before a case.
    pub(crate) fn place(&self) -> &Path {
        self.device.as_deref().unwrap_or(&self.dir)
    }
}

fn carrier(path: &Path) -> Result<DiskInfo, Error> {
    let failed = |error| Error::io("looking at", path, &error);
    let opened = File::open(path).map_err(failed)?;
    disk_of(opened.as_fd()).map_err(failed)
}
