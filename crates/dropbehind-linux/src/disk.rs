//! The disk that a file is on: sysfs(5), `/sys/dev/block`
//! (Documentation/ABI/stable/sysfs-block, Documentation/admin-guide/iostats.rst), and how to
//! find it from the made-up device numbers of btrfs and overlayfs.

use crate::file::{FileKind, FsKind, filesystem};
use crate::mounts::{Mount, mount_of};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, major, makedev, minor};
use rustix::ioctl::{Getter, Opcode, Updater, ioctl, opcode};
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The size of sectors in sysfs, whatever the device's own.
const SECTOR_BYTES: u64 = 512;
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
        Some(Self {
            id: text("dev").ok()?.trim().parse().ok()?,
            name: directory.file_name()?.to_str()?.to_owned(),
            request_bytes: queue("max_sectors_kb")
                .filter(|&kib| kib > 0)
                .map_or(DEFAULT_REQUEST_BYTES, |kib| kib << 10),
            read_ahead_bytes: queue("read_ahead_kb")
                .map_or(DEFAULT_READ_AHEAD_BYTES, |kib| kib << 10),
            rotational: queue("rotational") == Some(1),
            scheduler: selected(&text("queue/scheduler").unwrap_or_default()),
            virtual_: !directory.join("queue").is_dir(),
        })
    }

    /// The stand-in for a file system without a block device.
    fn without_queue(device: u64, filesystem: FsKind) -> Self {
        let id = DiskId::from_device(device);
        let read_ahead = format!("/sys/class/bdi/{id}/read_ahead_kb");
        Self {
            id,
            name: format!("{filesystem}-{id}").replace(' ', "-"),
            request_bytes: DEFAULT_REQUEST_BYTES,
            read_ahead_bytes: number(Path::new(&read_ahead))
                .map_or(DEFAULT_READ_AHEAD_BYTES, |kib| kib << 10),
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

/// What a disk has done since it appeared: the counters in `/sys/block/NAME/stat`. They wrap
/// at the size of the kernel's `long`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Reads completed.
    pub read_ios: u64,
    /// Reads merged into others before they were submitted.
    pub read_merges: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Time that reads took, summed over all reads.
    pub read_ticks_ms: u64,
    /// Writes completed.
    pub write_ios: u64,
    /// Writes merged into others before they were submitted.
    pub write_merges: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time that writes took, summed over all writes.
    pub write_ticks_ms: u64,
    /// Requests on their way at the moment.
    pub in_flight: u64,
    /// Time during which any request was on its way.
    pub busy_ms: u64,
    /// Time that requests took, summed over all requests.
    pub queued_ms: u64,
    /// Bytes discarded (since Linux 4.18, else 0).
    pub discarded_bytes: u64,
    /// Cache flushes completed (since Linux 5.5, else 0).
    pub flush_ios: u64,
    /// Time that cache flushes took, summed over all (since Linux 5.5, else 0).
    pub flush_ticks_ms: u64,
}

impl DiskCounters {
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<u64> = text
            .split_whitespace()
            .map_while(|field| field.parse().ok())
            .collect();
        if fields.len() < 11 {
            return None;
        }
        let later = |index: usize| fields.get(index).copied().unwrap_or(0);
        Some(Self {
            read_ios: fields[0],
            read_merges: fields[1],
            read_bytes: fields[2].wrapping_mul(SECTOR_BYTES),
            read_ticks_ms: fields[3],
            write_ios: fields[4],
            write_merges: fields[5],
            written_bytes: fields[6].wrapping_mul(SECTOR_BYTES),
            write_ticks_ms: fields[7],
            in_flight: fields[8],
            busy_ms: fields[9],
            queued_ms: fields[10],
            discarded_bytes: later(13).wrapping_mul(SECTOR_BYTES),
            flush_ios: later(15),
            flush_ticks_ms: later(16),
        })
    }
}

/// Reads a disk's counters.
///
/// # Errors
///
/// - [`io::ErrorKind::Unsupported`]: a virtual disk, which has none.
/// - `ENOENT`: the disk is gone.
pub fn disk_counters(disk: &DiskInfo) -> io::Result<DiskCounters> {
    if disk.virtual_ {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let text = std::fs::read_to_string(sysfs(disk.id).join("stat"))?;
    DiskCounters::parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// How many requests a disk is working on, for a thread that asks often.
#[derive(Debug)]
pub struct InFlight(File);

impl InFlight {
    /// # Errors
    ///
    /// - [`io::ErrorKind::Unsupported`]: a virtual disk, which has none.
    /// - `ENOENT`: the disk is gone.
    pub fn of(disk: &DiskInfo) -> io::Result<Self> {
        if disk.virtual_ {
            return Err(io::ErrorKind::Unsupported.into());
        }
        File::open(sysfs(disk.id).join("inflight")).map(Self)
    }

    /// Its writes, of everybody: `inflight` in Documentation/ABI/stable/sysfs-block. Takes some
    /// microseconds.
    ///
    /// # Errors
    ///
    /// - `ENODEV`: the disk is gone.
    pub fn writes(&self) -> io::Result<u64> {
        let mut text = [0; 64];
        let read = self.0.read_at(&mut text, 0)?;
        let numbers = text[..read].split(u8::is_ascii_whitespace);
        let writes = numbers.filter(|number| !number.is_empty()).nth(1);
        let writes = writes.and_then(|writes| str::from_utf8(writes).ok()?.parse().ok());
        writes.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_old_and_new_kernels() {
        let new = "28828 8311 3214130 18149 20483 8741 42499976 124609 2 30424 159060 3442 47 100 16295 261 7\n";
        let counters = DiskCounters::parse(new).unwrap();
        assert_eq!(counters.read_bytes, 3_214_130 * 512);
        assert_eq!(counters.written_bytes, 42_499_976 * 512);
        assert_eq!(counters.write_ticks_ms, 124_609);
        assert_eq!(counters.in_flight, 2);
        assert_eq!(counters.busy_ms, 30_424);
        assert_eq!(counters.discarded_bytes, 51_200);
        assert_eq!((counters.flush_ios, counters.flush_ticks_ms), (261, 7));
        let old = DiskCounters::parse("1 2 3 4 5 6 7 8 9 10 11").unwrap();
        assert_eq!((old.queued_ms, old.flush_ios), (11, 0));
        assert_eq!(DiskCounters::parse("1 2 3"), None);
    }

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
