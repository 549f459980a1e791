//! The disk that a file is on: sysfs(5), `/sys/dev/block`
//! (Documentation/ABI/stable/sysfs-block, Documentation/admin-guide/iostats.rst), and how to
//! find it from the made-up device numbers of btrfs and overlayfs.

mod counters;

use crate::file::{FileKind, FsKind, filesystem};
use crate::mounts::{Mount, mount_of};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, major, makedev, minor};
use rustix::ioctl::{Getter, Opcode, Updater, ioctl, opcode};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use counters::{DiskCounters, DiskStatistics, InFlight};

/// The request size assumed where there is no request queue.
const DEFAULT_REQUEST_BYTES: u64 = 1 << 20;
/// The kernel's own readahead default (`VM_READAHEAD_PAGES`).
const DEFAULT_READ_AHEAD_BYTES: u64 = 128 << 10;
/// An overlay on an overlay on btrfs makes three; a loop must end.
const MAX_STACKED: u32 = 4;

/// A device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiskId {
    /// The driver's number; 0 for made-up devices.
    pub major: u32,
    /// The device's number within the driver.
    pub minor: u32,
}

impl DiskId {
    /// Converts a makedev(3) device number.
    #[must_use]
    pub fn from_device(device: u64) -> Self {
        Self {
            major: major(device),
            minor: minor(device),
        }
    }

    /// The makedev(3) device number.
    #[must_use]
    pub fn device(self) -> u64 {
        makedev(self.major, self.minor)
    }
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// The text is not of the form `MAJOR:MINOR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseDiskIdError;

impl fmt::Display for ParseDiskIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a device number such as 8:0")
    }
}

impl std::error::Error for ParseDiskIdError {}

impl FromStr for DiskId {
    type Err = ParseDiskIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (major, minor) = text.split_once(':').ok_or(ParseDiskIdError)?;
        let number = |text: &str| text.parse().map_err(|_| ParseDiskIdError);
        Ok(Self {
            major: number(major)?,
            minor: number(minor)?,
        })
    }
}

/// A disk that carries files: it has one flusher, one window, one set of counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskInfo {
    /// The number of the whole disk, also for its partitions. For a virtual disk, the file
    /// system's device number.
    pub id: DiskId,
    /// The kernel's name for it, `vda`. A virtual disk is named after its file system and
    /// number, `tmpfs-0:27`.
    pub name: String,
    /// The largest request that the kernel makes (`max_sectors_kb`).
    pub request_bytes: u64,
    /// The most that the kernel reads ahead (`read_ahead_kb`).
    pub read_ahead_bytes: u64,
    /// Whether the disk claims to have moving parts; disks of virtual machines claim so by
    /// default.
    pub rotational: bool,
    /// The I/O scheduler, `none` if there is none.
    pub scheduler: String,
    /// Whether it has no request queue: tmpfs, FUSE, NFS, ZFS, or a device that cannot be
    /// seen from here. Most of the figures above are defaults then.
    pub virtual_: bool,
}

/// Reads a number from a file in sysfs.
fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The setting of a disk, or of a file system without one; `None` if it has none.
fn read_ahead_bytes(id: DiskId) -> Option<u64> {
    let kib = number(Path::new(&format!("/sys/class/bdi/{id}/read_ahead_kb")))?;
    Some(kib << 10)
}

pub(crate) fn sysfs(id: DiskId) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{id}"))
}

impl DiskInfo {
    /// The disk with this device number, or the one with this partition; `None` if there is
    /// no such block device, or no sysfs.
    #[must_use]
    pub fn from_device(device: u64) -> Option<Self> {
        let mut directory = std::fs::canonicalize(sysfs(DiskId::from_device(device))).ok()?;
        if directory.join("partition").exists() {
            directory.pop();
        }
        let text = |name: &str| std::fs::read_to_string(directory.join(name));
        let queue = |name: &str| number(&directory.join("queue").join(name));
        let id = text("dev").ok()?.trim().parse().ok()?;
        Some(Self {
            id,
            name: directory.file_name()?.to_str()?.to_owned(),
            request_bytes: queue("max_sectors_kb")
                .filter(|&kib| kib > 0)
                .map_or(DEFAULT_REQUEST_BYTES, |kib| kib << 10),
            read_ahead_bytes: read_ahead_bytes(id).unwrap_or(DEFAULT_READ_AHEAD_BYTES),
            rotational: queue("rotational") == Some(1),
            scheduler: selected(&text("queue/scheduler").unwrap_or_default()),
            virtual_: !directory.join("queue").is_dir(),
        })
    }

    /// What `read_ahead_kb` is now. It may be changed at any time, and holds for files that are
    /// opened afterwards.
    #[must_use]
    pub fn current_read_ahead_bytes(&self) -> u64 {
        read_ahead_bytes(self.id).unwrap_or(self.read_ahead_bytes)
    }

    /// The stand-in for a file system without a block device.
    fn without_queue(device: u64, filesystem: FsKind) -> Self {
        let id = DiskId::from_device(device);
        Self {
            id,
            name: format!("{filesystem}-{id}").replace(' ', "-"),
            request_bytes: DEFAULT_REQUEST_BYTES,
            read_ahead_bytes: read_ahead_bytes(id).unwrap_or(DEFAULT_READ_AHEAD_BYTES),
            rotational: false,
            scheduler: "none".to_owned(),
            virtual_: true,
        }
    }
}

/// The scheduler in brackets: `none [mq-deadline] kyber` gives `mq-deadline`.
fn selected(schedulers: &str) -> String {
    schedulers
        .split_whitespace()
        .find_map(|name| name.strip_prefix('[')?.strip_suffix(']'))
        .unwrap_or("none")
        .to_owned()
}

/// The disk that a file's data is on.
///
/// - A block device: itself, or the disk that it is a partition of.
/// - A file with a real device number: that device, in the same way.
/// - btrfs: the file system's first device that can be seen.
/// - overlayfs: the disk of the upper directory, which gets what is written. For files known
///   to be in a lower layer, and if there is no upper directory, that of the topmost lower
///   directory.
/// - Any other file system without a device number of its own: the block device that it was
///   mounted from, if any.
///
/// Stacked devices (device-mapper, md, loop) are disks in their own right. If no block device
/// is found, the result is a virtual disk with the file's own device number.
///
/// # Errors
///
/// Those of fstat(2). A disk that cannot be determined is a virtual disk, not an error.
pub fn disk_of(fd: BorrowedFd<'_>) -> io::Result<DiskInfo> {
    let stat = rustix::fs::fstat(fd)?;
    if let Some(disk) = carrier(fd, &stat, MAX_STACKED) {
        return Ok(disk);
    }
    let filesystem = filesystem(fd)?;
    Ok(DiskInfo::without_queue(device_of(&stat), filesystem))
}

/// The number of the device whose pages the file has.
fn device_of(stat: &Stat) -> u64 {
    // Both are narrower on some targets.
    #[allow(clippy::unnecessary_cast)]
    match FileKind::of(stat) {
        FileKind::Block => stat.st_rdev as u64,
        FileKind::Regular | FileKind::Other => stat.st_dev as u64,
    }
}

/// The disk below a file or directory, if there is one.
fn carrier(fd: BorrowedFd<'_>, stat: &Stat, depth: u32) -> Option<DiskInfo> {
    let device = device_of(stat);
    if let Some(disk) = DiskInfo::from_device(device) {
        return Some(disk);
    }
    // Only made-up numbers stand for another device.
    if major(device) != 0 {
        return None;
    }
    match filesystem(fd).ok()? {
        FsKind::Btrfs => btrfs_device(fd).and_then(DiskInfo::from_device),
        FsKind::Overlay => {
            let mount = mount_of(fd, device).ok()??;
            return layer_disk(&mount, device, depth.checked_sub(1)?);
        }
        _ => None,
    }
    .or_else(|| DiskInfo::from_device(block_device(&mount_of(fd, device).ok()??.source)?))
}

/// The disk of the layer that an overlay's file is in, or is assumed to be in.
fn layer_disk(mount: &Mount, device: u64, depth: u32) -> Option<DiskInfo> {
    // If the layers are on several file systems and inode numbers are not made unique, an
    // overlay's lower files show a device number other than the overlay's.
    let is_lower = device != mount.device;
    let mut layers = mount.upper_directories();
    if is_lower || layers.is_empty() {
        layers = mount.lower_directories();
        layers.truncate(1);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = layers
        .into_iter()
        .find_map(|layer| rustix::fs::openat(CWD, layer, flags, Mode::empty()).ok())?;
    let stat = rustix::fs::fstat(&directory).ok()?;
    carrier(directory.as_fd(), &stat, depth)
}

/// The number of the block device with this name.
fn block_device(path: &Path) -> Option<u64> {
    if !path.is_absolute() {
        return None;
    }
    let stat = rustix::fs::stat(path).ok()?;
    #[allow(clippy::unnecessary_cast)]
    (FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice).then_some(stat.st_rdev as u64)
}

/// `struct btrfs_ioctl_fs_info_args`, include/uapi/linux/btrfs.h.
#[repr(C)]
struct BtrfsFsInfo {
    max_id: u64,
    num_devices: u64,
    fsid: [u8; 16],
    rest: [u8; 992],
}

/// `struct btrfs_ioctl_dev_info_args`.
#[repr(C)]
struct BtrfsDevInfo {
    devid: u64,
    uuid: [u8; 16],
    bytes_used: u64,
    total_bytes: u64,
    rest: [u8; 3032],
    path: [u8; 1024],
}

const BTRFS_IOC_FS_INFO: Opcode = opcode::read::<BtrfsFsInfo>(0x94, 31);
const BTRFS_IOC_DEV_INFO: Opcode = opcode::read_write::<BtrfsDevInfo>(0x94, 30);
const _: () = assert!(size_of::<BtrfsFsInfo>() == 1024 && size_of::<BtrfsDevInfo>() == 4096);

/// The first device of a btrfs that can be seen from here; since Linux 3.0, and without
/// privileges since 3.16.
fn btrfs_device(fd: BorrowedFd<'_>) -> Option<u64> {
    // SAFETY: BTRFS_IOC_FS_INFO writes one struct of this size, all of whose
    // bit patterns are valid.
    let getter = unsafe { Getter::<BTRFS_IOC_FS_INFO, BtrfsFsInfo>::new() };
    // SAFETY: the getter is of this number's type, as just reasoned.
    let info = unsafe { ioctl(fd, getter) }.ok()?;
    (1..=info.max_id)
        .take(1024)
        .find_map(|devid| block_device(&btrfs_device_path(fd, devid)?))
        // If the names lead nowhere, for example in a container, sysfs still has the devices.
        .or_else(|| btrfs_device_in_sysfs(&info.fsid))
}

fn btrfs_device_path(fd: BorrowedFd<'_>, devid: u64) -> Option<PathBuf> {
    let mut info = BtrfsDevInfo {
        devid,
        uuid: [0; 16],
        bytes_used: 0,
        total_bytes: 0,
        rest: [0; 3032],
        path: [0; 1024],
    };
    // SAFETY: BTRFS_IOC_DEV_INFO reads and writes one struct of this size, all
    // of whose bit patterns are valid.
    unsafe { ioctl(fd, Updater::<BTRFS_IOC_DEV_INFO, _>::new(&mut info)) }.ok()?;
    let len = info.path.iter().position(|&byte| byte == 0)?;
    Some(PathBuf::from(OsStr::from_bytes(&info.path[..len])))
}

fn btrfs_device_in_sysfs(fsid: &[u8; 16]) -> Option<u64> {
    let mut uuid = String::new();
    for (index, byte) in fsid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            uuid.push('-');
        }
        uuid.push_str(&format!("{byte:02x}"));
    }
    let mut devices: Vec<PathBuf> = std::fs::read_dir(format!("/sys/fs/btrfs/{uuid}/devices"))
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    devices.sort();
    devices.iter().find_map(|device| {
        let id: DiskId = std::fs::read_to_string(device.join("dev"))
            .ok()?
            .trim()
            .parse()
            .ok()?;
        Some(id.device())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_schedulers() {
        let id = DiskId {
            major: 259,
            minor: 65_537,
        };
        assert_eq!(DiskId::from_device(id.device()), id);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("8".parse::<DiskId>(), Err(ParseDiskIdError));
        assert_eq!(selected("none [mq-deadline] kyber bfq\n"), "mq-deadline");
        assert_eq!(selected("none\n"), "none");
    }
}
