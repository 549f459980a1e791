//! The names of processes that may be gone by now, and who made them.
//!
//! A program that reads a small file has often ended by the time the event of its open is read,
//! and `/proc` no longer knows it. The trace does.

use std::collections::HashMap;

use dropbehind_linux::{ProgramName, TraceRecord, process_stat};

/// At least this many ended processes are remembered.
const ENDED: usize = 8192;
/// From this many living processes on, it is checked which have ended: records may be lost.
const LIVING: usize = 1 << 15;

/// The names of the processes that were started or named since the trace began.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: HashMap<i32, Known>,
    sweep_len: usize,
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
                let made = self.known.get(&process).and_then(|known| known.made);
                self.learn(process, time_ns, name, made);
            }
            TraceRecord::Forked { child, parent } => {
                // Never the name of a former process with this number.
                let name = self.known.get(&parent).map(|known| known.name);
                let made = Some(Made { parent, time_ns });
                self.learn(child, time_ns, name.unwrap_or_default(), made);
            }
            TraceRecord::Ended { process } => self.end(process, time_ns),
            TraceRecord::Added { .. } | TraceRecord::Lost { .. } => {}
        }
        if self.known.len() >= self.sweep_len.max(2 * ENDED) {
            self.sweep();
        }
    }

    fn learn(&mut self, process: i32, time_ns: u64, name: ProgramName, made: Option<Made>) {
        let known = Known {
            time_ns,
            name,
            made,
            ended_ns: 0,
        };
        let of_before = self.known.get_mut(&process);
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
        self.known.insert(process, known);
    }

    fn end(&mut self, process: i32, time_ns: u64) {
        // perf also reports an end when a process executes a setuid program, which it then leaves.
        let known = self.known.entry(process).or_default();
        // Otherwise the number belongs to its next process already.
        if known.time_ns <= time_ns {
            known.ended_ns = known.ended_ns.max(time_ns);
        }
    }

    /// Forgets all but the last processes that have ended.
    fn sweep(&mut self) {
        let mut ends: Vec<u64> = self.known.values().map(|known| known.ended_ns).collect();
        let (_, &mut forgotten_ns, _) = ends.select_nth_unstable_by(ENDED, |a, b| b.cmp(a));
        let living = ends.iter().filter(|&&ended_ns| ended_ns == 0).count();
        self.known.retain(|process, known| match known.ended_ns {
            0 => living < LIVING || process_stat(*process).is_ok(),
            ended_ns => ended_ns > forgotten_ns,
        });
        self.sweep_len = 2 * self.known.len();
    }

    /// What shows whether a process is still the same and executes the same program, if known.
    /// The end of a process that is older than the trace makes it no other one.
    pub(crate) fn stamp(&self, process: i32) -> Option<Stamp> {
        let &Known { time_ns, made, .. } = self.known.get(&process)?;
        (time_ns > 0).then_some(Stamp { time_ns, made })
    }

    /// The last name that this process had, padded with zeros, if it is known.
    pub(crate) fn bytes_of(&self, process: i32) -> Option<ProgramName> {
        Some(self.known.get(&process)?.name)
    }

    /// The last name that this process had, if it is known.
    pub(crate) fn of(&self, process: i32) -> Option<String> {
        let known = self.known.get(&process)?;
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
        for (time_ns, process) in (3..).zip(10_000_001..10_100_000) {
            names.take(2, forked(own, process));
            names.take(time_ns, TraceRecord::Ended { process });
            assert!(names.known.len() < 2 * (ENDED + 2));
        }
        assert_eq!(names.of(own).as_deref(), Some("x"));
        assert!((10_100_000 - 8192..10_100_000).all(|process| names.of(process).is_some()));
        assert_eq!(names.of(10_000_001), None);
        // The records of their ends were lost.
        for process in (1..100_000).map(|number| number + 20_000_000) {
            names.take(4, forked(own, process));
        }
        assert!(names.known.len() < 2 * LIVING, "{}", names.known.len());
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
        assert_eq!(names.known[&2].ended_ns, 3);
        // The next process with its number appears before it ends.
        names.take(9, forked(1, 2));
        names.take(8, ended);
        assert_eq!(names.stamp(2).unwrap().made.unwrap().time_ns, 9);
        assert_eq!(names.known[&2].ended_ns, 0);
    }
}
