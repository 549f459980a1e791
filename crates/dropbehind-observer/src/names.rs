//! What processes were called that may be gone by now.
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
    /// With the time of the record, since those of two processors come in no order.
    new: HashMap<i32, (u64, ProgramName)>,
    old: HashMap<i32, (u64, ProgramName)>,
}

impl Names {
    /// Takes a record, made at this time.
    pub(crate) fn take(&mut self, time_ns: u64, record: TraceRecord) {
        match record {
            TraceRecord::Named { process, name } => self.named(time_ns, process, name),
            TraceRecord::Forked { child, parent } => {
                // An unknown name is one that it does not have from a former process.
                let name = self.known(parent).map(|(_, name)| name);
                self.named(time_ns, child, name.unwrap_or_default());
            }
            _ => {}
        }
    }

    fn named(&mut self, time_ns: u64, process: i32, name: ProgramName) {
        if self.known(process).is_some_and(|(at, _)| at > time_ns) {
            return;
        }
        if self.new.len() >= PROCESSES {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(process, (time_ns, name));
    }

    fn known(&self, process: i32) -> Option<(u64, ProgramName)> {
        let known = self.new.get(&process).or_else(|| self.old.get(&process));
        known.copied()
    }

    /// The last name that this process had, if it is known.
    pub(crate) fn of(&self, process: i32) -> Option<String> {
        let (_, name) = self.known(process)?;
        let name = String::from_utf8_lossy(name.as_bytes());
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
        assert_eq!(names.of(3).as_deref(), Some("sh"));
        // Its number is given out again, by somebody unknown.
        names.take(5, forked(9, 2));
        assert_eq!(names.of(2), None);
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
