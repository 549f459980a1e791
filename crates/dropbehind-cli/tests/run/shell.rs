//! Scripts of bash that are run twice, plain and observed.

use crate::user::User;
pub(crate) use dropbehind_testbed::Running;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// What stands in scripts for `$RUN` when they are observed; nothing does when
/// they are plain, or `env` for `${RUN:-env}`, where a program is to come.
pub(crate) const RUN: &str = "dropbehind run";

/// A command that runs a script, with `dropbehind` in `PATH`, and no signal ignored: a shell's
/// background job ignores SIGINT, and so would all that the tests start there.
pub(crate) fn bash(user: &User, run: &str, script: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_dropbehind"));
    let folder = program.parent().expect("its folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let plain = if run.is_empty() { "env" } else { run };
    let script = script.replace("${RUN:-env}", plain).replace("$RUN", run);
    let mut command = Command::new("env");
    command
        .args(["--default-signal", "bash", "-c", &script])
        .current_dir(user.file(""))
        .env("PATH", format!("{}:{path}", folder.display()))
        // Unless a test says otherwise: of the default, it cannot say what stays.
        .env("DROPBEHIND_MODE", "dontcache")
        .stdin(Stdio::null());
    command
}

/// What a script left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Left {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            signal: output.status.signal(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs a script once.
pub(crate) fn once(user: &User, run: &str, script: &str) -> Left {
    bash(user, run, script).output().expect("bash").into()
}

/// Runs a script plain and observed; both are to leave the same behind.
#[track_caller]
pub(crate) fn the_same(user: &User, script: &str) -> Left {
    let plain = once(user, "", script);
    let observed = once(user, RUN, script);
    assert_eq!(plain, observed, "{script}");
    plain
}

/// Sends a signal by its name, or number.
pub(crate) fn kill(signal: &str, process: u32) {
    let status = Command::new("kill")
        .args([format!("-{signal}"), process.to_string()])
        .status();
    assert!(status.expect("kill").success(), "kill -{signal} {process}");
}

/// So many looks, 2 ms apart, until it is taken for certain that something will
/// not come. Looks and not time, since a machine may be asleep.
pub(crate) const PATIENCE: u32 = 15_000;

/// Waits for something that comes sooner or later.
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..PATIENCE {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("never: {what}");
}

/// The command line of a process, words split by spaces; empty if it is gone.
pub(crate) fn command_line(process: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// The children of a process.
pub(crate) fn children(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|id| id.parse().ok())
        .collect()
}

/// The observer that a supervisor started.
pub(crate) fn observer_of(supervisor: u32) -> Option<u32> {
    let is_observer = |child: &u32| command_line(*child).starts_with("dropbehind observe");
    children(supervisor).into_iter().find(is_observer)
}

/// Whether a process is there and has not ended.
pub(crate) fn lives(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
