//! The processes that are observed.

use std::collections::HashSet;

use dropbehind_linux::{MountNamespaceId, children, mount_namespace_of, process_stat, processes};

/// The observed programs.
#[derive(Debug)]
pub(crate) enum Programs {
    /// A process and all its descendants.
    Tree(Tree),
    /// All processes of the machine.
    Everybody,
}

impl Programs {
    /// Returns whether the process is observed.
    pub(crate) fn has(&self, process: i32) -> bool {
        match self {
            Programs::Tree(tree) => tree.processes.contains(&process),
            Programs::Everybody => true,
        }
    }

    /// Records that a process made another one.
    pub(crate) fn forked(&mut self, parent: i32, child: i32) {
        let Programs::Tree(tree) = self else { return };
        if !tree.processes.contains(&parent) {
            tree.processes.remove(&child);
            return;
        }
        tree.processes.insert(child);
        if tree.processes.len() > tree.sweep_len {
            tree.list();
        }
    }

    /// Records a process that opened a file, where no trace reports forks.
    pub(crate) fn opened(&mut self, process: i32) {
        if let Programs::Tree(tree) = self {
            tree.untraced = true;
            tree.processes.insert(process);
        }
    }

    /// Counts every process in the namespace as observed, since records of forks were lost.
    pub(crate) fn missed_forks(&mut self) {
        if let Programs::Tree(tree) = self {
            let is_inside = |process: &i32| {
                mount_namespace_of(*process).is_ok_and(|namespace| namespace == tree.namespace)
            };
            let inside = processes().into_iter().flatten().filter(is_inside);
            tree.processes.extend(inside);
        }
    }

    /// Returns whether these are a run's: one process and its descendants.
    pub(crate) fn are_of_a_run(&self) -> bool {
        matches!(self, Programs::Tree(_))
    }

    /// Begins a round, whose trace reaches beyond this moment.
    pub(crate) fn begin_round(&mut self) {
        if let Programs::Tree(tree) = self {
            tree.ended_before.extend(tree.ended.drain());
        }
    }

    /// Takes out processes that had ended, now that the round's trace was read.
    pub(crate) fn trace_read(&mut self) {
        if let Programs::Tree(tree) = self {
            for process in std::mem::take(&mut tree.ended_before) {
                // The number may be another process's by now.
                if has_ended(process) {
                    tree.processes.remove(&process);
                }
            }
        }
    }

    /// The observed processes, and perhaps some that are gone.
    pub(crate) fn list(&mut self) -> Vec<i32> {
        match self {
            Programs::Tree(tree) => tree.list(),
            Programs::Everybody => processes().into_iter().flatten().collect(),
        }
    }
}

/// A process and all its descendants, including those that got another parent when their own
/// ended.
///
/// A process that has ended stays in it until a round that began after that has read the trace:
/// by then, all that it brought in was named. Another process gets its number by a fork, and
/// that record names the parent.
#[derive(Debug)]
pub(crate) struct Tree {
    processes: HashSet<i32>,
    /// They are all in this namespace, unless they left it by themselves.
    namespace: MountNamespaceId,
    /// Processes that had ended when they were listed.
    ended: HashSet<i32>,
    /// Processes that had ended before the round began.
    ended_before: HashSet<i32>,
    /// At this many processes, those that have ended are taken out.
    sweep_len: usize,
    /// No trace reports forks.
    untraced: bool,
}

/// After this many more processes, those that have ended are taken out.
const SWEEP: usize = 256;

impl Tree {
    /// The tree of this process, which is waiting, and of all that it has made.
    pub(crate) fn of(first: i32, namespace: MountNamespaceId) -> Tree {
        let mut tree = Tree {
            processes: HashSet::from([first]),
            namespace,
            ended: HashSet::new(),
            ended_before: HashSet::new(),
            sweep_len: SWEEP,
            untraced: false,
        };
        tree.add_descendants();
        tree
    }

    fn add_descendants(&mut self) {
        let mut rest: Vec<i32> = self.processes.iter().copied().collect();
        while let Some(process) = rest.pop() {
            for child in children(process).unwrap_or_default() {
                if self.processes.insert(child) {
                    rest.push(child);
                }
            }
        }
    }

    /// Lists all its processes, and notes those that have ended.
    fn list(&mut self) -> Vec<i32> {
        if self.untraced {
            self.add_descendants();
        }
        let ended = self.processes.iter().copied().filter(|it| has_ended(*it));
        self.ended.extend(ended);
        self.sweep_len = self.processes.len() + SWEEP;
        self.processes.iter().copied().collect()
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
            untraced: false,
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
