//! Raw block devices on either side.

mod user;

use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::{Fs, LoopDisk, MountedFs, Need, need, pattern, residency};
use std::process::Command;
use user::{User, holds};

const DISK_BYTES: usize = 32 << 20;

#[test]
fn a_device_can_be_written_and_read_back() {
    need!(all LoopDisk::needs());
    let user = User::new();
    let disk = LoopDisk::new(DISK_BYTES as u64).unwrap();
    let device = disk.path().display();
    user.has("image", DISK_BYTES);
    for mode in dropbehind::Mode::ALL {
        user.does(&format!("cp --mode {mode} image {device}"));
        user.does(&format!("cp --mode {mode} {device} back"));
        holds(&user.file("back"), DISK_BYTES);
        let said = user.does(&format!(
            "read --mode {mode} --offset 1M --length 1M {device}"
        ));
        assert_eq!(pattern::check(1, 1 << 20, &said.stdout), Ok(()));
    }
    // Less than the device, and no multiple of its sectors.
    user.has("short", 1_000_001);
    user.does(&format!("cp short {device}"));
    let said = user.does(&format!("read --length 1000001 {device}"));
    assert_eq!(pattern::check(1, 0, &said.stdout), Ok(()));
    let said = user.sh(&format!("dropbehind write {device} < image"));
    assert_eq!(said.code, 0, "{}", said.stderr);
    let said = user.sh(&format!("cmp image {device}"));
    assert_eq!(said.code, 0, "{}", said.text());
}

/// The test bed holds a second opener: the kernel drops a device's cache at its
/// last close.
#[test]
fn nothing_stays_in_the_page_cache() {
    need!(all LoopDisk::needs());
    let user = User::new();
    let disk = LoopDisk::new(DISK_BYTES as u64).unwrap();
    let device = disk.path().display();
    user.has("image", DISK_BYTES);
    user.does(&format!("cp image {device}"));
    assert_eq!(residency::cached(disk.path()).unwrap().cached_pages, 0);
    user.does(&format!("cp {device} back"));
    assert_eq!(residency::cached(disk.path()).unwrap().cached_pages, 0);
    in_some_attempt(|reclaim| {
        user.does(&format!("read --mode buffered {device}"));
        let cached_bytes = || {
            let cached = residency::cached(disk.path()).unwrap();
            cached.cached_pages * residency::page_bytes()
        };
        reclaim.stays(disk.path(), cached_bytes(), DISK_BYTES as u64)?;
        let said = user.does(&format!("stat {device}")).text();
        let is_right = said.contains("32 MiB  32 MiB 100%");
        let whole = cached_bytes() == DISK_BYTES as u64;
        assert!(is_right || !whole, "{said}");
        is_right.then_some(()).ok_or(said)
    });
    user.does(&format!("drop {device}"));
    assert_eq!(residency::cached(disk.path()).unwrap().cached_pages, 0);
}

#[test]
fn holes_are_written_as_zeroes() {
    need!(all LoopDisk::needs());
    let user = User::new();
    let disk = LoopDisk::new(DISK_BYTES as u64).unwrap();
    let device = disk.path().display();
    user.has("image", DISK_BYTES);
    user.does(&format!("cp image {device}"));
    user.sh(&format!("truncate -s {DISK_BYTES} hole"));
    user.does(&format!("cp hole {device}"));
    let said = user.sh(&format!("cmp hole {device}"));
    assert_eq!(said.code, 0, "{}", said.text());
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_written() {
    need!(all LoopDisk::needs());
    let user = User::new();
    let disk = LoopDisk::new(DISK_BYTES as u64).unwrap();
    let device = disk.path().display();
    user.has("image", DISK_BYTES + 1);
    user.runs(&format!("cp image {device}"))
        .fails(1, "Nothing was written; choose a larger");
    user.sh(&format!("dropbehind write {device} < image"))
        .fails(1, "choose a larger device");
    let said = user.does(&format!("read --length 1M {device}"));
    assert!(said.stdout.iter().all(|&byte| byte == 0));
    // From a pipe it cannot be known.
    let said = user.sh(&format!("cat image | dropbehind write {device}"));
    said.fails(
        1,
        "No space left on device (os error 28). 32 MiB were written",
    );
}

#[test]
fn a_device_in_use_is_refused() {
    need!(all MountedFs::needs(Fs::Ext4));
    let user = User::new();
    let disk = MountedFs::new(Fs::Ext4, 32 << 20).unwrap();
    user.has("image", 4096);
    let device = disk.device().display();
    user.runs(&format!("cp image {device}"))
        .fails(1, "it is in use (mounted,");
    user.pipes(b"x", &format!("write {device}"))
        .fails(1, "it is in use (mounted,");
    user.pipes(b"x", &format!("write --append {device}"))
        .fails(1, "Leave out --append");
}

#[test]
fn a_read_only_device_is_refused() {
    need!(Need::Loop, Need::Tool("blockdev"));
    let user = User::new();
    let disk = LoopDisk::new(DISK_BYTES as u64).unwrap();
    user.has("image", 4096);
    let blockdev = |option| {
        let done = Command::new("blockdev")
            .arg(option)
            .arg(disk.path())
            .status();
        assert!(done.unwrap().success());
    };
    blockdev("--setro");
    let said = user.runs(&format!("cp image {}", disk.path().display()));
    // It would outlive this disk, and hit whoever gets the loop device next.
    blockdev("--setrw");
    said.fails(1, "blockdev --setrw");
}

#[test]
fn a_device_is_not_copied_onto_itself() {
    need!(all LoopDisk::needs());
    let user = User::new();
    let disk = LoopDisk::new(DISK_BYTES as u64).unwrap();
    let device = disk.path().display();
    std::os::unix::fs::symlink(disk.path(), user.file("other-name")).unwrap();
    user.runs(&format!("cp {device} other-name"))
        .fails(1, "are the same file");
}
