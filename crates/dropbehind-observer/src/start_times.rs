//! When processes started, which tells one from another of the same number.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use dropbehind_linux::process_stat;

/// An answer holds so long. Numbers are given out in turn (`alloc_pid`,
/// kernel/pid.c), so one comes round again only after as many new processes as
/// there are numbers (`kernel.pid_max`, 32768 and more by default). So many are
/// not started in this time.
const KNOWN: Duration = Duration::from_millis(50);
/// No more processes are remembered.
const PROCESSES: usize = 4096;

/// Start times as of a moment ago: one program mostly makes many events in a
/// row, and a look at `/proc` costs as much as all else about a small file.
#[derive(Debug, Default)]
pub(crate) struct StartTimes {
    known: HashMap<i32, (Instant, u64)>,
}

impl StartTimes {
    /// In clock ticks since the machine started; `None` for a process that is
    /// gone.
    pub(crate) fn of(&mut self, process: i32) -> Option<u64> {
        let now = Instant::now();
        if let Some((at, started)) = self.known.get(&process)
            && now.duration_since(*at) < KNOWN
        {
            return Some(*started);
        }
        let started = process_stat(process).ok()?.start_ticks;
        if self.known.len() >= PROCESSES {
            self.known.clear();
        }
        self.known.insert(process, (now, started));
        Some(started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
