//! Opening what is to be written, without destroying anything by accident.

use crate::error::{Doing, Failure, quoted, shown};
use crate::input::{Identity, is_cached_kind};
use crate::output::Output;
use crate::place::{Place, make_blocking};
use crate::session::Session;
use crate::size;
use crate::unnamed::Unnamed;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::Metadata;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// Write at the end of what is there, instead of in its place.
    pub(crate) append: bool,
    /// The permissions of a new file, before the umask.
    pub(crate) permissions: u32,
    /// Leave what is there as it is.
    pub(crate) keeps_data: bool,
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
            ))
            .like_cp(format!(
                "{} and {} are the same file",
                quoted(source),
                quoted(path)
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
    /// The name that it gets once it is complete.
    pub(crate) unnamed: Option<Unnamed>,
}

impl Destination {
    /// A regular file that was made anew, and has its name.
    fn made(output: Output, path: &Path) -> Self {
        Self {
            output,
            path: path.to_owned(),
            is_new: true,
            is_regular: true,
            unnamed: None,
        }
    }

    /// Makes a regular file; `None` if the name is taken.
    pub(crate) fn make_new(
        session: &Session,
        place: &Place<'_>,
        permissions: u32,
    ) -> Result<Option<Self>, Failure> {
        let failed = |error: io::Error| Failure::io(Doing::Create, place.path, &error);
        if place.path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return match place.look() {
                Ok(_) => Ok(None),
                Err(_) => Err(no_directory(place.path)),
            };
        }
        let Some(made) = Self::make_file(place, permissions)? else {
            return Ok(None);
        };
        let file = session.open_options().adopt(made).map_err(failed)?;
        Ok(Some(Self::made(Output::cached(file, session), place.path)))
    }

    /// Makes a plain file; `None` if the name is taken.
    pub(crate) fn make_file(
        place: &Place<'_>,
        permissions: u32,
    ) -> Result<Option<std::fs::File>, Failure> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        match place.open(flags, Mode::from_raw_mode(permissions)) {
            Err(Errno::EXIST) => Ok(None),
            made => made
                .map(Some)
                .map_err(|errno| Failure::io(Doing::Create, place.path, &errno.into())),
        }
    }

    /// Makes a regular file that gets its name once it is complete.
    pub(crate) fn make_unnamed(
        session: &Session,
        place: &Place<'_>,
        permissions: u32,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::io(Doing::Create, place.path, &error);
        let (made, unnamed) = Unnamed::make(place.directory, place.name, permissions)
            .map_err(|errno| failed(errno.into()))?;
        let file = session.open_options().adopt(made).map_err(failed)?;
        Ok(Self {
            unnamed: Some(unnamed),
            ..Self::made(Output::cached(file, session), place.path)
        })
    }

    /// Gives it its name, if it has none yet.
    pub(crate) fn publish(&mut self) -> Result<(), Failure> {
        let Some(unnamed) = self.unnamed.take() else {
            return Ok(());
        };
        unnamed
            .publish(self.output.as_fd())
            .map_err(|errno| Failure::io(Doing::Create, &self.path, &errno.into()))
    }

    /// Makes the file that a symbolic link points to.
    pub(crate) fn make_through_link(
        session: &Session,
        place: &Place<'_>,
        permissions: u32,
    ) -> Result<Self, Failure> {
        let file = session
            .open_options()
            .write(true)
            .create(true)
            .mode(permissions)
            .open(place.path)
            .map_err(|error| Failure::io(Doing::Create, place.path, &error))?;
        Ok(Self::made(Output::cached(file, session), place.path))
    }

    /// Opens and empties what is there, which looked like this; the error is that of the open
    /// if `force` could help.
    pub(crate) fn open_existing(
        session: &Session,
        place: &Place<'_>,
        wanted: &Wanted<'_>,
        existing: &Metadata,
    ) -> Result<Result<Self, Failure>, Failure> {
        let failed = |error: io::Error| Failure::io(Doing::Write, place.path, &error);
        let path = place.path;
        if existing.file_type().is_block_device() && place.follows_links {
            return Self::open_device(session, path, wanted).map(Ok);
        }
        if !existing.is_file() && place.follows_links {
            let opened = std::fs::File::options().write(true).open(path);
            return Ok(opened.map_err(failed).map(|file| Self {
                output: Output::Plain(file),
                path: path.to_owned(),
                is_new: false,
                is_regular: false,
                unnamed: None,
            }));
        }
        let opened = match place.reach(OFlags::WRONLY) {
            Err(Errno::LOOP | Errno::NXIO) => return Err(place.was_replaced()),
            Err(errno) if is_refusal(&errno.into()) => return Ok(Err(failed(errno.into()))),
            opened => opened.map_err(|errno| failed(errno.into()))?,
        };
        let metadata = opened.metadata().map_err(failed)?;
        // What was opened counts, not what was looked at before.
        if Identity::of(&metadata) != Identity::of(existing) {
            return Err(place.was_replaced());
        }
        wanted.may_replace(&metadata, path)?;
        make_blocking(&opened).map_err(|errno| failed(errno.into()))?;
        if !wanted.keeps_data {
            opened.set_len(0).map_err(failed)?;
        }
        let file = session.open_options().adopt(opened).map_err(failed)?;
        Ok(Ok(Self {
            output: Output::cached(file, session),
            path: path.to_owned(),
            is_new: false,
            is_regular: true,
            unnamed: None,
        }))
    }

    /// Opens or makes what the user typed.
    pub(crate) fn open(
        session: &Session,
        path: &Path,
        wanted: &Wanted<'_>,
    ) -> Result<Self, Failure> {
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
        Self::open_typed(session, path, wanted, &existing).map_err(failed)
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
            return Err(no_directory(path));
        }
        let file = session
            .open_options()
            .write(true)
            .append(wanted.append)
            .create_new(true)
            .mode(wanted.permissions)
            .open(path)
            .map_err(failed)?;
        Ok(Self::made(Output::cached(file, session), path))
    }

    fn open_typed(
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
                .truncate(!wanted.append && !wanted.keeps_data)
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
            unnamed: None,
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
            // mincore shows what is cached only through a readable description.
            .read(!dropbehind_linux::has_cachestat())
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
                unnamed: None,
            }),
        }
    }
}

/// Why no file of a name that ends with a slash is made.
fn no_directory(path: &Path) -> Failure {
    Failure::new(format!(
        "cannot create {}: there is no such directory. Create it first, or leave out the slash.",
        shown(path)
    ))
    .like_cp(format!(
        "cannot create regular file {}: Not a directory",
        quoted(path)
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
