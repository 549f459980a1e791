//! What went wrong, as a sentence with the next step, and the exit codes.

use crate::advice::next_step;
use crate::size;
use dropbehind::config::FileError;
pub(crate) use dropbehind_observer::shown;
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// The exit codes, also documented in `--help`. Most usage errors (2) come from the
/// parser of the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything was done.
    #[default]
    Done,
    /// An operation failed; the others were done.
    Failed,
    /// The command line is wrong, as only a look at the files could tell.
    Usage,
    /// What was asked for is not possible here: the kernel or file system lacks
    /// a feature, or the user a privilege.
    Impossible,
    /// The reader of our output went away. A shell shows this code for a program ended by
    /// `SIGPIPE`, which is how `cat` ends.
    BrokenPipe,
    /// From `run`: the program's own exit code.
    Program(u8),
    /// From `run`: something of ours failed, before the program was started.
    OwnFailure,
    /// From `run`: the program is there, but cannot be run.
    NotRunnable,
    /// From `run`: there is no such program.
    NoProgram,
}

impl Exit {
    /// The exit code of two operations. A plain failure outweighs an impossible one, since
    /// running the command elsewhere would not help it.
    pub(crate) fn and(self, other: Exit) -> Exit {
        match (self, other) {
            (Exit::Done, other) => other,
            (Exit::BrokenPipe, _) | (_, Exit::BrokenPipe) => Exit::BrokenPipe,
            (Exit::Failed, _) | (_, Exit::Failed) => Exit::Failed,
            (first, _) => first,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Impossible => 3,
            Exit::BrokenPipe => 141,
            Exit::Program(code) => code,
            Exit::OwnFailure => 125,
            Exit::NotRunnable => 126,
            Exit::NoProgram => 127,
        })
    }
}

/// The operation that failed, as far as the next step depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Opening a file for reading, or looking at it.
    Open,
    /// Reading.
    Read,
    /// Opening or making a file, directory or link that is written.
    Create,
    /// Writing.
    Write,
    /// Bringing what was written to the disk.
    Sync,
    /// Closing after writing.
    Close,
    /// Giving the copy the source's permissions.
    Preserve,
    /// Giving the copy the source's owner.
    PreserveOwner,
    /// Giving the copy the source's times.
    PreserveTimes,
    /// Giving the copy the source's extended attributes.
    PreserveXattrs,
    /// Looking at what something is.
    Look,
    /// Removing what is in the way.
    Remove,
    /// Making a directory.
    MakeDirectory,
    /// Counting its pages in the cache.
    Count,
    /// Dropping its pages.
    Drop,
    /// Finding out what works.
    Probe,
}

impl Doing {
    fn verb(self) -> &'static str {
        match self {
            Doing::Open => "open",
            Doing::Read => "read",
            Doing::Create => "create",
            Doing::Write => "write",
            Doing::Sync => "sync",
            Doing::Close => "close",
            Doing::Preserve => "preserve the permissions of",
            Doing::PreserveOwner => "preserve the owner of",
            Doing::PreserveTimes => "preserve the times of",
            Doing::PreserveXattrs => "preserve the extended attributes of",
            Doing::Look => "open",
            Doing::Remove => "remove",
            Doing::MakeDirectory => "create",
            Doing::Count => "count the cached pages of",
            Doing::Drop => "drop the cached pages of",
            Doing::Probe => "find out what works for",
        }
    }

    /// The beginning of what plain `cp` says.
    fn like_cp(self, path: &Path) -> String {
        let name = quoted(path);
        match self {
            Doing::Open => format!("cannot open {name} for reading"),
            Doing::Look => format!("cannot stat {name}"),
            Doing::Read => format!("error reading {name}"),
            Doing::Create | Doing::Write => format!("cannot create regular file {name}"),
            Doing::MakeDirectory => format!("cannot create directory {name}"),
            Doing::Sync => format!("error syncing {name}"),
            Doing::Close => format!("failed to close {name}"),
            Doing::Remove => format!("cannot remove {name}"),
            Doing::Preserve => format!("preserving permissions for {name}"),
            Doing::PreserveOwner => format!("failed to preserve ownership for {name}"),
            Doing::PreserveTimes => format!("preserving times for {name}"),
            Doing::PreserveXattrs => format!("setting attributes for {name}"),
            Doing::Count | Doing::Drop | Doing::Probe => format!("cannot {} {name}", self.verb()),
        }
    }
}

/// A name as plain `cp` prints it.
pub(crate) fn quoted(path: &Path) -> String {
    format!("'{}'", shown(path))
}

/// A failed operation: one sentence that says what to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    sentence: String,
    /// The same as plain `cp` says it, for scripts that read its messages.
    as_cp: String,
    /// What the process exits with because of it.
    pub(crate) exit: Exit,
}

impl Failure {
    /// A failure that no system call reported.
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        let sentence = sentence.into();
        Self {
            as_cp: sentence.clone(),
            sentence,
            exit: Exit::Failed,
        }
    }

    /// A command line that must not be carried out; nothing was done.
    pub(crate) fn usage(sentence: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            ..Self::new(sentence)
        }
    }

    /// Something that cannot be done on this kernel or by this user.
    pub(crate) fn impossible(sentence: impl Into<String>) -> Self {
        Self {
            exit: Exit::Impossible,
            ..Self::new(sentence)
        }
    }

    /// Sets what plain `cp` would say.
    pub(crate) fn like_cp(mut self, line: impl Into<String>) -> Self {
        self.as_cp = line.into();
        self
    }

    /// What plain `cp` would say.
    pub(crate) fn as_cp(&self) -> &str {
        &self.as_cp
    }

    /// Adds a sentence.
    pub(crate) fn add(&mut self, sentence: &str) {
        self.sentence.push(' ');
        self.sentence.push_str(sentence);
    }

    /// A configuration file that cannot be used.
    pub(crate) fn config(error: &FileError) -> Self {
        Self::new(format!(
            "{error}. Correct the file, or name another one with --config or DROPBEHIND_CONFIG; an \
             empty name reads none."
        ))
    }

    /// A failed call on a file.
    pub(crate) fn io(doing: Doing, path: &Path, error: &io::Error) -> Self {
        Self::after(doing, path, error, "")
    }

    /// What was written, and the disk did not take. Now that the kernel has told this, it lets
    /// others drop the pages.
    pub(crate) fn unsynced(path: &Path, error: &io::Error) -> Self {
        let mut failure = Self::io(Doing::Sync, path, error);
        failure.add("Only the cache may have all of it: copy it elsewhere before you drop it.");
        failure
    }

    /// A failed call on a file after part of the work, which `so_far` states:
    /// "1.2 GiB of 4.0 GiB were written".
    pub(crate) fn after(doing: Doing, path: &Path, error: &io::Error, so_far: &str) -> Self {
        let step = next_step(doing, path, error);
        let ending = if so_far.is_empty() {
            capitalised(&step)
        } else {
            format!("{so_far}; {step}")
        };
        let name = match path.as_os_str().is_empty() {
            true => "''".to_owned(),
            false => shown(path),
        };
        Self {
            sentence: format!("cannot {} {name}: {error}. {ending}.", doing.verb()),
            as_cp: format!("{}: {}", doing.like_cp(path), reason(error)),
            exit: exit_of(doing, error),
        }
    }
}

/// What `strerror(3)` says, without Rust's number behind it.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_owned()
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

fn exit_of(doing: Doing, error: &io::Error) -> Exit {
    match Errno::from_io_error(error) {
        Some(Errno::NOSYS | Errno::OPNOTSUPP) => Exit::Impossible,
        // Seeing a file's pages takes more rights than reading it.
        Some(Errno::PERM) if doing == Doing::Count => Exit::Impossible,
        _ if error.kind() == io::ErrorKind::Unsupported => Exit::Impossible,
        _ => Exit::Failed,
    }
}

/// "1.2 GiB of 4.0 GiB were written".
pub(crate) fn so_far(written: u64, total: Option<u64>) -> String {
    match total {
        Some(total) if total > 0 => {
            format!(
                "{} of {} were written",
                size::show(written),
                size::show(total)
            )
        }
        _ => format!("{} were written", size::show(written)),
    }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_sentence_with_the_next_step() {
        let error = io::Error::from_raw_os_error(28);
        let path = Path::new("/mnt/x");
        let done = so_far(1288490189, Some(4 << 30));
        assert_eq!(
            Failure::after(Doing::Write, path, &error, &done).to_string(),
            "cannot write /mnt/x: No space left on device (os error 28). \
             1.2 GiB of 4.0 GiB were written; free space and run the command again."
        );
        let error = io::Error::from_raw_os_error(2);
        assert_eq!(
            Failure::io(Doing::Create, Path::new("/a/b"), &error).to_string(),
            "cannot create /a/b: No such file or directory (os error 2). \
             Create the directory /a first."
        );
    }

    #[test]
    fn a_failure_outweighs_what_is_impossible() {
        assert_eq!(Exit::Done.and(Exit::Impossible), Exit::Impossible);
        assert_eq!(Exit::Impossible.and(Exit::Failed), Exit::Failed);
        assert_eq!(Exit::Failed.and(Exit::Impossible), Exit::Failed);
        assert_eq!(Exit::Failed.and(Exit::Done), Exit::Failed);
        let missing = io::Error::from_raw_os_error(38);
        let failure = Failure::io(Doing::Count, Path::new("x"), &missing);
        assert_eq!(failure.exit, Exit::Impossible);
    }
}
