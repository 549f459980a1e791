//! `--parents`: the directories of a source's path, made below the destination.

use super::Copying;
use super::attributes::Attributes;
use super::choices::Preserve;
use crate::error::{Doing, Failure};
use crate::place::Place;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};

/// A directory on the way to a copy.
struct Parent {
    original: File,
    attributes: Attributes,
    directory: File,
    path: PathBuf,
    final_mode: Option<u32>,
}

/// The directories on the way to a copy, from the top.
pub(super) struct Parents(Vec<Parent>);

impl Parents {
    /// The one that the copy goes into.
    pub(super) fn last<'a>(&'a self, top: &'a File) -> &'a File {
        self.0.last().map_or(top, |parent| &parent.directory)
    }
}

/// The names on a source's path, each with the path to there. `..` takes back the name before it,
/// as it would at the destination, but does not lead out of that.
fn names(source: &Path) -> Vec<(&OsStr, PathBuf)> {
    let (mut names, mut path) = (Vec::new(), PathBuf::new());
    for part in source.components() {
        path.push(part);
        match part {
            Component::Normal(name) => names.push((name, path.clone())),
            Component::ParentDir => drop(names.pop()),
            _ => {}
        }
    }
    names
}

/// Where a source goes below the destination.
pub(super) fn below(source: &Path) -> PathBuf {
    names(source).into_iter().map(|(name, _)| name).collect()
}

impl Copying<'_> {
    /// Makes the directories that are not there yet.
    pub(super) fn make_parents(
        &mut self,
        source: &Path,
        top: &File,
        path: &Path,
    ) -> Result<Parents, Failure> {
        let mut parents = Parents(Vec::new());
        let mut to = path.to_owned();
        let names = names(source);
        let above = names.split_last().map_or(&[][..], |(_, above)| above);
        for (name, from) in above {
            to.push(name);
            let failed = |errno: Errno| Failure::io(Doing::Look, from, &errno.into());
            // The user typed the whole path, and may mean what links in it point to.
            let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
            let original = rustix::fs::open(from, flags, Mode::empty()).map_err(failed)?;
            let original = File::from(original);
            let metadata = original
                .metadata()
                .map_err(|error| Failure::io(Doing::Look, from, &error))?;
            let attributes = Attributes::of(original.as_fd(), metadata).map_err(failed)?;
            let source = Place::typed(from);
            let target = Place::within(parents.last(top), name.as_ref(), &to);
            let made = self.make_directory(&source, &target, &attributes)?;
            parents.0.push(Parent {
                original,
                attributes,
                directory: made.directory,
                path: to.clone(),
                final_mode: made.final_mode,
            });
        }
        Ok(parents)
    }

    /// Gives those directories their attributes, once the copy is in them.
    pub(super) fn end_parents(&mut self, parents: Parents) {
        self.finish_names();
        // As with plain cp, extended attributes are of what was named alone.
        let preserve = Preserve {
            xattrs: false,
            ..self.choices.preserve
        };
        for parent in parents.0.into_iter().rev() {
            let ended = parent.attributes.preserve(
                parent.original.as_fd(),
                parent.directory.as_fd(),
                &parent.path,
                preserve,
                parent.final_mode,
            );
            self.keep_going(ended);
            self.finishing
                .add_directory(&mut self.session, parent.directory, parent.path);
        }
    }
}
