//! `cp -r`: the walk through a directory and all that is in it.
//!
//! Each step opens one name in a directory that is open already. So whatever others rename or
//! replace meanwhile, nothing outside of the source is read, and nothing outside of the
//! destination is written.

use super::Copying;
use super::attributes::Attributes;
use super::choices::Making;
use super::descent::Descent;
use super::links::Anchor;
use super::listing::{Entry, entries};
use super::making::metadata_of;
use super::original::Original;
use crate::error::{Doing, Failure, quoted, shown};
use crate::input::Identity;
use crate::place::Place;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

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
pub(super) struct Opened {
    source: File,
    target: File,
    target_identity: Identity,
    level: Level,
    /// The source was a link.
    through_link: bool,
}

/// Where the copying of a tree is.
pub(super) struct Walk {
    /// For messages.
    from: PathBuf,
    to: PathBuf,
    source: Descent,
    target: Descent,
    levels: Vec<Level>,
}

impl Walk {
    /// A walk that has not begun.
    pub(super) fn new(source: &Place<'_>, target: &Place<'_>) -> Self {
        Self {
            from: source.path.to_owned(),
            to: target.path.to_owned(),
            source: Descent::default(),
            target: Descent::default(),
            levels: Vec::new(),
        }
    }

    fn enter(&mut self, opened: Opened) {
        if opened.through_link {
            self.source.keep_open();
        }
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
    /// Copies what the command line names, and all that is in it; into an existing directory if
    /// there is one.
    pub(super) fn tree(&mut self, source: &Place<'_>, target: &Place<'_>) -> Result<(), Failure> {
        let mut walk = Walk::new(source, target);
        let Some(top) = self.one(source, FileType::Unknown, target, &walk)? else {
            return Ok(());
        };
        if self.links.anchor.is_none() {
            let failed = |error| Failure::io(Doing::Open, target.path, &error);
            self.links.anchor = Some(Rc::new(Anchor {
                directory: top.target.try_clone().map_err(failed)?,
                path: target.path.to_owned(),
            }));
        }
        walk.enter(top);
        while let Some(level) = walk.levels.last_mut() {
            if self.interruption.signal().is_some() {
                level.entries.clear();
            }
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
        let mut source = Place::within(from, &entry.name, &walk.from);
        source.follows_links = self.choices.follows(false);
        let target = Place::within(to, &entry.name, &walk.to);
        self.one(&source, entry.kind, &target, walk)
    }

    /// Copies whatever has this name; a directory is only made and opened.
    pub(super) fn one(
        &mut self,
        source: &Place<'_>,
        kind: FileType,
        target: &Place<'_>,
        walk: &Walk,
    ) -> Result<Option<Opened>, Failure> {
        let is_named = walk.levels.is_empty();
        let original = self.choices.original(source, kind)?;
        let done = self.any(original, source, target, walk, is_named);
        if done.is_err() {
            self.end_backup(target, false);
        }
        done
    }

    fn any(
        &mut self,
        original: Original,
        source: &Place<'_>,
        target: &Place<'_>,
        walk: &Walk,
        is_named: bool,
    ) -> Result<Option<Opened>, Failure> {
        let metadata = &original.metadata;
        if metadata.is_dir() {
            if !self.choices.recursive {
                return Err(omitting(source.path));
            }
            if walk.is_deep() {
                return Err(too_deep(&walk.from));
            }
            return self.directory(original, source, target, walk).map(Some);
        }
        if self.has_more_names(metadata, is_named)
            && let Some(earlier) = self.links.earlier(metadata)
            && self.link_copy(&earlier, &original, source, target, is_named)?
        {
            return Ok(None);
        }
        let takes_data = metadata.is_file() || self.choices.as_regular && !metadata.is_symlink();
        match self.choices.making {
            Making::SymbolicLinks => self.symbolic_link(&original, source, target, is_named)?,
            Making::HardLinks => self.hard_link(&original, source, target, is_named)?,
            _ if takes_data => {
                if let Some(original) = self.small(original, source, target, is_named)? {
                    self.file(original, source, target, is_named)?;
                }
            }
            _ => self.node(original, source, target, is_named)?,
        }
        Ok(None)
    }

    /// Opens a directory, and makes its copy.
    fn directory(
        &mut self,
        original: Original,
        source: &Place<'_>,
        target: &Place<'_>,
        walk: &Walk,
    ) -> Result<Opened, Failure> {
        let failed = |errno: Errno| {
            let reason = crate::error::reason(&errno.into());
            Failure::io(Doing::Open, source.path, &errno.into())
                .like_cp(format!("cannot access {}: {reason}", quoted(source.path)))
        };
        let opened = match source.reach(OFlags::DIRECTORY | OFlags::RDONLY) {
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(source.was_replaced()),
            opened => opened,
        };
        let identity = Identity::of(&original.metadata);
        if walk.target.is_through(identity) {
            return Err(into_itself(source.path, target.path));
        }
        if self.choices.follows(false) && walk.source.is_through(identity) {
            return Err(cyclic(source.path));
        }
        // One that may not be read still leaves its empty copy, as with plain cp.
        let (opened, unreadable) = match opened {
            Ok(opened) => (opened, None),
            Err(errno) => (original.file, Some(errno)),
        };
        let metadata = metadata_of(&opened, source)?;
        if Identity::of(&metadata) != identity {
            return Err(source.was_replaced());
        }
        let device = metadata.dev();
        let attributes = Attributes::of(opened.as_fd(), metadata).map_err(failed)?;
        // Listed before anything is made in the target, which may be inside of it.
        let is_other_mount = self.choices.one_file_system
            && walk
                .levels
                .first()
                .is_some_and(|top| top.attributes.metadata.dev() != device);
        let entries = match unreadable.is_some() || is_other_mount {
            true => Vec::new(),
            false => entries(&opened).map_err(failed)?,
        };
        let made = self.make_directory(source, target, &attributes)?;
        if made.identity == identity || walk.source.is_through(made.identity) {
            return Err(into_itself(source.path, target.path));
        }
        if let Some(errno) = unreadable {
            self.session.fail(&failed(errno));
        }
        let through_link = source.follows_links
            && source
                .pin()
                .is_ok_and(|file| file.metadata().is_ok_and(|found| found.is_symlink()));
        Ok(Opened {
            source: opened,
            target: made.directory,
            target_identity: made.identity,
            level: Level {
                entries,
                attributes,
                final_mode: made.final_mode,
            },
            through_link,
        })
    }

    /// Gives copies their names before a directory gets its times, which they would change.
    pub(super) fn finish_names(&mut self) {
        if self.choices.atomic {
            self.finishing.flush(&mut self.session);
        }
    }

    /// Finishes a directory and goes on with its parent.
    fn leave(&mut self, walk: &mut Walk) {
        let sides = (walk.source.leave(), walk.target.leave());
        let (Some(level), (Some((source, source_back)), Some((directory, target_back)))) =
            (walk.levels.pop(), sides)
        else {
            return;
        };
        self.finish_names();
        let ended = level.attributes.preserve(
            source.as_fd(),
            directory.as_fd(),
            &walk.to,
            self.choices.preserve,
            level.final_mode,
        );
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

fn omitting(path: &Path) -> Failure {
    Failure::new(format!(
        "cannot copy {}: it is a directory. Use -r to copy directories.",
        shown(path)
    ))
    .like_cp(format!(
        "-r not specified; omitting directory {}",
        quoted(path)
    ))
}

fn cyclic(path: &Path) -> Failure {
    Failure::new(format!(
        "cannot copy {}: links lead from it back to itself. Leave out -L to copy links as links.",
        shown(path)
    ))
    .like_cp(format!("cannot copy cyclic symbolic link {}", quoted(path)))
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
    .like_cp(format!(
        "cannot copy a directory, {}, into itself, {}",
        quoted(source),
        quoted(target)
    ))
}
