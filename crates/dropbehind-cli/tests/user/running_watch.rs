//! A `dropbehind watch` that runs.

use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use dropbehind_testbed::Running;

use super::User;

impl User {
    /// The command, with its runtime files in the user's folder.
    pub(crate) fn watch(&self, args: &str) -> Command {
        let mut command = self.dropbehind(["watch"].into_iter().chain(args.split_whitespace()));
        command.env("DROPBEHIND_RUNTIME_DIR", self.file("runtime"));
        for name in [
            "NOTIFY_SOCKET",
            "WATCHDOG_USEC",
            "WATCHDOG_PID",
            "JOURNAL_STREAM",
        ] {
            command.env_remove(name);
        }
        command
    }
}

/// A watch that runs, and what it tells its service manager.
pub(crate) struct RunningWatch {
    pub(crate) child: Running,
    told: UnixDatagram,
    log: PathBuf,
}

impl RunningWatch {
    /// By the user's file `rules`, and ready.
    pub(crate) fn by_rules(user: &User) -> Self {
        let mut watch = Self::start(user, &mut user.watch("--config rules"));
        watch.says("READY=1");
        watch
    }

    pub(crate) fn start(user: &User, command: &mut Command) -> Self {
        let (socket, log) = (user.file("notify"), user.file("log"));
        let told = UnixDatagram::bind(&socket).unwrap();
        told.set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let stderr = std::fs::File::create(&log).unwrap();
        let metadata = stderr.metadata().unwrap();
        command
            .env("NOTIFY_SOCKET", &socket)
            .env(
                "JOURNAL_STREAM",
                format!("{}:{}", metadata.dev(), metadata.ino()),
            )
            .stdin(Stdio::null())
            .stderr(stderr);
        let child = Running::start(command);
        Self { child, told, log }
    }

    /// Waits until it says this.
    pub(crate) fn says(&mut self, word: &str) -> String {
        self.says_one_of(&[word])
    }

    /// Waits until it says one of these.
    pub(crate) fn says_one_of(&mut self, words: &[&str]) -> String {
        let is_one = |line: &str| words.iter().any(|word| line.starts_with(word));
        let mut buffer = [0; 4096];
        // Five minutes: a watch that hangs must not hang all tests.
        for _ in 0..6000 {
            let ended = self.child.try_wait().unwrap();
            if let Ok(bytes) = self.told.recv(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..bytes]).into_owned();
                if text.lines().any(is_one) {
                    return text;
                }
            } else if let Some(status) = ended {
                panic!("{status} before {words:?}: {}", self.log());
            }
        }
        panic!("nothing of {words:?}: {}", self.log());
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let process = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &process]).status();
        assert!(sent.unwrap().success());
    }

    /// Ends it, and answers its exit code.
    pub(crate) fn ends(&mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.says("STOPPING=1");
        self.child.wait().unwrap().code()
    }
}
