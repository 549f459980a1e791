//! A file with control over its writeback and page cache residency.

mod controls;
mod line;
mod native;
mod read;
mod write;

use std::fmt;
use std::fs;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use dropbehind_policy::Mode;

use crate::control::operations;
use crate::facts::{Facts, UNATTENDED};
use crate::settings::FileSettings;
use dropbehind_flusher::Stats;
use dropbehind_flusher::lock;
use dropbehind_flusher::own_file::OwnFile;
use native::native_operations;

/// State shared by the clones of a file, which have one open file description and position.
struct Shared {
    facts: Facts,
    /// The number of open clones. The reference count of this struct won't do: two clones
    /// that are dropped at the same moment would each still see the other's reference.
    open: AtomicUsize,
    mode: AtomicU8,
    /// The position of the next `read` or `write`, as far as it was moved through us.
    position: AtomicU64,
    /// Others may have the descriptor, and move the position.
    lent: AtomicBool,
    /// The fork count at the open: children made since then have the descriptor, too.
    forks: u32,
    /// Whether the mode has any effect on this kind of file; beside the other fields that
    /// each call reads.
    applies: bool,
    size_bytes: AtomicU64,
    /// The handle to the flusher, made when first needed.
    handle: OnceLock<Arc<OwnFile>>,
    /// The same for the child of a fork, which cannot use its parent's handle.
    handle_after_fork: ArcSwapOption<OwnFile>,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    /// Bytes read and written in a mode that drops while no flusher could be started.
    unattended: AtomicU64,
    /// One bit for each operation that uses `RWF_DONTCACHE`.
    native: AtomicU8,
}

/// A regular file or raw block device, read and written through the page cache
/// under a [`Mode`].
///
/// Bytes, return values, errors, positions and durability are those of [`std::fs::File`]. The
/// mode affects only when dirty pages go to the disk, and how long pages stay cached. On
/// other files (pipes, sockets, tmpfs, files opened with `O_DIRECT`) it has no effect.
///
/// After the last clone is dropped, the flusher goes on until everything written is clean and
/// dropped, or the process ends. A process that returns from `main` or exits first has the
/// writeback of the rest started (except in modes that leave that to the kernel), and does not
/// wait for the disk; what is not clean by then stays cached. Nothing is synced automatically:
/// use [`File::sync_all`] as with any file.
pub struct File {
    /// `Some` until `into_std` or `close`.
    file: Option<fs::File>,
    shared: Arc<Shared>,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("file", &self.file)
            .field("mode", &self.mode())
            .finish_non_exhaustive()
    }
}

impl File {
    /// Returns the underlying file. The flusher still finishes what was written.
    pub fn into_std(mut self) -> fs::File {
        self.lend();
        self.detach(OwnFile::give_back);
        self.file.take().expect("nobody else takes it")
    }

    pub(crate) fn file(&self) -> &fs::File {
        self.file
            .as_ref()
            .expect("who takes it takes the File, too")
    }

    /// The underlying file, for the program to use by itself.
    pub(crate) fn lend(&self) -> &fs::File {
        self.shared.lent.store(true, Ordering::Relaxed);
        self.file()
    }

    /// `lent` says that others may have the descriptor. Gives the file back if it fails.
    pub(crate) fn with_settings(
        file: fs::File,
        settings: FileSettings,
        lent: bool,
    ) -> Result<File, (fs::File, io::Error)> {
        let facts = match Facts::of(file.as_fd(), settings) {
            Ok(facts) => facts,
            Err(error) => return Err((file, error)),
        };
        let position = if facts.without_effect.is_none() || facts.flags.direct {
            (&file).stream_position().unwrap_or(0)
        } else {
            0
        };
        let native = match facts.disk_is_off {
            true => 0,
            false => native_operations(facts.settings.strategy, facts.filesystem, facts.device),
        };
        let shared = Shared {
            open: AtomicUsize::new(1),
            mode: AtomicU8::new(facts.mode.to_bits()),
            position: AtomicU64::new(position),
            lent: AtomicBool::new(lent),
            forks: dropbehind_linux::fork_count(),
            applies: facts.without_effect.is_none(),
            size_bytes: AtomicU64::new(facts.size_bytes),
            facts,
            handle: OnceLock::new(),
            handle_after_fork: ArcSwapOption::empty(),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            unattended: AtomicU64::new(0),
            native: AtomicU8::new(native),
        };
        Ok(File {
            file: Some(file),
            shared: Arc::new(shared),
        })
    }

    /// The file's mode.
    pub fn mode(&self) -> Mode {
        Mode::from_bits(self.shared.mode.load(Ordering::Relaxed))
    }

    /// Returns why the mode has no effect on this file, or `None` if it has one.
    pub fn without_effect(&self) -> Option<&'static str> {
        let unattended = || self.unattended_bytes() > 0 && self.line().is_none();
        let no_thread = || unattended().then_some(UNATTENDED);
        self.shared.facts.without_effect.or_else(no_thread)
    }

    /// Changes the mode of this file and its clones, from the next call on.
    pub fn set_mode(&self, mode: Mode) {
        self.shared.mode.store(mode.to_bits(), Ordering::Relaxed);
    }

    /// Returns another `File` for the same open file; both share position and mode.
    ///
    /// # Errors
    /// Those of `dup(2)`.
    pub fn try_clone(&self) -> io::Result<File> {
        let file = self.file().try_clone()?;
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        Ok(File {
            file: Some(file),
            shared: Arc::clone(&self.shared),
        })
    }

    /// `fsync(2)`: returns once data and metadata are durable.
    ///
    /// # Errors
    /// Those of `fsync(2)`. Each writeback error is reported once, as with a plain file.
    pub fn sync_all(&self) -> io::Result<()> {
        let result = self.file().sync_all();
        self.after_sync(result)
    }

    /// `fdatasync(2)`: returns once the data is durable.
    ///
    /// # Errors
    /// Those of `fdatasync(2)`. Each writeback error is reported once, as with a plain file.
    pub fn sync_data(&self) -> io::Result<()> {
        let result = self.file().sync_data();
        self.after_sync(result)
    }

    fn after_sync(&self, result: io::Result<()>) -> io::Result<()> {
        operations::synced(self.file().as_fd(), self.line().as_deref(), &result);
        result
    }

    pub(crate) fn resize(&self, size_bytes: u64) -> io::Result<()> {
        let set = || self.file().set_len(size_bytes);
        let mode = self.mode();
        let line = match mode.drops() {
            true => self.make_line(),
            false => self.line(),
        };
        match line {
            Some(handle) => {
                handle.look_before(self.file().as_fd(), mode);
                handle.resize(self.file().as_fd(), mode, size_bytes, set)?;
            }
            None => set()?,
        }
        self.shared.size_bytes.store(size_bytes, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn seek_to(&self, to: SeekFrom) -> io::Result<u64> {
        let line = self.line();
        let _turn = line.as_ref().map(|handle| lock(&handle.turns));
        let position = self.file().seek(to)?;
        self.shared.position.store(position, Ordering::Relaxed);
        Ok(position)
    }

    /// The position of the next `read` or `write`. Asks the kernel, which takes 0.15 us, only if others
    /// may have the descriptor and have moved it.
    fn position(&self) -> u64 {
        let shared = &self.shared;
        let is_ours =
            !shared.lent.load(Ordering::Relaxed) && shared.forks == dropbehind_linux::fork_count();
        if !is_ours && let Ok(position) = dropbehind_linux::position(self.file().as_fd()) {
            shared.position.store(position, Ordering::Relaxed);
        }
        shared.position.load(Ordering::Relaxed)
    }

    /// Advances our copy of the file position.
    fn moved(&self, result: &io::Result<usize>, offset: Option<u64>) {
        if let (Ok(count), None) = (result, offset) {
            let position = &self.shared.position;
            position.fetch_add(*count as u64, Ordering::Relaxed);
        }
    }

    /// Counts a read or write without a flusher: nobody drops what it brought in.
    fn was_unattended(&self, result: &io::Result<usize>) {
        if self.shared.applies
            && let Ok(count) = result
        {
            let unattended = &self.shared.unattended;
            unattended.fetch_add(*count as u64, Ordering::Relaxed);
        }
    }

    /// The bytes of such reads and writes, in whole pages. Some may have been cached before.
    fn unattended_bytes(&self) -> u64 {
        let bytes = self.shared.unattended.load(Ordering::Relaxed);
        bytes.next_multiple_of(dropbehind_linux::page_size())
    }

    /// What the library has done for this file and its clones.
    pub fn stats(&self) -> Stats {
        let unattended_bytes = self.unattended_bytes();
        let mut stats = Stats {
            bytes_read: self.shared.bytes_read.load(Ordering::Relaxed),
            bytes_written: self.shared.bytes_written.load(Ordering::Relaxed),
            brought_bytes: unattended_bytes,
            left_bytes: unattended_bytes,
            ..Stats::default()
        };
        if let Some(handle) = self.line() {
            stats.add(&handle.stats());
        }
        stats
    }

    /// Waits until everything this file brought into the cache is clean and dropped. Returns
    /// false if `timeout` passes first, or at once if the file could not be opened again for the
    /// flusher, or no thread could be started: the kernel then keeps its pages. Syncs nothing.
    ///
    /// It does not wait for pages that have to stay, such as all of a file whose writeback failed.
    /// `left_bytes` of [`File::stats`] counts those.
    ///
    /// # Errors
    /// None today.
    pub fn settle(&self, timeout: Duration) -> io::Result<bool> {
        let line = self.line();
        let settled = line.is_none_or(|handle| handle.settle(self.file().as_fd(), timeout));
        Ok(settled && self.unattended_bytes() == 0)
    }

    /// Closes the file and reports the error of `close(2)`.
    ///
    /// # Errors
    /// Those of `close(2)`: on NFS and FUSE it may be the first call to report a failed
    /// write. The descriptor is gone in any case.
    pub fn close(mut self) -> io::Result<()> {
        self.detach(OwnFile::close);
        let file = self.file.take().expect("nobody else takes it");
        dropbehind_linux::close(file.into())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.detach(OwnFile::close);
    }
}
