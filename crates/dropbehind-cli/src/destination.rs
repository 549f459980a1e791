//! Opening what is to be written, without destroying anything by accident.

use crate::error::{Doing, Failure, shown};
use crate::input::{Identity, is_cached_kind};
use crate::output::Output;
use crate::session::Session;
use crate::size;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::Metadata;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// What is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// At the end of what is there, instead of in its place.
    pub(crate) append: bool,
    /// The permissions of a new file, before the umask.
    pub(crate) permissions: u32,
    /// Remove what cannot be opened, and make a new file.
    pub(crate) force: bool,
    /// How much is to be written, if known.
    pub(crate) bytes: Option<u64>,
    /// Where it comes from, which must not be the destination.
    pub(crate) source: (&'a Path, Identity),
}

/// An open destination.
pub(crate) struct Destination {
    pub(crate) output: Output,
    pub(crate) path: PathBuf,
    /// Whether there was nothing of this name before.
    pub(crate) is_new: bool,
    /// A regular file, which may have holes and attributes.
    pub(crate) is_regular: bool,
}

impl Destination {
    /// Opens or makes the file.
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
        let (source, identity) = wanted.source;
        if Identity::of(&existing) == identity && is_cached_kind(&existing) {
            return Err(Failure::new(format!(
                "{} and {} are the same file. Name another destination.",
                shown(source),
                shown(path)
            )));
        }
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
        // The kernel opens it all the same, and refuses each write.
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

/// Whether it is the file that cannot be opened, which a new one in its place
/// would help, and not that descriptors have run out or the disk is failing.
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
