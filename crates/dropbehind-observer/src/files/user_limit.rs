//! How many descriptors of users one search of `/proc` looks at: users may have as many as they
//! like, in as many processes.

use dropbehind_linux::process_user;

/// In one search, this many descriptors of users' processes are looked at, which takes about a
/// second of processor time. Root's always are.
const MOST: usize = 1 << 18;
/// Opening one of the files costs as much as looking at this many.
const OPEN: usize = 16;
/// From this many on it matters whether a process is root's.
const MANY: usize = 256;

/// What one search has looked at.
#[derive(Debug, Default)]
pub(super) struct UserLimit {
    looked: usize,
    process: i32,
    of_process: usize,
    is_roots: bool,
}

impl UserLimit {
    /// Counts a descriptor, and returns whether to look at it.
    pub(super) fn look(&mut self, process: i32) -> bool {
        if self.process != process {
            (self.process, self.of_process, self.is_roots) = (process, 0, false);
        }
        self.of_process += 1;
        if self.of_process == MANY || !self.is_roots && self.looked >= MOST {
            self.is_roots = is_roots(process);
        }
        self.looked += usize::from(!self.is_roots);
        self.is_roots || self.looked <= MOST
    }

    /// Counts that the file was opened.
    pub(super) fn open(&mut self, process: i32) {
        if !(self.is_roots && self.process == process) {
            self.looked += OPEN;
        }
    }

    /// Returns whether to look at a process's descriptors at all.
    pub(super) fn may_look(&self, process: i32) -> bool {
        !self.is_reached() || is_roots(process)
    }

    /// Returns whether there was more than is looked at.
    pub(super) fn is_reached(&self) -> bool {
        self.looked > MOST
    }
}

fn is_roots(process: i32) -> bool {
    process_user(process).is_ok_and(|user| user == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropbehind_testbed::{Need, need};
    use std::process::{Child, Command, Stdio};

    fn program_of(user: &str) -> (Child, i32) {
        let program = Command::new("setpriv")
            .args(["--reuid", user, "--clear-groups", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let process = i32::try_from(program.id()).unwrap();
        while process_user(process).unwrap().to_string() != user {
            std::thread::yield_now();
        }
        (program, process)
    }

    #[test]
    fn users_descriptors_keep_nobody_from_roots() {
        need!(Need::Root, Need::Tool("setpriv"));
        let (mut root, roots) = program_of("0");
        let (mut user, users) = program_of("65534");
        let mut limit = UserLimit::default();
        // Many of root's take nothing from users.
        assert!((0..2 * MOST).all(|_| limit.look(roots)));
        assert!(limit.look(users) && limit.may_look(users));
        let looked = (0..).take_while(|_| limit.look(users)).count();
        assert!(looked <= MOST && looked > MOST - 2 * MANY, "{looked}");
        assert!(limit.is_reached() && !limit.may_look(users));
        assert!(limit.may_look(roots) && (0..1000).all(|_| limit.look(roots)));
        // The limit is reached among the first descriptors of a process of root's.
        let looked = MOST - 1;
        let mut limit = UserLimit {
            looked,
            ..UserLimit::default()
        };
        assert!((0..1000).all(|_| limit.look(roots)));
        for program in [&mut root, &mut user] {
            drop(program.stdin.take());
            program.wait().unwrap();
        }
    }
}
