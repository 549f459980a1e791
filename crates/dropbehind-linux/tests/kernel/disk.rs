//! From a file to the disk that carries it.

use crate::setup::{Loop, MIB, Mounted, directory, dirty_file, is_root, output, skip};
use dropbehind_linux::{
    DiskInfo, DiskStatistics, FsKind, InFlight, disk_of, filesystem, start_writeback,
    write_and_wait,
};
use dropbehind_testbed::{SlowDisk, SlowDiskOptions, need};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn disk_of_path(path: &Path) -> DiskInfo {
    disk_of(File::open(path).unwrap().as_fd()).unwrap()
}

#[test]
fn counts_what_a_file_writes() {
    let directory = directory();
    let disk = disk_of_path(directory.path());
    if disk.virtual_ {
        skip!("counts_what_a_file_writes", "{} has no queue", disk.name);
    }
    assert!(disk.request_bytes >= 4096 && disk.request_bytes.is_multiple_of(512));
    let sysfs = std::fs::read_to_string(format!("/sys/block/{}/dev", disk.name)).unwrap();
    assert_eq!(sysfs.trim(), disk.id.to_string());
    let statistics = DiskStatistics::of(&disk).unwrap();
    let before = statistics.read().unwrap();
    let (_, file) = dirty_file(directory.path(), 16 * MIB);
    write_and_wait(file.as_fd(), 0, 0).unwrap();
    let after = statistics.read().unwrap();
    let written = after.written_bytes - before.written_bytes;
    assert!(written >= 16 * MIB, "{written}");
}

#[test]
fn a_file_and_its_device_have_the_same_disk() {
    let test = "a_file_and_its_device_have_the_same_disk";
    let Some(device) = Loop::new(test, 64 * MIB) else {
        return;
    };
    let path = device.device.to_str().unwrap();
    if output("mkfs.ext4", &["-q", path]).is_none() {
        skip!("a_file_and_its_device_have_the_same_disk", "no mkfs.ext4");
    }
    let directory = directory();
    let Some(mounted) = Mounted::new(&[path], &directory.path().join("mounted")) else {
        skip!("a_file_and_its_device_have_the_same_disk", "cannot mount");
    };
    let below = disk_of_path(&device.device);
    assert_eq!(below.name, device.name());
    assert!(!below.virtual_);
    assert_eq!(below.id.device(), device.device.metadata().unwrap().rdev());
    assert_eq!(disk_of_path(&mounted.0), below);
}

#[test]
fn a_partition_is_on_its_whole_disk() {
    let test = "a_partition_is_on_its_whole_disk";
    if !is_root() {
        skip!("a_partition_is_on_its_whole_disk", "needs root");
    }
    let Some(device) = Loop::new(test, 64 * MIB) else {
        return;
    };
    // A partition by ioctl(2) BLKPG, which takes no table on the disk.
    let path = device.device.to_str().unwrap();
    let added = std::process::Command::new("addpart")
        .args([path, "1", "2048", "65536"])
        .status();
    if !added.is_ok_and(|status| status.success()) {
        skip!("a_partition_is_on_its_whole_disk", "cannot add a partition");
    }
    let name = device.name();
    let sysfs = format!("/sys/block/{name}/{name}p1/dev");
    let number = std::fs::read_to_string(sysfs).unwrap();
    let partition: dropbehind_linux::DiskId = number.trim().parse().unwrap();
    let whole = disk_of_path(&device.device);
    assert_ne!(partition, whole.id);
    let found = DiskInfo::from_device(partition.device());
    let _ = std::process::Command::new("delpart")
        .args([path, "1"])
        .status();
    assert_eq!(found.unwrap(), whole);
}

#[test]
fn tmpfs_is_a_virtual_disk() {
    let Ok(file) = tempfile::tempfile_in("/dev/shm") else {
        skip!("tmpfs_is_a_virtual_disk", "no /dev/shm");
    };
    if filesystem(file.as_fd()).unwrap() != FsKind::Tmpfs {
        skip!("tmpfs_is_a_virtual_disk", "/dev/shm is no tmpfs");
    }
    let disk = disk_of(file.as_fd()).unwrap();
    assert!(disk.virtual_);
    assert_eq!(disk.id.device(), file.metadata().unwrap().dev());
    assert_eq!(disk.name, format!("tmpfs-{}", disk.id));
    assert_eq!(disk.request_bytes, MIB);
    let error = DiskStatistics::of(&disk).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
}

#[test]
fn an_overlay_is_on_its_layers_disk() {
    if !is_root() {
        skip!("an_overlay_is_on_its_layers_disk", "needs root");
    }
    let directory = directory();
    let root = directory.path();
    for name in ["lower", "up,p er", "work"] {
        std::fs::create_dir(root.join(name)).unwrap();
    }
    std::fs::write(root.join("lower/below"), "x").unwrap();
    let below = disk_of_path(root);
    let options = format!(
        "lowerdir={0}/lower,upperdir={0}/up\\,p er,workdir={0}/work",
        root.display()
    );
    let args = ["-t", "overlay", "-o", &options, "overlay"];
    let Some(mounted) = Mounted::new(&args, &root.join("merged")) else {
        skip!("an_overlay_is_on_its_layers_disk", "cannot mount overlayfs");
    };
    std::fs::write(mounted.0.join("above"), "x").unwrap();
    for name in ["below", "above"] {
        let file = File::open(mounted.0.join(name)).unwrap();
        assert_eq!(filesystem(file.as_fd()).unwrap(), FsKind::Overlay);
        assert_eq!(disk_of(file.as_fd()).unwrap(), below, "{name}");
    }
}

#[test]
fn btrfs_is_on_its_device() {
    let test = "btrfs_is_on_its_device";
    let Some(device) = Loop::new(test, 256 * MIB) else {
        return;
    };
    let path = device.device.to_str().unwrap();
    if output("mkfs.btrfs", &["-q", path]).is_none() {
        skip!("btrfs_is_on_its_device", "no mkfs.btrfs");
    }
    let directory = directory();
    let Some(mounted) = Mounted::new(&[path], &directory.path().join("mounted")) else {
        skip!("btrfs_is_on_its_device", "cannot mount btrfs");
    };
    std::fs::write(mounted.0.join("file"), "x").unwrap();
    let file = File::open(mounted.0.join("file")).unwrap();
    assert_eq!(filesystem(file.as_fd()).unwrap(), FsKind::Btrfs);
    assert_eq!(disk_of(file.as_fd()).unwrap().name, device.name());
}

#[test]
fn writes_in_flight_are_counted() {
    need!(all SlowDisk::needs());
    let disk = SlowDisk::new(SlowDiskOptions {
        write_bytes_per_second: Some(4 * MIB),
        ..SlowDiskOptions::default()
    })
    .unwrap();
    let device = File::options().write(true).open(disk.device()).unwrap();
    let in_flight = InFlight::of(&disk_of(device.as_fd()).unwrap()).unwrap();
    device.write_all_at(&vec![1; 8 << 20], 0).unwrap();
    assert_eq!(in_flight.writes().unwrap(), 0);
    start_writeback(device.as_fd(), 0, 8 * MIB).unwrap();
    assert!(in_flight.writes().unwrap() > 0);
    disk.set_write_speed(None).unwrap();
    device.sync_data().unwrap();
    assert_eq!(in_flight.writes().unwrap(), 0);
}
