//! A file system with input to read, on which scripts are run plain and
//! observed, each way in a folder of its own.

use crate::shell::{Left, RUN, bash};
use crate::user::User;
use dropbehind_testbed::residency::evict;
use dropbehind_testbed::{Fs, MountedFs, Need};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the disks claim to hold; they take what is written only.
const DISK_BYTES: u64 = 1 << 30;

/// The file system. Input lies in its folder `input`, and scripts run in
/// folders beside that.
pub(crate) struct Bed {
    user: User,
    disk: MountedFs,
}

impl Bed {
    /// What a machine must have for a bed, and for programs to run on it.
    pub(crate) fn needs(filesystem: Fs, tools: &[&'static str]) -> Vec<Need> {
        let mut needs = MountedFs::needs(filesystem);
        needs.extend([Need::Cachestat, Need::Tool("fincore")]);
        needs.extend(tools.iter().map(|&tool| Need::Tool(tool)));
        needs
    }

    pub(crate) fn on(filesystem: Fs) -> Self {
        Self::sized(filesystem, DISK_BYTES)
    }

    /// One whose disk holds so many bytes.
    pub(crate) fn sized(filesystem: Fs, disk_bytes: u64) -> Self {
        let disk = MountedFs::new(filesystem, disk_bytes).expect("a file system");
        let user = User::new();
        std::fs::create_dir(disk.file("input")).expect("the folder of the input");
        Self { user, disk }
    }

    pub(crate) fn device(&self) -> &Path {
        self.disk.device()
    }

    /// The path of a name in the file system.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.disk.file(name)
    }

    /// Makes input, by a script that runs in its folder.
    pub(crate) fn input(&self, script: &str) -> &Self {
        let left = self.runs("", "input", &format!("set -e; {script}"));
        assert_eq!(left.code, Some(0), "{left:?}");
        self
    }

    /// A command for a script in a folder, which is made where it is missing.
    pub(crate) fn bash(&self, run: &str, folder: &str, script: &str) -> Command {
        let folder = self.file(folder);
        std::fs::create_dir_all(&folder).expect("the folder of a script");
        let mut command = bash(&self.user, run, script);
        command.current_dir(folder).env("LC_ALL", "C");
        command
    }

    /// Runs a script in a folder to its end.
    pub(crate) fn runs(&self, run: &str, folder: &str, script: &str) -> Left {
        let output = self.bash(run, folder, script).output();
        output.expect("bash").into()
    }

    /// Runs a script with cold input, observed, in the folder `observed`.
    pub(crate) fn observed(&self, script: &str) -> Left {
        self.cools("input");
        let run = format!("{RUN} --stats {}", self.file("figures").display());
        self.runs(&run, "observed", script)
    }

    /// Runs a script with cold input, plain and observed, in the folders `plain`
    /// and `observed`. Both leave the same behind: output, status, and files.
    /// Only that nothing of the observed one stays cached, where something of the
    /// plain one does.
    #[track_caller]
    pub(crate) fn both(&self, script: &str) -> Left {
        let left = self.both_leave(script);
        assert_eq!(self.cached("input"), [], "{script}");
        left
    }

    /// Like [`Self::both`], where the input is another matter.
    #[track_caller]
    pub(crate) fn both_leave(&self, script: &str) -> Left {
        self.both_leave_up_to(0, script)
    }

    /// Like [`Self::both_leave`], where so many pages may stay of files that were
    /// there before, and were read or written before anybody could look at them.
    #[track_caller]
    pub(crate) fn both_leave_up_to(&self, most_pages: u64, script: &str) -> Left {
        for folder in ["input", "plain", "observed"] {
            self.cools(folder);
        }
        let plain = self.runs("", "plain", script);
        assert_ne!(self.cached("plain"), [], "nothing to drop: {script}");
        let observed = self.observed(script);
        let cached = self.cached("observed");
        let pages: u64 = cached.iter().map(|(_, pages)| pages).sum();
        let figures = std::fs::read_to_string(self.file("figures")).unwrap_or_default();
        assert!(
            pages <= most_pages,
            "{script}: {cached:?}, {observed:?}, {figures}"
        );
        assert_eq!(plain, observed, "{script}");
        self.are_alike("plain", "observed");
        observed
    }

    /// Drops all of the files in a folder, which are written first.
    #[track_caller]
    pub(crate) fn cools(&self, folder: &str) {
        for (file, _) in self.cached(folder) {
            evict(&self.file(folder).join(file));
        }
        assert_eq!(self.cached(folder), []);
    }

    /// The files of a folder that have pages in the cache, and how many.
    pub(crate) fn cached(&self, folder: &str) -> Vec<(String, u64)> {
        let script = "find . -type f -size +0 -print0 | \
                      xargs -0 -r fincore --raw --noheadings --output PAGES,FILE";
        let left = self.runs("", folder, script);
        assert_eq!((left.code, left.stderr.as_str()), (Some(0), ""));
        let lines = left.stdout.lines().map(|line| {
            let (pages, file) = line.split_once(' ').expect("two columns");
            (file.to_owned(), pages.parse().expect("a number"))
        });
        lines.filter(|&(_, pages)| pages > 0).collect()
    }

    /// That two folders hold the same files with the same bytes and properties.
    #[track_caller]
    pub(crate) fn are_alike(&self, one: &str, other: &str) {
        let compare = format!("diff -r --no-dereference {one} {other}");
        let left = self.runs("", ".", &compare);
        assert_eq!(left.code, Some(0), "{left:?}");
        let list = |folder| {
            let left = self.runs("", folder, "find . -printf '%P %y %m %U %s %l\\n' | sort");
            left.stdout
        };
        assert_eq!(list(one), list(other));
    }
}
