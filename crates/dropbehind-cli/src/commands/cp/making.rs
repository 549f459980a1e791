//! Directories, links, pipes and devices, made at the destination.

use super::Copying;
use super::attributes::{Attributes, most_permissions};
use super::choices::{Making, Overwrite};
use super::existing::Way;
use super::links::{Copy, inode, link_to, replace};
use super::original::Original;
use crate::error::{Doing, Failure, quoted, reason, shown};
use crate::input::Identity;
use crate::place::Place;
use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The mode that a directory is made with: only its owner may fill it or look into it before it
/// is complete.
const OWNER_ONLY: u32 = 0o700;
/// What new files get before the umask, if not the permissions of their sources.
const ANY_FILE: u32 = 0o666;
const ANY_DIRECTORY: u32 = 0o777;
const STICKY: u32 = 0o1000;

/// A directory of the destination.
pub(super) struct Made {
    pub(super) directory: File,
    pub(super) identity: Identity,
    /// The bits to give it once it is full.
    pub(super) final_mode: Option<u32>,
}

impl Copying<'_> {
    /// Makes a directory, or takes an existing one.
    pub(super) fn make_directory(
        &mut self,
        source: &Place<'_>,
        target: &Place<'_>,
        attributes: &Attributes,
    ) -> Result<Made, Failure> {
        let failed = |errno: Errno| Failure::io(Doing::MakeDirectory, target.path, &errno.into());
        let mode = Mode::from_raw_mode(OWNER_ONLY);
        let is_new = match rustix::fs::mkdirat(target.directory, target.name, mode) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(failed(errno)),
        };
        let directory = match target.open_directory() {
            Ok(directory) => directory,
            Err(Errno::NOTDIR | Errno::LOOP) if !is_new => {
                return Err(Failure::new(format!(
                    "cannot copy the directory {} to {}: there is a file or a link of that name. \
                     Remove it, or choose another name.",
                    shown(source.path),
                    shown(target.path)
                ))
                .like_cp(format!(
                    "cannot overwrite non-directory {} with directory {}",
                    quoted(target.path),
                    quoted(source.path)
                )));
            }
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(target.was_replaced()),
            Err(errno) => return Err(failed(errno)),
        };
        let metadata = metadata_of(&directory, target)?;
        let mut final_mode = None;
        if is_new {
            self.announce(source.path, target.path, None);
            let most = most_permissions(&directory, self.umask).map_err(failed)?;
            // A directory may inherit its set-group-ID bit.
            let inherited = metadata.mode() & 0o7000;
            let sticky = attributes.metadata.mode() & STICKY;
            let permissions = match self.choices.preserve.explicitly_no_mode {
                true => ANY_DIRECTORY,
                false => attributes.permissions(),
            };
            final_mode = Some(inherited | sticky | permissions & most);
        }
        Ok(Made {
            directory,
            identity: Identity::of(&metadata),
            final_mode,
        })
    }

    /// Makes something that is no copy of data under a name; `None` if what has it stays. With
    /// `replaces`, it may take the place of that.
    fn make(
        &mut self,
        source: &Place<'_>,
        from: &Metadata,
        target: &Place<'_>,
        is_named: bool,
        replaces: bool,
        make: impl Fn(&Path) -> Result<(), Errno>,
    ) -> Result<Option<Result<(), Errno>>, Failure> {
        let made = make(target.name);
        if made != Err(Errno::EXIST) {
            return Ok(Some(made));
        }
        Ok(match self.way(source, from, target, is_named)? {
            Way::Skip | Way::Newer => None,
            Way::Into(_) if replaces => Some(replace(target, make)),
            _ => Some(make(target.name)),
        })
    }

    fn announce_made(&mut self, source: &Place<'_>, target: &Place<'_>) {
        let backup = self.end_backup(target, true);
        self.announce(source.path, target.path, backup.as_deref());
    }

    /// Copies a symbolic link, or makes a pipe, socket or device like the source.
    pub(super) fn node(
        &mut self,
        original: Original,
        source: &Place<'_>,
        target: &Place<'_>,
        is_named: bool,
    ) -> Result<(), Failure> {
        let unopened = |errno: Errno| Failure::io(Doing::Look, source.path, &errno.into());
        let Original { file, metadata, .. } = original;
        let kind = FileType::from_raw_mode(metadata.mode());
        let attributes = Attributes::of(file.as_fd(), metadata).map_err(unopened)?;
        let content = match kind {
            FileType::Symlink => {
                Some(rustix::fs::readlinkat(&file, "", Vec::new()).map_err(unopened)?)
            }
            _ => None,
        };
        let permissions = self.first_permissions(&attributes);
        let make = |name: &Path| match &content {
            Some(content) => rustix::fs::symlinkat(content, target.directory, name),
            None => {
                let mode = Mode::from_raw_mode(permissions);
                let device = attributes.metadata.rdev();
                rustix::fs::mknodat(target.directory, name, kind, mode, device)
            }
        };
        let (from, replaces) = (&attributes.metadata, self.choices.force);
        let Some(made) = self.make(source, from, target, is_named, replaces, make)? else {
            return Ok(());
        };
        made.map_err(|errno| not_made(target, kind, errno))?;
        let copy = target.pin().map_err(|_| target.was_replaced())?;
        let metadata = metadata_of(&copy, target)?;
        // A node that was just made has one name.
        if FileType::from_raw_mode(metadata.mode()) != kind || metadata.nlink() != 1 {
            return Err(target.was_replaced());
        }
        self.announce_made(source, target);
        self.remember(&attributes.metadata, target, &metadata, is_named);
        let (wanted, mode) = (self.choices.preserve, self.final_mode(&attributes));
        attributes.preserve(file.as_fd(), copy.as_fd(), target.path, wanted, mode)
    }

    /// Makes a symbolic link to a source, instead of a copy.
    pub(super) fn symbolic_link(
        &mut self,
        original: &Original,
        source: &Place<'_>,
        target: &Place<'_>,
        is_named: bool,
    ) -> Result<(), Failure> {
        if !source.path.is_absolute() && !is_here(target.path) {
            return Err(Failure::new(format!(
                "cannot create {}: a link to {} would lead elsewhere from there. Name the source \
                 by its whole path.",
                shown(target.path),
                shown(source.path)
            ))
            .like_cp(format!(
                "{}: can make relative symbolic links only in current directory",
                shown(target.path)
            )));
        }
        let make = |name: &Path| rustix::fs::symlinkat(source.path, target.directory, name);
        let replaces = self.choices.force;
        let made = self.make(source, &original.metadata, target, is_named, replaces, make)?;
        let Some(made) = made else {
            return Ok(());
        };
        made.map_err(|errno| {
            Failure::io(Doing::Create, target.path, &errno.into()).like_cp(format!(
                "cannot create symbolic link {} to {}: {}",
                quoted(target.path),
                quoted(source.path),
                reason(&errno.into())
            ))
        })?;
        self.announce_made(source, target);
        Ok(())
    }

    /// Gives a source another name, instead of copying it.
    pub(super) fn hard_link(
        &mut self,
        original: &Original,
        source: &Place<'_>,
        target: &Place<'_>,
        is_named: bool,
    ) -> Result<(), Failure> {
        let make = |name: &Path| link_to(&original.file, target, name);
        let replaces = self.choices.force || self.choices.overwrite == Overwrite::Ask;
        let made = self.make(source, &original.metadata, target, is_named, replaces, make)?;
        let Some(made) = made else {
            return Ok(());
        };
        made.map_err(|errno| not_linked(target, source.path, errno))?;
        self.announce_made(source, target);
        Ok(())
    }

    /// Gives the copy of a source another name, since the source has one more. Returns whether
    /// there is nothing left to do.
    pub(super) fn link_copy(
        &mut self,
        earlier: &Copy,
        original: &Original,
        source: &Place<'_>,
        target: &Place<'_>,
        is_named: bool,
    ) -> Result<bool, Failure> {
        if self.choices.atomic {
            // It may have no name yet.
            self.finishing.flush(&mut self.session);
        }
        let Ok(copy) = earlier.find() else {
            self.session.fail(&Failure::new(format!(
                "cannot make {} a hard link to {}: somebody moved that meanwhile. They are two \
                 files now.",
                shown(target.path),
                shown(&earlier.path)
            )));
            return Ok(false);
        };
        let make = |name: &Path| link_to(&copy, target, name);
        let mut made = make(target.name);
        if made == Err(Errno::EXIST) {
            let there = target.pin().and_then(rustix::fs::fstat);
            let copied = metadata_of(&copy, target)?;
            if there.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == inode(&copied)) {
                return Ok(true);
            }
            match self.way(source, &original.metadata, target, is_named)? {
                Way::Skip => return Ok(true),
                Way::Into(_) | Way::Newer => made = replace(target, make),
                Way::Clear | Way::ThroughLink => made = make(target.name),
            }
        }
        made.map_err(|errno| not_linked(target, &earlier.path, errno))?;
        self.announce_made(source, target);
        Ok(true)
    }

    /// Whether other names of a source may come, whose copies are to be names of its copy.
    pub(super) fn has_more_names(&self, source: &Metadata, is_named: bool) -> bool {
        self.choices.preserve.links
            && self.choices.making != Making::HardLinks
            && (source.nlink() > 1 || self.choices.follows(is_named))
    }

    /// Remembers a copy whose source may have other names.
    pub(super) fn remember(
        &mut self,
        source: &Metadata,
        target: &Place<'_>,
        copy: &Metadata,
        is_named: bool,
    ) {
        if self.has_more_names(source, is_named) {
            self.links.remember(source, target.path, inode(copy));
        }
    }

    /// The permissions that something is made with, before the umask applies. If it gets another
    /// owner or a list, nobody else may open it before it has that.
    pub(super) fn first_permissions(&self, attributes: &Attributes) -> u32 {
        let permissions = match self.choices.preserve.explicitly_no_mode {
            true => ANY_FILE,
            false => attributes.permissions(),
        };
        if self.choices.preserve.takes_new_file() {
            permissions & OWNER_ONLY
        } else {
            permissions
        }
    }

    /// The permissions that something new ends with, if they are not those that it was made with
    /// nor those of the source.
    pub(super) fn final_mode(&self, attributes: &Attributes) -> Option<u32> {
        let preserve = self.choices.preserve;
        if preserve.mode || !preserve.ownership {
            return None;
        }
        Some(match preserve.explicitly_no_mode {
            true => ANY_FILE & !self.umask,
            false => attributes.permissions() & !self.umask,
        })
    }
}

/// The metadata of an open file.
pub(super) fn metadata_of(file: &File, place: &Place<'_>) -> Result<Metadata, Failure> {
    file.metadata()
        .map_err(|error| Failure::io(Doing::Look, place.path, &error))
}

/// Whether a path is directly in the current directory.
fn is_here(path: &Path) -> bool {
    let parent = path.parent().unwrap_or(Path::new(""));
    let identity = |path: &Path| path.metadata().map(|found| inode(&found)).ok();
    parent == Path::new("") || identity(parent) == identity(Path::new("."))
}

fn not_made(target: &Place<'_>, kind: FileType, errno: Errno) -> Failure {
    let what = match kind {
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "fifo",
        _ => "special file",
    };
    let reason = reason(&errno.into());
    let failure = Failure::io(Doing::Create, target.path, &errno.into());
    failure.like_cp(format!(
        "cannot create {what} {}: {reason}",
        quoted(target.path)
    ))
}

fn not_linked(target: &Place<'_>, to: &Path, errno: Errno) -> Failure {
    let reason = reason(&errno.into());
    Failure::new(format!(
        "cannot make {} a hard link to {}: {reason}. {}.",
        shown(target.path),
        shown(to),
        match errno {
            Errno::XDEV => "Links cannot lead to another file system; copy the data instead",
            Errno::EXIST => "Use -f to replace what is there",
            Errno::MLINK => "The file system allows no more links to one file; copy in parts",
            _ => "Run as the owner of the source, or copy the data instead",
        }
    ))
    .like_cp(format!(
        "cannot create hard link {} to {}: {reason}",
        quoted(target.path),
        quoted(to)
    ))
}
