//! Loop disks and file systems come, work and leave nothing behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use dropbehind_testbed::{Fs, LoopDisk, MountedFs, Scratch, need, pattern};

fn mounts() -> String {
    fs::read_to_string("/proc/self/mountinfo").unwrap()
}

fn backing_file(device: &Path) -> Option<String> {
    let name = device.file_name().unwrap();
    let path = Path::new("/sys/block").join(name).join("loop/backing_file");
    fs::read_to_string(path).ok()
}

fn works_and_leaves(filesystem: Fs) {
    need!(all MountedFs::needs(filesystem));
    let disk = MountedFs::new(filesystem, 64 << 20).unwrap();
    assert_eq!(disk.filesystem(), filesystem);
    let file = disk.file("data");
    fs::write(&file, pattern::filled(3, 0, 1 << 20)).unwrap();
    pattern::check(3, 0, &fs::read(&file).unwrap()).unwrap();
    let magic = rustix::fs::statfs(disk.path()).unwrap().f_type as u32;
    let expected = match filesystem {
        Fs::Ext4 | Fs::Ext4NoJournal | Fs::Ext4InlineData => 0xef53,
        Fs::Xfs => 0x5846_5342,
        Fs::Btrfs => 0x9123_683e,
    };
    assert_eq!(magic, expected);
    let place = disk.path().to_owned();
    let device = disk.device().to_owned();
    let image = backing_file(&device).unwrap();
    drop(disk);
    assert!(!mounts().contains(place.to_str().unwrap()));
    assert!(!place.exists());
    // Another test may have the same device by now, but not the same image.
    // A child that is just being started has a copy of all descriptors, so
    // the device may live on for a moment.
    let start = Instant::now();
    while backing_file(&device).as_ref() == Some(&image) {
        assert!(
            start.elapsed() < Duration::from_secs(2),
            "{} stays",
            device.display()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn ext4() {
    works_and_leaves(Fs::Ext4);
}

#[test]
fn ext4_without_journal() {
    works_and_leaves(Fs::Ext4NoJournal);
}

#[test]
fn xfs() {
    works_and_leaves(Fs::Xfs);
}

#[test]
fn btrfs() {
    works_and_leaves(Fs::Btrfs);
}

#[test]
fn a_file_system_in_use_is_detached() {
    need!(all MountedFs::needs(Fs::Ext4NoJournal));
    let disk = MountedFs::new(Fs::Ext4NoJournal, 16 << 20).unwrap();
    let place = disk.path().to_owned();
    let file = fs::File::create(disk.file("open")).unwrap();
    drop(disk);
    assert!(!mounts().contains(place.to_str().unwrap()));
    file.sync_all().unwrap();
}

#[test]
fn many_at_once_get_disks_of_their_own() {
    need!(all LoopDisk::needs());
    let threads: Vec<_> = (0..8)
        .map(|_| std::thread::spawn(|| LoopDisk::new(1 << 20).unwrap()))
        .collect();
    let disks: Vec<_> = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    let mut paths: Vec<PathBuf> = disks.iter().map(|disk| disk.path().to_owned()).collect();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), disks.len());
}

#[test]
fn a_scratch_folder_goes_with_its_owner() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.path().to_owned();
    fs::write(scratch.file("a"), "b").unwrap();
    assert!(path.is_dir());
    drop(scratch);
    assert!(!path.exists());
}

/// Run by the next test in a process of its own: leaks all it makes.
#[test]
#[ignore = "a part of another test"]
fn leaks_everything() {
    std::mem::forget(MountedFs::new(Fs::Ext4NoJournal, 16 << 20).unwrap());
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next() {
    need!(all MountedFs::needs(Fs::Ext4NoJournal));
    let base = Scratch::new().unwrap();
    let again = |test: &str| {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--include-ignored", "-q"])
            .env("DROPBEHIND_TEST_DIR", base.path())
            .output()
            .unwrap()
            .status;
        assert!(status.success());
    };
    let left = || fs::read_dir(base.path()).unwrap().count();
    again("leaks_everything");
    assert_ne!(left(), 0);
    assert!(mounts().contains(base.path().to_str().unwrap()));
    again("a_scratch_folder_goes_with_its_owner");
    assert_eq!(left(), 0);
    assert!(!mounts().contains(base.path().to_str().unwrap()));
}
