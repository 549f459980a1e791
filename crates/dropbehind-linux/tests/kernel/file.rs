//! What a descriptor refers to.

use crate::setup::{directory, dirty_file};
use dropbehind_linux::{
    AccessMode, FileKind, FsKind, file_info, filesystem, filesystem_tag, size_bytes, status_flags,
};
use dropbehind_testbed::{Fs, MountedFs, need};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

#[test]
fn describes_a_regular_file() {
    let directory = directory();
    let (path, file) = dirty_file(directory.path(), 12_345);
    let info = file_info(file.as_fd()).unwrap();
    let metadata = path.metadata().unwrap();
    assert_eq!(
        (info.id.device, info.id.inode),
        (metadata.dev(), metadata.ino())
    );
    assert_eq!((info.kind, info.size_bytes), (FileKind::Regular, 12_345));
    assert_eq!(info.special_device, 0);
    assert_eq!(size_bytes(file.as_fd()).unwrap(), 12_345);
    assert_eq!(info.filesystem, filesystem(file.as_fd()).unwrap());
    if info.filesystem == FsKind::Ext4
        && let Some((memory, offset)) = info.direct_io_alignment
    {
        assert!(memory > 0 && offset > 0 && offset.is_power_of_two());
    }
    let other = File::create(path.with_extension("other")).unwrap();
    assert_ne!(file_info(other.as_fd()).unwrap().id, info.id);
}

#[test]
fn other_kinds_are_other() {
    let null = File::open("/dev/null").unwrap();
    assert_eq!(file_info(null.as_fd()).unwrap().kind, FileKind::Other);
    let directory = File::open("/").unwrap();
    assert_eq!(file_info(directory.as_fd()).unwrap().kind, FileKind::Other);
    let proc = File::open("/proc/self/status").unwrap();
    assert_eq!(filesystem(proc.as_fd()).unwrap().to_string(), "proc");
}

#[test]
fn status_flags_are_told_apart() {
    let directory = directory();
    let (path, file) = dirty_file(directory.path(), 1);
    let flags = status_flags(file.as_fd()).unwrap();
    assert_eq!(flags.access, AccessMode::ReadWrite);
    assert!(!flags.append && !flags.direct && !flags.sync && !flags.dsync);
    let open = |options: &mut std::fs::OpenOptions, custom| {
        let file = options.custom_flags(custom).open(&path).unwrap();
        status_flags(file.as_fd()).unwrap()
    };
    let flags = open(File::options().append(true), libc::O_DSYNC);
    assert_eq!(flags.access, AccessMode::WriteOnly);
    assert!(flags.append && flags.dsync && !flags.sync);
    let flags = open(File::options().read(true), libc::O_SYNC);
    assert_eq!(flags.access, AccessMode::ReadOnly);
    assert!(flags.sync && flags.dsync && !flags.append);
    let flags = open(File::options().read(true), libc::O_PATH);
    assert_eq!(flags.access, AccessMode::Path);
}

/// A btrfs may get the device number of another one that was unmounted.
#[test]
fn file_systems_with_made_up_numbers_are_told_apart() {
    need!(all MountedFs::needs(Fs::Btrfs));
    let tag = || {
        let disk = MountedFs::new(Fs::Btrfs, 0).unwrap();
        let root = File::open(disk.path()).unwrap();
        filesystem_tag(root.as_fd(), root.metadata().unwrap().dev())
    };
    // One after the other, so that the second may have the first one's number.
    assert_ne!(tag(), tag());
    // A number with a driver needs none.
    let file = File::open("/dev/null").unwrap();
    assert_eq!(filesystem_tag(file.as_fd(), rustix::fs::makedev(8, 1)), 0);
}
