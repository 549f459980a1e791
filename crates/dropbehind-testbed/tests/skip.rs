//! A skip is loud, and an error where nothing may be skipped.

use std::process::{Command, Output};

use dropbehind_testbed::{Need, need, skip};

/// Run by the next test in a process of its own.
#[test]
#[ignore = "a part of another test"]
fn skips_itself() {
    need!(Need::Tool("sh"));
    need!(Need::Tool("sh"), Need::Tool("no-such-tool"));
    unreachable!();
}

/// Run by another test in a process of its own.
#[test]
#[ignore = "a part of another test"]
fn skips_for_a_reason() {
    skip!("because of {}", 7);
}

fn run(test: &str, no_skip: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--include-ignored"])
        .env("DROPBEHIND_NO_SKIP", no_skip)
        .output()
        .unwrap()
}

#[test]
fn a_skip_is_heard_past_the_harness() {
    let output = run("skips_itself", "0");
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        said,
        "SKIP skip::skips_itself: needs the program no-such-tool\n"
    );
    let said = run("skips_for_a_reason", "").stderr;
    assert_eq!(said, b"SKIP skip::skips_for_a_reason: because of 7\n");
}

#[test]
fn a_skip_can_be_forbidden() {
    let output = run("skips_itself", "1");
    assert!(!output.status.success());
}

#[test]
fn what_there_is_is_not_missing() {
    assert_eq!(Need::Filesystem("proc").missing(), None);
    assert!(Need::Filesystem("nosuchfs").missing().is_some());
    assert_eq!(Need::Tool("sh").missing(), None);
    assert_eq!(
        Need::Root.missing().is_none(),
        rustix::process::geteuid().is_root()
    );
}
