//! The observer may die at any moment, and stays for what is left behind.

use crate::shell::{RUN, Running, bash, command_line, kill, lives, observer_of, once, wait_for};
use crate::user::{User, holds};
use dropbehind_testbed::{Need, need};
use std::process::Stdio;
use std::time::Duration;

#[test]
fn its_death_neither_stops_nor_fails_the_program() {
    need!(Need::Root);
    let user = User::new();
    let bytes = 40_000_000;
    user.has("a", bytes);
    let mut told = 0;
    // From before the program is there until after it has ended.
    for moment in 0..16 {
        let script = "exec $RUN -v bash -c 'for i in 1 2 3; do dd if=a of=b bs=64k; done; echo whole; exit 4'";
        let mut command = bash(&user, RUN, script);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let running = command.spawn().expect("the command");
        let mut observer = None;
        wait_for("an observer", || {
            observer = observer_of(running.id());
            observer.is_some() || !lives(running.id())
        });
        std::thread::sleep(Duration::from_millis(moment * 12));
        if let Some(observer) = observer.filter(|&observer| lives(observer)) {
            // It may end by itself in this moment.
            let _ = std::process::Command::new("kill")
                .args(["-KILL", &observer.to_string()])
                .stderr(Stdio::null())
                .status();
        }
        let output = running.wait_with_output().expect("its end");
        let stderr = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(125) {
            // Killed before it was ready: said, and nothing was started.
            assert!(stderr.contains("bash was not started"), "{stderr}");
            continue;
        }
        assert_eq!(output.status.code(), Some(4), "{stderr}");
        assert_eq!(output.stdout, b"whole\n");
        holds(&user.file("b"), bytes);
        told += u32::from(stderr.contains("the observer died; bash was not affected"));
    }
    assert!(told > 0, "the observer was never killed in time");
}

#[test]
fn its_death_before_the_program_starts_can_be_overlooked() {
    need!(Need::Root);
    let user = User::new();
    // --best-effort: whatever the moment, the program runs.
    for moment in 0..8 {
        let script = "exec $RUN --best-effort sh -c 'exit 4'";
        let mut running = Running::start(bash(&user, RUN, script));
        let mut observer = None;
        wait_for("an observer", || {
            observer = observer_of(running.id());
            observer.is_some() || !lives(running.id())
        });
        std::thread::sleep(Duration::from_millis(moment));
        if let Some(observer) = observer.filter(|&observer| lives(observer)) {
            let _ = std::process::Command::new("kill")
                .args(["-KILL", &observer.to_string()])
                .stderr(Stdio::null())
                .status();
        }
        assert_eq!(running.ends().code(), Some(4));
    }
}

#[test]
fn it_stays_with_daemons_and_no_longer() {
    need!(Need::Root);
    let user = User::new();
    // A daemon as they are made: two forks, a session of its own, nothing open.
    let script = "exec $RUN -v bash -c '(setsid bash -c \"while test ! -e end; do sleep 0.01; done; \
                  dd if=/dev/zero of=late bs=1M count=20; touch done\" </dev/null >/dev/null 2>&1 &); \
                  dd if=/dev/zero of=early bs=1M count=20 status=none'";
    let mut command = bash(&user, RUN, script);
    command.stderr(Stdio::piped());
    let running = command.spawn().expect("the command");
    let mut observer = None;
    wait_for("an observer", || {
        observer = observer_of(running.id());
        observer.is_some()
    });
    let observer = observer.expect("just seen");
    let output = running.wait_with_output().expect("its end");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("running; the observer stays"), "{stderr}");
    assert!(stderr.contains("at the end, not dropped yet"), "{stderr}");
    assert!(lives(observer));
    std::fs::write(user.file("end"), "").unwrap();
    wait_for("the observer's end", || !lives(observer));
    // It saw to what the daemon and its parent wrote.
    assert!(user.file("done").exists());
    for name in ["early", "late"] {
        let left = dropbehind_testbed::residency::fincore(&user.file(name));
        assert_eq!(left.unwrap(), 0, "{name}");
    }
}

#[test]
fn it_shares_nothing_with_the_program() {
    need!(Need::Root);
    let user = User::new();
    let script =
        "exec 5>held; exec $RUN sh -c 'touch ready; while test ! -e end; do sleep 0.01; done'";
    let mut command = bash(&user, RUN, script);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    wait_for("the program is ready", || user.file("ready").exists());
    let observer = observer_of(running.id()).expect("an observer");
    let link = |name: &str| std::fs::read_link(format!("/proc/{observer}/{name}")).unwrap();
    assert_eq!(link("cwd").to_str(), Some("/"));
    for entry in std::fs::read_dir(format!("/proc/{observer}/fd")).unwrap() {
        let Ok(target) = std::fs::read_link(entry.unwrap().path()) else {
            continue;
        };
        let target = target.to_string_lossy();
        assert!(!target.starts_with("pipe:"), "{target}");
        assert!(!target.starts_with("/dev/pts"), "{target}");
    }
    let stat = std::fs::read_to_string(format!("/proc/{observer}/stat")).unwrap();
    let session = stat.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap();
    assert_eq!(session, observer.to_string(), "{}", command_line(observer));
    std::fs::write(user.file("end"), "").unwrap();
    assert!(running.ends().success());
    // Nothing is left of it.
    assert!(!lives(observer));
}

#[test]
fn who_ends_a_service_does_not_end_it_before_the_program() {
    need!(Need::Root);
    let user = User::new();
    let script = "exec $RUN sh -c 'touch ready; while test ! -e end; do sleep 0.01; done; \
                  dd if=/dev/zero of=data bs=1M count=10'";
    let mut command = bash(&user, RUN, script);
    command.stderr(Stdio::piped());
    let running = command.spawn().expect("the command");
    wait_for("the program is ready", || user.file("ready").exists());
    let observer = observer_of(running.id()).expect("an observer");
    for signal in ["TERM", "HUP", "INT", "USR1"] {
        kill(signal, observer);
    }
    std::fs::write(user.file("end"), "").unwrap();
    let output = running.wait_with_output().expect("its end");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("observer"), "{stderr}");
    let pages = dropbehind_testbed::residency::fincore(&user.file("data"));
    assert_eq!(pages.unwrap(), 0);
    assert!(!lives(observer));
}

#[test]
fn the_second_interrupt_ends_the_wait() {
    need!(Need::Root);
    let user = User::new();
    // A stopped observer never settles.
    let script = "exec $RUN -v --settle 86400 sh -c 'touch ready; while test ! -e end; do sleep 0.01; done; exit 3'";
    let mut command = bash(&user, RUN, script);
    command.stderr(Stdio::piped());
    let running = command.spawn().expect("the command");
    wait_for("the program is ready", || user.file("ready").exists());
    let observer = observer_of(running.id()).expect("an observer");
    kill("STOP", observer);
    std::fs::write(user.file("end"), "").unwrap();
    wait_for("the program's end", || {
        crate::shell::children(running.id()) == [observer]
    });
    kill("INT", running.id());
    let output = running.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(3));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("the rest was left to the kernel"),
        "{stderr}"
    );
    kill("KILL", observer);
}

#[test]
fn low_limits_are_the_programs_alone() {
    need!(Need::Root);
    let user = User::new();
    // Soft ones, which anybody may raise. At once the files take more
    // descriptors and the threads more memory than the program itself may have.
    let script = "ulimit -S -n 20 -v 64000; $RUN -v bash -c \
                  'for i in $(seq 30); do dd if=/dev/zero of=data$i bs=1M count=4 & done; wait'";
    let left = once(&user, RUN, script);
    assert_eq!(left.code, Some(0), "{left:?}");
    let pages = (1..=30).map(|i| {
        let path = user.file(&format!("data{i}"));
        dropbehind_testbed::residency::fincore(&path).unwrap()
    });
    assert_eq!(pages.collect::<Vec<_>>(), [0; 30], "{left:?}");
}
