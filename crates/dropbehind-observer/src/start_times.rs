//! When processes started, which tells apart those with the same number.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use dropbehind_linux::process_stat;

/// How long an answer holds. Numbers are given out in turn (`alloc_pid`, kernel/pid.c), so one
/// is reused only after as many new processes as there are numbers (`kernel.pid_max`, 32768 and
/// more by default). That many are not started in this time.
const KNOWN: Duration = Duration::from_millis(50);
/// At most this many processes are remembered.
const PROCESSES: usize = 4096;

/// Start times as of a moment ago: a program often makes many events in a row, and a look at
/// `/proc` costs as much as all else about a small file.
#[derive(Debug, Default)]
pub(crate) struct StartTimes {
    known: HashMap<i32, (Instant, u64)>,
}

impl StartTimes {
    /// In clock ticks since the machine started; `None` if the process is gone.
    pub(crate) fn of(&mut self, process: i32) -> Option<u64> {
        self.remembered(process, Instant::now(), start_ticks)
    }

    fn remembered(
        &mut self,
        process: i32,
        now: Instant,
        look_up: impl FnOnce(i32) -> Option<u64>,
    ) -> Option<u64> {
        if let Some((at, started)) = self.known.get(&process)
            && now.duration_since(*at) < KNOWN
        {
            return Some(*started);
        }
        let started = look_up(process)?;
        if self.known.len() >= PROCESSES {
            self.known.clear();
        }
        self.known.insert(process, (now, started));
        Some(started)
    }
}

fn start_ticks(process: i32) -> Option<u64> {
    Some(process_stat(process).ok()?.start_ticks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_is_gone_is_known_for_a_moment_only() {
        let mut program = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let process = i32::try_from(program.id()).unwrap();
        let mut times = StartTimes::default();
        let started = times.of(process);
        assert_eq!(started, Some(process_stat(process).unwrap().start_ticks));
        program.kill().unwrap();
        program.wait().unwrap();
        std::thread::sleep(KNOWN);
        assert_eq!(times.of(process), None, "it is gone");
    }

    #[test]
    fn many_events_of_a_program_take_one_look() {
        let (looks, began) = (Cell::new(0), Instant::now());
        let mut times = StartTimes::default();
        let mut ask = |process, later| {
            times.remembered(process, began + later, |process| {
                looks.set(looks.get() + 1);
                u64::try_from(process).ok()
            })
        };
        for _ in 0..100 {
            assert_eq!(ask(1, Duration::ZERO), Some(1));
        }
        assert_eq!(looks.get(), 1);
        let last = KNOWN - Duration::from_nanos(1);
        assert_eq!((ask(1, last), ask(2, last)), (Some(1), Some(2)));
        assert_eq!(looks.get(), 2, "another process is another look");
        assert_eq!(ask(1, KNOWN), Some(1));
        assert_eq!(looks.get(), 3, "it may be another by then");
        // Nothing is remembered of a process that is gone.
        assert_eq!((ask(-1, KNOWN), ask(-1, KNOWN)), (None, None));
        assert_eq!(looks.get(), 5);
        for process in 3..10_000 {
            ask(process, KNOWN);
        }
        assert!(times.known.len() <= PROCESSES);
    }
}
