//! Extents, against e2fsprogs' account of them.

use crate::setup::{clean_file, directory, dirty_file, output, skip};
use dropbehind_linux::extents::is_unsupported;
use dropbehind_linux::{FsKind, cachestat, extent_count, filesystem, write_and_wait};
use dropbehind_testbed::{Need, need};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

#[test]
fn finds_all_extents_of_a_holey_file() {
    let directory = directory();
    let (path, file) = dirty_file(directory.path(), 0);
    let fd = file.as_fd();
    // None is adjacent to another.
    let (count, stride) = (300, 64 << 10);
    for index in 0..count {
        file.write_all_at(&[1; 4096], index * stride).unwrap();
    }
    write_and_wait(fd, 0, 0).unwrap();
    match extent_count(fd) {
        Ok(found) => assert_eq!(found, count),
        Err(error) if is_unsupported(&error) => {
            skip!("finds_all_extents_of_a_holey_file", "no FIEMAP here");
        }
        Err(error) => panic!("{error}"),
    }
    let path = path.to_str().unwrap();
    let Some(told) = output("filefrag", &["-v", path]) else {
        skip!("finds_all_extents_of_a_holey_file", "no filefrag");
    };
    // "   0:        0..       0:      34048..     34048:      1:   ..."
    let is_extent = |line: &&str| {
        line.trim_start()
            .starts_with(|first: char| first.is_ascii_digit())
    };
    assert_eq!(told.lines().filter(is_extent).count() as u64, count);
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
    extent_count(fd).unwrap();
    let after = cachestat(fd, 0, 0).unwrap();
    assert_eq!(before.dirty_pages, after.dirty_pages);
    assert!(after.dirty_pages > 0);
}

#[test]
fn an_empty_file_has_none() {
    need!(Need::Cachestat);
    let directory = directory();
    let (_, file) = clean_file(directory.path(), 0);
    match extent_count(file.as_fd()) {
        Ok(found) => assert_eq!(found, 0),
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
    assert!(is_unsupported(&extent_count(file.as_fd()).unwrap_err()));
}
