//! Without what observing takes, nothing is started unasked.

use crate::shell::{RUN, once};
use crate::user::User;
use dropbehind_testbed::{Need, need, residency, skip};

const WITHOUT: &str = "setpriv --bounding-set -sys_admin";

#[test]
fn it_is_said_and_nothing_is_started() {
    need!(Need::Root, Need::Tool("setpriv"));
    let user = User::new();
    let left = once(
        &user,
        RUN,
        &format!("{WITHOUT} $RUN --source fanotify touch started"),
    );
    assert_eq!(left.code, Some(3));
    for saying in [
        "CAP_SYS_ADMIN",
        "leave out --source",
        "touch was not started",
    ] {
        assert!(left.stderr.contains(saying), "{saying}: {left:?}");
    }
    assert!(!user.file("started").exists());
}

#[test]
fn root_of_a_container_has_another_source() {
    need!(Need::Root, Need::Tool("unshare"));
    let user = User::new();
    if once(&user, RUN, "unshare --user --map-root-user true").code != Some(0) {
        skip!("user namespaces are switched off");
    }
    let there = |options: &str| {
        let script = format!("unshare --user --map-root-user $RUN {options} touch started");
        once(&user, RUN, &script)
    };
    let left = there("--source fanotify");
    assert_eq!(left.code, Some(3), "{left:?}");
    assert!(!user.file("started").exists());
    let left = there("");
    assert_eq!((left.code, left.stderr.as_str()), (Some(0), ""));
    assert!(user.file("started").exists());
}

/// Runs a command in a sandbox that forbids mount namespaces, as a unit's `RestrictNamespaces=`
/// does.
const SANDBOX: &str = r#"
import ctypes, os, platform, struct, sys
unshare = {"x86_64": 272, "aarch64": 97}[platform.machine()]
CLONE_NEWNS, EPERM = 0x20000, 1
code = [
    (0x20, 0, 0, 0),                # the call's number
    (0x15, 0, 3, unshare),
    (0x20, 0, 0, 16),               # the low half of its first argument
    (0x45, 0, 1, CLONE_NEWNS),
    (0x06, 0, 0, 0x50000 | EPERM),  # SECCOMP_RET_ERRNO
    (0x06, 0, 0, 0x7fff0000),       # SECCOMP_RET_ALLOW
]
code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in code))
program = ctypes.create_string_buffer(struct.pack("<H6xQ", 6, ctypes.addressof(code)))
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
assert ctypes.CDLL(None).prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn without_mount_namespaces_there_is_another_source() {
    need!(Need::Root, Need::Cachestat, Need::Tool("python3"));
    let user = User::new();
    std::fs::write(user.file("sandbox"), SANDBOX).unwrap();
    let there = |command: &str| once(&user, RUN, &format!("python3 sandbox {command}"));
    let source = "is stopped at each open instead";
    let dd = "dd if=/dev/zero of=data bs=1M count=16 status=none";
    let left = there(&format!("$RUN -v {dd}"));
    assert_eq!(left.code, Some(0), "{left:?}");
    assert!(left.stderr.contains(source), "{left:?}");
    let cached = residency::cached(&user.file("data")).unwrap();
    assert_eq!(cached.cached_pages, 0, "{left:?}");
    let left = there("$RUN sh -c 'exit 7'");
    assert_eq!((left.code, left.stderr.as_str()), (Some(7), ""));
    // Asked for fanotify, nothing else will do.
    let left = there("$RUN --source fanotify touch started");
    assert_eq!(left.code, Some(3), "{left:?}");
    assert!(left.stderr.contains("RestrictNamespaces="), "{left:?}");
    assert!(!user.file("started").exists());
    let said = there(&format!("{} probe", env!("CARGO_BIN_EXE_dropbehind"))).stdout;
    for saying in [
        "no: fanotify takes a mount namespace",
        "run learns of opens from seccomp",
    ] {
        assert!(said.contains(saying), "{saying}: {said}");
    }
}

/// The numbers of processes there are those of others.
#[test]
fn a_proc_of_another_pid_namespace_is_refused() {
    need!(Need::Root, Need::Tool("unshare"));
    let user = User::new();
    let left = once(&user, RUN, "unshare --pid --fork $RUN touch started");
    assert_eq!(left.code, Some(3), "{left:?}");
    assert!(left.stderr.contains("--mount-proc"), "{left:?}");
    assert!(!user.file("started").exists());
    let script = "unshare --pid --fork $RUN --best-effort touch started";
    let left = once(&user, RUN, script);
    assert_eq!(left.code, Some(0), "{left:?}");
    assert!(user.file("started").exists());
}

/// What was resident at the open stays there, and the rest goes.
#[test]
fn in_a_pid_namespace_there_is_no_trace() {
    need!(Need::Root, Need::Cachestat, Need::Tool("unshare"));
    let user = User::new();
    let script = "unshare --pid --fork --mount-proc $RUN -v \
                  dd if=/dev/zero of=data bs=4k count=16384 status=none";
    let left = once(&user, RUN, script);
    assert_eq!(left.code, Some(0), "{left:?}");
    assert!(left.stderr.contains("in another pid namespace"), "{left:?}");
    let cached = residency::cached(&user.file("data")).unwrap();
    assert_eq!(cached.cached_pages, 0, "{left:?}");
    let here = env!("CARGO_BIN_EXE_dropbehind");
    let script = format!("unshare --pid --fork --mount-proc {here} probe");
    let said = once(&user, RUN, &script).stdout;
    assert!(said.contains("in another pid namespace"), "{said}");
}

/// Somebody else may have made a mistake in the configuration, or removed a folder.
#[test]
fn best_effort_starts_it_whatever_is_wrong_with_our_files() {
    let user = User::new();
    std::fs::write(user.file("wrong.toml"), "[dsik.sda]\nenabled = false\n").unwrap();
    for (option, saying) in [
        ("--config none.toml", "none.toml: cannot be read"),
        ("--config wrong.toml", "did you mean \"disk\"?"),
        ("--stats none/stats", "Create the directory none first"),
        ("--trace none/trace", "none"),
    ] {
        let left = once(&user, RUN, &format!("$RUN {option} sh -c 'exit 7'"));
        assert_eq!(left.code, Some(125), "{left:?}");
        assert!(left.stderr.contains("sh was not started"), "{left:?}");
        assert!(left.stderr.contains(saying), "{left:?}");
        let left = once(
            &user,
            RUN,
            &format!("$RUN --best-effort {option} sh -c 'exit 7'"),
        );
        assert_eq!(left.code, Some(7), "{left:?}");
        assert!(left.stderr.contains("sh runs plainly"), "{left:?}");
        assert!(left.stderr.contains(saying), "{left:?}");
    }
}

#[test]
fn best_effort_starts_it_plainly_and_says_so() {
    need!(Need::Root, Need::Tool("setpriv"));
    let user = User::new();
    let script = format!(
        "trap '' HUP; {WITHOUT} $RUN --source fanotify --best-effort \
         sh -c 'echo $PPID; grep SigIgn /proc/self/status; exit 7'; c=$?; echo $$; exit $c"
    );
    let left = once(&user, RUN, &script);
    assert_eq!(left.code, Some(7));
    assert!(left.stderr.contains("sh runs plainly"), "{left:?}");
    // Its parent is ours: there is nobody in between.
    let lines: Vec<&str> = left.stdout.lines().collect();
    // What the test was started with may be ignored, too.
    let plain = format!("trap '' HUP; {WITHOUT} sh -c 'grep SigIgn /proc/self/status'");
    let plain = once(&user, RUN, &plain).stdout;
    assert_eq!(lines, [lines[2], plain.trim_end(), lines[2]]);
    let missing = once(
        &user,
        RUN,
        &format!("{WITHOUT} $RUN --source fanotify --best-effort no-such-program"),
    );
    assert_eq!(missing.code, Some(127));
}
