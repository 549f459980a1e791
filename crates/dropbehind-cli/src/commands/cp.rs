//! `dropbehind cp`: files, directories and block devices, with the options of GNU cp.

mod acl;
mod attributes;
mod backups;
mod choices;
mod descent;
mod existing;
mod file;
mod finishing;
mod flags;
mod interruption;
mod links;
mod listing;
mod making;
mod original;
mod parents;
mod small;
mod total;
mod tree;
mod verification;
mod xattrs;

pub(super) use choices::Choices;

use super::{print_by, report, unprinted};
use crate::error::{Doing, Exit, Failure, quoted, reason, shown};
use crate::input::check_open;
use crate::options::{Voice, When};
use crate::place::Place;
use crate::progress::take_question;
use crate::report_file::InUse;
use crate::session::Session;
use backups::Backups;
use clap::{Args, Command, FromArgMatches};
use finishing::Finishing;
use interruption::Interruption;
use links::{Anchor, Links};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::cell::OnceCell;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tree::refuse_into_itself;

/// A run of `cp`.
struct Copying<'a> {
    choices: &'a Choices,
    session: Session,
    finishing: Finishing,
    /// The copies of what the command line names: two sources of one name must not
    /// end up in the same file.
    copies: HashSet<PathBuf>,
    /// What the command line named so far.
    sources: HashSet<PathBuf>,
    links: Links,
    backups: Option<Backups>,
    /// The backup of what is being replaced.
    backup: Option<PathBuf>,
    /// Pairs of devices, between which no data can be shared.
    cannot_share: HashSet<(u64, u64)>,
    interruption: Interruption,
    /// The first error of standard output.
    unprinted: OnceCell<io::Error>,
    umask: u32,
}

/// Acts as `cp`, for whoever calls us by that name: with its messages and exit codes.
pub(super) fn run_as_cp(words: &[OsString]) -> Exit {
    let command = Choices::augment_args(Command::new("cp"))
        .version(env!("CARGO_PKG_VERSION"))
        .override_usage("cp [OPTIONS] SRC... DST");
    let matches = command.try_get_matches_from(words);
    let mut choices = match matches.and_then(|matches| Choices::from_arg_matches(&matches)) {
        Ok(choices) => choices,
        Err(error) if error.exit_code() == 0 => return print_by(Voice::Cp, || error.print()),
        Err(error) => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            let line = line.strip_prefix("error: ").unwrap_or(line);
            complain!("cp: {}\nTry 'cp --help' for more information.", shown(line));
            return Exit::Failed;
        }
    };
    choices.settings.voice = Voice::Cp;
    choices.settings.quiet = true;
    if choices.settings.progress == When::Auto {
        choices.settings.progress = When::Never;
    }
    match run(&choices) {
        Exit::Impossible | Exit::Usage => Exit::Failed,
        exit => exit,
    }
}

pub(super) fn run(choices: &Choices) -> Exit {
    // Reading the umask takes setting it, so this comes before there are other threads.
    let umask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(umask);
    take_question();
    let interruption = Interruption::listen();
    raise_descriptor_limit();
    let session = match Session::start(&choices.settings, in_use(choices)) {
        Ok(session) => session,
        Err(failure) => return report(&failure),
    };
    let mut copying = Copying {
        choices,
        session,
        finishing: Finishing::new(choices.end.sync, choices.verify),
        copies: HashSet::new(),
        sources: HashSet::new(),
        links: Links::default(),
        backups: choices.backups.clone(),
        backup: None,
        cannot_share: HashSet::new(),
        interruption,
        unprinted: OnceCell::new(),
        umask: umask.as_raw_mode(),
    };
    if let Err(failure) = copying.all() {
        copying.session.fail(&failure);
    }
    copying.finishing.end(&mut copying.session);
    if let Some(error) = copying.unprinted.get() {
        copying.session.fail(&unprinted(error));
    }
    let signal = copying.interruption.signal();
    if let Some(signal) = signal {
        copying.session.fail(&Interruption::failure(signal));
    }
    let exit = copying.session.finish();
    match signal {
        Some(signal) => dropbehind_linux::die_by(signal),
        None => exit,
    }
}

/// Allows as many open files as the user may allow: many small ones are synced together.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // As many as there were are enough, too.
    let _ = setrlimit(Resource::Nofile, limit);
}

impl Copying<'_> {
    fn all(&mut self) -> Result<(), Failure> {
        let choices = self.choices;
        let paths = choices.paths.as_slice();
        let (sources, directory) = match (&choices.target_directory, paths.split_last()) {
            (Some(directory), _) => {
                must_be_directory(directory)?;
                (paths, Some(directory))
            }
            (None, Some((target, sources))) => {
                let is_directory = !choices.no_target_directory && target.is_dir();
                if !is_directory && (sources.len() > 1 || choices.parents) {
                    return Err(no_directory_for(sources.len(), target));
                }
                (sources, Some(target).filter(|_| is_directory))
            }
            (None, None) => return Ok(()),
        };
        if self.session.progress.is_visible() {
            let total = sources
                .iter()
                .map(|source| total::data_bytes(source, choices.recursive));
            self.session.progress.set_total(total.sum());
        }
        match (directory, paths.last()) {
            (Some(directory), _) if choices.recursive => {
                return self.all_within(sources, directory);
            }
            (Some(directory), _) => {
                for source in sources {
                    let copied = self.put_in(source, directory);
                    self.keep_going(copied);
                }
            }
            (None, Some(target)) => {
                for source in sources {
                    let copied = self.onto(source, target);
                    self.keep_going(copied);
                }
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// Copies a file into a directory that the user typed.
    fn put_in(&mut self, source: &Path, directory: &Path) -> Result<(), Failure> {
        let (mut parents, mut path) = (None, within(directory, &name_of(source)));
        if self.choices.parents {
            self.finishing.filled(directory);
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH;
            let opened = rustix::fs::open(directory, flags, Mode::empty());
            let opened = opened
                .map_err(|errno| Failure::io(Doing::Open, directory, &errno.into()))?
                .into();
            parents = Some(self.make_parents(source, &opened, directory)?);
            path = directory.join(parents::below(source));
        }
        let copied = self.typed(source, &path);
        if let Some(parents) = parents {
            self.end_parents(parents);
        }
        copied
    }

    /// Copies something to a name that the user typed.
    fn onto(&mut self, source: &Path, target: &Path) -> Result<(), Failure> {
        if let Some(backup) = self.backup_of_itself(source, target)? {
            // This copy is the only one, and needs no backup itself.
            self.backups = None;
            return self.typed(source, &backup);
        }
        self.typed(source, target)
    }

    /// With -f and -b, a copy of a file onto itself is a backup of it.
    fn backup_of_itself(&self, source: &Path, target: &Path) -> Result<Option<PathBuf>, Failure> {
        let Some(backups) = &self.backups else {
            return Ok(None);
        };
        let is_file = source.metadata().is_ok_and(|metadata| metadata.is_file());
        if !self.choices.force || source != target || !is_file {
            return Ok(None);
        }
        let name = backups.name(&Place::typed(target));
        name.map(Some)
            .map_err(|errno| Failure::io(Doing::Create, target, &errno.into()))
    }

    /// Copies to a path that the user typed, where that leads.
    fn typed(&mut self, source: &Path, path: &Path) -> Result<(), Failure> {
        let copied = self.named(source, &Place::typed(path));
        // What was there before may have been replaced, too.
        if copied.is_ok() || path.symlink_metadata().is_ok() {
            self.finishing
                .filled(path.parent().unwrap_or(Path::new(".")));
        }
        copied
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
        let anchor = Anchor {
            directory: directory
                .try_clone()
                .map_err(|error| Failure::io(Doing::Open, target, &error))?,
            path: target.to_owned(),
        };
        self.links.anchor = Some(Rc::new(anchor));
        for source in sources {
            let copied = self.one_within(source, &directory, target);
            self.keep_going(copied);
        }
        self.finishing
            .add_directory(&mut self.session, directory, target.to_owned());
        Ok(())
    }

    fn one_within(&mut self, source: &Path, directory: &File, path: &Path) -> Result<(), Failure> {
        if !self.choices.parents {
            let name = name_of(source);
            let path = within(path, &name);
            return self.named(source, &Place::within(directory, &name, &path));
        }
        let parents = self.make_parents(source, directory, path)?;
        let below = parents::below(source);
        let name = name_of(&below);
        let path = path.join(&below);
        let place = Place::within(parents.last(directory), &name, &path);
        let copied = self.named(source, &place);
        self.end_parents(parents);
        copied
    }

    /// Copies what the command line names, except over the copy of another source.
    fn named(&mut self, source: &Path, target: &Place<'_>) -> Result<(), Failure> {
        if self.interruption.signal().is_some() {
            return Ok(());
        }
        let mut place = Place::typed_itself(source);
        place.follows_links = self.choices.follows(true);
        let found = place
            .look()
            .and_then(|file| {
                file.metadata()
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            })
            .map_err(|errno| Failure::io(Doing::Look, source, &errno.into()))?;
        // Directories are merged.
        let is_again = !self.sources.insert(source.to_owned());
        if is_again && self.backups.is_none() && (!found.is_dir() || self.choices.recursive) {
            self.session.warn(&named_twice(source, found.is_dir()));
            return Ok(());
        }
        if found.is_dir() && self.choices.recursive {
            refuse_into_itself(source, &found, target.path)?;
        }
        self.tree(&place, target)?;
        self.copies.insert(target.path.to_owned());
        Ok(())
    }

    /// Reports a failure; whatever else there is to copy is still copied.
    fn keep_going(&mut self, result: Result<(), Failure>) {
        if let Err(failure) = result {
            self.session.fail(&failure);
        }
    }

    /// Says what is being copied, if asked to.
    fn announce(&mut self, source: &Path, target: &Path, backup: Option<&Path>) {
        if self.choices.verbose {
            let mut line = format!("{} -> {}", quoted(source), quoted(target));
            if let Some(backup) = backup {
                line.push_str(&format!(" (backup: {})", quoted(backup)));
            }
            self.tell(&line);
        }
    }

    /// Writes a line to standard output. If that fails, the copy goes on.
    fn tell(&self, line: &str) {
        match check_open(1).and_then(|()| writeln!(io::stdout(), "{line}")) {
            // Whoever stopped reading does not want to know.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                let _ = self.unprinted.set(error);
            }
            _ => {}
        }
    }
}

/// What the command line names, each with the name of its copy.
fn in_use(choices: &Choices) -> Vec<InUse> {
    let paths = choices.paths.as_slice();
    let (sources, target) = match (&choices.target_directory, paths.split_last()) {
        (Some(directory), _) => (paths, directory),
        (None, Some((target, sources))) => (sources, target),
        (None, None) => return Vec::new(),
    };
    let goes_into =
        choices.target_directory.is_some() || !choices.no_target_directory && target.is_dir();
    let copy = |source: &Path| match goes_into {
        true if choices.parents => target.join(parents::below(source)),
        true => within(target, &name_of(source)),
        false => target.clone(),
    };
    let uses = |source: &PathBuf| InUse::Copy(source.clone(), copy(source));
    sources.iter().map(uses).collect()
}

fn named_twice(source: &Path, is_directory: bool) -> Failure {
    let kind = if is_directory { "directory" } else { "file" };
    Failure::new(format!(
        "{} is named twice, and copied once.",
        shown(source)
    ))
    .like_cp(format!(
        "warning: source {kind} {} specified more than once",
        quoted(source)
    ))
}

fn must_be_directory(path: &Path) -> Result<(), Failure> {
    let error: io::Error = match path.metadata() {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => Errno::NOTDIR.into(),
        Err(error) => error,
    };
    let line = format!("target directory {}: {}", quoted(path), reason(&error));
    Err(Failure::io(Doing::Open, path, &error).like_cp(line))
}

fn no_directory_for(sources: usize, target: &Path) -> Failure {
    let what = if sources > 1 {
        "several sources"
    } else {
        "with --parents"
    };
    let line = match target.metadata() {
        _ if sources == 1 => "with --parents, the destination must be a directory".to_owned(),
        Ok(_) => format!("target {}: Not a directory", quoted(target)),
        Err(error) => format!("target {}: {}", quoted(target), reason(&error)),
    };
    Failure::new(format!(
        "cannot copy {what} to {}: it is no directory. Create it first, or copy one at a time.",
        shown(target)
    ))
    .like_cp(line)
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
