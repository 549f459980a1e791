//! The files of `--stats` and `--trace`, which must not be what the command reads or writes.

use crate::error::{Doing, Failure, shown};
use crate::input::{Identity, is_cached_kind};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the reader of a named pipe, started at the same time, may take to open it.
const READER: Duration = Duration::from_secs(5);

/// Something that a command reads or writes.
#[derive(Clone, Debug)]
pub(crate) enum InUse {
    Stdin,
    Stdout,
    File(PathBuf),
    /// All that is or will be directly in it.
    Folder(PathBuf),
    /// A source, and what its copy is called. Both may be directories.
    Copy(PathBuf, PathBuf),
}

/// Opens a report's file, or makes it. Its contents stay.
pub(crate) fn open(option: &str, path: &Path, in_use: &[InUse]) -> Result<File, Failure> {
    let failed = |error: io::Error| Failure::io(Doing::Create, path, &error);
    let is_new = !path.exists();
    let is_pipe = |there: Metadata| there.file_type().is_fifo();
    let file = match path.metadata().is_ok_and(is_pipe) {
        true => open_pipe(option, path)?,
        false => File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?,
    };
    let metadata = file.metadata().map_err(failed)?;
    // Compared only now: a new file may have got the name that the copy was to have. A pipe or a
    // terminal may well be both.
    let is_it = |used: &&InUse| is_cached_kind(&metadata) && used.has(path, &metadata, is_new);
    let Some(used) = in_use.iter().find(is_it) else {
        return Ok(file);
    };
    if is_new {
        // It is empty. The path may be a link to it.
        let _ = path.canonicalize().and_then(std::fs::remove_file);
    }
    Err(refused(option, path, used))
}

/// Opens a named pipe once somebody reads it. The kernel would wait for ever, and no signal would
/// end that where signals are handled already.
fn open_pipe(option: &str, path: &Path) -> Result<File, Failure> {
    let until = Instant::now() + READER;
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    loop {
        match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::NXIO) if Instant::now() < until => std::thread::sleep(READER / 500),
            Err(Errno::NXIO) => {
                return Err(Failure::new(format!(
                    "cannot write {} for {option}: nobody reads this pipe. Start its reader first, \
                     or name another file with {option}.",
                    shown(path)
                )));
            }
            opened => {
                let opened = opened.and_then(|pipe| {
                    rustix::fs::fcntl_setfl(&pipe, OFlags::empty())?;
                    Ok(File::from(pipe))
                });
                return opened.map_err(|error| Failure::io(Doing::Create, path, &error.into()));
            }
        }
    }
}

/// Refuses to write a report where one of these is, or would be made. Makes nothing itself.
pub(crate) fn refuse(option: &str, path: &Path, in_use: &[InUse]) -> Result<(), Failure> {
    let is_new = !path.exists();
    let is_it = |used: &&InUse| match used {
        InUse::File(file) if is_new => names_same(file, path),
        InUse::Folder(folder) => path.parent().is_some_and(|parent| is_same(folder, parent)),
        InUse::File(file) => is_same(file, path),
        _ => false,
    };
    match in_use.iter().find(is_it) {
        None => Ok(()),
        Some(used) => Err(refused(option, path, used)),
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    // A path without a folder in it.
    let here = |path: &Path| match path.as_os_str().is_empty() {
        true => Path::new(".").metadata(),
        false => path.metadata(),
    };
    let (Ok(one), Ok(other)) = (here(one), here(other)) else {
        return false;
    };
    Identity::of(&one) == Identity::of(&other)
}

/// Whether two paths that lead to nothing yet are the same name in the same folder.
fn names_same(one: &Path, other: &Path) -> bool {
    let (Some(folder), Some(others)) = (one.parent(), other.parent()) else {
        return false;
    };
    one.file_name() == other.file_name() && is_same(folder, others)
}

fn refused(option: &str, path: &Path, used: &InUse) -> Failure {
    Failure::usage(format!(
        "cannot write {} for {option}: it is {used}. Nothing was changed; name another file with \
         {option}.",
        shown(path)
    ))
}

impl InUse {
    /// Whether the file of this path is it, or is in it.
    fn has(&self, path: &Path, file: &Metadata, is_new: bool) -> bool {
        let is = |other: Metadata| Identity::of(&other) == Identity::of(file);
        let is_at = |path: &Path| path.metadata().is_ok_and(is);
        match self {
            Self::Stdin => metadata_of(io::stdin()).is_ok_and(is),
            Self::Stdout => metadata_of(io::stdout()).is_ok_and(is),
            Self::File(path) => is_at(path),
            Self::Folder(folder) => path.parent().is_some_and(|parent| is_same(folder, parent)),
            Self::Copy(source, copy) => {
                is_at(source) || is_at(copy) || is_in_tree(path, is_new, source, copy)
            }
        }
    }
}

/// Whether a file is one of a directory that is copied, or of those that their copies replace.
/// What else is below the destination stays, and may be a report.
fn is_in_tree(path: &Path, is_new: bool, source: &Path, copy: &Path) -> bool {
    let Ok(path) = path.canonicalize() else {
        return false;
    };
    let below = |top: &Path| {
        let top = top.canonicalize().ok()?;
        path.strip_prefix(top).ok().map(Path::to_owned)
    };
    source.is_dir()
        && (!is_new && below(source).is_some()
            || below(copy).is_some_and(|name| source.join(name).symlink_metadata().is_ok()))
}

fn metadata_of(stream: impl AsFd) -> io::Result<Metadata> {
    File::from(stream.as_fd().try_clone_to_owned()?).metadata()
}

impl std::fmt::Display for InUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdin => f.write_str("what standard input reads"),
            Self::Stdout => f.write_str("where standard output goes"),
            Self::File(path) => write!(f, "{}, which the command uses itself", shown(path)),
            Self::Folder(path) => write!(f, "in {}, whose files the command reads", shown(path)),
            Self::Copy(source, copy) => {
                let (source, copy) = (shown(source), shown(copy));
                write!(f, "part of the copy of {source} to {copy}")
            }
        }
    }
}
