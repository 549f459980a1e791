//! Rules with the mode `auto`.

use crate::commands::RULES;
use crate::files::{assert_dropped, assert_kept, cached_mib, cold, dd, until_dropped};
use crate::user::User;
use crate::user::running_watch::RunningWatch;
use dropbehind_testbed::trace::has_event;
use dropbehind_testbed::{Need, need};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A watch that runs for good decides once enough has passed. What was read back by then stays, and
/// what was not has been dropped.
#[test]
fn what_is_used_again_stays_and_the_rest_goes_in_time() {
    need!(Need::Root, Need::Cachestat);
    if !kernel_tells_uses() {
        return;
    }
    let user = User::new();
    let (home, mut watch) = watching(&user);
    let [again, once] = ["again", "once"].map(|name| home.join(name));
    dd(&again);
    dd(&once);
    read(&again);
    stream_until_dropped(&once, &home, &watch);
    assert_dropped(&once, &watch);
    assert_kept(&again, &watch);
    // Without such a rule, nothing waits any more.
    let last = home.join("stream8");
    assert_kept(&last, &watch);
    user.writes("rules", RULES);
    watch.signal("HUP");
    watch.says("RELOADING=1");
    watch.says("READY=1");
    until_dropped(&last, &watch, 4);
    assert_kept(&again, &watch);
}

/// Each process is treated by its own rule, whichever of them opened the file first.
#[test]
fn what_is_used_again_stays_if_another_program_with_another_rule_has_the_file_open() {
    need!(Need::Root, Need::Cachestat);
    if !kernel_tells_uses() {
        return;
    }
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    let rule = |program, mode| {
        let path = home.display();
        format!("[[rule]]\npath = \"{path}/**\"\nprogram = \"{program}\"\nmode = \"{mode}\"\n")
    };
    let rules = rule("tail", "dontcache") + &rule("dd", "auto");
    user.writes("rules", &rules);
    let shared = cold(home.join("shared"), 32 << 20);
    let watch = RunningWatch::by_rules(&user);
    let mut holder = Command::new("tail")
        .args(["-f", "-c", "1", "--"])
        .arg(&shared)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It ends with whoever reads its output.
    let mut output = holder.stdout.take().unwrap();
    output.read_exact(&mut [0]).unwrap();
    read(&shared);
    read(&shared);
    let once = home.join("once");
    dd(&once);
    holder.kill().unwrap();
    holder.wait().unwrap();
    stream_until_dropped(&once, &home, &watch);
    assert_kept(&shared, &watch);
}

/// The first read of what was written is another use. It is not if somebody else wrote it long before.
#[test]
fn a_file_that_is_younger_than_the_watch_is_not_new_for_ever() {
    need!(Need::Root, Need::Cachestat);
    if !kernel_tells_uses() {
        return;
    }
    let user = User::new();
    let (home, watch) = watching(&user);
    let once = home.join("once");
    let made = Command::new("dd")
        .arg(format!("of={}", once.display()))
        .args(["if=/dev/zero", "oflag=direct", "bs=1M", "count=32"])
        .stderr(Stdio::null())
        .status();
    assert!(made.unwrap().success());
    std::thread::sleep(Duration::from_secs(3));
    read(&once);
    stream_until_dropped(&once, &home, &watch);
}

/// A watch with one rule, for all of the user's files.
fn watching(user: &User) -> (PathBuf, RunningWatch) {
    let home = std::fs::canonicalize(user.file("")).unwrap();
    user.writes("rules", &rule_for(&home, "auto"));
    let watch = RunningWatch::by_rules(user);
    (home, watch)
}

fn rule_for(home: &Path, mode: &str) -> String {
    format!(
        "[[rule]]\npath = \"{}/**\"\nmode = \"{mode}\"\n",
        home.display()
    )
}

fn kernel_tells_uses() -> bool {
    let tells = has_event("filemap/mm_filemap_get_pages");
    if !tells {
        eprintln!("SKIPPED: this kernel does not report which cached pages are used");
    }
    tells
}

fn read(path: &Path) {
    let read = Command::new("dd")
        .arg(format!("if={}", path.display()))
        .args(["of=/dev/null", "bs=1M", "status=none"])
        .status();
    assert!(read.unwrap().success());
}

/// Has so much more pass through the probation that this file is decided about, and dropped.
fn stream_until_dropped(once: &Path, home: &Path, watch: &RunningWatch) {
    let mut streams = 0;
    while cached_mib(once) > 4 {
        assert!(streams < 40, "{} MiB\n{}", cached_mib(once), watch.log());
        streams += 1;
        for part in 0..9 {
            dd(&home.join(format!("stream{part}")));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}
