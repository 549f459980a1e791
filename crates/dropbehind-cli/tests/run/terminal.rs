//! At a terminal, under a shell with job control.

use crate::shell::{PATIENCE, RUN, bash};
use crate::user::User;
use dropbehind_testbed::{Need, Running, need};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::io::{Read, Write};
use std::process::Command;
use std::time::Duration;

/// An interactive shell on a terminal of its own.
struct Terminal {
    shell: Running,
    keyboard: File,
    seen: String,
}

impl Terminal {
    /// `run` is what `$RUN` is.
    fn new(user: &User, run: &str) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        rustix::io::ioctl_fionbio(&master, true).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let name = name.to_str().unwrap();
        let screen = || File::options().read(true).write(true).open(name).unwrap();
        let environment = bash(user, run, "");
        let mut command = Command::new("setsid");
        command
            .args([
                "--ctty",
                "bash",
                "--norc",
                "--noprofile",
                "--noediting",
                "-i",
            ])
            .envs(
                environment
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .env("RUN", run)
            .env("PS1", "$ ")
            .env("TERM", "dumb")
            .current_dir(user.file(""))
            .stdin(screen())
            .stdout(screen())
            .stderr(screen());
        let mut terminal = Self {
            keyboard: File::from(master),
            shell: Running::start(command),
            seen: String::new(),
        };
        // No echo: only what programs print is to be seen.
        terminal.types("stty -echo; echo is-$((6*7))\n");
        terminal.shows("is-42");
        terminal
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this is on the screen, and returns what came before.
    #[track_caller]
    fn shows(&mut self, text: &str) -> String {
        let mut chunk = [0; 4096];
        let mut found = None;
        for _ in 0..PATIENCE {
            if let Some(at) = self.seen.find(text) {
                found = Some(at);
                break;
            }
            match self.keyboard.read(&mut chunk) {
                Ok(read) => self.seen.push_str(&String::from_utf8_lossy(&chunk[..read])),
                // Nothing yet, or nobody on the other side for the moment.
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        let at = found.unwrap_or_else(|| panic!("no {text:?}, but {:?}", self.seen));
        let before = self.seen[..at].to_owned();
        self.seen.drain(..at + text.len());
        before
    }
}

/// Does the same at two terminals, where programs are plain and observed.
fn at_both(work: impl Fn(&mut Terminal)) {
    for run in ["", RUN] {
        let user = User::new();
        work(&mut Terminal::new(&user, run));
    }
}

#[test]
fn the_interrupt_key_ends_the_program() {
    need!(Need::Root, Need::Tool("setsid"));
    at_both(|terminal| {
        for (key, status) in [("\x03", "130"), ("\x1c", "131")] {
            terminal.types("ulimit -c 0; $RUN sh -c 'echo going; exec sleep 600'\n");
            terminal.shows("going");
            terminal.types(key);
            // Not on the same line: bash gives a line up whose program was
            // interrupted.
            terminal.types("echo status $?.\n");
            terminal.shows(&format!("status {status}."));
        }
    });
}

#[test]
fn the_interrupt_key_is_felt_once() {
    need!(Need::Root, Need::Tool("setsid"));
    at_both(|terminal| {
        let program = "trap \"echo felt\" INT; echo going; read line; read line; echo got $line";
        terminal.types(&format!("$RUN bash -c '{program}'; echo status $?.\n"));
        terminal.shows("going");
        terminal.types("\x03");
        terminal.shows("felt");
        terminal.types("a\nb\n");
        let before = terminal.shows("status 0.");
        assert!(!before.contains("felt"), "{before}");
        assert!(before.contains("got "), "{before}");
    });
}

#[test]
fn jobs_stop_and_come_back() {
    need!(Need::Root, Need::Tool("setsid"));
    at_both(|terminal| {
        terminal
            .types("$RUN sh -c 'echo going; read x; echo got $x; read x; echo got $x; exit 3'\n");
        terminal.shows("going");
        for word in ["one", "two"] {
            terminal.types("\x1a");
            terminal.shows("Stopped");
            terminal.types("echo status $?.; jobs\n");
            terminal.shows("status 148.");
            terminal.shows("Stopped");
            terminal.types("fg\n");
            terminal.types(&format!("{word}\n"));
            terminal.shows(&format!("got {word}"));
        }
        terminal.types("echo status $?.\n");
        terminal.shows("status 3.");
    });
}

#[test]
fn reading_in_the_background_stops_the_job() {
    need!(Need::Root, Need::Tool("setsid"));
    at_both(|terminal| {
        terminal.types("set -b; $RUN cat &\n");
        terminal.shows("Stopped");
        terminal.types("fg\n");
        terminal.types("hello\n");
        terminal.shows("hello");
        terminal.types("\x04");
        terminal.types("echo status $?.\n");
        terminal.shows("status 0.");
    });
}

#[test]
fn an_interactive_shell_inside_has_job_control() {
    need!(Need::Root, Need::Tool("setsid"));
    at_both(|terminal| {
        terminal.types("PS1='inner ' $RUN bash --norc --noediting -i; echo status $?.\n");
        terminal.shows("inner ");
        terminal.types("sh -c 'echo going; exec sleep 600'\n");
        terminal.shows("going");
        terminal.types("\x1a");
        terminal.shows("Stopped");
        terminal.types("kill %1; fg; exit 9\n");
        terminal.shows("status 9.");
    });
}

#[test]
fn the_terminal_is_the_programs() {
    need!(Need::Root, Need::Tool("setsid"));
    at_both(|terminal| {
        terminal.types(
            "$RUN sh -c 'tty; test -t 0 && test -t 1 && test -t 2 && : </dev/tty && echo all'\n",
        );
        terminal.shows("/dev/pts/");
        terminal.shows("all");
    });
}

/// The kernel tells nobody but the session's leader, and that one is a shell, or
/// `run` in its place.
#[test]
fn hanging_up_ends_the_program() {
    need!(Need::Root, Need::Tool("setsid"));
    for exec in ["", "exec "] {
        at_both(|terminal| {
            terminal.types(&format!(
                "{exec}${{RUN:-env}} sh -c 'trap \"echo >>hung-up; exit\" HUP; echo going; \
                 while :; do sleep 0.01; done'\n"
            ));
            terminal.shows("going");
            let folder = std::fs::read_link(format!("/proc/{}/cwd", terminal.shell.id()));
            // We were the last ones to hold its other side.
            terminal.keyboard = File::open("/dev/null").unwrap();
            let told = folder.unwrap().join("hung-up");
            crate::shell::wait_for("the program's end", || told.exists());
        });
    }
}
