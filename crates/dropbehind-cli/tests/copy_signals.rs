//! `dropbehind cp` that is stopped by a signal leaves nothing half copied, or says so.

mod user;

use dropbehind_testbed::{LoopDisk, need};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use user::User;

const BYTES: usize = 64 << 20;

/// Starts a copy of so many bytes in small steps, sends a signal once `out` has some of them, and
/// returns what the copy died of, and what it said.
fn stopped(user: &User, line: &str, signal: Signal) -> (Option<i32>, String) {
    let mut command = user.dropbehind(line.split(' '));
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().expect("the command");
    let has_begun = || {
        let sizes = ["out", "out/big"].map(|name| user.file(name).metadata());
        sizes
            .into_iter()
            .flatten()
            .any(|found| found.is_file() && found.len() > 0)
    };
    while !has_begun() {
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), signal).expect("a signal");
    let output = child.wait_with_output().expect("its end");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.signal(), stderr)
}

#[test]
fn a_half_file_is_removed() {
    let user = User::new();
    user.has("a", BYTES);
    for (signal, name) in [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM")] {
        let (died_of, said) = stopped(&user, "cp --block-size 512 a out", signal);
        assert_eq!(died_of, Some(signal.as_raw()), "{said}");
        assert!(
            said.contains("out was half copied, and is removed"),
            "{said}"
        );
        assert!(said.contains(&format!("stopped by {name}")), "{said}");
        assert!(!user.file("out").exists());
    }
}

#[test]
fn a_half_image_of_a_device_is_removed() {
    need!(all LoopDisk::needs());
    let user = User::new();
    let disk = LoopDisk::new(BYTES as u64).expect("a disk");
    let line = format!("cp --block-size 512 {} out", disk.path().display());
    let (died_of, said) = stopped(&user, &line, Signal::INT);
    assert_eq!(died_of, Some(Signal::INT.as_raw()), "{said}");
    assert!(said.contains("half copied, and is removed"), "{said}");
    assert!(!user.file("out").exists());
}

#[test]
fn a_file_that_was_there_is_told() {
    let user = User::new();
    user.has("a", BYTES);
    user.sh(": > out");
    let (died_of, said) = stopped(&user, "cp --block-size 512 a out", Signal::INT);
    assert_eq!(died_of, Some(Signal::INT.as_raw()), "{said}");
    assert!(
        said.contains("out holds only a part of its source"),
        "{said}"
    );
}

#[test]
fn a_tree_ends_with_whole_files_and_its_own_permissions() {
    let user = User::new();
    // Its inode comes first, so it is copied first.
    user.sh("mkdir tree; chmod 755 tree");
    user.has("tree/big", BYTES);
    user.sh("for i in $(seq 50); do echo $i > tree/$i; done");
    let (died_of, said) = stopped(&user, "cp -a --block-size 512 tree out", Signal::TERM);
    assert_eq!(died_of, Some(Signal::TERM.as_raw()), "{said}");
    assert!(!user.file("out/big").exists(), "{said}");
    let left =
        user.sh("stat -c %a out; for f in out/*; do [ -e $f ] && cmp $f tree/${f#out/}; done");
    assert_eq!((left.text(), left.stderr), ("755\n".into(), String::new()));
}

#[test]
fn whoever_waits_for_a_pipe_is_stopped_at_once() {
    let user = User::new();
    let said = user.sh(
        "mkfifo pipe; exec 3<>pipe
         dropbehind cp pipe out 2>&1 & until [ -e out ]; do :; done; kill -TERM $!; wait $!; echo $?",
    );
    assert_eq!(said.text(), "143\n");
}

/// `timeout` says 137 if it has to kill.
#[test]
fn whoever_waits_for_a_pipes_reader_is_stopped_at_once() {
    let user = User::new();
    user.has("a", 1 << 20);
    for reader in ["", "exec 3<>pipe;"] {
        let said = user.sh(&format!(
            "mkfifo pipe; {reader} timeout -k 20 1 dropbehind cp a pipe; echo $?; rm pipe"
        ));
        assert_eq!(said.text(), "124\n", "{reader}: {}", said.stderr);
    }
}
