//! Who is observed.

use std::collections::HashSet;

use dropbehind_linux::{MountNamespaceId, children, mount_namespace_of, process_stat, processes};

/// The observed programs.
#[derive(Debug)]
pub(crate) enum Programs {
    /// A process, and all that come from it.
    Tree(Tree),
    /// All processes of the machine.
    Everybody,
}

impl Programs {
    /// True for an observed process.
    pub(crate) fn has(&self, process: i32) -> bool {
        match self {
            Programs::Tree(tree) => tree.processes.contains(&process),
            Programs::Everybody => true,
        }
    }

    /// A process made another one.
    pub(crate) fn forked(&mut self, parent: i32, child: i32) {
        if let Programs::Tree(tree) = self {
            tree.forked(parent, child);
        }
    }

    /// Records of forks were lost.
    pub(crate) fn missed_forks(&mut self) {
        if let Programs::Tree(tree) = self {
            tree.find_again();
        }
    }

    /// The mount namespace of the observed programs, unless that is everybody.
    pub(crate) fn namespace(&self) -> Option<MountNamespaceId> {
        match self {
            Programs::Tree(tree) => Some(tree.namespace),
            Programs::Everybody => None,
        }
    }

    /// Another round begins: what the trace names in it reaches beyond this moment.
    pub(crate) fn begin_round(&mut self) {
        if let Programs::Tree(tree) = self {
            tree.ended_before.extend(tree.ended.drain());
        }
    }

    /// The trace of the round was read.
    pub(crate) fn trace_read(&mut self) {
        if let Programs::Tree(tree) = self {
            for process in std::mem::take(&mut tree.ended_before) {
                // Its number may be another's by now.
                if has_ended(process) {
                    tree.processes.remove(&process);
                }
            }
        }
    }

    /// The observed processes that there are, and perhaps some that are gone.
    pub(crate) fn list(&mut self) -> Vec<i32> {
        match self {
            Programs::Tree(tree) => tree.list(),
            Programs::Everybody => processes().into_iter().flatten().collect(),
        }
    }
}

/// A process, and all that come from it: also those that have another parent by
/// now, since their own has ended.
///
/// A process that has ended stays in it until a round that began after that has read the
/// trace: then all that it brought in was named. Another process gets its number by a fork,
/// and that record names the parent.
#[derive(Debug)]
pub(crate) struct Tree {
    processes: HashSet<i32>,
    /// All of them are in it, unless they went elsewhere by themselves.
    namespace: MountNamespaceId,
    /// These had ended when they were listed.
    ended: HashSet<i32>,
    /// And these before the round began.
    ended_before: HashSet<i32>,
    /// With so many, those that have ended are taken out.
    sweep_len: usize,
}

/// With this many more processes, those that have ended are taken out.
const SWEEP: usize = 256;

impl Tree {
    /// This process, which is waiting, and those that it has made.
    pub(crate) fn of(first: i32, namespace: MountNamespaceId) -> Tree {
        let mut processes = HashSet::new();
        let mut rest = vec![first];
        while let Some(process) = rest.pop() {
            if processes.insert(process) {
                rest.extend(children(process).unwrap_or_default());
            }
        }
        Tree {
            processes,
            namespace,
            ended: HashSet::new(),
            ended_before: HashSet::new(),
            sweep_len: SWEEP,
        }
    }

    /// All that are in it; notes those that have ended.
    fn list(&mut self) -> Vec<i32> {
        let ended = self.processes.iter().copied().filter(|it| has_ended(*it));
        self.ended.extend(ended);
        self.sweep_len = self.processes.len() + SWEEP;
        self.processes.iter().copied().collect()
    }

    fn forked(&mut self, parent: i32, child: i32) {
        if !self.processes.contains(&parent) {
            self.processes.remove(&child);
            return;
        }
        self.processes.insert(child);
        if self.processes.len() > self.sweep_len {
            self.list();
        }
    }

    /// Records of forks were lost: every process in the namespace counts as observed.
    fn find_again(&mut self) {
        let inside = processes().into_iter().flatten().filter(|&process| {
            mount_namespace_of(process).is_ok_and(|namespace| namespace == self.namespace)
        });
        self.processes.extend(inside);
    }
}

fn has_ended(process: i32) -> bool {
    process_stat(process).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_stays_until_all_was_named() {
        // No process has this number.
        let gone = i32::MAX;
        let own = i32::try_from(std::process::id()).unwrap();
        let mut tree = Tree::of(own, mount_namespace_of(own).unwrap());
        tree.processes.insert(gone);
        let mut programs = Programs::Tree(tree);
        programs.begin_round();
        for _ in 0..3 {
            assert!(programs.list().contains(&gone));
        }
        programs.trace_read();
        assert!(
            programs.has(gone),
            "the trace was read up to an earlier moment"
        );
        programs.begin_round();
        assert!(programs.has(gone));
        programs.trace_read();
        assert!(!programs.has(gone) && programs.has(own));
    }

    #[test]
    fn a_number_belongs_to_the_last_process_that_got_it() {
        let own = i32::try_from(std::process::id()).unwrap();
        let namespace = mount_namespace_of(own).unwrap();
        let mut programs = Programs::Tree(Tree {
            processes: HashSet::from([100]),
            namespace,
            ended: HashSet::new(),
            ended_before: HashSet::new(),
            sweep_len: SWEEP,
        });
        programs.forked(100, 101);
        // The parent ends, and its child goes on.
        programs.forked(1, 100);
        assert!(!programs.has(100) && programs.has(101));
        programs.forked(101, 102);
        assert!(programs.has(102));
        assert!(!programs.has(own));
        programs.missed_forks();
        assert!(programs.has(own), "it is in the namespace");
    }
}
