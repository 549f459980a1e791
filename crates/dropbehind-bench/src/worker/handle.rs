//! A file opened in one of the modes.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use dropbehind_linux::{Access, IoFlags};

use super::Trouble;
use crate::job::{Operation, Pattern, Task};
use crate::mode::Mode;

/// What each mode does with a call. Native calls the kernel without the
/// library, which would fall back where the flag is refused.
pub(super) enum Handle {
    Plain(File),
    Native(File),
    Ours(dropbehind::File),
    /// Ours, driven by a ring.
    Attached(dropbehind::Attached<File>),
    Snippet(File),
}

impl Handle {
    pub(super) fn open(mode: Mode, task: &Task, path: &Path) -> Result<Self, Trouble> {
        let failed = |error: io::Error| Trouble::failed("opening", path, &error);
        let write = task.operation == Operation::Write;
        let append = task.pattern == Pattern::Append;
        let random = task.pattern == Pattern::Random;
        let by_ring = task.ring_depth > 0;
        if let Some(library) = mode.library().filter(|_| !task.warm && !by_ring) {
            let file = dropbehind::OpenOptions::new()
                .read(!write)
                .write(write)
                .append(append)
                .random(random)
                .cache_mode(library)
                .open(path)
                .map_err(failed)?;
            return match file.without_effect() {
                Some(why) => Err(Trouble::Unavailable(format!("no effect here: {why}"))),
                None => Ok(Self::Ours(file)),
            };
        }
        let direct = mode.is_direct() && !task.warm;
        if direct && (append || !task.block_bytes.is_multiple_of(4096)) {
            return Err(Trouble::Unavailable(
                "O_DIRECT cannot write records that are no multiple of the sector".to_owned(),
            ));
        }
        let file = File::options()
            .read(!write)
            .write(write)
            .append(append)
            .custom_flags(if direct { libc::O_DIRECT } else { 0 })
            .open(path)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::EINVAL) if direct => {
                    Trouble::Unavailable("the file system has no O_DIRECT".to_owned())
                }
                _ => failed(error),
            })?;
        if random && !direct {
            // As fio does unless told otherwise.
            dropbehind_linux::advise_access(file.as_fd(), Access::Random).map_err(failed)?;
        }
        if let Some(library) = mode.library().filter(|_| by_ring) {
            let mut options = dropbehind::OpenOptions::new();
            let attached = options.random(random).cache_mode(library).attach(file);
            let attached = attached.map_err(failed)?;
            return match attached.without_effect() {
                Some(why) => Err(Trouble::Unavailable(format!("no effect here: {why}"))),
                None => Ok(Self::Attached(attached)),
            };
        }
        Ok(match mode {
            Mode::Native if !task.warm => Self::Native(file),
            Mode::Snippet if !task.warm => Self::Snippet(file),
            _ => Self::Plain(file),
        })
    }

    /// Writes a whole block; `append` goes to the end, where the offset is taken to be.
    pub(super) fn write(&self, block: &[u8], offset: u64, append: bool) -> io::Result<()> {
        let mut done = 0;
        while done < block.len() {
            let at = offset + done as u64;
            let rest = &block[done..];
            let count = match self {
                Self::Plain(file) | Self::Snippet(file) if append => (&*file).write(rest),
                Self::Plain(file) | Self::Snippet(file) => file.write_at(rest, at),
                Self::Ours(file) if append => (&*file).write(rest),
                Self::Ours(file) => file.write_at(rest, at),
                Self::Attached(file) => file.get_ref().write_at(rest, at),
                Self::Native(file) => dropbehind_linux::pwritev2(
                    file.as_fd(),
                    &[IoSlice::new(rest)],
                    // O_APPEND overrules it.
                    Some(at),
                    IoFlags::DONTCACHE,
                ),
            };
            match count {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if let Self::Snippet(file) = self {
            let length = block.len() as u64;
            dropbehind_linux::write_and_wait(file.as_fd(), offset, length)?;
            dropbehind_linux::drop_clean(file.as_fd(), offset, length)?;
        }
        Ok(())
    }

    /// Reads a whole block.
    pub(super) fn read(&self, block: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < block.len() {
            let at = offset + done as u64;
            let rest = &mut block[done..];
            let count = match self {
                Self::Plain(file) | Self::Snippet(file) => file.read_at(rest, at),
                Self::Ours(file) => file.read_at(rest, at),
                Self::Attached(file) => file.get_ref().read_at(rest, at),
                Self::Native(file) => dropbehind_linux::preadv2(
                    file.as_fd(),
                    &mut [IoSliceMut::new(rest)],
                    Some(at),
                    IoFlags::DONTCACHE,
                ),
            };
            match count {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if let Self::Snippet(file) = self {
            dropbehind_linux::drop_clean(file.as_fd(), offset, block.len() as u64)?;
        }
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        match self {
            Self::Plain(file) | Self::Native(file) | Self::Snippet(file) => file.sync_all(),
            Self::Ours(file) => file.sync_all(),
            Self::Attached(file) => file.synced(file.get_ref().sync_all()),
        }
    }

    /// Waits for our flusher to drop what it is to drop.
    pub(super) fn settle(&self, patience: Duration) -> io::Result<bool> {
        match self {
            Self::Ours(file) => file.settle(patience),
            Self::Attached(file) => Ok(file.settle(patience)),
            _ => Ok(true),
        }
    }

    /// What an error of a call means.
    pub(super) fn trouble(&self, doing: &str, path: &Path, error: &io::Error) -> Trouble {
        match (self, error.raw_os_error()) {
            (Self::Native(_), Some(libc::EOPNOTSUPP)) => Trouble::Unavailable(
                "RWF_DONTCACHE is not supported by this kernel for this file system".to_owned(),
            ),
            (Self::Native(_), Some(libc::ENOSYS)) => {
                Trouble::Unavailable("this kernel has no pwritev2 and preadv2".to_owned())
            }
            (Self::Snippet(_), Some(libc::ENOSYS)) => {
                Trouble::Unavailable("this kernel has no sync_file_range".to_owned())
            }
            _ => Trouble::failed(doing, path, error),
        }
    }
}
