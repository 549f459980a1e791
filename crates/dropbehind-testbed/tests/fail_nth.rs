//! Exactly the chosen system calls fail.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use dropbehind_testbed::{CallFilter, FailNth, Outcome, Scratch, residency};

fn call(name: &str) -> CallFilter {
    CallFilter::new(name).unwrap()
}

fn shell(script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]);
    shell
}

/// `dd` with five writes of one byte.
fn dd() -> Command {
    let mut dd = Command::new("dd");
    dd.args(["if=/dev/zero", "bs=1", "count=5", "status=none"]);
    dd
}

fn to_text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn counting_changes_nothing() {
    let outcome = FailNth::count([call("write")]).run(dd()).unwrap();
    assert!(outcome.status.success());
    assert_eq!(outcome.stdout, [0; 5]);
    assert_eq!(outcome.calls_seen, 5);
    assert_eq!(outcome.failed_call, None);
    assert!(!outcome.timed_out);
}

#[test]
fn the_nth_call_fails() {
    for nth in 1..=5 {
        let outcome = FailNth::once([call("write")], nth, libc::ENOSPC)
            .run(dd())
            .unwrap();
        assert_eq!(outcome.status.code(), Some(1));
        assert_eq!(outcome.stdout.len() as u64, nth - 1);
        assert!(
            to_text(&outcome.stderr).contains("No space left"),
            "{outcome:?}"
        );
        assert_eq!(outcome.failed_call.as_deref(), Some("write"));
    }
    let outcome = FailNth::once([call("write")], 6, libc::EIO)
        .run(dd())
        .unwrap();
    assert!(outcome.status.success());
    assert_eq!(outcome.failed_call, None);
}

#[test]
fn all_from_the_nth_fail() {
    let echo = || shell("for i in 1 2 3 4; do echo $i; done 2>/dev/null; true");
    let once = FailNth::once([call("write")], 2, libc::EIO)
        .run(echo())
        .unwrap();
    assert!(!once.stdout.is_empty());
    let sticky = FailNth::from([call("write")], 2, libc::EIO)
        .run(echo())
        .unwrap();
    assert_eq!(to_text(&sticky.stdout), "1\n");
    assert!(sticky.calls_seen >= 4);
}

#[test]
fn an_old_kernel_can_be_had() {
    let scratch = Scratch::new().unwrap();
    fs::write(scratch.file("data"), "data").unwrap();
    let mut witness = Command::new(env!("CARGO_BIN_EXE_cachestat-witness"));
    witness.arg(scratch.file("data"));
    let outcome = FailNth::every([call("cachestat")], libc::ENOSYS)
        .run(witness)
        .unwrap();
    assert!(!outcome.status.success());
    let error = std::io::Error::from_raw_os_error(libc::ENOSYS).to_string();
    assert!(to_text(&outcome.stderr).contains(&error), "{outcome:?}");
    assert_eq!(outcome.calls_seen, 1);
    // This process is not the one under the filter.
    residency::cached(&scratch.file("data")).unwrap();
}

#[test]
fn paths_choose_calls() {
    let cat = || {
        let mut cat = Command::new("cat");
        cat.args(["/proc/self/comm", "/proc/self/stat"]);
        cat
    };
    let openat = call("openat").path_prefix("/proc/self/st").unwrap();
    let outcome = FailNth::once([openat], 1, libc::EMFILE).run(cat()).unwrap();
    assert_eq!(to_text(&outcome.stdout), "cat\n");
    assert_eq!(outcome.calls_seen, 1);
    assert_eq!(
        outcome.failed_call.as_deref(),
        Some("openat of /proc/self/stat")
    );
}

#[test]
fn arguments_and_flags_choose_calls() {
    let to_stderr = call("write").argument(0, 2);
    let both = shell("echo out; ls /no/such/file");
    let outcome = FailNth::every([to_stderr], libc::EIO).run(both).unwrap();
    assert_eq!(to_text(&outcome.stdout), "out\n");
    assert_eq!(to_text(&outcome.stderr), "");

    let scratch = Scratch::new().unwrap();
    let path = scratch.file("new");
    let create = call("openat").flags(libc::O_CREAT as u64).unwrap();
    let mut touch = Command::new("dd");
    touch
        .args(["if=/dev/null", "status=none"])
        .arg(format!("of={}", path.display()));
    let outcome = FailNth::every([create], libc::EROFS).run(touch).unwrap();
    assert!(!outcome.status.success());
    assert!(!path.exists());
}

#[test]
fn children_and_threads_are_covered() {
    let outcome = FailNth::count([call("execve")]).run(shell("true; /bin/true; sh -c /bin/true"));
    // The command itself, and at least three programs below it; shells may
    // replace themselves instead of forking.
    assert!(outcome.unwrap().calls_seen >= 3);

    let late = shell("(sleep 0.3; echo late) & echo early");
    let outcome = FailNth::count([call("write")]).run(late).unwrap();
    assert_eq!(to_text(&outcome.stdout), "early\nlate\n");
    assert_eq!(outcome.calls_seen, 2);
}

#[test]
fn a_command_that_fails_to_start_is_an_error() {
    let missing = Command::new("/no/such/program");
    let error = FailNth::count([call("write")]).run(missing).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    // The exec itself is among the calls, and so can fail.
    let error = FailNth::every([call("execve")], libc::EACCES)
        .run(dd())
        .unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn a_killed_command_ends_the_supervision() {
    let outcome = FailNth::count([call("write")])
        .run(shell("kill -9 $$"))
        .unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&outcome.status),
        Some(9)
    );
}

#[test]
fn a_timeout_kills_the_whole_tree() {
    let start = Instant::now();
    // A child in a session of its own, whose parent is gone.
    let tree = shell("(setsid sleep 61.25 &) ; sleep 61.25");
    let outcome: Outcome = FailNth::count([call("write")])
        .timeout(Duration::from_millis(500))
        .run(tree)
        .unwrap();
    assert!(outcome.timed_out);
    assert!(!outcome.status.success());
    assert!(start.elapsed() < Duration::from_secs(10));
    let alive = Command::new("sh")
        .args(["-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"])
        .output()
        .unwrap();
    assert!(!to_text(&alive.stdout).contains("sleep 61.25 "));
}

#[test]
fn unprivileged_commands_work() {
    use std::os::unix::process::CommandExt;
    let mut command = dd();
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let outcome = FailNth::once([call("write")], 3, libc::EIO)
        .run(command)
        .unwrap();
    assert_eq!(outcome.stdout, [0; 2]);
}

#[test]
fn the_program_says_what_it_did() {
    let run = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_fail-nth"))
            .args(arguments)
            .output()
            .unwrap()
    };
    let dd = ["--", "dd", "if=/dev/zero", "bs=1", "count=5", "status=none"];
    let output = run(&[
        &["--call", "write", "--nth", "2", "--errno", "ENOSPC"][..],
        &dd,
    ]
    .concat());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, [0]);
    assert!(
        to_text(&output.stderr).contains("calls seen: "),
        "{output:?}"
    );
    assert!(
        to_text(&output.stderr).contains("failed: write"),
        "{output:?}"
    );
    assert_eq!(
        run(&["--timeout", "1", "--", "sleep", "30"]).status.code(),
        Some(124)
    );
    assert_eq!(
        run(&["--call", "nonsense", "--", "true"]).status.code(),
        Some(125)
    );
    assert_eq!(run(&["--", "sh", "-c", "exit 7"]).status.code(), Some(7));
}
