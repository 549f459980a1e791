//! Raw block devices. A second opener is held throughout: their pages go on the
//! last close, and a test without one would pass for that.

use crate::setup::{Loop, MIB, cached_pages, drop_all, pages, wait_until_clean};
use dropbehind_linux::{
    FileKind, FsKind, IoFlags, Sharing, block_size_bytes, cachestat, file_info, is_read_only,
    logical_sector_bytes, pwritev2, reopen, resident_ranges, size_bytes,
};
use dropbehind_testbed::{Need, need};
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};

#[test]
fn describes_a_block_device() {
    let Some(device) = Loop::new("describes_a_block_device", 32 * MIB) else {
        return;
    };
    let file = device.open();
    let fd = file.as_fd();
    assert_eq!(block_size_bytes(fd).unwrap(), 32 * MIB);
    assert_eq!(size_bytes(fd).unwrap(), 32 * MIB);
    assert_eq!(logical_sector_bytes(fd).unwrap(), 512);
    assert!(!is_read_only(fd).unwrap());
    let info = file_info(fd).unwrap();
    assert_eq!(info.kind, FileKind::Block);
    assert_eq!(info.filesystem, FsKind::BlockDevice);
    assert_eq!(info.size_bytes, 32 * MIB);
    assert_eq!(info.special_device, file.metadata().unwrap().rdev());
}

#[test]
fn regular_files_are_no_block_devices() {
    let file = tempfile::tempfile().unwrap();
    let error = block_size_bytes(file.as_fd()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    assert!(logical_sector_bytes(file.as_fd()).is_err());
    assert!(is_read_only(file.as_fd()).is_err());
}

#[test]
fn pages_are_counted_mapped_and_dropped() {
    need!(Need::Cachestat);
    let Some(device) = Loop::new("pages_are_counted_mapped_and_dropped", 32 * MIB) else {
        return;
    };
    let held = File::open(&device.device).unwrap();
    let writer = device.open();
    let fd = held.as_fd();
    drop_all(fd);
    writer.write_all_at(&vec![1; 8 << 20], 4 * MIB).unwrap();
    let stat = cachestat(fd, 4 * MIB, 8 * MIB).unwrap();
    assert_eq!(stat.cached_pages, pages(8 * MIB));
    assert!(stat.dirty_pages > 0, "{stat:?}");
    let ranges = resident_ranges(fd, 4 * MIB, 8 * MIB).unwrap();
    assert_eq!(ranges, [4 * MIB..12 * MIB]);
    wait_until_clean(fd);
    drop_all(fd);
    assert_eq!(resident_ranges(fd, 4 * MIB, 8 * MIB).unwrap(), []);
    let mut byte = [0];
    held.read_exact_at(&mut byte, 12 * MIB - 1).unwrap();
    assert_eq!(byte, [1]);
    assert!(cached_pages(fd) > 0);
}

#[test]
fn a_block_device_is_reopened() {
    let Some(device) = Loop::new("a_block_device_is_reopened", MIB) else {
        return;
    };
    let file = device.open();
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    let id = file_info(file.as_fd()).unwrap().id;
    let (own, sharing) = reopen(thread, file.as_raw_fd(), id).unwrap();
    assert_eq!(sharing, Sharing::Own);
    assert_eq!(block_size_bytes(own.as_fd()).unwrap(), MIB);
}

#[test]
fn dontcache_is_refused_or_heeded() {
    need!(Need::Cachestat);
    let Some(device) = Loop::new("dontcache_is_refused_or_heeded", MIB) else {
        return;
    };
    let held = File::open(&device.device).unwrap();
    let writer = device.open();
    drop_all(held.as_fd());
    let data = vec![1; 64 << 10];
    let parts = [IoSlice::new(&data)];
    match pwritev2(writer.as_fd(), &parts, Some(0), IoFlags::DONTCACHE) {
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP)),
        Ok(_) => {
            wait_until_clean(held.as_fd());
            crate::setup::wait_for("dropped", || cached_pages(held.as_fd()) == 0);
        }
    }
}
