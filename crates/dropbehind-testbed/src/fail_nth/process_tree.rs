//! All processes that came of one command.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const VARIABLE: &str = "DROPBEHIND_FAIL_NTH";
/// How long killed processes may take to disappear.
const PATIENCE: Duration = Duration::from_secs(5);

/// Finds a command's processes: its descendants, and those whose parents are
/// gone but whose environment still carries the command's mark.
pub(super) struct ProcessTree {
    mark: OsString,
}

impl ProcessTree {
    /// Marks a command that is to be started.
    pub(super) fn prepare(command: &mut Command) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);

        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let value = format!("{}-{number}", std::process::id());
        command.env(VARIABLE, &value);
        Self {
            mark: format!("{VARIABLE}={value}").into(),
        }
    }

    /// Kills the process and all that came of it, until none is left.
    pub(super) fn kill(&self, root: u32) {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let members = self.members(root);
            if members.is_empty() {
                return;
            }
            for pid in members {
                // SAFETY: sends a signal. The root is not yet waited for, so
                // its number is its own; the others were just found alive.
                unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn members(&self, root: u32) -> Vec<u32> {
        let alive = living();
        let descends = |pid: u32| {
            let mut at = pid;
            // Bounded, as the table was not read in one moment.
            for _ in 0..alive.len() {
                if at == root {
                    return true;
                }
                match alive.get(&at) {
                    Some(&parent) => at = parent,
                    None => return false,
                }
            }
            false
        };
        alive
            .keys()
            .copied()
            .filter(|&pid| descends(pid) || self.marks(pid))
            .collect()
    }

    fn marks(&self, pid: u32) -> bool {
        fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
            environment
                .split(|&byte| byte == 0)
                .any(|one| one == self.mark.as_bytes())
        })
    }
}

/// All processes but zombies, with their parents.
fn living() -> HashMap<u32, u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return HashMap::new();
    };
    let parent_of = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_whitespace();
        let alive = !matches!(fields.next()?, "Z" | "X");
        let parent = fields.next()?.parse().ok()?;
        alive.then_some((pid, parent))
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(parent_of)
        .collect()
}
