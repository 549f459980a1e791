//! Directories, links, pipes and devices, made at the destination.

use super::Copying;
use super::attributes::{Attributes, most_permissions};
use crate::destination::Wanted;
use crate::error::{Doing, Failure, shown};
use crate::input::Identity;
use crate::place::Place;
use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

/// The mode that a directory is made with: only its owner may fill it or look into it before it
/// is complete.
const OWNER_ONLY: u32 = 0o700;

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
        let failed = |errno: Errno| Failure::io(Doing::Create, target.path, &errno.into());
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
                )));
            }
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(target.was_replaced()),
            Err(errno) => return Err(failed(errno)),
        };
        let metadata = metadata_of(&directory, target)?;
        let mut final_mode = None;
        if is_new {
            self.announce(source.path, target.path);
            let most = most_permissions(&directory, self.umask).map_err(failed)?;
            // A directory may inherit its set-group-ID bit.
            let inherited = metadata.mode() & 0o7000;
            final_mode = Some(inherited | attributes.permissions() & most);
        }
        Ok(Made {
            directory,
            identity: Identity::of(&metadata),
            final_mode,
        })
    }

    /// Copies a symbolic link, or makes a pipe, socket or device like the source.
    pub(super) fn node(&mut self, source: &Place<'_>, target: &Place<'_>) -> Result<(), Failure> {
        let unopened = |errno: Errno| Failure::io(Doing::Open, source.path, &errno.into());
        let original = source.pin().map_err(unopened)?;
        let metadata = metadata_of(&original, source)?;
        let kind = FileType::from_raw_mode(metadata.mode());
        if matches!(kind, FileType::RegularFile | FileType::Directory) {
            return Err(source.was_replaced());
        }
        let attributes = Attributes::of(original.as_fd(), metadata).map_err(unopened)?;
        let make = || match kind {
            FileType::Symlink => {
                let to = rustix::fs::readlinkat(&original, "", Vec::new())?;
                rustix::fs::symlinkat(to, target.directory, target.name)
            }
            _ => {
                let mode = Mode::from_raw_mode(self.first_permissions(&attributes));
                let device = attributes.metadata.rdev();
                rustix::fs::mknodat(target.directory, target.name, kind, mode, device)
            }
        };
        let made = match make() {
            Err(Errno::EXIST) => {
                self.make_way(source, target, &attributes.metadata)?;
                make()
            }
            made => made,
        };
        made.map_err(|errno| Failure::io(Doing::Create, target.path, &errno.into()))?;
        self.announce(source.path, target.path);
        let copy = target.pin().map_err(|_| target.was_replaced())?;
        let metadata = metadata_of(&copy, target)?;
        // A node that was just made has one name.
        if FileType::from_raw_mode(metadata.mode()) != kind || metadata.nlink() != 1 {
            return Err(target.was_replaced());
        }
        if self.args.preserve {
            attributes.preserve(copy.as_fd(), target.path)?;
        }
        Ok(())
    }

    /// The permissions that something is made with, before the umask applies. With `--preserve`,
    /// nobody else may open it before it has its owner.
    pub(super) fn first_permissions(&self, attributes: &Attributes) -> u32 {
        let permissions = attributes.permissions();
        if self.args.preserve {
            permissions & OWNER_ONLY
        } else {
            permissions
        }
    }

    /// Removes what stands where a link or node is to be made, as plain `cp` does.
    fn make_way(
        &self,
        source: &Place<'_>,
        target: &Place<'_>,
        metadata: &Metadata,
    ) -> Result<(), Failure> {
        let failed = |errno: Errno| Failure::io(Doing::Create, target.path, &errno.into());
        let existing = metadata_of(&target.pin().map_err(failed)?, target)?;
        let wanted = Wanted {
            append: false,
            permissions: 0,
            force: false,
            anew: false,
            bytes: None,
            source: (source.path, Identity::of(metadata)),
        };
        wanted.may_replace(&existing, target.path)?;
        rustix::fs::unlinkat(target.directory, target.name, AtFlags::empty()).map_err(failed)
    }
}

/// The metadata of an open file.
pub(super) fn metadata_of(file: &File, place: &Place<'_>) -> Result<Metadata, Failure> {
    file.metadata()
        .map_err(|error| Failure::io(Doing::Open, place.path, &error))
}
