//! Reading around the page cache.

use crate::setup::{Loop, MIB, directory, dirty_file, uncached_file};
use dropbehind_linux::{DirectReader, cachestat};
use dropbehind_testbed::{Need, need};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

#[test]
fn returns_when_what_was_dirty_there_is_written() {
    need!(Need::Cachestat);
    let directory = directory();
    let (_, file) = dirty_file(directory.path(), 8 * MIB);
    let fd = file.as_fd();
    let reader = DirectReader::new(fd).unwrap();
    let at = 5 * MIB;
    assert!(!cachestat(fd, at, 4096).unwrap().is_clean());
    reader.write_range(at, 4096).unwrap();
    let counted = cachestat(fd, at, 4096).unwrap();
    assert!(
        counted.is_clean() && counted.cached_pages == 1,
        "{counted:?}"
    );
    // A writer goes on afterwards.
    file.write_all_at(&[1; 4096], at).unwrap();
    // Past the end there is nothing to wait for.
    reader.write_range(64 * MIB, 4096).unwrap();
}

#[test]
fn brings_nothing_in() {
    need!(Need::Cachestat);
    let directory = directory();
    let (_, file) = uncached_file(directory.path(), MIB);
    let reader = DirectReader::new(file.as_fd()).unwrap();
    reader.write_range(0, 4096).unwrap();
    assert_eq!(cachestat(file.as_fd(), 0, 0).unwrap().cached_pages, 0);
    let error = reader.write_range(100, 4096).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
}

/// Their writers have no lock that a reader could hold.
#[test]
fn block_devices_are_refused() {
    let Some(device) = Loop::new("block_devices_are_refused", MIB) else {
        return;
    };
    let error = DirectReader::new(device.open().as_fd()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
}
