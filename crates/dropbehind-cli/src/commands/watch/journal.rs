//! Lines about what happens, for the journal or whoever reads standard error.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

/// Priorities of syslog(3), which the journal sorts and colours by.
#[derive(Clone, Copy, Debug)]
enum Priority {
    Error = 3,
    Warning = 4,
    Notice = 5,
    Info = 6,
}

/// Where the lines go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Journal {
    /// The journal reads them, so each begins with its priority (sd-daemon(3)). The journal adds
    /// time and name itself.
    prefixed: bool,
}

impl Journal {
    /// Writes as the environment says.
    pub(super) fn new() -> Self {
        Self {
            prefixed: stderr_is_the_journal(),
        }
    }

    /// Logs what was asked for and did not work.
    pub(super) fn error(self, text: impl Display) {
        self.say(Priority::Error, text);
    }

    /// Logs what works, but perhaps not as meant.
    pub(super) fn warning(self, text: impl Display) {
        self.say(Priority::Warning, text);
    }

    /// Logs what began or ended.
    pub(super) fn notice(self, text: impl Display) {
        self.say(Priority::Notice, text);
    }

    /// Logs the rest.
    pub(super) fn info(self, text: impl Display) {
        self.say(Priority::Info, text);
    }

    /// Each line is an entry of its own. If it cannot be written, nobody is left to be told.
    fn say(self, priority: Priority, text: impl Display) {
        let text = text.to_string();
        let lines = text.lines().map(|line| match self.prefixed {
            true => format!("<{}>{line}\n", priority as u8),
            false => format!("dropbehind: {line}\n"),
        });
        // One write, so that other writers' lines do not get into it.
        let lines: String = lines.collect();
        let _ = io::stderr().write_all(lines.as_bytes());
    }
}

/// systemd names the stream that leads to the journal, as `DEVICE:INODE`. Standard error may
/// have been redirected since.
fn stderr_is_the_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let metadata = || File::from(io::stderr().as_fd().try_clone_to_owned()?).metadata();
    match metadata() {
        Ok(ours) => named == format!("{}:{}", ours.dev(), ours.ino()),
        Err(_) => false,
    }
}
