//! Inodes as the kernel's tracepoints name them.

/// An inode as the kernel's tracepoints name it.
///
/// It tells a file from every other one, but on file systems whose inode numbers
/// are those of a subvolume: files of two subvolumes of a btrfs can have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelInode {
    /// The superblock's device (`s_dev`): `MAJOR << 20 | MINOR`.
    pub device: u32,
    /// `i_ino`: `st_ino`, or a block device's number.
    pub number: u64,
}
