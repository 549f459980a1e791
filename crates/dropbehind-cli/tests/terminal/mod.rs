//! A user at a terminal: a pseudo-terminal, and what a terminal would show.

use dropbehind_testbed::{Running, Scratch};
use rustix::pty::OpenptFlags;
use rustix::termios::{Termios, Winsize};
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often it is looked whether the program still runs while nothing is shown.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The program must not have the end that stands for the user: the terminal would stay for ever.
const PTY_FLAGS: OpenptFlags = OpenptFlags::RDWR
    .union(OpenptFlags::NOCTTY)
    .union(OpenptFlags::CLOEXEC);

struct Shown {
    screen: Mutex<vt100::Parser>,
    changed: Condvar,
}

/// A program in a terminal of its own.
pub(crate) struct Terminal {
    child: Running,
    keyboard: File,
    /// Held, so that the settings stay readable when the program has ended.
    device: Option<OwnedFd>,
    /// Whoever shows the program's output stops once this is false.
    is_there: Arc<AtomicBool>,
    settings: String,
    shown: Arc<Shown>,
    reader: Option<JoinHandle<()>>,
}

/// How a program left its terminal.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) status: ExitStatus,
    /// What stands on the terminal.
    pub(crate) text: String,
}

impl Terminal {
    /// Starts the command in a terminal of 80 columns and 24 lines.
    pub(crate) fn start(args: &[&str], runtime_dir: &Path) -> Self {
        let master = rustix::pty::openpt(PTY_FLAGS).unwrap();
        rustix::pty::grantpt(&master).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
        let device = File::options()
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .unwrap();
        set_size(&device, 80, 24);
        let settings = settings(&device);
        let end = || device.try_clone().unwrap();
        // A session of its own, whose terminal this is: changes of its size are
        // signalled to nobody else.
        let mut command = Command::new("setsid");
        command
            .arg("--ctty")
            .arg(env!("CARGO_BIN_EXE_dropbehind"))
            .args(args)
            .env("TERM", "xterm")
            .env("DROPBEHIND_RUNTIME_DIR", runtime_dir)
            .stdin(end())
            .stdout(end())
            .stderr(end());
        let child = Running::start(command);
        let shown = Arc::new(Shown {
            screen: Mutex::new(vt100::Parser::new(cells(24), cells(80), 0)),
            changed: Condvar::new(),
        });
        let keyboard = File::from(master);
        let output = keyboard.try_clone().unwrap();
        let reader = Arc::clone(&shown);
        let is_there = Arc::new(AtomicBool::new(true));
        let shows = Arc::clone(&is_there);
        Self {
            child,
            keyboard,
            settings,
            device: Some(device.into()),
            is_there,
            shown,
            reader: Some(std::thread::spawn(move || read(output, &reader, &shows))),
        }
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Types.
    pub(crate) fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Pulls at the window's corner.
    pub(crate) fn resize(&self, columns: u16, lines: u16) {
        let mut screen = self.shown.screen.lock().unwrap();
        screen.screen_mut().set_size(cells(lines), cells(columns));
        set_size(&self.keyboard, columns, lines);
    }

    /// Waits until the screen is like this; the program's end is a panic.
    #[track_caller]
    pub(crate) fn until(&mut self, is: impl Fn(&vt100::Screen) -> bool) {
        let mut screen = self.shown.screen.lock().unwrap();
        while !is(screen.screen()) {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("ended with {status}: {}", screen.screen().contents());
            }
            screen = self
                .shown
                .changed
                .wait_timeout(screen, LOOK_AGAIN)
                .unwrap()
                .0;
        }
    }

    /// Waits until the screen shows this.
    #[track_caller]
    pub(crate) fn until_shown(&mut self, text: &str) {
        self.until(|screen| screen.contents().contains(text));
    }

    /// Takes the terminal away while the program shows things, and waits for its end.
    pub(crate) fn goes_away(mut self) -> ExitStatus {
        self.is_there.store(false, Ordering::SeqCst);
        self.reader.take().expect("a reader").join().unwrap();
        drop((self.device, self.keyboard));
        self.child.ends()
    }

    /// Waits for the end, and checks that the terminal is as it was.
    #[track_caller]
    pub(crate) fn ends(mut self) -> Left {
        let status = self.child.ends();
        let device = self.device.take().expect("it ends once");
        let after = settings(&device);
        drop(device);
        self.reader.take().expect("a reader").join().unwrap();
        let screen = self.shown.screen.lock().unwrap();
        let screen = screen.screen();
        assert!(!screen.alternate_screen(), "the program's screen stays");
        assert!(!screen.hide_cursor(), "the cursor stays hidden");
        assert_eq!(self.settings, after, "the settings stay changed");
        Left {
            status,
            text: screen.contents(),
        }
    }
}

impl Left {
    /// The exit code, or the signal below zero.
    pub(crate) fn code(&self) -> i32 {
        let signal = || -self.status.signal().expect("an end");
        self.status.code().unwrap_or_else(signal)
    }
}

/// Shows what the program sends, until nobody can send any more.
fn read(mut output: File, shown: &Shown, is_there: &AtomicBool) {
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = output.read(&mut piece)
        && is_there.load(Ordering::SeqCst)
    {
        shown.screen.lock().unwrap().process(&piece[..count]);
        shown.changed.notify_all();
    }
}

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).expect("a size")
}

fn set_size(terminal: &File, columns: u16, lines: u16) {
    let size = Winsize {
        ws_row: lines,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(terminal, size).unwrap();
}

/// All settings, comparable.
fn settings(device: &impl std::os::fd::AsFd) -> String {
    let termios: Termios = rustix::termios::tcgetattr(device).unwrap();
    format!("{termios:?}")
}

/// A folder for sockets.
pub(crate) fn runtime_dir() -> Scratch {
    Scratch::new().expect("a scratch folder")
}
