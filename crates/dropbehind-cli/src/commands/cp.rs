//! `dropbehind cp`: files, directories and block devices.

mod acl;
mod attributes;
mod descent;
mod file;
mod finishing;
mod listing;
mod making;
mod total;
mod tree;

use super::report;
use crate::error::{Doing, Exit, Failure, shown};
use crate::input::{Identity, Input};
use crate::options::{IoSettings, WriteEnd};
use crate::place::Place;
use crate::session::Session;
use clap::{Args, ValueEnum};
use finishing::Finishing;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::File;
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
    /// devices inside of directories are made anew; a file that grows meanwhile is copied up to
    /// the size that it had
    #[arg(short, long)]
    recursive: bool,
    /// What becomes of holes in files
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto")]
    sparse: Sparse,
    /// Give the copies the owner, permissions, access control lists and times of the sources;
    /// inside of directories, make new files in place of those that are there
    #[arg(short, long)]
    preserve: bool,
    /// Replace files that cannot be opened for writing, and under -r what is no file
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
    /// The copies of what the command line names: two sources of one name must not
    /// end up in the same file.
    copies: HashSet<PathBuf>,
    umask: u32,
}

pub(super) fn run(args: &CpArgs) -> Exit {
    // Reading the umask takes setting it, so this comes before there are other threads.
    let umask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(umask);
    let session = match Session::start(&args.settings) {
        Ok(session) => session,
        Err(failure) => return report(&failure),
    };
    let mut copying = Copying {
        args,
        session,
        finishing: Finishing::new(args.end.sync),
        copies: HashSet::new(),
        umask: umask.as_raw_mode(),
    };
    if let Err(failure) = copying.all() {
        copying.session.fail(&failure);
    }
    copying.finishing.end(&mut copying.session);
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
                .map(|source| total::data_bytes(source, self.args.recursive));
            self.session.progress.set_total(total.sum());
        }
        if into_directory && self.args.recursive {
            return self.all_within(sources, target);
        }
        for source in sources {
            let path = if into_directory {
                within(target, &name_of(source))
            } else {
                target.clone()
            };
            let is_new = path.symlink_metadata().is_err();
            let copied = self.named(source, &Place::typed(&path));
            if is_new && path.symlink_metadata().is_ok() {
                self.finishing.made_in_parent(&path);
            }
            self.keep_going(copied);
        }
        Ok(())
    }

    /// Copies what the command line names into a directory, and nowhere else: a link in it may
    /// lead out of it.
    fn all_within(&mut self, sources: &[PathBuf], target: &Path) -> Result<(), Failure> {
        let failed = |errno: Errno| Failure::io(Doing::Open, target, &errno.into());
        // The user may well have typed a link.
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(target, flags, Mode::empty()) {
            Err(Errno::ACCESS) => rustix::fs::open(target, flags | OFlags::PATH, Mode::empty()),
            opened => opened,
        };
        let directory = File::from(directory.map_err(failed)?);
        for source in sources {
            let name = name_of(source);
            let path = within(target, &name);
            let copied = self.named(source, &Place::within(&directory, &name, &path));
            self.keep_going(copied);
        }
        self.finishing
            .add_directory(&mut self.session, directory, target.to_owned());
        Ok(())
    }

    /// Copies what the command line names, except over the copy of another source.
    fn named(&mut self, source: &Path, target: &Place<'_>) -> Result<(), Failure> {
        // Directories are merged.
        let is_directory = source.symlink_metadata().is_ok_and(|found| found.is_dir());
        if !is_directory && self.copies.contains(target.path) {
            return Err(Failure::new(format!(
                "cannot copy {} to {}: that is the copy of another source just made. Copy it \
                 under another name.",
                shown(source),
                shown(target.path)
            )));
        }
        self.any(source, target)?;
        self.copies.insert(target.path.to_owned());
        Ok(())
    }

    /// Copies a file, or under `--recursive` anything.
    fn any(&mut self, source: &Path, target: &Place<'_>) -> Result<(), Failure> {
        let typed = Place::typed(source);
        let failed = |error: io::Error| Failure::io(Doing::Open, source, &error);
        if !self.args.recursive {
            if source.metadata().map_err(failed)?.is_dir() {
                return Err(Failure::new(format!(
                    "cannot copy {}: it is a directory. Use -r to copy directories.",
                    shown(source)
                )));
            }
            return self.file(Input::open(&self.session, &typed)?, target);
        }
        let itself = Place::typed_itself(source);
        let pinned = itself.pin().map_err(|errno| failed(errno.into()))?;
        let metadata = pinned.metadata().map_err(failed)?;
        if metadata.is_dir() {
            tree::refuse_into_itself(source, &metadata, target.path)?;
            self.tree(&itself, target)
        } else if metadata.is_symlink() {
            self.node(&itself, target)
        } else if metadata.is_file() {
            self.file(Input::open(&self.session, &itself)?, target)
        } else {
            // A pipe or device that was named is read, unlike one in a directory.
            let input = Input::open(&self.session, &typed)?;
            if Identity::of(&input.metadata) != Identity::of(&metadata) {
                return Err(itself.was_replaced());
            }
            self.file(input, target)
        }
    }

    /// Reports a failure; whatever else there is to copy is still copied.
    fn keep_going(&mut self, result: Result<(), Failure>) {
        if let Err(failure) = result {
            self.session.fail(&failure);
        }
    }

    /// Says what is being copied, if asked to.
    fn announce(&mut self, source: &Path, target: &Path) {
        if self.args.verbose {
            let line = format!("{} -> {}", shown(source), shown(target));
            // Whoever closed standard output does not want to know; the copy goes on.
            let _ = writeln!(io::stdout(), "{line}");
        }
    }
}

/// The name of a source in the directory that it is copied to. `a/.` and `..`
/// have none of their own: their contents go straight into the directory.
fn name_of(source: &Path) -> PathBuf {
    let bytes = source.as_os_str().as_bytes();
    let trimmed = bytes.strip_suffix(b"/").unwrap_or(bytes);
    match source.file_name() {
        Some(name) if trimmed != b"." && !trimmed.ends_with(b"/.") => name.into(),
        _ => PathBuf::from("."),
    }
}

/// The path of a directory's entry, as messages show it.
fn within(directory: &Path, name: &Path) -> PathBuf {
    if name == Path::new(".") {
        directory.to_owned()
    } else {
        directory.join(name)
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
                within(Path::new("d"), &name_of(Path::new(source))),
                Path::new(target),
                "{source}"
            );
        }
    }
}
