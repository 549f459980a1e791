//! Opens that take long, and opens that fail.

use crate::bed::Ordinary;
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::evict;
use dropbehind_testbed::{HangingFs, Need, need};
use std::io::Write;
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

/// While a file is being made, whoever looks for its name waits as well, and nobody may look twice.
#[test]
fn a_server_that_makes_a_file_may_open_another_one() {
    need!(Need::Cachestat);
    need!(all HangingFs::needs());
    let user = Ordinary::new();
    let fs = HangingFs::new().unwrap();
    let hanging = fs.hang_makers();
    // Nothing is opened between these steps.
    let script = "(: >$0/made) & read step; cat $0/file >/dev/null & read step; \
                  cat go >went; read step; wait";
    std::fs::write(user.file("go"), "on").unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_dropbehind"))
        .args(["run", "--source", "seccomp", "sh", "-c", script])
        .arg(fs.path())
        .current_dir(user.file(""))
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut steps = run.stdin.take().unwrap();
    until("nobody makes the file", || fs.waiting() >= 1);
    for _ in 0..2 {
        // Until the file is looked for that is being made, and then the other one.
        std::thread::sleep(Duration::from_millis(500));
        steps.write_all(b"\n").unwrap();
    }
    let began = Instant::now();
    while std::fs::read(user.file("went")).ok().as_deref() != Some(b"on") {
        if began.elapsed() > Duration::from_secs(20) {
            drop(hanging);
            drop(steps);
            let _ = run.wait();
            panic!("the others wait as well");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(hanging);
    drop(steps);
    assert!(run.wait().unwrap().success());
}

/// What others read of the file meanwhile is theirs.
#[test]
fn what_could_not_be_opened_for_lack_of_descriptors_stays() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    user.does(
        "head -c 8M /dev/urandom >data; sync data; \
         cat >fails.py <<'END'\n\
         import errno, os, resource, time\n\
         null = os.open('/dev/null', os.O_RDONLY)\n\
         resource.setrlimit(resource.RLIMIT_NOFILE, (null + 1, null + 1))\n\
         failed = 0\n\
         while not os.access('over', 0):\n \
             try: os.open('data', os.O_RDONLY); os._exit(9)\n \
             except OSError as error: assert error.errno == errno.EMFILE\n \
             failed += 1\n \
             if failed == 100: os.mkdir('fails')\n \
             time.sleep(0.0005)\n\
         END\n",
    );
    let data = user.file("data");
    in_some_attempt(|reclaim| {
        evict(&data);
        user.does(
            "rm -rf fails over; $RUN python3 fails.py & \
             until [ -e fails ]; do sleep 0.1; done; cat data >/dev/null; sleep 0.5; \
             touch over; wait $!",
        );
        reclaim.stays(&data, user.cached_pages("data") * 4096, 8 << 20)
    });
}

/// A file that somebody else makes later is theirs, whether the program then sleeps or computes.
#[test]
fn what_an_open_could_not_make_is_not_the_programs() {
    need!(all Ordinary::needs(&["python3"]));
    for (then, does) in [("sleep", "time.sleep(0.01)"), ("compute", "pass")] {
        let user = Ordinary::new();
        user.does("mkdir shut; chmod 555 shut");
        let script = format!(
            "cat >fails.py <<'END'\n\
             import os, time\n\
             ticks = lambda: time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)\n\
             begun = os.open('begun', os.O_CREAT | os.O_WRONLY)\n\
             try: os.open('shut/made', os.O_CREAT | os.O_RDWR); os._exit(9)\n\
             except PermissionError: pass\n\
             began, used = time.monotonic(), ticks()\n\
             while time.monotonic() - began < 0.5 or '{then}' == 'compute' and ticks() - used < 0.3: {does}\n\
             os.write(begun, b'failed')\n\
             while os.access('shut/over', 0) == False: {does}\n\
             os._exit(0)\n\
             END\n\
             $RUN python3 fails.py & \
             until [ -s begun ]; do sleep 0.1; done; chmod 755 shut; \
             head -c 8M /dev/zero >shut/made; sync shut/made; sleep 0.3; touch shut/over; wait $!"
        );
        user.does(&script);
        let kept = user.cached_pages("shut/made");
        assert!(kept > 1024, "{then}: {kept}");
    }
}
