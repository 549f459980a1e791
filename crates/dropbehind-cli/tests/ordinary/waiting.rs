//! Opens that take long.

use crate::bed::Ordinary;
use dropbehind_testbed::{HangingFs, Need, need};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The server might itself be one of the programs, and open a file for its answer.
#[test]
fn a_server_that_hangs_keeps_only_those_waiting_who_asked_it() {
    need!(Need::Cachestat);
    need!(all HangingFs::needs());
    let user = Ordinary::new();
    let fs = HangingFs::new().unwrap();
    let hanging = fs.hang();
    let script = "for name in 1 2 3; do cat $0/$name & done; until [ -e go ]; do sleep 0.1; done; \
                  cat go >went; wait";
    let mut run = Command::new(env!("CARGO_BIN_EXE_dropbehind"))
        .args(["run", "--source", "seccomp", "sh", "-c", script])
        .arg(fs.path())
        .current_dir(user.file(""))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("nobody asks the server", || fs.waiting() >= 2);
    std::fs::write(user.file("go"), "on").unwrap();
    let began = Instant::now();
    while std::fs::read(user.file("went")).ok().as_deref() != Some(b"on") {
        if began.elapsed() > Duration::from_secs(60) {
            drop(hanging);
            let _ = run.wait();
            panic!("the others wait as well");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(hanging);
    assert!(run.wait().unwrap().success());
}
