//! Whoever is killed, the program's opens go on.

use crate::bed::Ordinary;
use dropbehind_testbed::need;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// Makes and reads small files until told to stop; any open that fails ends it with 9.
const OPENS: &str = "import os, sys\n\
     n = 0\n\
     while not os.path.exists('stop'):\n \
         n += 1\n \
         try:\n  \
             with open(f'f{n % 100}', 'wb') as f: f.write(b'%d' % n)\n  \
             with open(f'f{n % 100}', 'rb') as f: assert f.read() == b'%d' % n\n \
         except BaseException as error:\n  \
             open('error', 'w').write(repr(error)); os._exit(9)\n \
         if n % 50 == 0: os.utime('alive') if os.path.exists('alive') else os.close(os.open('alive', os.O_CREAT | os.O_WRONLY))\n\
     os._exit(7)\n";

struct Running {
    user: Ordinary,
    run: Child,
}

impl Running {
    fn start() -> Running {
        let user = Ordinary::new();
        std::fs::write(user.file("opens.py"), OPENS).unwrap();
        let run = user
            .script("", "exec $RUN python3 opens.py")
            .spawn()
            .unwrap();
        let running = Running { user, run };
        running.goes_on();
        running
    }

    /// Waits until the program has opened more files.
    #[track_caller]
    fn goes_on(&self) {
        let alive = self.user.file("alive");
        let modified = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
        let before = modified(&alive);
        let began = Instant::now();
        while modified(&alive) == before || modified(&alive).is_none() {
            let error = std::fs::read_to_string(self.user.file("error"));
            assert!(error.is_err(), "{error:?}");
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "the program hangs"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The processes of this run with this command.
    fn processes(&self, command: &str) -> Vec<i32> {
        let program = std::fs::canonicalize(self.user.file("../dropbehind")).unwrap();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_it = |process: &i32| {
            let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            let second = line.split(|&byte| byte == 0).nth(1).unwrap_or_default();
            let runs = std::fs::read_link(format!("/proc/{process}/exe"));
            second == command.as_bytes() && runs.is_ok_and(|runs| runs == program)
        };
        numbers.filter(is_it).collect()
    }

    fn kill(&self, command: &str, signal: rustix::process::Signal) -> i32 {
        // One that was killed before may not be reaped yet, but then has no command line.
        let process = self.processes(command)[0];
        let pid = rustix::process::Pid::from_raw(process).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        process
    }

    /// Has the program end, and returns how the run did.
    fn ends(mut self) -> Option<i32> {
        std::fs::write(self.user.file("stop"), "").unwrap();
        let status = self.run.wait().unwrap();
        let began = Instant::now();
        for command in ["stand-by", "observe", "run"] {
            while !self.processes(command).is_empty() {
                assert!(began.elapsed() < Duration::from_secs(60), "{command} stays");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let error = std::fs::read_to_string(self.user.file("error"));
        assert!(error.is_err(), "{error:?}");
        status.code()
    }
}

use rustix::process::Signal;

/// `DROPBEHIND_KILLS` sets how often each is killed, and `DROPBEHIND_SEED` when.
fn kills() -> u32 {
    let kills = std::env::var("DROPBEHIND_KILLS");
    kills.map_or(3, |kills| kills.parse().unwrap())
}

/// A moment within the next 20 ms, in which the program opens some hundred files.
fn moment(round: u32) -> Duration {
    let seed = std::env::var("DROPBEHIND_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mixed = (u64::from(round) + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Duration::from_micros((mixed >> 32) % 20_000)
}

#[test]
fn a_killed_process_costs_nothing() {
    need!(all Ordinary::needs(&["python3"]));
    for (command, code) in [("observe", Some(7)), ("run", None), ("stand-by", Some(7))] {
        for round in 0..kills() {
            let running = Running::start();
            std::thread::sleep(moment(round));
            running.kill(command, Signal::KILL);
            running.goes_on();
            running.goes_on();
            assert_eq!(running.ends(), code, "{command}, round {round}");
        }
    }
}

#[test]
fn whoever_is_left_finds_another() {
    need!(all Ordinary::needs(&["python3"]));
    for _ in 0..kills() {
        let running = Running::start();
        // Each in turn: there is always another one.
        let mut killed = Vec::new();
        for command in ["stand-by", "run", "stand-by", "stand-by"] {
            let began = Instant::now();
            // Two hold the listener before one of them is killed.
            let holders = |killed: &[i32]| {
                let mut all = running.processes("run");
                all.extend(running.processes("stand-by"));
                all.retain(|process| !killed.contains(process));
                all.len()
            };
            while holders(&killed) < 2 {
                assert!(began.elapsed() < Duration::from_secs(60), "no {command}");
                std::thread::sleep(Duration::from_millis(5));
            }
            killed.push(running.kill(command, Signal::KILL));
            running.goes_on();
            running.goes_on();
        }
        assert_eq!(running.ends(), None);
    }
}

/// Nobody may be stopped by another one's being stopped.
#[test]
fn a_stopped_supervisor_or_observer_stops_nothing() {
    need!(all Ordinary::needs(&["python3"]));
    for command in ["run", "observe", "stand-by"] {
        let running = Running::start();
        let process = running.kill(command, Signal::STOP);
        running.goes_on();
        running.goes_on();
        let pid = rustix::process::Pid::from_raw(process).unwrap();
        rustix::process::kill_process(pid, Signal::CONT).unwrap();
        running.goes_on();
        assert_eq!(running.ends(), Some(7), "{command}");
    }
}
