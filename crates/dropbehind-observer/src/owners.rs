//! Who already observes a process's files.
//!
//! A `run` inside a watched machine, or a program that uses the library, observes its own files:
//! a second flusher for the same pages would only count and ask twice. A `run` claims its
//! programs' mount namespace and the mounts in it, which also identify files whose program has
//! ended; only root can do so. A user of the library shows by its flusher's thread. Any program
//! can name a thread so: it then keeps the pages that it brings in itself, like a program that
//! no rule names.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use dropbehind_linux::{
    Claimed, Claims, FileStat, HeldMountNamespace, mount_namespace_of, process_user,
};

use crate::budget::Budget;
use crate::names::Stamp;

/// How long a finding about a process holds. Without the trace, the number may be another one's by
/// then, if as many were started as there are numbers (`kernel.pid_max`, 32768 and more).
const KNOWN: Duration = Duration::from_secs(1);
/// A process's threads are looked at for at most this long.
const SEARCH: Duration = Duration::from_millis(2);
/// At most this many processes are remembered.
const PROCESSES: usize = 4096;
/// The library's thread that opens its descriptions.
const KEEPER: &str = "dropbehind-keep";
/// The observer's thread, which reads events and the trace.
pub(crate) const LISTENER: &str = "dropbehind-hear";

/// What is known of other owners. By default, nothing is claimed and no claims are seen.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    claims: Option<Claims>,
    /// The namespace that we claim. Dropped after the claim, which would otherwise apply to the
    /// next namespace with its number.
    _namespace: Option<HeldMountNamespace>,
    /// The mounts that we claim.
    mounts: HashSet<u64>,
    processes: HashMap<(i32, Option<Stamp>), (Instant, bool)>,
}

impl Owners {
    /// Claims the observed namespace, if there is one. A note says if others cannot see that, or
    /// we cannot see their claims.
    pub(crate) fn new(observed: Option<HeldMountNamespace>, notes: &mut Vec<String>) -> Owners {
        let claims = Claims::new().and_then(|claims| {
            if let Some(namespace) = &observed {
                claims.claim(Claimed::Namespace(namespace.id()))?;
            }
            Ok(claims)
        });
        let claims = claims.map_err(|error| {
            notes.push(format!(
                "a run and a watch cannot tell here that they observe the same programs ({error}): \
                 both would write back and drop the same files"
            ));
        });
        Owners {
            claims: claims.ok(),
            _namespace: observed,
            ..Owners::default()
        }
    }

    /// Claims these mounts, which are all of the observed namespace, and gives up others.
    pub(crate) fn claim_mounts(&mut self, mounts: impl Iterator<Item = u64>) {
        let Some(claims) = &self.claims else { return };
        let before = std::mem::replace(&mut self.mounts, mounts.collect());
        // If locks run out, the namespace is claimed all the same.
        for mount in before.difference(&self.mounts) {
            let _ = claims.give_up(Claimed::Mount(*mount));
        }
        for mount in self.mounts.difference(&before) {
            let _ = claims.claim(Claimed::Mount(*mount));
        }
    }

    /// Returns whether another owner observes a file that a process uses.
    pub(crate) fn have_file(
        &mut self,
        file: &FileStat,
        process: i32,
        stamp: Option<Stamp>,
    ) -> bool {
        let mount = file.mount.map(Claimed::Mount);
        mount.is_some_and(|mount| self.is_claimed(mount)) || self.have(process, stamp)
    }

    /// Returns whether another owner observes the files of a process.
    pub(crate) fn have(&mut self, process: i32, stamp: Option<Stamp>) -> bool {
        if let Some((at, owned)) = self.processes.get(&(process, stamp))
            && at.elapsed() < KNOWN
        {
            return *owned;
        }
        let owned = has_thread(process, KEEPER)
            // It opens files through mounts that are not its programs'.
            || is_observer(process)
            || mount_namespace_of(process)
                .is_ok_and(|namespace| self.is_claimed(Claimed::Namespace(namespace)));
        if self.processes.len() >= PROCESSES {
            self.processes.clear();
        }
        self.processes
            .insert((process, stamp), (Instant::now(), owned));
        owned
    }

    fn is_claimed(&self, claimed: Claimed) -> bool {
        let claims = self.claims.as_ref();
        claims.is_some_and(|claims| claims.is_claimed_by_others(claimed).unwrap_or(false))
    }
}

/// Returns whether this is another observer, which holds every observed file open without using
/// it. Only root's count: other users could hide what they have open.
pub(crate) fn is_observer(process: i32) -> bool {
    process_user(process).is_ok_and(|user| user == 0) && has_thread(process, LISTENER)
}

/// If a process has more threads than [`SEARCH`] allows for, only the oldest count.
fn has_thread(process: i32, wanted: &str) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else {
        return false;
    };
    let budget = Budget::new(SEARCH);
    let mut threads = threads.take_while(|_| budget.lasts()).flatten();
    threads.any(|thread| {
        std::fs::read_to_string(thread.path().join("comm"))
            .is_ok_and(|name| name.trim_end() == wanted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropbehind_testbed::{Need, need};
    use std::io::Read;
    use std::process::{Command, Stdio};

    #[test]
    fn no_other_namespace_gets_the_number_of_one_that_is_claimed() {
        need!(Need::Root, Need::Tool("unshare"));
        let inside = || {
            let mut program = Command::new("unshare")
                .args(["--mount", "sh", "-c", "echo; read _"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut ready = [0];
            let mut stdout = program.stdout.take().unwrap();
            stdout.read_exact(&mut ready).unwrap();
            let process = i32::try_from(program.id()).unwrap();
            let namespace = HeldMountNamespace::of(process).unwrap();
            drop(program.stdin.take());
            program.wait().unwrap();
            namespace
        };
        let observed = inside();
        let id = observed.id();
        let owners = Owners::new(Some(observed), &mut Vec::new());
        for _ in 0..8 {
            let other = inside().id();
            assert_ne!(other, id);
        }
        drop(owners);
        assert_eq!(
            Claims::new()
                .unwrap()
                .is_claimed_by_others(Claimed::Namespace(id))
                .ok(),
            Some(false)
        );
    }

    #[test]
    fn a_user_cannot_pass_for_an_observer() {
        need!(Need::Root, Need::Tool("setpriv"));
        for (user, observes) in [("0", true), ("65534", false)] {
            let mut program = Command::new("setpriv")
                .args(["--reuid", user, "--clear-groups", "sh", "-c"])
                .arg(format!("echo {LISTENER} >/proc/self/comm; echo; read _"))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let process = i32::try_from(program.id()).unwrap();
            let mut ready = [0];
            program
                .stdout
                .take()
                .unwrap()
                .read_exact(&mut ready)
                .unwrap();
            assert!(has_thread(process, LISTENER));
            assert_eq!(is_observer(process), observes, "user {user}");
            drop(program.stdin.take());
            program.wait().unwrap();
        }
    }
}
