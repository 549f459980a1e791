//! Where bytes come from.

use crate::error::{Doing, Failure, shown};
use crate::place::{Place, make_blocking};
use crate::session::{SETTLE_LIMIT, Session};
use dropbehind::{File, Stats};
use dropbehind_linux::StartState;
use rustix::fs::{Mode, OFlags, SeekFrom as FdSeek};
use rustix::io::Errno;
use std::cell::OnceCell;
use std::fs::Metadata;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The size of the buffer that a pipe is given, for fewer and larger reads.
const PIPE_BYTES: usize = 1 << 20;

/// Identifies data, whatever names lead to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    /// A file, by device and inode.
    File(u64, u64),
    /// A block device, by its number: it may have many special files.
    Block(u64),
}

impl Identity {
    /// The identity of what has this metadata.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        if metadata.file_type().is_block_device() {
            Self::Block(metadata.rdev())
        } else {
            Self::File(metadata.dev(), metadata.ino())
        }
    }
}

/// Fails if a standard descriptor was closed when the program started, and is `/dev/null` now.
pub(crate) fn check_open(fd: i32) -> io::Result<()> {
    match StartState::get().is_ok_and(|start| start.had_closed(fd)) {
        true => Err(Errno::BADF.into()),
        false => Ok(()),
    }
}

/// Whether pages of it are in the page cache, so that modes mean something.
pub(crate) fn is_cached_kind(metadata: &Metadata) -> bool {
    metadata.is_file() || metadata.file_type().is_block_device()
}

enum Source {
    /// A regular file or block device.
    Cached(Arc<File>),
    /// A pipe, terminal or the like.
    Plain(std::fs::File),
}

/// An open source.
pub(crate) struct Input {
    source: Source,
    /// Its metadata when it was opened.
    pub(crate) metadata: Metadata,
    pub(crate) path: PathBuf,
    ends_at_first_size: bool,
    /// Once known: [`Input::end`].
    end: OnceCell<u64>,
    /// Not 0 once reading is to end.
    stopped: Option<Arc<AtomicI32>>,
}

/// Where the next data of a file with holes is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// From here to there.
    Range(u64, u64),
    /// No more data; only a hole is left, if anything is.
    NoMore,
    /// The file system does not say.
    Unknown,
}

impl Input {
    /// Opens whatever can be read, in the session's mode.
    pub(crate) fn open(session: &Session, place: &Place<'_>) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::io(Doing::Open, place.path, &error);
        // Looked at before it is opened: opening a pipe waits for its writer, and is none of the
        // library's business.
        let before = place.look().map_err(|errno| failed(errno.into()))?;
        let before = before.metadata().map_err(failed)?;
        if before.is_dir() {
            return Err(failed(Errno::ISDIR.into()));
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        let opened = rustix::fs::openat(place.directory, place.name, flags, Mode::empty());
        let opened = std::fs::File::from(opened.map_err(|errno| failed(errno.into()))?);
        let metadata = opened.metadata().map_err(failed)?;
        let source = if is_cached_kind(&metadata) {
            let file = session.open_options().adopt(opened).map_err(failed)?;
            Source::Cached(Arc::new(file))
        } else {
            Source::Plain(opened)
        };
        Ok(Self {
            source,
            metadata,
            path: place.path.to_owned(),
            ends_at_first_size: false,
            end: OnceCell::new(),
            stopped: None,
        })
    }

    /// Opens a regular file, and nothing else that may have taken its place.
    pub(crate) fn open_regular(place: &Place<'_>) -> Result<(std::fs::File, Metadata), Failure> {
        let failed = |error: io::Error| Failure::io(Doing::Open, place.path, &error);
        let opened = match place.reach(OFlags::RDONLY) {
            // A link or a socket gives this.
            Err(Errno::LOOP | Errno::NXIO) => return Err(place.was_replaced()),
            opened => opened.map_err(|errno| failed(errno.into()))?,
        };
        let metadata = opened.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(place.was_replaced());
        }
        Ok((opened, metadata))
    }

    /// Takes over a regular file that is open. With `ends_at_first_size`, a copy of it has the
    /// first size that it shows, see [`Input::end`].
    pub(crate) fn adopt(
        session: &Session,
        (opened, metadata): (std::fs::File, Metadata),
        path: &Path,
        ends_at_first_size: bool,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::io(Doing::Open, path, &error);
        make_blocking(&opened).map_err(|errno| failed(errno.into()))?;
        let file = session.open_options().adopt(opened).map_err(failed)?;
        Ok(Self {
            source: Source::Cached(Arc::new(file)),
            metadata,
            path: path.to_owned(),
            ends_at_first_size,
            end: OnceCell::new(),
            stopped: None,
        })
    }

    /// Standard input, in the session's mode if it is a file.
    pub(crate) fn stdin(session: &Session) -> Result<Self, Failure> {
        let path = PathBuf::from("standard input");
        let failed = |error: io::Error| Failure::io(Doing::Open, &path, &error);
        check_open(0).map_err(failed)?;
        let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
        let stdin = std::fs::File::from(stdin);
        let metadata = stdin.metadata().map_err(failed)?;
        let source = if is_cached_kind(&metadata) {
            Source::Cached(Arc::new(
                session.open_options().adopt(stdin).map_err(failed)?,
            ))
        } else {
            // Refused beyond the user's limit, which does no harm.
            let _ = rustix::pipe::fcntl_setpipe_size(&stdin, PIPE_BYTES);
            Source::Plain(stdin)
        };
        Ok(Self {
            source,
            metadata,
            path,
            ends_at_first_size: false,
            end: OnceCell::new(),
            stopped: None,
        })
    }

    /// Has reads fail as soon as this is not 0.
    pub(crate) fn stop_by(&mut self, stopped: Arc<AtomicI32>) {
        self.stopped = Some(stopped);
    }

    /// Reads what comes next.
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self
            .stopped
            .as_ref()
            .is_some_and(|stopped| stopped.load(Relaxed) != 0)
        {
            return Err(io::Error::other("stopped by a signal"));
        }
        match &mut self.source {
            Source::Cached(file) => file.as_ref().read(bytes),
            Source::Plain(file) => file.read(bytes),
        }
    }

    /// Goes to this place.
    pub(crate) fn seek(&mut self, offset: u64) -> io::Result<()> {
        match &mut self.source {
            Source::Cached(file) => file.as_ref().seek(SeekFrom::Start(offset))?,
            Source::Plain(file) => file.seek(SeekFrom::Start(offset))?,
        };
        Ok(())
    }

    /// Its size now, if it has one.
    pub(crate) fn len(&self) -> Option<u64> {
        match &self.source {
            Source::Cached(file) => dropbehind_linux::size_bytes(file.as_fd()).ok(),
            Source::Plain(_) => None,
        }
    }

    /// Where a copy of it ends, if not where reading does. Inside of a tree that is the first
    /// size that it shows: a file that grows as fast as it is copied must not keep the copy from
    /// the others. Files of `/proc` show no size.
    pub(crate) fn end(&self) -> Option<u64> {
        if self.ends_at_first_size && self.end.get().is_none() {
            let size = self.len().filter(|size| *size > 0)?;
            // It is not set yet.
            let _ = self.end.set(size);
        }
        self.end.get().copied()
    }

    /// How many bytes are ahead of its position, if known.
    pub(crate) fn remaining(&self) -> Option<u64> {
        let position = rustix::fs::tell(self.as_fd()).ok()?;
        Some(self.len()?.saturating_sub(position))
    }

    /// Whether it is a regular file, which may have holes.
    pub(crate) fn is_regular(&self) -> bool {
        self.metadata.is_file()
    }

    /// The file behind it, for watching.
    pub(crate) fn file(&self) -> Option<&Arc<File>> {
        match &self.source {
            Source::Cached(file) => Some(file),
            Source::Plain(_) => None,
        }
    }

    /// Finds the next data from `offset` on. Moves the position.
    pub(crate) fn next_data(&self, offset: u64) -> Data {
        let start = match rustix::fs::seek(self.as_fd(), FdSeek::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Data::NoMore,
            Err(_) => return Data::Unknown,
        };
        match rustix::fs::seek(self.as_fd(), FdSeek::Hole(start)) {
            Ok(end) if end > start => Data::Range(start, end),
            // The file was cut off between the two calls: there is nothing here now.
            Err(Errno::NXIO) => Data::NoMore,
            _ => Data::Unknown,
        }
    }

    /// Waits until what was brought into the page cache is dropped, adds up the figures, and
    /// closes.
    pub(crate) fn finish(self, session: &mut Session, watched: bool) {
        let Source::Cached(file) = self.source else {
            return;
        };
        if file.mode().drops() {
            settle(&file, session, &self.path);
        }
        session.progress.detach(&file);
        session.stats.add(&last_stats(&file), watched);
        // Nothing was written: closing has nothing to report.
    }
}

impl AsFd for Input {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::Cached(file) => file.as_fd(),
            Source::Plain(file) => file.as_fd(),
        }
    }
}

/// Waits for a file's pages to go, and says so if they stay.
pub(crate) fn settle(file: &File, session: &Session, path: &Path) {
    let _ = file.settle(SETTLE_LIMIT);
    let left = file.stats().left_bytes;
    if left > 0 {
        session.note(&format!(
            "{} of {} are still in the page cache: another program uses them, or they could not \
             be dropped safely. `dropbehind drop` drops them later.",
            crate::size::show(left),
            shown(path)
        ));
    }
}

/// A file's figures at its end. What did not go by then is left, also where nobody waited for it.
pub(crate) fn last_stats(file: &File) -> Stats {
    let mut stats = file.stats();
    if file.mode().drops() {
        let stayed_bytes = stats.brought_bytes.saturating_sub(stats.dropped_bytes);
        stats.left_bytes = stats.left_bytes.max(stayed_bytes);
    }
    stats
}
