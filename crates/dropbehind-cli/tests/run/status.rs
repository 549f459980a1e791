//! How a program ends is how `run` ends.

use crate::shell::{RUN, once, the_same};
use crate::user::User;
use dropbehind_testbed::{Need, need};

#[test]
fn the_exit_status_is_the_programs() {
    need!(Need::Root);
    let user = User::new();
    for code in [0, 1, 2, 3, 125, 141, 255] {
        let left = the_same(
            &user,
            &format!("$RUN sh -c 'echo out; echo err >&2; exit {code}'"),
        );
        assert_eq!(left.code, Some(code));
        assert_eq!(
            (left.stdout.as_str(), left.stderr.as_str()),
            ("out\n", "err\n")
        );
    }
}

#[test]
fn death_by_a_signal_is_handed_on() {
    need!(Need::Root);
    let user = User::new();
    for signal in [
        "TERM", "KILL", "SEGV", "ABRT", "PIPE", "HUP", "INT", "QUIT", "USR1", "ALRM", "XFSZ", "35",
    ] {
        // exec: the shell itself would only show it.
        let script = format!("ulimit -c 0; exec ${{RUN:-env}} sh -c 'kill -{signal} $$'");
        let left = the_same(&user, &script);
        assert!(left.signal.is_some(), "{signal}: {left:?}");
    }
}

#[test]
fn what_cannot_be_run_has_the_usual_codes() {
    need!(Need::Root);
    let user = User::new();
    std::fs::write(user.file("text"), "no program").unwrap();
    let missing = once(&user, RUN, "$RUN ./missing; exit $?");
    assert_eq!(missing.code, Some(127));
    assert!(
        missing.stderr.contains("cannot run ./missing"),
        "{missing:?}"
    );
    let missing = once(&user, RUN, "$RUN no-such-program-anywhere");
    assert_eq!(missing.code, Some(127));
    let refused = once(&user, RUN, "$RUN ./text");
    assert_eq!(refused.code, Some(126));
    assert!(refused.stderr.contains("Permission denied"), "{refused:?}");
}

#[test]
fn failures_of_our_own_come_before_the_program() {
    need!(Need::Root);
    let user = User::new();
    let left = once(&user, RUN, "$RUN --stats no/file touch started");
    assert_eq!(left.code, Some(125));
    assert!(left.stderr.contains("no/file"), "{left:?}");
    let wrong = once(&user, RUN, "$RUN --mode fast touch started");
    assert_eq!(wrong.code, Some(2));
    let wrong = once(&user, RUN, "$RUN --only 'a[' touch started");
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("unclosed"), "{wrong:?}");
    assert!(!user.file("started").exists());
}

#[test]
fn too_few_descriptors_are_told_with_the_next_step() {
    need!(Need::Root, Need::Tool("setpriv"));
    let user = User::new();
    // Without that capability an observer cannot raise its limit.
    let script = "ulimit -n 16; exec setpriv --bounding-set=-sys_resource $RUN touch started";
    let left = once(&user, RUN, script);
    assert_eq!(left.code, Some(125), "{left:?}");
    for saying in ["Too many open files", "ulimit -n", "touch was not started"] {
        assert!(left.stderr.contains(saying), "{saying}: {left:?}");
    }
    assert!(!user.file("started").exists());
}

#[test]
fn a_missing_device_is_named() {
    need!(Need::Root, Need::Tool("unshare"));
    let user = User::new();
    let script = "unshare --mount sh -c 'mount -t tmpfs none /dev && exec $RUN touch started'";
    let left = once(&user, RUN, script);
    assert_eq!(left.code, Some(125), "{left:?}");
    for saying in ["/dev/null: No such file", "mknod", "touch was not started"] {
        assert!(left.stderr.contains(saying), "{saying}: {left:?}");
    }
    assert!(!user.file("started").exists());
}

#[test]
fn options_end_where_the_program_begins() {
    need!(Need::Root);
    let user = User::new();
    let left = the_same(&user, "$RUN echo -v --settle -- x");
    assert_eq!(left.stdout, "-v --settle -- x\n");
    let left = once(&user, RUN, "$RUN -- echo -v");
    assert_eq!(left.stdout, "-v\n");
}

#[test]
fn scripts_without_a_first_line_run_as_from_env() {
    need!(Need::Root);
    let user = User::new();
    std::fs::write(user.file("script"), "echo ran $1; exit 9").unwrap();
    let script = "chmod +x script; ${RUN:-env} ./script x";
    assert_eq!(the_same(&user, script).code, Some(9));
}
