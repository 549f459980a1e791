//! `dropbehind cp`: files, directories and block devices.

mod attributes;
mod file;
mod finishing;
mod tree;

use super::report;
use crate::error::{Doing, Exit, Failure, shown};
use crate::input::Identity;
use crate::options::{IoSettings, WriteEnd};
use crate::session::Session;
use clap::{Args, ValueEnum};
use finishing::Finishing;
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::Metadata;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What becomes of holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sparse {
    /// Holes of the source are holes of the copy
    Auto,
    /// Holes are filled with zeroes
    Never,
}

#[derive(Debug, Args)]
#[command(override_usage = "dropbehind cp [OPTIONS] SRC... DST")]
pub(super) struct CpArgs {
    /// What to copy, and where to: a file, a block device, or a directory to put the copies in
    #[arg(value_names = ["SRC", "DST"], num_args = 2.., required = true,
          value_hint = clap::ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
    /// Copy directories and what is in them; symbolic links are copied as links, and pipes and
    /// devices inside of directories are made anew
    #[arg(short, long)]
    recursive: bool,
    /// What becomes of holes in files
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto")]
    sparse: Sparse,
    /// Give the copies the owner, permissions and times of the sources
    #[arg(short, long)]
    preserve: bool,
    /// Replace files that cannot be opened for writing
    #[arg(short, long)]
    force: bool,
    /// Say what is copied
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    settings: IoSettings,
    #[command(flatten)]
    end: WriteEnd,
}

/// A run of `cp`.
struct Copying<'a> {
    args: &'a CpArgs,
    session: Session,
    finishing: Finishing,
    /// What this run has made or overwritten: two sources of one name must not
    /// end up in the same file.
    written: HashSet<Identity>,
}

pub(super) fn run(args: &CpArgs) -> Exit {
    let session = match Session::start(&args.settings) {
        Ok(session) => session,
        Err(failure) => return report(&failure),
    };
    let mut copying = Copying {
        args,
        session,
        finishing: Finishing::new(args.end.sync),
        written: HashSet::new(),
    };
    if let Err(failure) = copying.all() {
        copying.session.fail(&failure);
    }
    copying.finishing.flush(&mut copying.session);
    copying.finishing.sync_directories(&mut copying.session);
    copying.session.finish()
}

impl Copying<'_> {
    fn all(&mut self) -> Result<(), Failure> {
        let Some((target, sources)) = self.args.paths.split_last() else {
            return Ok(());
        };
        let into_directory = target.is_dir();
        if sources.len() > 1 && !into_directory {
            return Err(Failure::new(format!(
                "cannot copy several sources to {}: it is no directory. Create it first, or copy \
                 one at a time.",
                shown(target)
            )));
        }
        if self.session.progress.is_visible() {
            let total = sources
                .iter()
                .map(|source| tree::data_bytes(source, self.args.recursive));
            self.session.progress.set_total(total.sum());
        }
        for source in sources {
            let target = if into_directory {
                within(target, source)
            } else {
                target.clone()
            };
            let copied = self.named(source, &target);
            self.keep_going(copied);
        }
        Ok(())
    }

    /// Copies what the command line names.
    fn named(&mut self, source: &Path, target: &Path) -> Result<(), Failure> {
        let metadata = if self.args.recursive {
            source.symlink_metadata()
        } else {
            source.metadata()
        };
        let metadata = metadata.map_err(|error| Failure::io(Doing::Open, source, &error))?;
        if metadata.is_dir() && !self.args.recursive {
            return Err(Failure::new(format!(
                "cannot copy {}: it is a directory. Use -r to copy directories.",
                shown(source)
            )));
        }
        if metadata.is_dir() {
            tree::refuse_into_itself(source, &metadata, target)?;
        }
        if metadata.is_dir() || metadata.is_symlink() {
            self.entry(source, target, &metadata)
        } else {
            self.file(source, target)
        }
    }

    /// Copies what is found in a directory.
    fn entry(&mut self, source: &Path, target: &Path, metadata: &Metadata) -> Result<(), Failure> {
        if metadata.is_dir() {
            self.directory(source, target, metadata)
        } else if metadata.is_file() {
            self.file(source, target)
        } else {
            self.node(source, target, metadata)
        }
    }

    /// Reports a failure; what else there is to copy is copied all the same.
    fn keep_going(&mut self, result: Result<(), Failure>) {
        if let Err(failure) = result {
            self.session.fail(&failure);
        }
    }

    /// Says what is being copied, if asked to.
    fn announce(&mut self, source: &Path, target: &Path) {
        if self.args.verbose {
            let line = format!("{} -> {}", shown(source), shown(target));
            // Who closes standard output does not want to know; the copy goes on.
            let _ = writeln!(io::stdout(), "{line}");
        }
    }
}

/// The name of a source in the directory that it is copied to. `a/.` and `..`
/// have none of their own: their contents go straight into the directory.
fn within(directory: &Path, source: &Path) -> PathBuf {
    let bytes = source.as_os_str().as_bytes();
    let trimmed = bytes.strip_suffix(b"/").unwrap_or(bytes);
    match source.file_name() {
        Some(name) if trimmed != b"." && !trimmed.ends_with(b"/.") => directory.join(name),
        _ => directory.to_owned(),
    }
}

/// What plain `cp` refuses: to put something else where a directory is.
fn refuse_directory(target: &Path) -> Result<(), Failure> {
    match target.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => {
            Err(Failure::io(Doing::Create, target, &Errno::ISDIR.into()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_within_the_target() {
        for (source, target) in [
            ("a", "d/a"),
            ("a/", "d/a"),
            ("x/a", "d/a"),
            ("a/.", "d"),
            ("a/./", "d"),
            (".", "d"),
            ("..", "d"),
            ("a/..", "d"),
            ("/", "d"),
            ("a.", "d/a."),
        ] {
            assert_eq!(
                within(Path::new("d"), Path::new(source)),
                Path::new(target),
                "{source}"
            );
        }
    }
}
