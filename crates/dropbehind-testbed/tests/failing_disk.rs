//! Writes succeed, fsync fails, and a healed disk works again.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use dropbehind_testbed::{FailingDisk, Fs, need};

fn write_too_much(path: &Path) -> File {
    let mut file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .open(path)
        .unwrap();
    let block = vec![1; 1 << 20];
    for _ in 0..FailingDisk::TOO_MUCH_BYTES >> 20 {
        file.write_all(&block).unwrap();
    }
    file
}

fn is_writeback_error(result: io::Result<()>) -> bool {
    matches!(
        result.unwrap_err().raw_os_error(),
        Some(libc::ENOSPC | libc::EIO)
    )
}

fn fails_and_heals(disk: &FailingDisk) {
    let file = write_too_much(&disk.file("data"));
    assert!(is_writeback_error(file.sync_all()));
    disk.heal().unwrap();
    let file = write_too_much(&disk.file("more"));
    file.sync_all().unwrap();
}

#[test]
fn ext4_without_journal_fails_at_fsync_and_heals() {
    need!(all FailingDisk::needs(Some(Fs::Ext4NoJournal)));
    fails_and_heals(&FailingDisk::new().unwrap());
}

#[test]
fn a_raw_device_fails_at_fsync_and_heals() {
    need!(all FailingDisk::needs(None));
    let disk = FailingDisk::raw().unwrap();
    assert_eq!(disk.path(), disk.device());
    fails_and_heals(&disk);
}

fn fails(filesystem: Fs) {
    need!(all FailingDisk::needs(Some(filesystem)));
    let disk = FailingDisk::formatted(filesystem).unwrap();
    let file = write_too_much(&disk.file("data"));
    assert!(is_writeback_error(file.sync_all()));
}

#[test]
fn ext4_with_journal_fails_at_fsync() {
    fails(Fs::Ext4);
}

#[test]
fn xfs_fails_at_fsync() {
    fails(Fs::Xfs);
}

#[test]
fn btrfs_fails_at_fsync() {
    fails(Fs::Btrfs);
}
