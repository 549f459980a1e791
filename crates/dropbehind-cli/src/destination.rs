//! Opening what is to be written, without destroying anything by accident.

use crate::error::{Doing, Failure, shown};
use crate::input::{Identity, is_cached_kind};
use crate::output::Output;
use crate::place::{Place, make_blocking};
use crate::session::Session;
use crate::size;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::Metadata;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// Write at the end of what is there, instead of in its place.
    pub(crate) append: bool,
    /// The permissions of a new file, before the umask.
    pub(crate) permissions: u32,
    /// Remove what cannot be opened, and make a new file.
    pub(crate) force: bool,
    /// In a tree, replace an existing file by a new one. The copy will get its owner and
    /// permissions, and a process that has the old file open must not gain them.
    pub(crate) anew: bool,
    /// How much is to be written, if known.
    pub(crate) bytes: Option<u64>,
    /// The source, which must not be the destination.
    pub(crate) source: (&'a Path, Identity),
}

impl Wanted<'_> {
    /// Checks that `existing` is not the source.
    pub(crate) fn may_replace(&self, existing: &Metadata, path: &Path) -> Result<(), Failure> {
        let (source, identity) = self.source;
        // A pipe or a terminal may well be both.
        if Identity::of(existing) == identity && (is_cached_kind(existing) || existing.is_symlink())
        {
            return Err(Failure::new(format!(
                "{} and {} are the same file. Name another destination.",
                shown(source),
                shown(path)
            )));
        }
        Ok(())
    }
}

/// An open destination.
pub(crate) struct Destination {
    pub(crate) output: Output,
    pub(crate) path: PathBuf,
    /// Whether the file was made anew.
    pub(crate) is_new: bool,
    /// A regular file, which may have holes and attributes.
    pub(crate) is_regular: bool,
}

impl Destination {
    /// Opens or makes the file.
    pub(crate) fn open(
        session: &Session,
        place: &Place<'_>,
        wanted: &Wanted<'_>,
    ) -> Result<Self, Failure> {
        if place.follows_links {
            Self::open_typed(session, place.path, wanted)
        } else {
            Self::open_regular(session, place, wanted)
        }
    }

    /// Opens or makes a regular file, and nothing else that may have taken its place.
    fn open_regular(
        session: &Session,
        place: &Place<'_>,
        wanted: &Wanted<'_>,
    ) -> Result<Self, Failure> {
        let failed = |errno: Errno| Failure::io(Doing::Create, place.path, &errno.into());
        let made = match make_regular(place, wanted) {
            Err(Errno::EXIST) => None,
            made => Some(made.map_err(failed)?),
        };
        let (opened, is_new) = match made {
            Some(made) => (made, true),
            None => match empty_regular(place, wanted)? {
                Some(emptied) => (emptied, false),
                None => {
                    rustix::fs::unlinkat(place.directory, place.name, AtFlags::empty())
                        .map_err(failed)?;
                    (make_regular(place, wanted).map_err(failed)?, true)
                }
            },
        };
        let file = session
            .open_options()
            .adopt(opened)
            .map_err(|error| Failure::io(Doing::Create, place.path, &error))?;
        Ok(Self {
            output: Output::cached(file, session),
            path: place.path.to_owned(),
            is_new,
            is_regular: true,
        })
    }

    fn open_typed(session: &Session, path: &Path, wanted: &Wanted<'_>) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::io(Doing::Create, path, &error);
        let existing = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Self::make(session, path, wanted);
            }
            Err(error) => return Err(failed(error)),
        };
        wanted.may_replace(&existing, path)?;
        let failed = |error: io::Error| Failure::io(Doing::Write, path, &error);
        if existing.is_dir() {
            return Err(failed(Errno::ISDIR.into()));
        }
        if existing.file_type().is_block_device() {
            return Self::open_device(session, path, wanted);
        }
        match Self::open_existing(session, path, wanted, &existing) {
            Err(error) if wanted.force && existing.is_file() && is_refusal(&error) => {
                std::fs::remove_file(path).map_err(failed)?;
                Self::make(session, path, wanted)
            }
            opened => opened.map_err(failed),
        }
    }

    fn make(session: &Session, path: &Path, wanted: &Wanted<'_>) -> Result<Self, Failure> {
        if path.is_symlink() {
            return Err(Failure::new(format!(
                "cannot create {}: it is a symbolic link to a file that is not there. Remove the \
                 link, or make the file first.",
                shown(path)
            )));
        }
        let failed = |error: io::Error| Failure::io(Doing::Create, path, &error);
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(Failure::new(format!(
                "cannot create {}: there is no such directory. Create it first, or leave out the \
                 slash.",
                shown(path)
            )));
        }
        let file = session
            .open_options()
            .write(true)
            .append(wanted.append)
            .create_new(true)
            .permissions(wanted.permissions)
            .open(path)
            .map_err(failed)?;
        Ok(Self {
            output: Output::cached(file, session),
            path: path.to_owned(),
            is_new: true,
            is_regular: true,
        })
    }

    fn open_existing(
        session: &Session,
        path: &Path,
        wanted: &Wanted<'_>,
        existing: &Metadata,
    ) -> io::Result<Self> {
        let output = if existing.is_file() {
            let file = session
                .open_options()
                .write(true)
                .append(wanted.append)
                .truncate(!wanted.append)
                .open(path)?;
            Output::cached(file, session)
        } else {
            Output::Plain(std::fs::File::options().write(true).open(path)?)
        };
        Ok(Self {
            output,
            path: path.to_owned(),
            is_new: false,
            is_regular: existing.is_file(),
        })
    }

    fn open_device(session: &Session, path: &Path, wanted: &Wanted<'_>) -> Result<Self, Failure> {
        if wanted.append {
            return Err(Failure::new(format!(
                "cannot append to {}: a block device has no end to append to. Leave out --append \
                 to write it from the start.",
                shown(path)
            )));
        }
        let exclusive = i32::try_from(OFlags::EXCL.bits()).unwrap_or_default();
        let file = session
            .open_options()
            .write(true)
            .custom_flags(exclusive)
            .open(path)
            .map_err(|error| device_refused(path, &error))?;
        // The kernel opens a read-only device all the same, and refuses each write.
        if dropbehind_linux::is_read_only(file.as_fd()).unwrap_or(false) {
            return Err(Failure::new(format!(
                "cannot write {}: the device is read-only. Nothing was written; make it writable \
                 (blockdev --setrw) or choose another.",
                shown(path)
            )));
        }
        let capacity = dropbehind_linux::block_size_bytes(file.as_fd())
            .map_err(|error| Failure::io(Doing::Open, path, &error))?;
        match wanted.bytes {
            Some(bytes) if bytes > capacity => Err(Failure::new(format!(
                "cannot write {}: {} has {} ({bytes} bytes), the device holds {} ({capacity} \
                 bytes). Nothing was written; choose a larger device.",
                shown(path),
                shown(wanted.source.0),
                size::show(bytes),
                size::show(capacity),
            ))),
            _ => Ok(Self {
                output: Output::cached(file, session),
                path: path.to_owned(),
                is_new: false,
                is_regular: false,
            }),
        }
    }
}

/// Makes a file where there is none yet.
fn make_regular(place: &Place<'_>, wanted: &Wanted<'_>) -> Result<std::fs::File, Errno> {
    place.open(
        OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
        Mode::from_raw_mode(wanted.permissions),
    )
}

/// Opens and empties the file that is there; `None` if a new one is to take its place.
fn empty_regular(place: &Place<'_>, wanted: &Wanted<'_>) -> Result<Option<std::fs::File>, Failure> {
    let failed = |error: io::Error| Failure::io(Doing::Write, place.path, &error);
    let existing = place.pin().map_err(|errno| failed(errno.into()))?;
    let existing = existing.metadata().map_err(failed)?;
    wanted.may_replace(&existing, place.path)?;
    if existing.is_dir() {
        return Err(failed(Errno::ISDIR.into()));
    }
    if !existing.is_file() {
        return if wanted.force {
            Ok(None)
        } else {
            Err(no_regular_file(place, &existing))
        };
    }
    match place.open(OFlags::WRONLY, Mode::empty()) {
        Ok(opened) => {
            let metadata = opened.metadata().map_err(failed)?;
            // What was opened counts, not what was looked at before.
            if Identity::of(&metadata) != Identity::of(&existing) {
                return Err(place.was_replaced());
            }
            // Another name of the file may be anywhere.
            if wanted.anew || metadata.nlink() > 1 {
                return Ok(None);
            }
            make_blocking(&opened).map_err(|errno| failed(errno.into()))?;
            opened.set_len(0).map_err(failed)?;
            Ok(Some(opened))
        }
        Err(Errno::LOOP | Errno::NXIO) => Err(place.was_replaced()),
        Err(errno) if wanted.force && is_refusal(&errno.into()) => Ok(None),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// Why a copy inside of a directory does not go through what is there already.
fn no_regular_file(place: &Place<'_>, existing: &Metadata) -> Failure {
    let kind = if existing.is_symlink() {
        "a symbolic link, which may lead out of the destination"
    } else {
        "no regular file"
    };
    Failure::new(format!(
        "cannot overwrite {}: it is {kind}. Remove it, or use -f to replace it.",
        shown(place.path)
    ))
}

/// Whether the file itself cannot be opened, which a new one in its place would help, rather
/// than that descriptors ran out or the disk is failing.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::ACCESS | Errno::PERM | Errno::TXTBSY)
    )
}

/// Why a block device cannot be opened for writing.
fn device_refused(path: &Path, error: &io::Error) -> Failure {
    match Errno::from_io_error(error) {
        Some(Errno::BUSY) => Failure::new(format!(
            "cannot write {}: it is in use (mounted, swapped to, or part of a RAID or LVM). \
             Nothing was written; end that use and run the command again.",
            shown(path)
        )),
        _ => Failure::io(Doing::Write, path, error),
    }
}
