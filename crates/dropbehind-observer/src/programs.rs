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
/// A process that has ended stays in it for a while: the trace may name its last pages
/// later. Another process gets its number by a fork, and that record names the parent.
#[derive(Debug)]
pub(crate) struct Tree {
    processes: HashSet<i32>,
    /// All of them are in it, unless they went elsewhere by themselves.
    namespace: MountNamespaceId,
    /// These had ended when they were listed last. By the next time, the trace has named
    /// all that they brought in.
    ended: HashSet<i32>,
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
            sweep_len: SWEEP,
        }
    }

    /// Those that live, and those that have ended since this was asked last.
    fn list(&mut self) -> Vec<i32> {
        let has_ended = |process: &i32| process_stat(*process).is_err();
        let ended = std::mem::take(&mut self.ended);
        self.processes
            .retain(|process| !ended.contains(process) || !has_ended(process));
        self.ended = self.processes.iter().copied().filter(has_ended).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_belongs_to_the_last_process_that_got_it() {
        let own = i32::try_from(std::process::id()).unwrap();
        let namespace = mount_namespace_of(own).unwrap();
        let mut programs = Programs::Tree(Tree {
            processes: HashSet::from([100]),
            namespace,
            ended: HashSet::new(),
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
