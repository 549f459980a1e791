//! `cp -r`: directories, links, and what else is in them.

use super::{Copying, attributes, refuse_directory};
use crate::error::{Doing, Failure, shown};
use crate::input::Identity;
use rustix::fs::{CWD, FileType, Mode};
use rustix::io::Errno;
use std::fs::{DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

impl Copying<'_> {
    /// Copies a directory with all that is in it, into an existing one if there
    /// is one.
    pub(super) fn directory(
        &mut self,
        source: &Path,
        target: &Path,
        metadata: &Metadata,
    ) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::io(Doing::Open, source, &error);
        // Listed before anything is made in the target, which may be below.
        let mut names = Vec::new();
        for entry in std::fs::read_dir(source).map_err(failed)? {
            names.push(entry.map_err(failed)?.file_name());
        }
        let final_mode = self.make_directory(source, target, metadata)?;
        for name in names {
            let from = source.join(&name);
            let copied = match from.symlink_metadata() {
                Ok(metadata) => self.entry(&from, &target.join(&name), &metadata),
                Err(error) => Err(Failure::io(Doing::Open, &from, &error)),
            };
            self.keep_going(copied);
        }
        if self.args.preserve {
            attributes::preserve_node(target, metadata)?;
        } else if let Some(mode) = final_mode {
            std::fs::set_permissions(target, mode)
                .map_err(|error| Failure::io(Doing::Preserve, target, &error))?;
        }
        Ok(())
    }

    /// Makes the directory, if it is not there; the permissions to give it in
    /// the end, if it can't be filled with them.
    fn make_directory(
        &mut self,
        source: &Path,
        target: &Path,
        metadata: &Metadata,
    ) -> Result<Option<Permissions>, Failure> {
        let failed = |error: io::Error| Failure::io(Doing::Create, target, &error);
        match target.metadata() {
            Ok(existing) if existing.is_dir() => return Ok(None),
            Ok(_) => {
                return Err(Failure::new(format!(
                    "cannot copy the directory {} to {}: there is a file of that name. Remove it, \
                     or choose another name.",
                    shown(source),
                    shown(target)
                )));
            }
            Err(_) => {}
        }
        let mode = metadata.mode() & 0o777;
        // With --preserve nobody else may look into it before it has its owner.
        let first = if self.args.preserve {
            mode & 0o700
        } else {
            mode
        };
        DirBuilder::new()
            .mode(first)
            .create(target)
            .map_err(failed)?;
        self.announce(source, target);
        self.finishing.made_in_parent(target);
        // What the umask left.
        let made = target.metadata().map_err(failed)?.permissions();
        if made.mode() & 0o700 == 0o700 {
            return Ok(None);
        }
        std::fs::set_permissions(target, Permissions::from_mode(made.mode() | 0o700))
            .map_err(failed)?;
        Ok(Some(made))
    }

    /// Copies a symbolic link, or makes a pipe, socket or device like the one
    /// that is there.
    pub(super) fn node(
        &mut self,
        source: &Path,
        target: &Path,
        metadata: &Metadata,
    ) -> Result<(), Failure> {
        self.make_way(source, target, metadata)?;
        if metadata.is_symlink() {
            let to = std::fs::read_link(source)
                .map_err(|error| Failure::io(Doing::Read, source, &error))?;
            symlink(to, target).map_err(|error| Failure::io(Doing::Create, target, &error))?;
        } else {
            let mode = Mode::from_raw_mode(metadata.mode() & 0o777);
            let kind = FileType::from_raw_mode(metadata.mode());
            rustix::fs::mknodat(CWD, target, kind, mode, metadata.rdev())
                .map_err(|errno| Failure::io(Doing::Create, target, &errno.into()))?;
        }
        self.announce(source, target);
        self.finishing.made_in_parent(target);
        if self.args.preserve {
            attributes::preserve_node(target, metadata)?;
        }
        Ok(())
    }

    /// Removes what is where a link or node is to be made, as plain `cp` does.
    fn make_way(
        &mut self,
        source: &Path,
        target: &Path,
        metadata: &Metadata,
    ) -> Result<(), Failure> {
        refuse_directory(target)?;
        self.refuse_overwriting_a_copy(source, target)?;
        let Ok(existing) = target.symlink_metadata() else {
            return Ok(());
        };
        if Identity::of(&existing) == Identity::of(metadata) {
            return Err(Failure::new(format!(
                "{} and {} are the same file. Name another destination.",
                shown(source),
                shown(target)
            )));
        }
        std::fs::remove_file(target).map_err(|error| Failure::io(Doing::Create, target, &error))
    }
}

/// A directory copied into itself would have no end.
pub(super) fn refuse_into_itself(
    source: &Path,
    metadata: &Metadata,
    target: &Path,
) -> Result<(), Failure> {
    let identity = Identity::of(metadata);
    // The target need not be there yet; the directory that it goes into must.
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
        return Err(Failure::new(format!(
            "cannot copy the directory {} into itself, {}. Choose a destination outside of it.",
            shown(source),
            shown(target)
        )));
    }
    Ok(())
}

/// How much data there is to copy, as far as it can be told ahead.
pub(super) fn data_bytes(path: &Path, recursive: bool) -> u64 {
    let metadata = if recursive {
        path.symlink_metadata()
    } else {
        path.metadata()
    };
    let Ok(metadata) = metadata else { return 0 };
    if metadata.is_file() {
        metadata.len()
    } else if metadata.is_dir() && recursive {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| data_bytes(&entry.path(), true)).sum()
    } else if std::os::unix::fs::FileTypeExt::is_block_device(&metadata.file_type()) {
        device_bytes(path)
    } else {
        0
    }
}

fn device_bytes(path: &Path) -> u64 {
    use std::os::fd::AsFd;
    std::fs::File::open(path)
        .and_then(|device| dropbehind_linux::block_size_bytes(device.as_fd()))
        .unwrap_or(0)
}
