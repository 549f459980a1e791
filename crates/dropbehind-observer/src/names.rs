//! What processes were called that may be gone by now, and who made them.
//!
//! A program that reads a small file has often ended when the event of its open is read, and
//! `/proc` knows nothing of it any more. The trace does.

use std::collections::HashMap;

use dropbehind_linux::{ProgramName, TraceRecord};

/// Of at least so many processes the names are known, and of no more than twice as many.
const PROCESSES: usize = 8192;

/// The names of the processes that were started or named last.
#[derive(Debug, Default)]
pub(crate) struct Names {
    new: HashMap<i32, Known>,
    old: HashMap<i32, Known>,
}

/// What is known of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// That of the record, since those of two processors come in no order.
    time_ns: u64,
    name: ProgramName,
    made: Option<Made>,
}

/// Changes when a process ends and another has its number, and when it executes a program
/// or gives itself a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    time_ns: u64,
    pub(crate) made: Option<Made>,
}

/// How a process came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) parent: i32,
    /// By the clock of the trace. With the number, it tells a process from a later one with
    /// the same number.
    pub(crate) time_ns: u64,
}

impl Names {
    /// Takes a record, made at this time.
    pub(crate) fn take(&mut self, time_ns: u64, record: TraceRecord) {
        let (process, known) = match record {
            TraceRecord::Named { process, name } => {
                let made = self.known(process).and_then(|known| known.made);
                let known = Known {
                    time_ns,
                    name,
                    made,
                };
                (process, known)
            }
            TraceRecord::Forked { child, parent } => {
                // An unknown name is one that it does not have from a former process.
                let name = self.known(parent).map(|known| known.name);
                let known = Known {
                    time_ns,
                    name: name.unwrap_or_default(),
                    made: Some(Made { parent, time_ns }),
                };
                (child, known)
            }
            _ => return,
        };
        if let Some(newer) = self.known_mut(process)
            && newer.time_ns > time_ns
        {
            newer.made = newer.made.or(known.made);
            return;
        }
        if self.new.len() >= PROCESSES {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(process, known);
    }

    fn known(&self, process: i32) -> Option<Known> {
        let known = self.new.get(&process).or_else(|| self.old.get(&process));
        known.copied()
    }

    fn known_mut(&mut self, process: i32) -> Option<&mut Known> {
        let old = self.old.get_mut(&process);
        self.new.get_mut(&process).or(old)
    }

    /// What tells that a process is still the same and executes the same program, if
    /// that is known.
    pub(crate) fn stamp(&self, process: i32) -> Option<Stamp> {
        let Known { time_ns, made, .. } = self.known(process)?;
        Some(Stamp { time_ns, made })
    }

    /// The last name that this process had, if it is known.
    pub(crate) fn of(&self, process: i32) -> Option<String> {
        let known = self.known(process)?;
        let name = String::from_utf8_lossy(known.name.as_bytes());
        (!name.is_empty()).then(|| name.into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forked(parent: i32, child: i32) -> TraceRecord {
        TraceRecord::Forked { child, parent }
    }

    #[test]
    fn a_process_has_the_name_of_its_parent_before_its_own() {
        let mut names = Names::default();
        let shell = ProgramName::new(b"sh");
        let copy = ProgramName::new(b"cp");
        names.take(
            1,
            TraceRecord::Named {
                process: 1,
                name: shell,
            },
        );
        // The processor of the fork is read after that of the exec.
        names.take(
            3,
            TraceRecord::Named {
                process: 2,
                name: copy,
            },
        );
        names.take(2, forked(1, 2));
        names.take(4, forked(1, 3));
        assert_eq!(names.of(2).as_deref(), Some("cp"));
        let made = Made {
            parent: 1,
            time_ns: 2,
        };
        let made_of = |names: &Names, process| names.stamp(process).unwrap().made;
        assert_eq!(made_of(&names, 2), Some(made));
        assert_eq!(names.of(3).as_deref(), Some("sh"));
        // Its number is given out again, by somebody unknown.
        names.take(5, forked(9, 2));
        assert_eq!(names.of(2), None);
        assert_ne!(made_of(&names, 2), Some(made));
    }

    #[test]
    fn not_all_processes_of_all_times_are_remembered() {
        let mut names = Names::default();
        let name = ProgramName::new(b"x");
        for process in 1..100_000 {
            names.take(1, TraceRecord::Named { process, name });
            assert!(names.new.len() + names.old.len() <= 2 * PROCESSES);
        }
        assert_eq!(names.of(99_999).as_deref(), Some("x"));
        assert_eq!(names.of(1), None);
    }
}
