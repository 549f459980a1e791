//! `dropbehind watch`: its rules, its signals, and what a service manager sees.

mod user;

use dropbehind_testbed::{Need, need};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use user::{User, finish};

const RULES: &str =
    "[[rule]]\nname = \"all\"\npath = \"/nowhere-of-this-name/**\"\nmode = \"dontcache\"\n";

impl User {
    /// The command, with its runtime files in the user's folder.
    fn watch(&self, args: &str) -> Command {
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

    fn writes(&self, name: &str, text: &str) {
        std::fs::write(self.file(name), text).unwrap();
    }
}

/// A watch that runs, and what it tells its service manager.
struct Running {
    child: Child,
    told: UnixDatagram,
    log: PathBuf,
}

impl Running {
    fn start(user: &User, command: &mut Command) -> Self {
        let (socket, log) = (user.file("notify"), user.file("log"));
        let told = UnixDatagram::bind(&socket).unwrap();
        told.set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let stderr = std::fs::File::create(&log).unwrap();
        let metadata = stderr.metadata().unwrap();
        let child = command
            .env("NOTIFY_SOCKET", &socket)
            .env(
                "JOURNAL_STREAM",
                format!("{}:{}", metadata.dev(), metadata.ino()),
            )
            .stdin(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap();
        Self { child, told, log }
    }

    /// Waits until it says this.
    fn says(&mut self, word: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let ended = self.child.try_wait().unwrap();
            if let Ok(bytes) = self.told.recv(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..bytes]).into_owned();
                if text.lines().any(|line| line.starts_with(word)) {
                    return text;
                }
            } else if let Some(status) = ended {
                panic!("{status} before {word}: {}", self.log());
            }
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    fn signal(&self, signal: &str) {
        let process = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &process]).status();
        assert!(sent.unwrap().success());
    }

    /// Ends it, and answers its exit code.
    fn ends(&mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.says("STOPPING=1");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn check_tells_what_rules_mean() {
    let user = User::new();
    user.writes("rules", RULES);
    let said = finish(&mut user.watch("--check --config rules"));
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let text = said.text();
    assert!(
        text.starts_with("rules: 1 rule, no mistake\n1. \"all\" (line 1): dontcache\n"),
        "{text}"
    );
    assert!(text.contains("all other files: left alone"), "{text}");

    user.writes(
        "rules",
        "mode = \"write-behind\"\n[disk.nosuch]\nwindow = \"1M\"\n",
    );
    let said = finish(&mut user.watch("--check --config rules"));
    assert_eq!(said.code, 0);
    assert!(
        said.stderr.contains("note: there is no disk nosuch"),
        "{}",
        said.stderr
    );
    // Also from a variable, and nothing but the file is needed.
    let said = finish(
        user.watch("--check")
            .env("DROPBEHIND_CONFIG", user.file("rules")),
    );
    assert_eq!(said.code, 0, "{}", said.stderr);
}

#[test]
fn check_names_each_wrong_line() {
    let user = User::new();
    user.writes("rules", "mode = \"all\"\n\nwindow = 3\n");
    let said = finish(&mut user.watch("--check --config rules"));
    said.fails(1, "rules:1:8: ");
    said.fails(1, "\nrules:3:10: ");
    finish(&mut user.watch("--check --config missing")).fails(1, "missing");
    // Not only in --check.
    finish(&mut user.watch("--config rules")).fails(1, "rules:3:10: ");
    finish(&mut user.watch("--config missing")).fails(1, "--config");
}

#[test]
fn a_service_manager_is_told_of_each_step() {
    need!(Need::Root);
    let user = User::new();
    user.writes("rules", RULES);
    let mut watch = user.watch("--config rules");
    let mut watch = Running::start(&user, watch.env("WATCHDOG_USEC", "600000"));
    assert!(watch.says("READY=1").contains("\nSTATUS="));
    watch.says("WATCHDOG=1");
    assert!(
        watch.log().contains("<5>watching, by the rules of rules\n"),
        "{}",
        watch.log()
    );

    user.writes("rules", "mode = \"write-behind\"\n");
    watch.signal("HUP");
    assert!(watch.says("RELOADING=1").contains("\nMONOTONIC_USEC="));
    watch.says("READY=1");
    assert!(
        watch
            .log()
            .contains("<5>the rules of rules are in force now\n"),
        "{}",
        watch.log()
    );

    user.writes("rules", "mode = \"write-behind\"\nwindow = 1\n");
    watch.signal("HUP");
    watch.says("RELOADING=1");
    watch.says("READY=1");
    assert!(
        watch.log().contains("<3>rules:2:10: window is 1;"),
        "{}",
        watch.log()
    );
    assert!(
        watch.log().contains("<3>the rules stay as they were\n"),
        "{}",
        watch.log()
    );
    watch.says("WATCHDOG=1");

    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

#[test]
fn a_key_on_the_terminal_ends_it() {
    need!(Need::Root);
    let user = User::new();
    user.writes("rules", RULES);
    let mut watch = Running::start(&user, &mut user.watch("--config rules"));
    watch.says("READY=1");
    assert_eq!(watch.ends("INT"), Some(0), "{}", watch.log());
}

#[test]
fn a_second_one_is_told_who_is_there() {
    need!(Need::Root);
    let user = User::new();
    user.writes("rules", RULES);
    let mut first = Running::start(&user, &mut user.watch("--config rules"));
    first.says("READY=1");
    let said = finish(&mut user.watch("--config rules --socket other.sock"));
    said.fails(
        1,
        &format!("process {}, by the rules of rules", first.child.id()),
    );
    assert!(
        said.stderr.starts_with("dropbehind: another watch"),
        "{}",
        said.stderr
    );
    // Nothing of the first is disturbed, and its death frees the place.
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    drop(first);
    std::fs::remove_file(user.file("notify")).unwrap();
    let mut next = Running::start(&user, &mut user.watch("--config rules"));
    next.says("READY=1");
    assert_eq!(next.ends("TERM"), Some(0));
}

#[test]
fn without_the_privilege_it_says_what_is_missing() {
    need!(Need::Root, Need::Tool("setpriv"));
    let user = User::new();
    user.writes("rules", RULES);
    let watch = user.watch("--config rules");
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set", "-sys_admin"])
        .arg(watch.get_program())
        .args(watch.get_args())
        .current_dir(user.file(""));
    let said = finish(&mut command);
    said.fails(3, "CAP_SYS_ADMIN");
    said.fails(3, "`dropbehind cp`");
}
