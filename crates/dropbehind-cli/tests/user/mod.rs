//! A user at a shell: a folder of their own, the command, and what it says.

// Each test program uses its share of this.
#![allow(dead_code)]

pub(crate) mod running_watch;

use dropbehind_testbed::{Scratch, pattern};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;

/// One user in a folder on a real disk.
pub(crate) struct User {
    home: Scratch,
}

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Said {
    /// The exit code; a signal's death is a panic.
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl User {
    pub(crate) fn new() -> Self {
        Self {
            home: Scratch::new().expect("a scratch folder"),
        }
    }

    /// The path of a name in the user's folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.home.file(name)
    }

    /// Makes a file of so many bytes that can be recognised.
    pub(crate) fn has(&self, name: &str, bytes: usize) -> PathBuf {
        let path = self.file(name);
        std::fs::write(&path, pattern::filled(1, 0, bytes)).expect("a file");
        path
    }

    /// The command, to be run in the user's folder; without variables that
    /// would change what it does.
    pub(crate) fn dropbehind<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let args: Vec<&str> = args.into_iter().collect();
        if args.first() == Some(&"bench") {
            build_bench();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_dropbehind"));
        command.args(args).current_dir(self.home.path());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("DROPBEHIND_") {
                command.env_remove(name);
            }
        }
        command
    }

    /// Runs a command line, words split at spaces.
    pub(crate) fn runs(&self, line: &str) -> Said {
        finish(&mut self.dropbehind(line.split(' ')))
    }

    /// Runs a command line that has to work.
    pub(crate) fn does(&self, line: &str) -> Said {
        let said = self.runs(line);
        assert_eq!(said.code, 0, "{line}: {}", said.stderr);
        said
    }

    /// Runs a command line with this on standard input.
    pub(crate) fn pipes(&self, input: &[u8], line: &str) -> Said {
        let mut command = self.dropbehind(line.split(' '));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command");
        let mut stdin = child.stdin.take().expect("its standard input");
        let input = input.to_owned();
        // It may end before it has read all.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().expect("its end");
        writer.join().expect("the writer");
        said(&output)
    }

    /// Runs a script of sh, in which `dropbehind` is the command.
    pub(crate) fn sh(&self, script: &str) -> Said {
        let program = Path::new(env!("CARGO_BIN_EXE_dropbehind"));
        let folder = program.parent().expect("its folder");
        let path = std::env::var("PATH").unwrap_or_default();
        finish(
            Command::new("bash")
                .args(["-c", script])
                .current_dir(self.home.path())
                .env("PATH", format!("{}:{path}", folder.display())),
        )
    }
}

/// Builds `dropbehind-bench`, which `bench` starts, if it is not there. cargo builds programs of
/// other packages only where it tests those, too.
fn build_bench() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let dropbehind = Path::new(env!("CARGO_BIN_EXE_dropbehind"));
        if dropbehind.with_file_name("dropbehind-bench").exists() {
            return;
        }
        let profile = dropbehind.parent().expect("the profile's folder");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--locked", "--quiet", "-p", "dropbehind-bench"]);
        build
            .arg("--target-dir")
            .arg(profile.parent().expect("the target folder"));
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().expect("cargo").success(), "{build:?}");
    });
}

/// Runs a command to its end.
pub(crate) fn finish(command: &mut Command) -> Said {
    command.stdin(Stdio::null());
    said(&command.output().expect("the command"))
}

fn said(output: &Output) -> Said {
    Said {
        code: output.status.code().expect("no death by a signal"),
        stdout: output.stdout.clone(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Said {
    /// Standard output as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// That it failed in this way, and said this.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, saying: &str) {
        assert!(
            self.code == code && self.stderr.contains(saying),
            "expected exit code {code} and {saying:?}, got {} and {:?}",
            self.code,
            self.stderr
        );
    }
}

/// That a file holds the first so many bytes of what [`User::has`] made.
#[track_caller]
pub(crate) fn holds(path: &Path, bytes: usize) {
    let found = std::fs::read(path).expect("the file");
    assert_eq!(found.len(), bytes, "{}", path.display());
    if let Err(mismatch) = pattern::check(1, 0, &found) {
        panic!("{}: {mismatch}", path.display());
    }
}
