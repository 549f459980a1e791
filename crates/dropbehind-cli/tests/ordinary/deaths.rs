//! Whoever is killed, the program's opens go on.

use crate::bed::Ordinary;
use dropbehind_testbed::slow_disk::{SlowDisk, SlowDiskOptions};
use dropbehind_testbed::{Fs, need};
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
        Running::start_with("", OPENS, "")
    }

    /// Starts a run with these options, of this program in Python.
    fn start_with(options: &str, program: &str, argument: &str) -> Running {
        let user = Ordinary::new();
        std::fs::write(user.file("opens.py"), program).unwrap();
        let run = user
            .script(options, &format!("exec $RUN python3 opens.py {argument}"))
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

    /// Where the program is in the kernel.
    fn call(&self) -> String {
        let is_it = |process: &i32| {
            let folder = std::fs::read_link(format!("/proc/{process}/cwd"));
            let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            line.starts_with(b"python3\0") && folder.is_ok_and(|at| at == self.user.file(""))
        };
        let process = numbers().find(is_it);
        let place =
            process.map(|process| std::fs::read_to_string(format!("/proc/{process}/wchan")));
        place.and_then(Result::ok).unwrap_or_default()
    }

    /// The processes of this run with this command.
    fn processes(&self, command: &str) -> Vec<i32> {
        let program = std::fs::canonicalize(self.user.file("../dropbehind")).unwrap();
        let is_it = |process: &i32| {
            let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            let second = line.split(|&byte| byte == 0).nth(1).unwrap_or_default();
            let runs = std::fs::read_link(format!("/proc/{process}/exe"));
            second == command.as_bytes() && runs.is_ok_and(|runs| runs == program)
        };
        numbers().filter(is_it).collect()
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

/// All processes.
fn numbers() -> impl Iterator<Item = i32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
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

/// Runs a command, and prints how many processes that leaves to a parent that adopts orphans.
const ADOPTS: &str = "import ctypes, os, subprocess, sys\n\
     PR_SET_CHILD_SUBREAPER = 36\n\
     assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1) == 0\n\
     subprocess.run(sys.argv[1:], stderr=subprocess.DEVNULL)\n\
     left = 0\n\
     while True:\n \
         try: os.wait(); left += 1\n \
         except ChildProcessError: break\n\
     print(left)\n";

/// Nobody may wait for orphans: the first process of a container often does not.
#[test]
fn no_process_is_left_to_the_first_one() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    std::fs::write(user.file("adopts.py"), ADOPTS).unwrap();
    for command in ["true", "no-such-program"] {
        let left = user.does(&format!("python3 adopts.py $RUN {command}"));
        assert_eq!(left, "0\n", "{command}");
    }
}

#[test]
fn each_process_has_our_name() {
    need!(all Ordinary::needs(&["python3"]));
    let running = Running::start();
    for command in ["run", "observe", "stand-by"] {
        let began = Instant::now();
        let name = || {
            let process = running.processes(command)[0];
            std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap()
        };
        while name() != "dropbehind\n" {
            assert!(began.elapsed() < Duration::from_secs(60), "{}", name());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert_eq!(running.ends(), Some(7));
}

/// Writes files of 2 MiB to another folder until told to stop.
const WRITES: &str = "import os, sys\n\
     n = 0\n\
     while not os.path.exists('stop'):\n \
         n += 1\n \
         with open(f'{sys.argv[1]}/f{n}', 'wb', buffering=0) as f: f.write(bytes(2 << 20))\n \
         with open('alive', 'wb') as f: f.write(b'%d' % n)\n\
     os._exit(7)\n";

/// An open that is held, since a disk has too much to write, goes on whoever is killed or stopped
/// then.
#[test]
fn a_held_open_goes_on() {
    need!(all Ordinary::needs(&["python3"]));
    need!(all SlowDisk::needs());
    for (command, signal, code) in [
        ("observe", Signal::KILL, Some(7)),
        ("observe", Signal::STOP, Some(7)),
        ("run", Signal::KILL, None),
        ("run", Signal::STOP, Some(7)),
    ] {
        let disk = SlowDisk::new(SlowDiskOptions::default()).unwrap();
        let mounted = disk.mount(Fs::Ext4).unwrap();
        let folder = mounted.file("data");
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::chown(&folder, Some(65534), Some(65534)).unwrap();
        disk.set_write_speed(Some(0)).unwrap();
        let options = "--max-dirty 16MiB --settle 0";
        let running = Running::start_with(options, WRITES, &folder.display().to_string());
        let held = |running: &Running| running.call().contains("seccomp");
        let began = Instant::now();
        let mut since = Instant::now();
        while since.elapsed() < Duration::from_millis(500) {
            if !held(&running) {
                since = Instant::now();
            }
            assert!(began.elapsed() < Duration::from_secs(60), "nobody is held");
        }
        let process = running.kill(command, signal);
        running.goes_on();
        disk.set_write_speed(None).unwrap();
        if signal == Signal::STOP {
            let pid = rustix::process::Pid::from_raw(process).unwrap();
            rustix::process::kill_process(pid, Signal::CONT).unwrap();
        }
        running.goes_on();
        assert_eq!(running.ends(), code, "{command} {signal:?}");
    }
}
