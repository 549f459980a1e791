//! Extents, against e2fsprogs' account of them.

use crate::setup::{clean_file, directory, dirty_file, output, skip};
use dropbehind_linux::extents::is_unsupported;
use dropbehind_linux::{
    ExtentFlags, FsKind, cachestat, extent_count, extents, filesystem, write_and_wait,
};
use dropbehind_testbed::{Need, need};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

#[test]
fn finds_all_extents_of_a_holey_file() {
    let directory = directory();
    let (path, file) = dirty_file(directory.path(), 0);
    let fd = file.as_fd();
    // More than one batch, and none adjacent to another.
    let (count, stride) = (300, 64 << 10);
    for index in 0..count {
        file.write_all_at(&[1; 4096], index * stride).unwrap();
    }
    write_and_wait(fd, 0, 0).unwrap();
    let found = match extents(fd) {
        Ok(found) => found,
        Err(error) if is_unsupported(&error) => {
            skip!("finds_all_extents_of_a_holey_file", "no FIEMAP here");
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(found.len() as u64, count);
    assert_eq!(extent_count(fd).unwrap(), count);
    for (index, extent) in found.iter().enumerate() {
        assert_eq!(extent.logical, index as u64 * stride);
        assert_eq!(extent.len, 4096);
        assert!(extent.physical > 0);
        let is_last = index as u64 == count - 1;
        assert_eq!(extent.flags.contains(ExtentFlags::LAST), is_last);
    }
    let path = path.to_str().unwrap();
    let Some(told) = output("filefrag", &["-v", "-b1", path]) else {
        skip!("finds_all_extents_of_a_holey_file", "no filefrag");
    };
    // "   0:     0..    4095:  139264..  143359:   4096:  ...", in bytes.
    let told: Vec<(u64, u64, u64)> = told
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            fields.next()?.trim().parse::<u64>().ok()?;
            let mut start = || fields.next()?.split("..").next()?.trim().parse().ok();
            Some((start()?, start()?, start()?))
        })
        .collect();
    let found: Vec<_> = found
        .iter()
        .map(|extent| (extent.logical, extent.physical, extent.len))
        .collect();
    assert_eq!(told, found);
}

#[test]
fn asking_does_not_write() {
    need!(Need::Cachestat);
    let directory = directory();
    let (_, file) = dirty_file(directory.path(), 1 << 20);
    let fd = file.as_fd();
    if filesystem(fd).unwrap() != FsKind::Ext4 {
        skip!("asking_does_not_write", "no ext4");
    }
    let before = cachestat(fd, 0, 0).unwrap();
    let found = extents(fd).unwrap();
    assert!(
        found
            .iter()
            .all(|extent| extent.flags.contains(ExtentFlags::DELALLOC))
    );
    let after = cachestat(fd, 0, 0).unwrap();
    assert_eq!(before.dirty_pages, after.dirty_pages);
    assert!(after.dirty_pages > 0);
}

#[test]
fn an_empty_file_has_none() {
    need!(Need::Cachestat);
    let directory = directory();
    let (_, file) = clean_file(directory.path(), 0);
    match extents(file.as_fd()) {
        Ok(found) => assert!(found.is_empty()),
        Err(error) => assert!(is_unsupported(&error), "{error}"),
    }
}

#[test]
fn tmpfs_has_no_extents() {
    let Ok(file) = tempfile::tempfile_in("/dev/shm") else {
        skip!("tmpfs_has_no_extents", "no /dev/shm");
    };
    if filesystem(file.as_fd()).unwrap() != FsKind::Tmpfs {
        skip!("tmpfs_has_no_extents", "/dev/shm is no tmpfs");
    }
    assert!(is_unsupported(&extents(file.as_fd()).unwrap_err()));
    assert!(is_unsupported(&extent_count(file.as_fd()).unwrap_err()));
}
