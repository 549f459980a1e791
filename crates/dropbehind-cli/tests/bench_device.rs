//! Benchmarks of raw block devices, and devices that must be left alone.

mod bench;
mod user;

use bench::{nothing_is_left, results, runs, scenario};
use dropbehind_testbed::{Fs, LoopDisk, MountedFs, Need, need, pattern};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use user::User;

const DISK_BYTES: usize = 32 << 20;

fn full_disk() -> LoopDisk {
    let disk = LoopDisk::new(DISK_BYTES as u64).unwrap();
    std::fs::write(disk.path(), pattern::filled(1, 0, DISK_BYTES)).unwrap();
    disk
}

#[track_caller]
fn is_untouched(device: &Path) {
    let found = std::fs::read(device).unwrap();
    assert_eq!(pattern::check(1, 0, &found), Ok(()));
}

#[test]
fn a_device_is_measured_when_the_user_agrees() {
    need!(all LoopDisk::needs());
    let user = User::new();
    let disk = full_disk();
    let device = disk.path().display();
    let line = format!(
        "bench --quick --device {device} --size 16MiB --runs 1 --modes buffered,direct,dontcache --json \
         r.json"
    );
    // There is no terminal to ask at.
    user.runs(&line)
        .fails(1, "was left alone. Answer yes, or give --yes");
    is_untouched(disk.path());
    user.does(&format!("{line} --yes"));
    let found = results(&user.file("r.json"));
    assert_eq!(found["environment"]["filesystem"], "block device");
    assert_eq!(found["scenarios"].as_array().map(Vec::len), Some(2));
    for mode in ["buffered", "direct", "dontcache"] {
        let run = &runs(&found, "device-write", mode)[0];
        assert_eq!(run["roles"]["writer"]["bytes"], 16 << 20);
        assert!(
            run["disk"]["written_bytes"].as_u64() >= Some(16 << 20),
            "{run}"
        );
        let run = &runs(&found, "device-read", mode)[0];
        assert!(
            run["disk"]["read_bytes"].as_u64() >= Some(16 << 20),
            "{run}"
        );
        let left = run["memory"]["left_cached_bytes"].as_u64();
        // Plain readahead goes past what is asked for.
        let wanted = if mode == "buffered" {
            16 << 20..=DISK_BYTES as u64
        } else {
            0..=0
        };
        assert!(
            left.is_some_and(|left| wanted.contains(&left)),
            "{mode} {left:?}"
        );
    }
    let bytes = std::fs::read(disk.path()).unwrap();
    assert!(pattern::check(1, 0, &bytes[..4096]).is_err());
    assert_eq!(pattern::check(1, 16 << 20, &bytes[16 << 20..]), Ok(()));
}

#[test]
fn a_device_too_small_is_skipped() {
    need!(all LoopDisk::needs());
    let user = User::new();
    let disk = full_disk();
    let device = disk.path().display();
    let said = user.does(&format!(
        "bench --quick --device {device} --size 64MiB --runs 1 --modes buffered --yes"
    ));
    assert!(
        said.stderr.contains("Give a smaller --size"),
        "{}",
        said.stderr
    );
    is_untouched(disk.path());
}

#[test]
fn a_device_in_use_is_refused() {
    need!(all MountedFs::needs(Fs::Ext4));
    let user = User::new();
    let refused = |device: &Path, why: &str| {
        let line = format!(
            "bench --quick --device {} --size 4M --yes",
            device.display()
        );
        user.runs(&line).fails(1, why);
    };
    let mounted = MountedFs::new(Fs::Ext4, 32 << 20).unwrap();
    refused(mounted.device(), "it is mounted at");
    let disk = full_disk();
    let held = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc_o_excl())
        .open(disk.path())
        .unwrap();
    refused(disk.path(), "it is in use");
    drop(held);
    is_untouched(disk.path());
    nothing_is_left(user.file("").as_path());
}

/// `O_EXCL`, the same on all of Linux.
fn libc_o_excl() -> i32 {
    i32::try_from(rustix::fs::OFlags::EXCL.bits()).unwrap()
}

#[test]
fn swap_is_refused() {
    need!(Need::Loop, Need::Tool("mkswap"), Need::Tool("swapon"));
    let user = User::new();
    let disk = LoopDisk::new(DISK_BYTES as u64).unwrap();
    let run = |program: &str| {
        let done = Command::new(program).arg(disk.path()).output();
        done.is_ok_and(|output| output.status.success())
    };
    assert!(run("mkswap"));
    if !run("swapon") {
        dropbehind_testbed::skip!("the kernel does not swap to loop devices");
    }
    let line = format!(
        "bench --quick --device {} --size 4M --yes",
        disk.path().display()
    );
    let said = user.runs(&line);
    assert!(run("swapoff"));
    said.fails(1, "the machine swaps to it");
}

#[test]
fn what_is_no_device_or_read_only_is_refused() {
    need!(Need::Loop, Need::Tool("blockdev"));
    let user = User::new();
    user.has("file", 4096);
    user.runs("bench --device file --quick --size 4M --yes")
        .fails(2, "is no block device");
    let disk = full_disk();
    let blockdev = |option| {
        let done = Command::new("blockdev")
            .arg(option)
            .arg(disk.path())
            .status();
        assert!(done.unwrap().success());
    };
    blockdev("--setro");
    let line = format!(
        "bench --quick --device {} --size 4M --yes",
        disk.path().display()
    );
    let said = user.runs(&line);
    // It would outlive this disk, and hit whoever gets the loop device next.
    blockdev("--setrw");
    said.fails(1, "it is read-only");
}

#[test]
fn without_a_device_one_is_made_of_a_file() {
    need!(all LoopDisk::needs());
    let user = User::new();
    user.does("bench device --quick --size 8MiB --runs 1 --modes buffered,dontcache --json r.json");
    let found = results(&user.file("r.json"));
    for mode in ["buffered", "dontcache"] {
        let run = &runs(&found, "device-read", mode)[0];
        assert_eq!(run["roles"]["reader"]["bytes"], 8 << 20);
    }
    let notes = scenario(&found, "device-read")["notes"].to_string();
    assert!(notes.contains("a loop device"), "{notes}");
    nothing_is_left(user.file("").as_path());
}
