//! `cp -r`: the walk through a directory and all that is in it.
//!
//! Each step opens one name in a directory that is open already. So whatever others rename or
//! replace meanwhile, nothing outside of the source is read, and nothing outside of the
//! destination is written.

use super::Copying;
use super::attributes::{Attributes, set_mode};
use super::descent::Descent;
use super::listing::{Entry, entries};
use super::making::metadata_of;
use crate::error::{Doing, Failure, shown};
use crate::input::{Identity, Input};
use crate::place::Place;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Directories further down are not copied: each costs memory and time for all above it, and
/// users can make trees of any depth, which would keep the copy from the others.
const LEVELS_MOST: usize = 4096;
/// Nor those with longer paths, which messages need.
const PATH_MOST_BYTES: usize = 128 << 10;

/// A directory that is being copied.
struct Level {
    entries: Vec<Entry>,
    attributes: Attributes,
    /// The bits to give the copy at the end.
    final_mode: Option<u32>,
}

/// A directory that was opened on both sides.
struct Opened {
    source: File,
    target: File,
    target_identity: Identity,
    level: Level,
}

/// Where the copying of a tree is.
struct Walk {
    /// For messages.
    from: PathBuf,
    to: PathBuf,
    source: Descent,
    target: Descent,
    levels: Vec<Level>,
}

impl Walk {
    fn enter(&mut self, opened: Opened) {
        let identity = Identity::of(&opened.level.attributes.metadata);
        self.source.enter(opened.source, identity);
        self.target.enter(opened.target, opened.target_identity);
        self.levels.push(opened.level);
    }

    /// Returns whether it has come as far down as it goes.
    fn is_deep(&self) -> bool {
        let bytes = self.from.as_os_str().len().max(self.to.as_os_str().len());
        self.levels.len() >= LEVELS_MOST || bytes > PATH_MOST_BYTES
    }

    /// Goes on in the lowest directory that is still where it was, on both sides.
    fn find_again(&mut self) {
        let below_top = self.levels.len().saturating_sub(1);
        let mut names: Vec<_> = self.from.iter().rev().take(below_top).collect();
        names.reverse();
        let source = self.source.find_again(&names);
        let found = self.target.find_again(&names[..source - 1]);
        self.source.find_again(&names[..found - 1]);
        while self.levels.len() > found {
            self.levels.pop();
            self.from.pop();
            self.to.pop();
        }
    }
}

impl Copying<'_> {
    /// Copies a directory and all that is in it, into an existing one if there is one.
    pub(super) fn tree(&mut self, source: &Place<'_>, target: &Place<'_>) -> Result<(), Failure> {
        let mut walk = Walk {
            from: source.path.to_owned(),
            to: target.path.to_owned(),
            source: Descent::default(),
            target: Descent::default(),
            levels: Vec::new(),
        };
        let top = self.directory(source, target, &walk)?;
        walk.enter(top);
        while let Some(level) = walk.levels.last_mut() {
            let Some(entry) = level.entries.pop() else {
                self.leave(&mut walk);
                continue;
            };
            walk.from.push(&entry.name);
            walk.to.push(&entry.name);
            match self.entry(&entry, &walk) {
                Ok(Some(opened)) => {
                    walk.enter(opened);
                    continue;
                }
                Ok(None) => {}
                Err(failure) => self.session.fail(&failure),
            }
            walk.from.pop();
            walk.to.pop();
        }
        Ok(())
    }

    /// Copies an entry of a directory, or opens it if it is a directory itself.
    fn entry(&mut self, entry: &Entry, walk: &Walk) -> Result<Option<Opened>, Failure> {
        let (Some(from), Some(to)) = (walk.source.current(), walk.target.current()) else {
            return Ok(None);
        };
        let source = Place::within(from, &entry.name, &walk.from);
        let target = Place::within(to, &entry.name, &walk.to);
        let kind = match entry.kind {
            // Some file systems do not say.
            FileType::Unknown => {
                let pinned = source
                    .pin()
                    .map_err(|errno| Failure::io(Doing::Open, source.path, &errno.into()))?;
                let metadata = metadata_of(&pinned, &source)?;
                FileType::from_raw_mode(metadata.mode())
            }
            kind => kind,
        };
        match kind {
            FileType::Directory if walk.is_deep() => return Err(too_deep(&walk.from)),
            FileType::Directory => return self.directory(&source, &target, walk).map(Some),
            FileType::RegularFile => self.file(Input::open(&self.session, &source)?, &target)?,
            _ => self.node(&source, &target)?,
        }
        Ok(None)
    }

    /// Opens a directory, and makes its copy.
    fn directory(
        &mut self,
        source: &Place<'_>,
        target: &Place<'_>,
        walk: &Walk,
    ) -> Result<Opened, Failure> {
        let failed = |errno: Errno| Failure::io(Doing::Open, source.path, &errno.into());
        let opened = match source.open(OFlags::DIRECTORY, Mode::empty()) {
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(source.was_replaced()),
            opened => opened.map_err(failed)?,
        };
        let metadata = metadata_of(&opened, source)?;
        let identity = Identity::of(&metadata);
        if walk.target.is_through(identity) {
            return Err(into_itself(source.path, target.path));
        }
        let attributes = Attributes::of(opened.as_fd(), metadata).map_err(failed)?;
        // Listed before anything is made in the target, which may be inside of it.
        let entries = entries(&opened).map_err(failed)?;
        let made = self.make_directory(source, target, &attributes)?;
        if made.identity == identity || walk.source.is_through(made.identity) {
            return Err(into_itself(source.path, target.path));
        }
        Ok(Opened {
            source: opened,
            target: made.directory,
            target_identity: made.identity,
            level: Level {
                entries,
                attributes,
                final_mode: made.final_mode,
            },
        })
    }

    /// Finishes a directory and goes on with its parent.
    fn leave(&mut self, walk: &mut Walk) {
        let sides = (walk.source.leave(), walk.target.leave());
        let (Some(level), (Some((_, source_back)), Some((directory, target_back)))) =
            (walk.levels.pop(), sides)
        else {
            return;
        };
        let ended = if self.args.preserve {
            level.attributes.preserve(directory.as_fd(), &walk.to)
        } else if let Some(mode) = level.final_mode {
            set_mode(directory.as_fd(), mode)
                .map_err(|errno| Failure::io(Doing::Preserve, &walk.to, &errno.into()))
        } else {
            Ok(())
        };
        self.keep_going(ended);
        let path = walk.to.clone();
        self.finishing
            .add_directory(&mut self.session, directory, path);
        walk.from.pop();
        walk.to.pop();
        if source_back.and(target_back).is_err() {
            self.session.fail(&Failure::new(format!(
                "cannot go on from {} to {}: somebody moved a directory while it was copied. \
                 What was left in it was not copied; run the command again.",
                shown(&walk.from),
                shown(&walk.to)
            )));
            walk.find_again();
        }
    }
}

/// The path is too long to be shown.
fn too_deep(path: &Path) -> Failure {
    let levels = path.components().count();
    let top: PathBuf = path.components().take(2).collect();
    Failure::new(format!(
        "cannot copy a directory {levels} levels down, below {}: it is too deep. Move it further \
         up, and copy it from there.",
        shown(&top)
    ))
}

/// Refuses to copy a directory into itself, which would have no end.
pub(super) fn refuse_into_itself(
    source: &Path,
    metadata: &Metadata,
    target: &Path,
) -> Result<(), Failure> {
    let identity = Identity::of(metadata);
    // The target may not be there yet; the directory that it goes into must be.
    let start = target
        .canonicalize()
        .or_else(|_| match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.canonicalize(),
            _ => Path::new(".").canonicalize(),
        })
        .map_err(|_| Failure::io(Doing::Create, target, &Errno::NOENT.into()))?;
    let is_inside = start.ancestors().any(|directory| {
        directory
            .metadata()
            .is_ok_and(|metadata| Identity::of(&metadata) == identity)
    });
    if is_inside {
        return Err(into_itself(source, target));
    }
    Ok(())
}

fn into_itself(source: &Path, target: &Path) -> Failure {
    Failure::new(format!(
        "cannot copy the directory {} into itself, {}. Choose a destination outside of it.",
        shown(source),
        shown(target)
    ))
}
