//! `dropbehind cp --resume` goes on with copies that are half there.

mod user;

use dropbehind_testbed::{Fs, MountedFs, Need, need, residency};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Stdio;
use user::{User, holds};

const BYTES: usize = (20 << 20) + 1234;
const MIB: u64 = 1 << 20;

/// Copies, and returns how much was written.
fn resumed(user: &User, options: &str, to: &Path) -> u64 {
    let said = user.sh(&format!(
        "dropbehind cp --resume --stats - {options} from {}",
        to.display()
    ));
    assert_eq!(said.code, 0, "{options}: {}", said.stderr);
    let stats: serde_json::Value = serde_json::from_str(&said.stderr).unwrap();
    stats["bytes_written"].as_u64().unwrap()
}

#[test]
fn only_the_rest_is_written() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all MountedFs::needs(filesystem));
        need!(Need::Cachestat);
        let user = User::new();
        let from = user.has("from", BYTES);
        let disk = MountedFs::new(filesystem, 128 << 20).unwrap();
        let to = disk.file("to");
        for options in ["", "--sparse=never", "--sparse=always", "-p", "--verify"] {
            user.sh(&format!(
                "head -c 13m from > {0}; printf x >> {0}",
                to.display()
            ));
            residency::evict(&to);
            residency::evict(&from);
            let inode = to.metadata().unwrap().ino();
            let written = resumed(&user, options, &to);
            holds(&to, BYTES);
            assert!(written < 8 * MIB, "{filesystem:?} {options}: {written}");
            assert_eq!(to.metadata().unwrap().ino(), inode);
            residency::evict(&to);
            // All is there, but for what is no whole page.
            assert!(resumed(&user, options, &to) < 4096);
            let left = [&from, &to].map(|file| residency::fincore(file).unwrap());
            assert_eq!(left, [0, 0], "{filesystem:?} {options}");
        }
    }
}

#[test]
fn what_is_there_is_not_trusted() {
    let user = User::new();
    user.has("from", BYTES);
    let to = user.file("to");
    for (place, least) in [(0, 20 * MIB), (9 * MIB + 1, 11 * MIB), (20 * MIB + 1233, 1)] {
        user.sh("cp from to; head -c 3m from >> to");
        let file = std::fs::File::options().write(true).open(&to).unwrap();
        file.write_all_at(b"\0", place).unwrap();
        drop(file);
        let written = resumed(&user, "", &to);
        holds(&to, BYTES);
        assert!(
            (least..least + MIB).contains(&written),
            "{place}: {written}"
        );
    }
}

#[test]
fn holes_stay_holes() {
    let user = User::new();
    user.sh("truncate -s 64M from; for i in 0 20 40 60; do
        head -c 1m /dev/urandom | dd of=from bs=1M seek=$i conv=notrunc status=none; done
        truncate -s 30M half; dd if=from of=half bs=1M count=1 conv=notrunc status=none
        cp half to; dropbehind cp --resume from to; cmp from to");
    let said = user.sh("cmp from to");
    assert_eq!((said.code, said.text()), (0, String::new()));
    assert!(user.file("to").metadata().unwrap().blocks() * 512 < 8 * MIB);
}

#[test]
fn what_a_signal_stopped_can_be_gone_on_with() {
    let user = User::new();
    user.has("from", 64 << 20);
    let to = user.file("to");
    let line = "cp --resume --block-size 512 from to";
    let mut command = user.dropbehind(line.split(' '));
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the command");
    while to.metadata().map_or(0, |found| found.len()) < MIB {
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("again to go on with it"), "{told}");
    let half = to.metadata().unwrap().len();
    assert!((MIB..64 * MIB).contains(&half), "{half}");
    let written = resumed(&user, "", &to);
    holds(&to, 64 << 20);
    assert!(written <= 64 * MIB - MIB, "{written}");
}

#[test]
fn what_leaves_nothing_to_go_on_with_is_refused() {
    let user = User::new();
    user.has("a", 10);
    for option in ["--atomic", "-b", "-u", "-n", "-l", "--remove-destination"] {
        user.runs(&format!("cp --resume {option} a b"))
            .fails(2, "cannot be combined");
        assert!(!user.file("b").exists());
    }
}
