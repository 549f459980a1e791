//! An ordinary user in a folder of their own.

use dropbehind_testbed::{Need, Scratch};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Who nobody is.
const NOBODY: &str = "65534";

/// A folder that an ordinary user may write to, and that user.
pub(crate) struct Ordinary {
    home: Scratch,
}

/// What a script left behind.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ordinary {
    /// What a test needs, beside these tools.
    pub(crate) fn needs(tools: &[&'static str]) -> Vec<Need> {
        let mut needs = vec![Need::Cachestat];
        if is_root() {
            needs.push(Need::Tool("setpriv"));
        }
        needs.extend(tools.iter().map(|tool| Need::Tool(tool)));
        needs
    }

    pub(crate) fn new() -> Ordinary {
        let home = Scratch::new().unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_dropbehind"));
        // The user may not be allowed to go where it is built.
        if std::fs::hard_link(program, home.file("dropbehind")).is_err() {
            std::fs::copy(program, home.file("dropbehind")).unwrap();
        }
        let folder = home.file("home");
        std::fs::create_dir(&folder).unwrap();
        if is_root() {
            let everybody = PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(home.path(), everybody).unwrap();
            std::os::unix::fs::chown(&folder, Some(65534), Some(65534)).unwrap();
        }
        Ordinary { home }
    }

    /// The path of a file of theirs.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.home.file("home").join(name)
    }

    /// Their script of bash, in which `$RUN` is the command with its options.
    pub(crate) fn script(&self, options: &str, script: &str) -> Command {
        let mut command = match is_root() {
            true => {
                let mut command = Command::new("setpriv");
                command.args([
                    "--reuid",
                    NOBODY,
                    "--regid",
                    NOBODY,
                    "--clear-groups",
                    "bash",
                ]);
                command
            }
            false => Command::new("bash"),
        };
        let program = self.home.file("dropbehind");
        command
            .args(["-c", script])
            .current_dir(self.home.file("home"))
            .env("DROPBEHIND", &program)
            .env("RUN", format!("{} run {options}", program.display()))
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env_remove("DROPBEHIND_NO_TRACE")
            .stdin(Stdio::null());
        command
    }

    /// Runs such a script to its end.
    pub(crate) fn runs(&self, options: &str, script: &str) -> Left {
        let output = self.script(options, script).output().unwrap();
        Left {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs such a script, which has to work and say nothing.
    #[track_caller]
    pub(crate) fn does(&self, script: &str) -> String {
        let left = self.runs("", script);
        assert_eq!(
            (left.code, left.stderr.as_str()),
            (Some(0), ""),
            "{script}: {left:?}"
        );
        left.stdout
    }

    /// How many pages of a file are cached, by the kernel's word.
    #[track_caller]
    pub(crate) fn cached_pages(&self, name: &str) -> u64 {
        let counts = dropbehind_testbed::residency::cached(&self.file(name)).unwrap();
        counts.cached_pages
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
