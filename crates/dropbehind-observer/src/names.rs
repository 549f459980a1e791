//! The names of processes that may be gone by now, and who made them.
//!
//! A program that reads a small file has often ended by the time the event of its open is read,
//! and `/proc` no longer knows it. The trace does.

use std::collections::HashMap;

use dropbehind_linux::{ProgramName, TraceRecord, process_stat};

/// At least this many ended processes are remembered, and at most twice as many.
const ENDED: usize = 8192;
/// From this many living processes on, it is checked which have ended: records may be lost.
const LIVING: usize = 1 << 15;

/// The names of the processes that were started or named since the trace began.
#[derive(Debug, Default)]
pub(crate) struct Names {
    living: HashMap<i32, Known>,
    sweep_len: usize,
    ended: HashMap<i32, Known>,
    ended_before: HashMap<i32, Known>,
}

/// What is known of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The record's time, since records of two processors come in no order.
    time_ns: u64,
    name: ProgramName,
    made: Option<Made>,
    /// 0 while it has not ended.
    ended_ns: u64,
}

/// Changes when a process ends and another gets its number, and when it executes a program or
/// renames itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    time_ns: u64,
    pub(crate) made: Option<Made>,
}

/// How a process came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Made {
    pub(crate) parent: i32,
    /// By the trace's clock. With the number, it tells a process from a later one with the same
    /// number.
    pub(crate) time_ns: u64,
}

impl Names {
    /// Takes in a record made at this time. Those of two processors come in no order.
    pub(crate) fn take(&mut self, time_ns: u64, record: TraceRecord) {
        match record {
            TraceRecord::Named { process, name } => {
                let made = self.known(process).and_then(|known| known.made);
                self.learn(process, time_ns, name, made);
            }
            TraceRecord::Forked { child, parent } => {
                // Never the name of a former process with this number.
                let name = self.known(parent).map(|known| known.name);
                let made = Some(Made { parent, time_ns });
                self.learn(child, time_ns, name.unwrap_or_default(), made);
            }
            TraceRecord::Ended { process } => self.end(process, time_ns),
            TraceRecord::Added { .. } | TraceRecord::Lost { .. } => {}
        }
    }

    fn learn(&mut self, process: i32, time_ns: u64, name: ProgramName, made: Option<Made>) {
        let known = Known {
            time_ns,
            name,
            made,
            ended_ns: 0,
        };
        let of_before = self.known_mut(process);
        if let Some(newer) = of_before.filter(|known| known.time_ns.max(known.ended_ns) > time_ns) {
            match newer.time_ns > time_ns {
                true => newer.made = newer.made.or(made),
                false => {
                    let ended_ns = newer.ended_ns;
                    *newer = Known { ended_ns, ..known };
                }
            }
            return;
        }
        self.living.insert(process, known);
        if self.living.len() >= self.sweep_len.max(LIVING) {
            self.living
                .retain(|process, _| process_stat(*process).is_ok());
            self.sweep_len = 2 * self.living.len();
        }
    }

    fn end(&mut self, process: i32, time_ns: u64) {
        // perf also reports an end when a process executes a setuid program, which it then leaves.
        let known = self.known(process).unwrap_or_default();
        if known.time_ns > time_ns {
            // The number belongs to its next process already.
            return;
        }
        self.living.remove(&process);
        if self.ended.len() >= ENDED {
            self.ended_before = std::mem::take(&mut self.ended);
        }
        let ended_ns = known.ended_ns.max(time_ns);
        self.ended.insert(process, Known { ended_ns, ..known });
    }

    fn known(&self, process: i32) -> Option<Known> {
        let ended = || self.ended.get(&process);
        let known = self.living.get(&process).or_else(ended);
        known.or_else(|| self.ended_before.get(&process)).copied()
    }

    fn known_mut(&mut self, process: i32) -> Option<&mut Known> {
        let before = self.ended_before.get_mut(&process);
        let ended = self.ended.get_mut(&process).or(before);
        self.living.get_mut(&process).or(ended)
    }

    /// What shows whether a process is still the same and executes the same program, if known.
    /// The end of a process that is older than the trace makes it no other one.
    pub(crate) fn stamp(&self, process: i32) -> Option<Stamp> {
        let Known { time_ns, made, .. } = self.known(process)?;
        (time_ns > 0).then_some(Stamp { time_ns, made })
    }

    /// The last name that this process had, padded with zeros, if it is known.
    pub(crate) fn bytes_of(&self, process: i32) -> Option<ProgramName> {
        Some(self.known(process)?.name)
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
        // The fork's processor is read after the exec's.
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
        // The number is reused, by the child of an unknown process.
        names.take(5, forked(9, 2));
        assert_eq!(names.of(2), None);
        assert_ne!(made_of(&names, 2), Some(made));
    }

    /// What it brought in before its end may be read after it.
    #[test]
    fn a_process_that_is_older_than_the_trace_is_the_same_once_it_has_ended() {
        let mut names = Names::default();
        let before = names.stamp(2);
        names.take(1, TraceRecord::Ended { process: 2 });
        assert_eq!(names.stamp(2), before);
        names.take(2, forked(1, 2));
        assert_ne!(names.stamp(2), before);
    }

    /// perf reports its end, and later the process's own.
    #[test]
    fn a_process_is_the_same_when_it_has_executed_a_setuid_program() {
        let mut names = Names::default();
        let name = ProgramName::new(b"cat");
        names.take(1, TraceRecord::Named { process: 2, name });
        let before = names.stamp(2);
        names.take(2, TraceRecord::Ended { process: 2 });
        names.take(3, TraceRecord::Ended { process: 2 });
        assert_eq!(names.stamp(2), before);
        assert_eq!(names.of(2).as_deref(), Some("cat"));
    }

    #[test]
    fn those_that_have_not_ended_are_remembered() {
        let mut names = Names::default();
        let name = ProgramName::new(b"x");
        let own = i32::try_from(std::process::id()).unwrap();
        names.take(1, TraceRecord::Named { process: own, name });
        for process in (1..100_000).map(|number| number + 10_000_000) {
            names.take(2, forked(own, process));
            names.take(3, TraceRecord::Ended { process });
            assert!(names.living.len() <= 2);
            assert!(names.ended.len() + names.ended_before.len() <= 2 * ENDED);
        }
        assert_eq!(names.of(own).as_deref(), Some("x"));
        assert_eq!(names.of(10_099_999).as_deref(), Some("x"));
        assert_eq!(names.of(10_000_001), None);
        // The records of their ends were lost.
        for process in (1..100_000).map(|number| number + 20_000_000) {
            names.take(4, forked(own, process));
        }
        assert!(names.living.len() < 2 * LIVING, "{}", names.living.len());
        assert_eq!(names.of(own).as_deref(), Some("x"));
    }

    #[test]
    fn records_of_two_processors_come_in_no_order() {
        let mut names = Names::default();
        let copy = ProgramName::new(b"cp");
        let named = TraceRecord::Named {
            process: 2,
            name: copy,
        };
        let ended = TraceRecord::Ended { process: 2 };
        // Its end is read before its beginning.
        names.take(3, ended);
        names.take(1, forked(1, 2));
        names.take(2, named);
        assert_eq!(names.of(2).as_deref(), Some("cp"));
        assert!(names.living.is_empty());
        // The next process with its number appears before it ends.
        names.take(9, forked(1, 2));
        names.take(8, ended);
        assert_eq!(names.stamp(2).unwrap().made.unwrap().time_ns, 9);
        assert_eq!(names.living.len(), 1);
    }
}
