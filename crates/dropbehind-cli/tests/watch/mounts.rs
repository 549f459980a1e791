//! File systems that are mounted while a watch runs.

use crate::files::{cached_mib, dd};
use crate::outlets::asked;
use crate::user::User;
use crate::user::running_watch::RunningWatch;
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::{Fs, MountedFs, Need, need, residency};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

#[test]
fn what_is_mounted_later_is_looked_after_and_can_be_unmounted() {
    need!(Need::Cachestat);
    need!(all MountedFs::needs(Fs::Ext4));
    let user = User::new();
    user.writes(
        "rules",
        "[[rule]]\npath = \"dropbehindwatch/**\"\nmode = \"dontcache\"\n",
    );
    let mut watch = RunningWatch::by_rules(&user);
    let disk = MountedFs::new(Fs::Ext4, 128 << 20).unwrap();
    let folder = disk.path().join("dropbehindwatch");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("a");
    // The mount is noticed by the observer's next look at its events.
    let mut looks = 0;
    loop {
        dd(&file);
        std::fs::File::open(&file).unwrap().sync_all().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        if cached_mib(&file) == 0 {
            break;
        }
        looks += 1;
        assert!(looks < 300, "{}", watch.log());
    }
    // What it has observed does not keep a disk from being removed.
    let unmount = || Command::new("umount").arg(disk.path()).output().unwrap();
    while !unmount().status.success() {
        looks += 1;
        assert!(looks < 300, "{:?}", unmount());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

/// Whether a watch has files of a folder open.
fn holds_files(watch: &RunningWatch, folder: &Path) -> bool {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", watch.process())).unwrap();
    let mut files = descriptors.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    files.any(|file| file.starts_with(folder))
}

/// A small file that was closed waits for two seconds, in case it is deleted: the mount is
/// not busy meanwhile.
fn small_files_that_wait_hold_no_mount(filesystem: Fs) {
    need!(Need::Cachestat);
    need!(all MountedFs::needs(filesystem));
    let user = User::new();
    let disk = MountedFs::new(filesystem, 300 << 20).unwrap();
    let rule = format!(
        "[[rule]]\npath = \"{}/\"\nmode = \"dontcache\"\n",
        disk.path().display()
    );
    user.writes("rules", &rule);
    let mut watch = RunningWatch::by_rules(&user);
    in_some_attempt(|_| {
        for name in 0..50 {
            std::fs::write(disk.path().join(format!("{name}")), [1; 40_000]).unwrap();
        }
        let mut looks = 0;
        // The watch reads of the opens and closes within milliseconds.
        std::thread::sleep(Duration::from_millis(50));
        while holds_files(&watch, disk.path()) {
            looks += 1;
            assert!(looks < 300, "{}", watch.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        // Had it held them to their end, nothing would be cached by now.
        let cached = residency::cached(&disk.path().join("49"))
            .unwrap()
            .cached_pages;
        let waits = (cached == 10).then_some(());
        waits.ok_or_else(|| format!("{cached} pages were cached when nothing was held"))
    });
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    for name in 0..50 {
        let path = disk.path().join(format!("{name}"));
        assert_eq!(residency::cached(&path).unwrap().cached_pages, 0, "{name}");
        assert_eq!(std::fs::read(path).unwrap(), [1; 40_000]);
    }
}

#[test]
fn small_files_that_wait_hold_no_mount_of_ext4() {
    small_files_that_wait_hold_no_mount(Fs::Ext4);
}

#[test]
fn small_files_that_wait_hold_no_mount_of_xfs() {
    small_files_that_wait_hold_no_mount(Fs::Xfs);
}

#[test]
fn small_files_that_wait_hold_no_mount_of_btrfs() {
    small_files_that_wait_hold_no_mount(Fs::Btrfs);
}

/// The folder in which something is mounted, under another name until this is dropped.
struct Renamed {
    name: PathBuf,
    other: PathBuf,
}

impl Renamed {
    fn new(name: &Path) -> Renamed {
        let (name, other) = (name.to_owned(), name.with_extension("renamed"));
        std::fs::rename(&name, &other).unwrap();
        Renamed { name, other }
    }
}

impl Drop for Renamed {
    fn drop(&mut self) {
        std::fs::rename(&self.other, &self.name).unwrap();
    }
}

/// Writes a large file and a small one, and returns their names once the watch has both to
/// drop, and has neither open.
fn large_and_small(folder: &Path, user: &User, watch: &RunningWatch) -> [String; 2] {
    let counted = || {
        let metrics = asked(&user.file("runtime/watch.sock"), "metrics\n");
        let mut lines = metrics.lines();
        let count = lines.find_map(|line| {
            line.strip_prefix("dropbehind_files_total{observer=\"watch\"} ")?
                .parse::<u64>()
                .ok()
        });
        count.unwrap_or(0)
    };
    // What is written before its open is told of, late on a busy machine, passes for others'.
    for _ in 0..10 {
        let before = counted();
        let names = ["large", "small"].map(|name| format!("{name}{before}"));
        dd(&folder.join(&names[0]));
        std::fs::write(folder.join(&names[1]), [1; 40_000]).unwrap();
        for _ in 0..100 {
            if counted() >= before + 2 && !holds_files(watch, folder) {
                return names;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    panic!("they are not seen: {}", watch.log());
}

/// Has these files written, and waits until they are dropped. Looking at a file opens it for
/// the watch, so that comes late and seldom.
fn written_and_dropped(folder: &Path, names: &[String], watch: &RunningWatch) {
    let sync = Command::new("sync").arg("-f").arg(folder).status();
    assert!(sync.unwrap().success());
    for name in names {
        let mut looks = 0;
        loop {
            std::thread::sleep(Duration::from_secs(4));
            let cached = residency::cached(&folder.join(name)).unwrap();
            if cached.cached_pages == 0 {
                break;
            }
            looks += 1;
            assert!(looks < 10, "{name}: {cached:?}\n{}", watch.log());
        }
    }
}

/// Only a mount table shows that something is not mounted any more.
#[test]
fn what_is_mounted_below_a_renamed_directory_or_a_mount_is_dropped_all_the_same() {
    need!(Need::Cachestat);
    need!(all MountedFs::needs(Fs::Ext4));
    let user = User::new();
    let disk = MountedFs::new(Fs::Ext4, 256 << 20).unwrap();
    // The kernel writes the files, which leaves time.
    let rule = format!(
        "[[rule]]\npath = \"{}/\"\nmode = \"noreuse\"\n",
        disk.path().display()
    );
    user.writes("rules", &rule);
    let mut watch = RunningWatch::by_rules(&user);

    let names = large_and_small(disk.path(), &user, &watch);
    let renamed = Renamed::new(disk.path().parent().unwrap());
    let folder = renamed.other.join(disk.path().file_name().unwrap());
    written_and_dropped(&folder, &names, &watch);
    drop(renamed);

    let names = large_and_small(disk.path(), &user, &watch);
    let mount = |arguments: &[&str]| {
        let mut mount = Command::new(arguments[0]);
        mount.args(&arguments[1..]);
        assert!(mount.arg(disk.path()).status().unwrap().success());
    };
    mount(&["mount", "-t", "tmpfs", "tmpfs"]);
    // Beyond a small file's grace.
    std::thread::sleep(Duration::from_secs(4));
    mount(&["umount"]);
    written_and_dropped(disk.path(), &names, &watch);
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}
