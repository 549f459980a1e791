//! The file on systems other than Linux: a plain one, whose mode has no effect.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use dropbehind_policy::{Mode, Stats};

use crate::control::{CacheState, DropOutcome};
use crate::settings::FileSettings;

/// State shared by the clones of a file.
#[derive(Debug)]
struct Shared {
    mode: AtomicU8,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

/// A plain file. On Linux its [`Mode`] decides when dirty pages go to the disk, and how long
/// pages stay cached; here it has no effect.
#[derive(Debug)]
pub struct File {
    file: fs::File,
    shared: Arc<Shared>,
}

impl File {
    /// Returns the underlying file.
    pub fn into_std(self) -> fs::File {
        self.file
    }

    pub(crate) fn file(&self) -> &fs::File {
        &self.file
    }

    pub(crate) fn resize(&self, size_bytes: u64) -> io::Result<()> {
        self.file().set_len(size_bytes)
    }

    pub(crate) fn seek_to(&self, to: SeekFrom) -> io::Result<u64> {
        self.file().seek(to)
    }

    pub(crate) fn lend(&self) -> &fs::File {
        &self.file
    }

    /// Does not fail here.
    pub(crate) fn with_settings(
        file: fs::File,
        settings: FileSettings,
        _lent: bool,
    ) -> Result<File, (fs::File, io::Error)> {
        let mode = settings.mode.unwrap_or(Mode::DONTCACHE);
        Ok(File {
            file,
            shared: Arc::new(Shared {
                mode: AtomicU8::new(mode.to_bits()),
                bytes_read: AtomicU64::new(0),
                bytes_written: AtomicU64::new(0),
            }),
        })
    }

    /// The file's mode.
    pub fn mode(&self) -> Mode {
        Mode::from_bits(self.shared.mode.load(Ordering::Relaxed))
    }

    /// Returns why the mode has no effect on this file.
    pub fn without_effect(&self) -> Option<&'static str> {
        Some("dropbehind controls the page cache on Linux only")
    }

    /// Changes the mode of this file and its clones.
    pub fn set_mode(&self, mode: Mode) {
        self.shared.mode.store(mode.to_bits(), Ordering::Relaxed);
    }

    /// Returns another `File` for the same open file; both share position and mode.
    ///
    /// # Errors
    /// Those of [`std::fs::File::try_clone`].
    pub fn try_clone(&self) -> io::Result<File> {
        Ok(File {
            file: self.file.try_clone()?,
            shared: Arc::clone(&self.shared),
        })
    }

    /// Returns once data and metadata are durable.
    ///
    /// # Errors
    /// Those of [`std::fs::File::sync_all`].
    pub fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Returns once the data is durable.
    ///
    /// # Errors
    /// Those of [`std::fs::File::sync_data`].
    pub fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// The bytes read and written; all other counters are 0.
    pub fn stats(&self) -> Stats {
        Stats {
            bytes_read: self.shared.bytes_read.load(Ordering::Relaxed),
            bytes_written: self.shared.bytes_written.load(Ordering::Relaxed),
            ..Stats::default()
        }
    }

    /// There is nothing to wait for.
    ///
    /// # Errors
    /// None.
    pub fn settle(&self, _timeout: Duration) -> io::Result<bool> {
        Ok(true)
    }

    /// Leaves writeback to the system.
    ///
    /// # Errors
    /// None.
    pub fn start_writeback(&self, _range: Range<u64>) -> io::Result<()> {
        Ok(())
    }

    /// Syncs the data, since that is the only way to wait for it here.
    ///
    /// # Errors
    /// Those of [`std::fs::File::sync_data`].
    pub fn wait_clean(&self, _range: Range<u64>) -> io::Result<()> {
        self.sync_data()
    }

    /// Drops nothing.
    ///
    /// # Errors
    /// None.
    pub fn drop_behind(&self, _range: Range<u64>) -> io::Result<DropOutcome> {
        Ok(DropOutcome::default())
    }

    /// What is cached is not known here.
    ///
    /// # Errors
    /// Always [`io::ErrorKind::Unsupported`].
    pub fn residency(&self, _range: Range<u64>) -> io::Result<CacheState> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Closes the file. Call [`File::sync_all`] before it to learn of errors.
    ///
    /// # Errors
    /// None here.
    pub fn close(self) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn read_pieces(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: Option<u64>,
        _mode: Mode,
    ) -> io::Result<usize> {
        let count = match offset {
            None => (&self.file).read_vectored(bufs)?,
            Some(offset) => match bufs.iter_mut().find(|buf| !buf.is_empty()) {
                Some(buf) => read_at(&self.file, buf, offset)?,
                None => 0,
            },
        };
        let total = &self.shared.bytes_read;
        total.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    pub(crate) fn write_once(
        &self,
        bufs: &[IoSlice<'_>],
        offset: Option<u64>,
        _mode: Mode,
    ) -> io::Result<usize> {
        let count = match offset {
            None => (&self.file).write_vectored(bufs)?,
            Some(offset) => match bufs.iter().find(|buf| !buf.is_empty()) {
                Some(buf) => write_at(&self.file, buf, offset)?,
                None => 0,
            },
        };
        let total = &self.shared.bytes_written;
        total.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

#[cfg(unix)]
use std::os::unix::fs::FileExt;
#[cfg(windows)]
use std::os::windows::fs::FileExt;

#[cfg(unix)]
fn read_at(file: &fs::File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(buf, offset)
}

#[cfg(unix)]
fn write_at(file: &fs::File, buf: &[u8], offset: u64) -> io::Result<usize> {
    file.write_at(buf, offset)
}

/// Moves the position, as Windows does.
#[cfg(windows)]
fn read_at(file: &fs::File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    file.seek_read(buf, offset)
}

/// Moves the position, as Windows does.
#[cfg(windows)]
fn write_at(file: &fs::File, buf: &[u8], offset: u64) -> io::Result<usize> {
    file.seek_write(buf, offset)
}
