//! Signals that other processes send to `run` reach the program.

use crate::shell::{RUN, Running, bash, kill, lives, observer_of, once, wait_for};
use crate::user::User;
use dropbehind_testbed::{Need, need};
use std::os::unix::process::ExitStatusExt;

/// Starts a program under `run`, and waits until it has made the file `ready`.
fn start(user: &User, program: &str) -> Running {
    let running = Running::start(bash(user, RUN, &format!("exec $RUN bash -c '{program}'")));
    wait_for("the program is ready", || user.file("ready").exists());
    running
}

fn text(user: &User, name: &str) -> String {
    std::fs::read_to_string(user.file(name)).unwrap_or_default()
}

#[test]
fn they_are_passed_on() {
    need!(Need::Root);
    let user = User::new();
    let mut running = start(
        &user,
        "for s in HUP INT QUIT USR1 USR2 ALRM TERM WINCH IO 40; do trap \"echo $s >>got\" $s; done; \
         trap \"exit 5\" 41; touch ready; while :; do sleep 0.01; done",
    );
    let mut expected = String::new();
    for signal in [
        "HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "TERM", "WINCH", "IO", "40",
    ] {
        kill(signal, running.id());
        expected += &format!("{signal}\n");
        wait_for(signal, || text(&user, "got") == expected);
    }
    kill("41", running.id());
    assert_eq!(running.ends().code(), Some(5));
    // None came twice.
    assert_eq!(text(&user, "got"), expected);
}

#[test]
fn unhandled_ones_end_both() {
    need!(Need::Root);
    for (signal, number) in [
        ("TERM", 15),
        ("HUP", 1),
        ("INT", 2),
        ("USR2", 12),
        ("42", 42),
    ] {
        let user = User::new();
        let mut running = start(&user, "echo $$ >ready; exec sleep 600");
        wait_for("its number", || text(&user, "ready").ends_with('\n'));
        let program: u32 = text(&user, "ready").trim().parse().unwrap();
        kill(signal, running.id());
        assert_eq!(running.ends().signal(), Some(number));
        assert!(!lives(program));
    }
}

#[test]
fn stops_are_shared_and_taken_back() {
    need!(Need::Root);
    let user = User::new();
    let mut running = start(
        &user,
        "echo $$ >ready; while test ! -e end; do sleep 0.01; done; exit 6",
    );
    wait_for("its number", || text(&user, "ready").ends_with('\n'));
    let program: u32 = text(&user, "ready").trim().parse().unwrap();
    let state = |process: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    };
    for (signal, to, continued) in [
        ("STOP", program, running.id()),
        ("STOP", program, program),
        ("TSTP", running.id(), running.id()),
    ] {
        // An orphaned process group is not stopped by SIGTSTP, plain or not.
        if signal == "TSTP" && is_orphaned(running.id()) {
            continue;
        }
        kill(signal, to);
        wait_for("both stopped", || {
            state(program) == 'T' && state(running.id()) == 'T'
        });
        kill("CONT", continued);
        wait_for("both going on", || {
            state(program) != 'T' && state(running.id()) != 'T'
        });
    }
    std::fs::write(user.file("end"), "").unwrap();
    assert_eq!(running.ends().code(), Some(6));
}

/// No process of the group has a parent in another group of the same session.
fn is_orphaned(process: u32) -> bool {
    let script = format!(
        "p=$(ps -o ppid= -p {process}); test $(ps -o sid= -p $p) != $(ps -o sid= -p {process}) || \
         test $(ps -o pgid= -p $p) = $(ps -o pgid= -p {process})"
    );
    once(&User::new(), "", &script).code == Some(0)
}

#[test]
fn the_program_outlives_a_killed_supervisor() {
    need!(Need::Root);
    let user = User::new();
    let mut running = start(
        &user,
        "touch ready; while test ! -e end; do sleep 0.01; done; \
         dd if=/dev/zero of=data bs=1M count=20; touch done",
    );
    let observer = observer_of(running.id()).expect("an observer");
    kill("KILL", running.id());
    running.ends();
    assert!(lives(observer));
    std::fs::write(user.file("end"), "").unwrap();
    wait_for("the program's end", || user.file("done").exists());
    assert_eq!(user.file("data").metadata().unwrap().len(), 20 << 20);
    // It stays for what is left, and no longer.
    wait_for("the observer's end", || !lives(observer));
}
