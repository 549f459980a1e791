//! What a descriptor refers to: fstat(2), statx(2), fstatfs(2), fcntl(2).

use crate::block::block_size_bytes;
use rustix::fs::{AtFlags, FileType, OFlags, Stat, StatxFlags};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

/// Identifies a file while it exists.
///
/// On btrfs and overlayfs it doesn't identify the *device*: their device numbers are made up,
/// see [`disk_of`](crate::disk_of).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// `st_dev`, as of makedev(3).
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
}

impl FileId {
    pub(crate) fn of(stat: &Stat) -> Self {
        // Both are narrower on some targets.
        #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
        Self {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
        }
    }
}

/// The kind of a file, as far as the page cache is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A block device.
    Block,
    /// Anything else.
    Other,
}

impl FileKind {
    pub(crate) fn of(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Self::Regular,
            FileType::BlockDevice => Self::Block,
            _ => Self::Other,
        }
    }
}

/// A file system, by `f_type` (include/uapi/linux/magic.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FsKind {
    /// ext4, and ext2 and ext3, which share its number.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
    /// tmpfs, also as devtmpfs and for memfds.
    Tmpfs,
    /// Any FUSE file system.
    Fuse,
    /// overlayfs.
    Overlay,
    /// NFS, any version.
    Nfs,
    /// F2FS.
    F2fs,
    /// ZFS on Linux.
    Zfs,
    /// Not a file system but a block device, whose pages belong to the device and not to the
    /// file system that its special file is on.
    BlockDevice,
    /// Any other file system, by its `f_type`.
    Other(i64),
}

impl FsKind {
    /// Whether a server has the files: one on the network, or a process (FUSE).
    #[must_use]
    pub fn is_remote(self) -> bool {
        matches!(
            self,
            Self::Nfs
                | Self::Fuse
                | Self::Other(0xFF53_4D42 | 0xFE53_4D42 | 0x0102_1997 | 0x00C3_6400)
        )
    }

    /// The file system with this `f_type`.
    #[must_use]
    pub fn from_magic(magic: i64) -> Self {
        // The field is a sign-extended `int` on some targets; all these numbers have 32 bits.
        match magic & 0xFFFF_FFFF {
            0xEF53 => Self::Ext4,
            0x5846_5342 => Self::Xfs,
            0x9123_683E => Self::Btrfs,
            0x0102_1994 => Self::Tmpfs,
            0x6573_5546 => Self::Fuse,
            0x794C_7630 => Self::Overlay,
            0x6969 => Self::Nfs,
            0xF2F5_2010 => Self::F2fs,
            0x2FC1_2FC1 => Self::Zfs,
            0x6264_6576 => Self::BlockDevice,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for FsKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Tmpfs => "tmpfs",
            Self::Fuse => "fuse",
            Self::Overlay => "overlayfs",
            Self::Nfs => "nfs",
            Self::F2fs => "f2fs",
            Self::Zfs => "zfs",
            Self::BlockDevice => "block device",
            Self::Other(0x8584_58F6) => "ramfs",
            Self::Other(0x9FA0) => "proc",
            Self::Other(0x6265_6572) => "sysfs",
            Self::Other(0xFF53_4D42) => "cifs",
            Self::Other(0xFE53_4D42) => "smb2",
            Self::Other(0x0102_1997) => "9p",
            Self::Other(0x00C3_6400) => "ceph",
            Self::Other(0xCA45_1A4E) => "bcachefs",
            Self::Other(0x4D44) => "vfat",
            Self::Other(0x2011_BAB0) => "exfat",
            Self::Other(0xE0F5_E1E2) => "erofs",
            Self::Other(0x7371_7368) => "squashfs",
            Self::Other(0x7366_746E) => "ntfs3",
            Self::Other(magic) => return write!(f, "file system {magic:#x}"),
        })
    }
}

/// What to know about an open file before working on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Which file it is.
    pub id: FileId,
    /// What kind of file.
    pub kind: FileKind,
    /// Its size, or a block device's capacity.
    pub size_bytes: u64,
    /// A block device's number (`st_rdev`, as of makedev(3)), else 0.
    pub special_device: u64,
    /// What `O_DIRECT` requires of memory addresses, and of file offsets and lengths, in
    /// bytes. Zeros if there is no direct I/O, `None` if the kernel doesn't say (before 6.1,
    /// or the file system doesn't specify it).
    pub direct_io_alignment: Option<(u32, u32)>,
    /// The file system; [`FsKind::BlockDevice`] for a block device.
    pub filesystem: FsKind,
}

/// Describes an open file: fstat(2), statx(2) for `STATX_DIOALIGN` (since
/// Linux 6.1), fstatfs(2).
///
/// # Errors
///
/// Those of fstat(2).
pub fn file_info(fd: BorrowedFd<'_>) -> io::Result<FileInfo> {
    let stat = rustix::fs::fstat(fd)?;
    let kind = FileKind::of(&stat);
    let direct_io_alignment = direct_io_alignment(fd);
    #[allow(clippy::unnecessary_cast)]
    Ok(FileInfo {
        id: FileId::of(&stat),
        kind,
        size_bytes: size_of_stat(fd, &stat)?,
        special_device: if kind == FileKind::Block {
            stat.st_rdev as u64
        } else {
            0
        },
        direct_io_alignment,
        filesystem: filesystem_of(fd, kind)?,
    })
}

fn direct_io_alignment(fd: BorrowedFd<'_>) -> Option<(u32, u32)> {
    let statx = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let is_told = statx.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    is_told.then_some((statx.stx_dio_mem_align, statx.stx_dio_offset_align))
}

/// Returns false if the kernel says that there is no direct I/O for this file.
pub(crate) fn has_direct_reads(fd: BorrowedFd<'_>) -> bool {
    !matches!(direct_io_alignment(fd), Some((0, _)))
}

/// Returns whether ext4 keeps the file's data in its inode. It clears the flag before it writes the
/// first page (`ext4_destroy_inline_data`), and never sets it again.
pub(crate) fn is_in_inode(fd: BorrowedFd<'_>) -> bool {
    // include/uapi/linux/fs.h: FS_INLINE_DATA_FL
    const INLINE_DATA: u32 = 0x1000_0000;
    rustix::fs::ioctl_getflags(fd).is_ok_and(|flags| flags.bits() & INLINE_DATA != 0)
}

fn size_of_stat(fd: BorrowedFd<'_>, stat: &Stat) -> io::Result<u64> {
    if FileKind::of(stat) == FileKind::Block {
        block_size_bytes(fd)
    } else {
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }
}

/// What one statx(2) call returns about an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// Which file it is.
    pub id: FileId,
    /// What kind of file.
    pub kind: FileKind,
    /// Its size, or a block device's capacity.
    pub size_bytes: u64,
    /// A block device's number, else 0.
    pub special_device: u64,
    /// How many names it has; 0 once it is deleted.
    pub links: u32,
    /// Whether anybody may execute it.
    pub executable: bool,
    /// When it was created, since the epoch, if the file system records that.
    pub born: Option<std::time::Duration>,
    /// The number of the mount through which it was opened, which is not reused until the
    /// next boot (`STATX_MNT_ID_UNIQUE`); `None` before Linux 6.8.
    pub mount: Option<u64>,
}

/// include/uapi/linux/stat.h of Linux 6.8; older kernels ignore it.
pub(crate) const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Describes a file with one call, where many files pass by.
///
/// # Errors
///
/// Those of statx(2).
pub fn file_stat(fd: BorrowedFd<'_>) -> io::Result<FileStat> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME | MNT_ID_UNIQUE;
    let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, wanted)?;
    let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::RegularFile => FileKind::Regular,
        FileType::BlockDevice => FileKind::Block,
        _ => FileKind::Other,
    };
    let block = kind == FileKind::Block;
    Ok(FileStat {
        id: FileId {
            device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
        },
        kind,
        size_bytes: if block {
            block_size_bytes(fd)?
        } else {
            stat.stx_size
        },
        special_device: if block {
            rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor)
        } else {
            0
        },
        links: stat.stx_nlink,
        executable: stat.stx_mode & 0o111 != 0,
        born: (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| {
            let seconds = u64::try_from(stat.stx_btime.tv_sec).unwrap_or(0);
            std::time::Duration::new(seconds, stat.stx_btime.tv_nsec)
        }),
        mount: (stat.stx_mask & MNT_ID_UNIQUE.bits() != 0).then_some(stat.stx_mnt_id),
    })
}

/// A file's size, or a block device's capacity, in bytes: fstat(2), and for
/// block devices `BLKGETSIZE64`.
///
/// # Errors
///
/// Those of fstat(2).
pub fn size_bytes(fd: BorrowedFd<'_>) -> io::Result<u64> {
    size_of_stat(fd, &rustix::fs::fstat(fd)?)
}

/// An open file's position, in bytes: lseek(2). A write(2) with `O_APPEND` leaves it at the end of
/// what it appended (`vfs_write` in the kernel's fs/read_write.c). A pwrite(2) does not move it.
///
/// # Errors
///
/// Those of lseek(2).
pub fn position(fd: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(rustix::fs::tell(fd)?)
}

fn filesystem_of(fd: BorrowedFd<'_>, kind: FileKind) -> io::Result<FsKind> {
    if kind == FileKind::Block {
        return Ok(FsKind::BlockDevice);
    }
    let statfs = rustix::fs::fstatfs(fd)?;
    #[allow(clippy::unnecessary_cast, clippy::cast_lossless)]
    Ok(FsKind::from_magic(statfs.f_type as i64))
}

/// Tells apart file systems that have one after the other the same device number: the kernel makes up
/// those of btrfs, overlayfs, NFS and others, and uses them again after an unmount. It is `f_fsid` of
/// statvfs(3), or 0 for a device with a driver, whose number stays.
pub fn filesystem_tag(fd: BorrowedFd<'_>, device: u64) -> u64 {
    match rustix::fs::major(device) {
        0 => rustix::fs::fstatvfs(fd).map_or(0, |stat| stat.f_fsid),
        _ => 0,
    }
}

/// The file system that a file's pages belong to: fstatfs(2).
///
/// # Errors
///
/// Those of fstatfs(2).
pub fn filesystem(fd: BorrowedFd<'_>) -> io::Result<FsKind> {
    filesystem_of(fd, FileKind::of(&rustix::fs::fstat(fd)?))
}

/// What an open file description was opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessMode {
    /// `O_RDONLY`.
    ReadOnly,
    /// `O_WRONLY`.
    WriteOnly,
    /// `O_RDWR`.
    ReadWrite,
    /// `O_PATH`: only names the file, allows no I/O at all.
    Path,
}

/// An open file description's status flags, as far as they matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StatusFlags {
    /// What it was opened for.
    pub access: AccessMode,
    /// `O_APPEND`: writes go to the end of the file.
    pub append: bool,
    /// `O_DIRECT`: bypasses the page cache.
    pub direct: bool,
    /// `O_SYNC`: each write is durable, including metadata.
    pub sync: bool,
    /// `O_DSYNC`: each write is durable. `O_SYNC` includes and sets it.
    pub dsync: bool,
}

/// The status flags of an open file description: fcntl(2) `F_GETFL`.
///
/// # Errors
///
/// - `EBADF`: not open.
pub fn status_flags(fd: BorrowedFd<'_>) -> io::Result<StatusFlags> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    // rustix 1.1 gives O_DSYNC the value of O_SYNC, so they cannot be told apart; O_SYNC is
    // O_DSYNC and one more bit.
    let all_of = |bits: libc::c_int| flags.contains(OFlags::from_bits_retain(bits as u32));
    Ok(StatusFlags {
        access: if flags.contains(OFlags::PATH) {
            AccessMode::Path
        } else {
            match flags & OFlags::ACCMODE {
                access if access == OFlags::RDWR => AccessMode::ReadWrite,
                access if access == OFlags::WRONLY => AccessMode::WriteOnly,
                _ => AccessMode::ReadOnly,
            }
        },
        append: flags.contains(OFlags::APPEND),
        direct: flags.contains(OFlags::DIRECT),
        sync: all_of(libc::O_SYNC),
        dsync: all_of(libc::O_DSYNC),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magic_numbers_survive_sign_extension() {
        assert_eq!(FsKind::from_magic(0x9123_683E), FsKind::Btrfs);
        assert_eq!(
            FsKind::from_magic(i64::from(0x9123_683E_u32 as i32)),
            FsKind::Btrfs
        );
        assert_eq!(FsKind::from_magic(0x1234).to_string(), "file system 0x1234");
        assert_eq!(FsKind::from_magic(0xCA45_1A4E).to_string(), "bcachefs");
    }
}
