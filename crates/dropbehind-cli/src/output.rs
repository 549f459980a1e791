//! Where bytes go: an open destination, and how it ends.

use crate::error::{Doing, Failure, shown};
use crate::input::{check_open, last_stats, settle};
use crate::session::Session;
use dropbehind::File;
use dropbehind::strategy::Strategy;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// An open destination.
pub(crate) enum Output {
    /// A regular file or block device; and what was cached of it at first, if the kernel is to
    /// drop what is written, which nobody counts then.
    Cached(Arc<File>, Option<u64>),
    /// A pipe, terminal, `/dev/null` or the like: modes do not apply, and there
    /// is nothing to sync.
    Plain(std::fs::File),
}

impl Output {
    /// A file or block device that the library opened, watched from now on.
    pub(crate) fn cached(file: File, session: &Session) -> Self {
        let file = Arc::new(file);
        session.progress.attach(&file);
        let is_native = session.settings.strategy == Strategy::Native;
        let before_bytes = is_native.then(|| cached_bytes(&file)).flatten();
        Self::Cached(file, before_bytes)
    }

    /// Standard output, always plain: the modes are for the file that the command names.
    pub(crate) fn stdout() -> io::Result<Self> {
        check_open(1)?;
        let stdout = io::stdout().as_fd().try_clone_to_owned()?;
        Ok(Self::Plain(stdout.into()))
    }

    /// Whether it is a file or block device.
    pub(crate) fn is_cached(&self) -> bool {
        matches!(self, Self::Cached(..))
    }

    /// Whether it is what standard output is.
    pub(crate) fn is_stdout(&self) -> bool {
        let inode = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let stdout = rustix::fs::fstat(io::stdout()).map(inode);
        stdout.is_ok() && stdout == rustix::fs::fstat(self).map(inode)
    }

    /// Writes some of the bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Cached(file, _) => file.as_ref().write(bytes),
            Self::Plain(file) => file.write(bytes),
        }
    }

    /// Goes to this place.
    pub(crate) fn seek(&mut self, offset: u64) -> io::Result<()> {
        match self {
            Self::Cached(file, _) => file.as_ref().seek(SeekFrom::Start(offset))?,
            Self::Plain(file) => file.seek(SeekFrom::Start(offset))?,
        };
        Ok(())
    }

    /// Goes on so many bytes further.
    pub(crate) fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let by = SeekFrom::Current(i64::try_from(bytes).map_err(io::Error::other)?);
        match self {
            Self::Cached(file, _) => file.as_ref().seek(by)?,
            Self::Plain(file) => file.seek(by)?,
        };
        Ok(())
    }

    /// Makes a file this long.
    pub(crate) fn set_len(&self, bytes: u64) -> io::Result<()> {
        match self {
            Self::Cached(file, _) => file.set_len(bytes),
            Self::Plain(file) => file.set_len(bytes),
        }
    }

    /// Starts writing back what is dirty, so that a later sync finds less.
    pub(crate) fn start_writeback(&self) {
        if let Self::Cached(file, _) = self {
            // Only a head start: the sync reports what goes wrong.
            let _ = file.start_writeback(0..u64::MAX);
        }
    }

    /// Brings everything to the disk.
    pub(crate) fn sync(&self, path: &Path) -> Result<(), Failure> {
        match self {
            Self::Cached(file, _) => file
                .sync_all()
                .map_err(|error| Failure::unsynced(path, &error)),
            Self::Plain(_) => Ok(()),
        }
    }

    /// Waits for the pages to go, adds up the figures, and closes.
    ///
    /// `is_clean` says whether it was synced without an error. If not, there is nothing to wait
    /// for, or the cache may hold the only copy.
    pub(crate) fn finish(
        self,
        session: &mut Session,
        path: &Path,
        is_clean: bool,
    ) -> Result<(), Failure> {
        let (file, before_bytes) = match self {
            Self::Cached(file, before_bytes) => (file, before_bytes),
            Self::Plain(file) => {
                return dropbehind_linux::close(file.into())
                    .map_err(|error| Failure::io(Doing::Close, path, &error));
            }
        };
        if is_clean && file.mode().drops() {
            settle(&file, session, path);
        }
        // Nobody looks at it any more.
        if let Ok(state) = file.residency(0..u64::MAX) {
            let unwritten = &session.progress.counters().unwritten;
            unwritten.fetch_add(state.dirty_bytes + state.writeback_bytes, Relaxed);
        }
        session.progress.detach(&file);
        let mut stats = last_stats(&file);
        if let Some(before_bytes) = before_bytes.filter(|_| file.mode().drops())
            && stats.brought_bytes == 0
        {
            let now_bytes = cached_bytes(&file).unwrap_or(before_bytes);
            stats.left_bytes = now_bytes.saturating_sub(before_bytes);
            stats.brought_bytes = stats.left_bytes;
        }
        session.stats.add(&stats, true);
        match Arc::into_inner(file) {
            Some(file) => file
                .close()
                .map_err(|error| Failure::io(Doing::Close, path, &error)),
            None => Ok(()),
        }
    }
}

/// What is cached of a file now, if that can be told.
fn cached_bytes(file: &File) -> Option<u64> {
    let state = file.residency(0..u64::MAX);
    state.ok().map(|state| state.cached_bytes)
}

impl AsFd for Output {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Cached(file, _) => file.as_fd(),
            Self::Plain(file) => file.as_fd(),
        }
    }
}

/// Syncs the directory of a new file: a file that loses its name in a power failure is not safe
/// on the disk.
pub(crate) fn sync_directory(directory: &Path) -> Result<(), Failure> {
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::fs::open(directory, flags, Mode::empty());
    match opened.map(std::fs::File::from) {
        Ok(opened) => sync_open_directory(&opened, directory),
        // A user may be able to make files in a directory but not to read it. Then it cannot be
        // synced.
        Err(Errno::ACCESS) => Ok(()),
        Err(Errno::NOTDIR) => Err(Failure::new(format!(
            "cannot sync {}: somebody put something else in its place. Find where it is now, and \
             run `sync` on it.",
            shown(directory)
        ))),
        Err(errno) => Err(Failure::io(Doing::Sync, directory, &errno.into())),
    }
}

/// Syncs a directory that is open.
pub(crate) fn sync_open_directory(directory: &std::fs::File, path: &Path) -> Result<(), Failure> {
    match directory.sync_all() {
        // The file system has no such call, and names are safe at once or never; or the
        // directory may not be read, and was opened with `O_PATH`.
        Err(error)
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::BADF)
            ) =>
        {
            Ok(())
        }
        other => other.map_err(|error| Failure::io(Doing::Sync, path, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropbehind_testbed::{Fs, MountedFs, need};
    use std::process::Command;

    /// Its journal has ended, with the names of new files.
    #[test]
    fn a_directory_on_a_file_system_that_failed_is_not_synced() {
        need!(all MountedFs::needs(Fs::Ext4));
        let mounted = MountedFs::new(Fs::Ext4, 64 << 20).unwrap();
        let remounted = Command::new("mount")
            .args(["-o", "remount,errors=remount-ro"])
            .arg(mounted.path())
            .status();
        assert!(remounted.unwrap().success());
        let directory = std::fs::File::open(mounted.path()).unwrap();
        std::fs::write(mounted.file("new"), "").unwrap();
        let device = mounted.device().file_name().unwrap().to_str().unwrap();
        std::fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "test").unwrap();
        let failed = sync_open_directory(&directory, mounted.path()).unwrap_err();
        assert!(failed.to_string().contains("Read-only"), "{failed}");
    }
}
