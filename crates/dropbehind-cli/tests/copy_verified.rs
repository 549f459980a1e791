//! `dropbehind cp --verify` reads copies back from the disk.

mod user;

use dropbehind_testbed::slow_disk::RequestKind;
use dropbehind_testbed::{Fs, MountedFs, Need, SlowDisk, SlowDiskOptions, need, residency};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use user::{User, finish, holds};

const BYTES: usize = (20 << 20) + 1;

#[test]
fn what_is_read_comes_from_the_disk() {
    need!(Need::Root);
    need!(all SlowDisk::needs());
    let user = User::new();
    let from = user.has("from", BYTES);
    let disk = SlowDisk::new(SlowDiskOptions::default()).unwrap();
    let mounted = disk.mount(Fs::Ext4).unwrap();
    let to = mounted.file("to");
    let read = |options: &[&str]| {
        disk.forget_requests().unwrap();
        let mut command = user.dropbehind(["cp"]);
        let said = finish(command.args(options).arg(&from).arg(&to));
        assert_eq!(said.code, 0, "{}", said.stderr);
        let requests = disk.requests().unwrap();
        holds(&to, BYTES);
        let reads = requests.iter().filter(|one| one.kind == RequestKind::Read);
        reads.map(|one| one.length).sum::<u64>()
    };
    // Holding it to the pattern brought it into the cache, which must not help.
    assert!(read(&["--verify"]) >= BYTES as u64);
    assert!(read(&["--verify", "--atomic"]) >= BYTES as u64);
    assert!(read(&[]) < BYTES as u64 / 2);
}

#[test]
fn a_copy_that_differs_is_told_and_not_published() {
    let user = User::new();
    let from = user.has("from", 64 << 20);
    user.sh("echo old > to");
    let line = "cp --verify --atomic --block-size 512 from to";
    let mut command = user.dropbehind(line.split(' '));
    let child = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let has_begun = || {
        let io = std::fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap_or_default();
        let line = io.lines().find(|line| line.starts_with("wchar: "));
        line.is_some_and(|line| line[7..].parse::<usize>().unwrap() > 1 << 20)
    };
    while !has_begun() {
        std::thread::yield_now();
    }
    // It is copied already.
    let file = std::fs::File::options().write(true).open(&from).unwrap();
    file.write_all_at(b"other", 5000).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("differs from from at byte 500"), "{told}");
    assert_eq!(user.sh("cat to").text(), "old\n");
}

/// btrfs reads some of it through the cache, whatever it is asked for.
#[test]
fn nothing_of_what_was_verified_stays_in_the_page_cache() {
    let user = User::new();
    for filesystem in Fs::ALL {
        need!(all MountedFs::needs(filesystem));
        let disk = MountedFs::new(filesystem, 256 << 20).unwrap();
        for bytes in [1000, BYTES] {
            let from = user.has("from", bytes);
            let to = disk.file("to");
            residency::evict(&from);
            let mut command = user.dropbehind(["cp", "--verify"]);
            assert_eq!(finish(command.arg(&from).arg(&to)).code, 0);
            let left = [&from, &to].map(|file| residency::fincore(file).unwrap());
            assert_eq!(left, [0, 0], "{filesystem:?} {bytes}");
        }
    }
}

#[test]
fn a_tree_is_verified_and_a_pipe_is_not() {
    let user = User::new();
    user.sh("mkdir -p tree/d; for i in $(seq 30); do head -c $((i * 999)) /dev/urandom > tree/d/$i; done
        : > tree/empty; truncate -s 3M tree/hole; mkfifo pipe");
    user.does("cp -a --verify --block-size 4097 tree copy");
    assert_eq!(user.sh("diff -r tree copy").code, 0);
    user.runs("cp --verify pipe out")
        .fails(1, "cannot be read twice");
    user.runs("cp --verify tree/hole /dev/null")
        .fails(1, "cannot be read back");
    user.runs("cp --verify --no-sync tree/empty out")
        .fails(2, "cannot be combined");
    assert!(!user.file("out").exists());
}
