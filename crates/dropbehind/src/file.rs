//! A file whose writeback and cache residency are under control.

use std::fmt;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use dropbehind_linux::{
    FileId, FileKind, FsKind, IoFlags, Operation, dontcache, kernel_version, page_size,
    remember_dontcache,
};
use dropbehind_policy::{ByteRange, Mode, StreamConfig, Writeback};

use crate::control::{self, CacheState, DropOutcome};
use crate::flusher::Flusher;
use crate::handle::{Handle, lock};
use crate::open_options::{OpenOptions, WINDOW_MIN_BYTES};
use crate::stats::Stats;
use crate::strategy::{Strategy, choose};
use crate::writeback_errors;

/// A read longer than this is made in pieces, so that what is cached ahead of
/// it stays bounded.
const READ_PIECE_BYTES: usize = 2 << 20;
/// The kernel reads no more than this in one call, whatever it is asked for.
const READ_MAX_BYTES: usize = 0x7fff_f000;

/// What an open file was asked to do.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) mode: Mode,
    pub(crate) window_bytes: Option<u64>,
    pub(crate) request_bytes: Option<u64>,
    pub(crate) strategy: Strategy,
    pub(crate) random: bool,
    pub(crate) flusher: Option<Flusher>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            mode: Mode::DONTCACHE,
            window_bytes: None,
            request_bytes: None,
            strategy: Strategy::Auto,
            random: false,
            flusher: None,
        }
    }
}

impl Settings {
    pub(crate) fn check(&self) -> io::Result<()> {
        let refuse = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if let Some(bytes) = self.window_bytes.filter(|bytes| *bytes < WINDOW_MIN_BYTES) {
            return refuse(format!(
                "a window of {bytes} bytes is too small; give at least {WINDOW_MIN_BYTES}"
            ));
        }
        if let Some(bytes) = self.request_bytes.filter(|bytes| *bytes < page_size()) {
            return refuse(format!(
                "a request of {bytes} bytes is too small; give at least a page, {}",
                page_size()
            ));
        }
        Ok(())
    }
}

/// What the clones of a file share: they have one description and position.
struct Shared {
    settings: Settings,
    mode: AtomicU8,
    /// Where the next `read` or `write` goes, as far as it was done through us.
    position: AtomicU64,
    o_append: bool,
    /// The mode has something to do for this kind of file.
    applies: bool,
    writeback_applies: bool,
    device: u64,
    filesystem: FsKind,
    id: FileId,
    block_device: bool,
    size_bytes: AtomicU64,
    /// The line to the flusher, made when first needed.
    handle: OnceLock<Arc<Handle>>,
    /// The same in a child of a fork, where the parent's is of no use.
    handle_after_fork: ArcSwapOption<Handle>,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    /// A bit for each operation that is done with `RWF_DONTCACHE`.
    native: AtomicU8,
    opened: u64,
}

/// A regular file or raw block device, read and written through the page cache
/// under a [`Mode`].
///
/// Bytes, return values, errors, positions and durability are those of
/// [`std::fs::File`]; the mode changes only when dirty pages go to the disk and
/// how long pages stay cached. On anything else (pipes, sockets, tmpfs, files
/// opened with `O_DIRECT`) the mode has no effect.
///
/// When the last clone is dropped, the flusher goes on until what was written
/// is clean and dropped; it does not outlive the process. Nothing is ever
/// synced on its own: use [`File::sync_all`] as with any file.
pub struct File {
    /// There until `into_std`.
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
    /// Opens a file for reading, in `dontcache` mode.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).open(path)
    }

    /// Makes or empties a file for writing, in `dontcache` mode.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn create(path: impl AsRef<Path>) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).open(path)
    }

    /// Options for opening a file.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Takes over an open file. What was cached before, or is dirty already,
    /// stays as it is.
    ///
    /// # Errors
    /// Those of `fstat(2)` and `fcntl(2)`.
    pub fn from_std(file: fs::File, mode: Mode) -> io::Result<File> {
        let settings = Settings {
            mode,
            ..Settings::default()
        };
        File::with_settings(file, settings)
    }

    /// Gives the file back. The flusher still finishes what was written.
    pub fn into_std(mut self) -> fs::File {
        self.detach();
        self.file.take().expect("nobody else takes it")
    }

    fn file(&self) -> &fs::File {
        self.file
            .as_ref()
            .expect("only into_std takes it, with the File")
    }

    pub(crate) fn with_settings(file: fs::File, settings: Settings) -> io::Result<File> {
        let info = dropbehind_linux::file_info(file.as_fd())?;
        let flags = dropbehind_linux::status_flags(file.as_fd())?;
        let (applies, device) = match info.kind {
            FileKind::Regular => (without_effect(info.filesystem).is_none(), info.id.device),
            FileKind::Block => (true, info.special_device),
            FileKind::Other => (false, info.id.device),
        };
        let position = if applies {
            (&file).stream_position().unwrap_or(0)
        } else {
            0
        };
        if settings.random && applies {
            let random = dropbehind_linux::Access::Random;
            dropbehind_linux::advise_access(file.as_fd(), random)?;
        }
        let native = native_operations(settings.strategy, info.filesystem, device);
        let shared = Shared {
            mode: AtomicU8::new(settings.mode.to_bits()),
            settings,
            position: AtomicU64::new(position),
            o_append: flags.append,
            applies: applies && !flags.direct,
            writeback_applies: !flags.sync && !flags.dsync,
            device,
            filesystem: info.filesystem,
            id: info.id,
            block_device: info.kind == FileKind::Block,
            size_bytes: AtomicU64::new(info.size_bytes),
            handle: OnceLock::new(),
            handle_after_fork: ArcSwapOption::empty(),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            native: AtomicU8::new(native),
            opened: writeback_errors::now(),
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

    /// Why the mode has no effect on this file, where it has none.
    pub fn without_effect(&self) -> Option<&'static str> {
        if self.shared.applies {
            return None;
        }
        without_effect(self.shared.filesystem).or(Some(
            "it is no regular file or block device, or open with O_DIRECT",
        ))
    }

    /// Changes the mode of this file and its clones, from the next call on.
    pub fn set_mode(&self, mode: Mode) {
        self.shared.mode.store(mode.to_bits(), Ordering::Relaxed);
    }

    /// Another `File` for the same open file: they share position and mode.
    ///
    /// # Errors
    /// Those of `dup(2)`.
    pub fn try_clone(&self) -> io::Result<File> {
        Ok(File {
            file: Some(self.file().try_clone()?),
            shared: Arc::clone(&self.shared),
        })
    }

    /// The file's metadata.
    ///
    /// # Errors
    /// Those of `fstat(2)`.
    pub fn metadata(&self) -> io::Result<fs::Metadata> {
        self.file().metadata()
    }

    /// Sets the file's size.
    ///
    /// # Errors
    /// Those of `ftruncate(2)`.
    pub fn set_len(&self, size_bytes: u64) -> io::Result<()> {
        self.file().set_len(size_bytes)?;
        self.shared.size_bytes.store(size_bytes, Ordering::Relaxed);
        if let Some(handle) = self.line() {
            handle.resized(size_bytes);
        }
        Ok(())
    }

    /// `fsync(2)`: returns when data and metadata are durable.
    ///
    /// # Errors
    /// Those of `fsync(2)`, each writeback error once, as without us.
    pub fn sync_all(&self) -> io::Result<()> {
        let result = self.file().sync_all();
        self.after_sync(result)
    }

    /// `fdatasync(2)`: returns when the data are durable.
    ///
    /// # Errors
    /// Those of `fdatasync(2)`, each writeback error once, as without us.
    pub fn sync_data(&self) -> io::Result<()> {
        let result = self.file().sync_data();
        self.after_sync(result)
    }

    fn after_sync(&self, result: io::Result<()>) -> io::Result<()> {
        if let Some(handle) = self.line() {
            handle.synced(self.as_fd());
        }
        if result.is_err() {
            writeback_errors::told(self.shared.id);
        }
        result?;
        match writeback_errors::take_for(self.shared.id, self.shared.opened) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    // ---- reading ------------------------------------------------------------

    /// Reads at an offset; the position stays.
    ///
    /// # Errors
    /// Those of `pread(2)`.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at_with(buf, offset, self.mode())
    }

    /// Reads at an offset, in a mode for this call only.
    ///
    /// # Errors
    /// Those of `pread(2)`.
    pub fn read_at_with(&self, buf: &mut [u8], offset: u64, mode: Mode) -> io::Result<usize> {
        self.read_pieces(&mut [IoSliceMut::new(buf)], Some(offset), mode)
    }

    /// Reads into several buffers at an offset; the position stays.
    ///
    /// # Errors
    /// Those of `preadv(2)`.
    pub fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.read_pieces(bufs, Some(offset), self.mode())
    }

    fn read_pieces(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: Option<u64>,
        mode: Mode,
    ) -> io::Result<usize> {
        if let [only] = bufs
            && only.len() > READ_PIECE_BYTES
            && mode.drops()
            && self.shared.applies
        {
            return self.read_long(only, offset, mode);
        }
        self.read_once(bufs, offset, mode)
    }

    fn read_long(&self, buf: &mut [u8], offset: Option<u64>, mode: Mode) -> io::Result<usize> {
        let most = buf.len().min(READ_MAX_BYTES);
        let mut done = 0;
        for piece in buf[..most].chunks_mut(READ_PIECE_BYTES) {
            let wanted = piece.len();
            let at = offset.map(|offset| offset + done as u64);
            match self.read_once(&mut [IoSliceMut::new(piece)], at, mode) {
                Ok(count) => {
                    done += count;
                    if count < wanted {
                        break;
                    }
                }
                // As in one call, an error after some bytes is the next call's.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn read_once(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: Option<u64>,
        mode: Mode,
    ) -> io::Result<usize> {
        let wanted: usize = bufs.iter().map(|buf| buf.len()).sum();
        let line = if mode.drops() && wanted > 0 && self.shared.applies {
            if self.native_wanted(Operation::Read)
                && let Some(result) = self.read_native(bufs, offset)
            {
                return result;
            }
            self.make_line()
        } else {
            None
        };
        let Some(handle) = line else {
            return self.read_plain(bufs, offset);
        };
        let start = offset.unwrap_or_else(|| self.shared.position.load(Ordering::Relaxed));
        let range = ByteRange::new(start, start.saturating_add(wanted as u64));
        let fd = self.as_fd();
        let prepared = lock(&handle.reader).before_read(fd, &handle, range);
        prepared.wait(fd, &handle);
        let result = self.read_plain(bufs, offset);
        let end = start + *result.as_ref().unwrap_or(&0) as u64;
        lock(&handle.reader).after_read(fd, &handle, prepared, end);
        result
    }

    fn read_plain(&self, bufs: &mut [IoSliceMut<'_>], offset: Option<u64>) -> io::Result<usize> {
        let result = match (bufs, offset) {
            ([only], Some(offset)) => dropbehind_linux::pread(self.as_fd(), only, offset),
            ([only], None) => dropbehind_linux::read(self.as_fd(), only),
            (many, offset) => {
                dropbehind_linux::preadv2(self.as_fd(), many, offset, IoFlags::from_bits(0))
            }
        };
        self.was_read(&result, offset);
        result
    }

    /// With `RWF_DONTCACHE`; `None` when the file system does not know it.
    fn read_native(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: Option<u64>,
    ) -> Option<io::Result<usize>> {
        let result = dropbehind_linux::preadv2(self.as_fd(), bufs, offset, IoFlags::DONTCACHE);
        if self.was_refused(&result, Operation::Read) {
            return None;
        }
        self.was_read(&result, offset);
        Some(result)
    }

    fn was_read(&self, result: &io::Result<usize>, offset: Option<u64>) {
        if let Ok(count) = result {
            let bytes = *count as u64;
            self.shared.bytes_read.fetch_add(bytes, Ordering::Relaxed);
        }
        self.moved(result, offset);
    }

    // ---- writing ------------------------------------------------------------

    /// Writes at an offset; the position stays. With `O_APPEND` Linux writes at
    /// the end all the same.
    ///
    /// # Errors
    /// Those of `pwrite(2)`.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.write_at_with(buf, offset, self.mode())
    }

    /// Writes at an offset, in a mode for this call only.
    ///
    /// # Errors
    /// Those of `pwrite(2)`.
    pub fn write_at_with(&self, buf: &[u8], offset: u64, mode: Mode) -> io::Result<usize> {
        self.write_once(&[IoSlice::new(buf)], Some(offset), mode)
    }

    /// Writes several buffers at an offset; the position stays.
    ///
    /// # Errors
    /// Those of `pwritev(2)`.
    pub fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.write_once(bufs, Some(offset), self.mode())
    }

    fn write_once(
        &self,
        bufs: &[IoSlice<'_>],
        offset: Option<u64>,
        mode: Mode,
    ) -> io::Result<usize> {
        let line = if !mode.is_buffered() {
            self.make_line()
        } else {
            // Pages written buffered into a file that drops must be kept.
            self.line()
        };
        let Some(handle) = line else {
            let result = self.write_plain(bufs, offset);
            if let Ok(count) = result {
                let written = &self.shared.bytes_written;
                written.fetch_add(count as u64, Ordering::Relaxed);
            }
            return result;
        };
        let start = offset.unwrap_or_else(|| self.shared.position.load(Ordering::Relaxed));
        if mode == Mode::DONTCACHE
            && self.native_wanted(self.write_operation(start))
            && let Some(result) = self.write_native(bufs, offset, start)
        {
            return result;
        }
        handle.look_before(self.as_fd(), mode);
        let result = self.write_plain(bufs, offset);
        if let Ok(count) = result
            && count > 0
        {
            let bytes = count as u64;
            let range = match offset {
                Some(offset) => ByteRange::new(offset, offset + bytes),
                // Threads that write at one position at the same time do
                // not know who wrote where. But every write lies between
                // the position before it and that after the last of those
                // it overlapped with: together they tell all of it.
                None => {
                    let end = self.shared.position.load(Ordering::Relaxed);
                    ByteRange::new(start.min(end.saturating_sub(bytes)), end)
                }
            };
            handle.wrote(self.as_fd(), range, bytes, self.effective(mode));
        }
        result
    }

    /// Synchronous writes are on the disk when they return.
    fn effective(&self, mode: Mode) -> Mode {
        let behind = matches!(
            mode.writeback,
            Writeback::Behind | Writeback::BehindAppending
        );
        if behind && !self.shared.writeback_applies {
            return Mode::new(Writeback::Lazy, mode.residency);
        }
        mode
    }

    fn write_plain(&self, bufs: &[IoSlice<'_>], offset: Option<u64>) -> io::Result<usize> {
        let result = match (bufs, offset) {
            ([only], Some(offset)) => dropbehind_linux::pwrite(self.as_fd(), only, offset),
            ([only], None) => dropbehind_linux::write(self.as_fd(), only),
            (many, offset) => {
                dropbehind_linux::pwritev2(self.as_fd(), many, offset, IoFlags::from_bits(0))
            }
        };
        self.moved(&result, offset);
        result
    }

    /// With `RWF_DONTCACHE`; `None` when the file system does not know it.
    fn write_native(
        &self,
        bufs: &[IoSlice<'_>],
        offset: Option<u64>,
        start: u64,
    ) -> Option<io::Result<usize>> {
        let operation = self.write_operation(start);
        let result = dropbehind_linux::pwritev2(self.as_fd(), bufs, offset, IoFlags::DONTCACHE);
        if self.was_refused(&result, operation) {
            return None;
        }
        self.moved(&result, offset);
        if let Ok(count) = result {
            let written = &self.shared.bytes_written;
            written.fetch_add(count as u64, Ordering::Relaxed);
        }
        Some(result)
    }

    /// Follows the file position.
    fn moved(&self, result: &io::Result<usize>, offset: Option<u64>) {
        if let (Ok(count), None) = (result, offset) {
            let position = &self.shared.position;
            position.fetch_add(*count as u64, Ordering::Relaxed);
        }
    }

    // ---- native calls ---------------------------------------------------------

    fn write_operation(&self, start: u64) -> Operation {
        if start < self.shared.size_bytes.load(Ordering::Relaxed) {
            Operation::Overwrite
        } else {
            Operation::Write
        }
    }

    fn native_wanted(&self, operation: Operation) -> bool {
        let native = self.shared.native.load(Ordering::Relaxed);
        native & native_bit(operation) != 0
    }

    /// Remembers a file system that does not know the flag.
    fn was_refused(&self, result: &io::Result<usize>, operation: Operation) -> bool {
        let refused = result.as_ref().is_err_and(|error| {
            matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL))
        });
        if refused {
            remember_dontcache(self.shared.device, operation, false);
            self.shared.native.store(0, Ordering::Relaxed);
        }
        refused
    }

    // ---- the flusher's side -----------------------------------------------------

    /// The line to the flusher, if there is one that leads to this process's.
    fn line(&self) -> Option<Line<'_>> {
        let first = self.shared.handle.get()?;
        if first.is_ours() {
            return Some(Line::First(first));
        }
        let later = self.shared.handle_after_fork.load_full();
        later.filter(|handle| handle.is_ours()).map(Line::Later)
    }

    /// The line to the flusher, made when first needed, and anew in a child of
    /// a fork. `None` where there is no flusher to be had: the file is buffered.
    fn make_line(&self) -> Option<Line<'_>> {
        match self.line() {
            Some(line) => Some(line),
            None => self.new_line(),
        }
    }

    #[cold]
    fn new_line(&self) -> Option<Line<'_>> {
        let shared = &self.shared;
        if !shared.applies {
            return None;
        }
        if shared.handle.get().is_none() {
            let made = self.new_handle()?;
            let first = shared.handle.get_or_init(|| made);
            if first.is_ours() {
                return Some(Line::First(first));
            }
        }
        let before = shared.handle_after_fork.load_full();
        if let Some(handle) = before.as_ref().filter(|handle| handle.is_ours()) {
            return Some(Line::Later(Arc::clone(handle)));
        }
        let made = self.new_handle()?;
        let was = shared
            .handle_after_fork
            .compare_and_swap(&before, Some(Arc::clone(&made)));
        match was.as_ref() {
            // Another thread was first.
            Some(other) if other.is_ours() => Some(Line::Later(Arc::clone(other))),
            _ => Some(Line::Later(made)),
        }
    }

    fn new_handle(&self) -> Option<Arc<Handle>> {
        let shared = &self.shared;
        let flusher = match &shared.settings.flusher {
            Some(own) if own.is_ours() => own.clone(),
            _ => Flusher::shared().ok()?,
        };
        let disk = flusher.disk_of(self.as_fd(), shared.device).ok()?;
        let config = StreamConfig {
            window_bytes: shared.settings.window_bytes,
            request_bytes: shared.settings.request_bytes,
            size_bytes: shared.size_bytes.load(Ordering::Relaxed),
            o_append: shared.o_append,
            block_device: shared.block_device,
            random: shared.settings.random,
        };
        Some(Arc::new(Handle::new(flusher, disk, shared.id, config)))
    }

    /// The last clone tells the flusher that the file is closed.
    fn detach(&self) {
        if self.file.is_none() || Arc::strong_count(&self.shared) > 1 {
            return;
        }
        if let Some(handle) = self.line() {
            lock(&handle.reader).finish(self.as_fd(), &handle);
            handle.close(self.as_fd());
        }
    }

    // ---- explicit controls --------------------------------------------------------

    /// Starts writeback of a range (`u64::MAX` as end: to the end of the file)
    /// and returns without waiting for it. May block while the disk's queue is
    /// full. Writes no metadata and is no durability.
    ///
    /// # Errors
    /// Those of `sync_file_range(2)`.
    pub fn start_writeback(&self, range: Range<u64>) -> io::Result<()> {
        control::start_writeback(self.as_fd(), range.into())
    }

    /// Waits until no page of the range is dirty or under writeback, starting
    /// writeback as needed. Whether it succeeded only `sync_all` tells: no
    /// error is taken from it.
    ///
    /// Pages of which several requests start no writeback are not waited for:
    /// ext4 keeps pages marked dirty whose blocks a truncation took, and nothing
    /// ever writes those.
    ///
    /// # Errors
    /// Those of `sync_file_range(2)` and `cachestat(2)`.
    pub fn wait_clean(&self, range: Range<u64>) -> io::Result<()> {
        control::wait_clean(self.as_fd(), range.into())
    }

    /// Drops clean pages of a range from the cache and says what stayed. In a
    /// mode that drops, what was cached before this file's I/O is kept; in the
    /// others nobody knows what that was, and all clean pages go.
    ///
    /// # Errors
    /// Those of `posix_fadvise(2)` and `cachestat(2)`.
    pub fn drop_behind(&self, range: Range<u64>) -> io::Result<DropOutcome> {
        let line = self.line().filter(|_| self.mode().drops());
        control::drop_behind(self.as_fd(), line.as_deref(), range.into())
    }

    /// What is cached, dirty and under writeback of a range.
    ///
    /// # Errors
    /// Those of `cachestat(2)`: `ENOSYS` before Linux 6.5, `EPERM` for files
    /// that are neither one's own nor writable.
    pub fn residency(&self, range: Range<u64>) -> io::Result<CacheState> {
        control::residency(self.as_fd(), range.into())
    }

    /// What was done for this file and its clones.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            bytes_read: self.shared.bytes_read.load(Ordering::Relaxed),
            bytes_written: self.shared.bytes_written.load(Ordering::Relaxed),
            ..Stats::default()
        };
        if let Some(handle) = self.line() {
            stats.bytes_written += handle.slot.writes.total();
            stats.add_counters(&handle.counters());
            stats.add_slot(&handle.slot);
        }
        stats
    }

    /// Waits until everything this file brought into the cache is clean and
    /// dropped; false when `timeout` passed first. Syncs nothing.
    ///
    /// # Errors
    /// None today.
    pub fn settle(&self, timeout: Duration) -> io::Result<bool> {
        let Some(handle) = self.line() else {
            return Ok(true);
        };
        lock(&handle.reader).finish(self.as_fd(), &handle);
        Ok(handle.settle(self.as_fd(), timeout))
    }

    /// Closes the file and reports what `close(2)` says.
    ///
    /// # Errors
    /// Those of `close(2)`: on NFS and FUSE it can be the first to tell of a
    /// failed write. The descriptor is gone in any case.
    pub fn close(self) -> io::Result<()> {
        dropbehind_linux::close(self.into_std().into())
    }
}

/// Derefs to the handle, borrowed where that is possible: the write path must
/// not count references.
enum Line<'a> {
    First(&'a Arc<Handle>),
    Later(Arc<Handle>),
}

impl Deref for Line<'_> {
    type Target = Arc<Handle>;

    fn deref(&self) -> &Arc<Handle> {
        match self {
            Line::First(handle) => handle,
            Line::Later(handle) => handle,
        }
    }
}

fn native_bit(operation: Operation) -> u8 {
    match operation {
        Operation::Read => 1,
        Operation::Write => 2,
        Operation::Overwrite => 4,
    }
}

/// The bits of the operations that a file does natively.
fn native_operations(strategy: Strategy, filesystem: FsKind, device: u64) -> u8 {
    let wanted = |operation: &Operation| {
        let works = dontcache(device, *operation);
        match strategy {
            Strategy::Emulated => false,
            Strategy::Native => works != Some(false),
            Strategy::Auto => {
                let choice = choose(kernel_version(), filesystem, *operation, works);
                choice.strategy == Strategy::Native
            }
        }
    };
    [Operation::Read, Operation::Write, Operation::Overwrite]
        .iter()
        .filter(|operation| wanted(operation))
        .fold(0, |bits, operation| bits | native_bit(*operation))
}

/// File systems whose page cache cannot be controlled.
fn without_effect(filesystem: FsKind) -> Option<&'static str> {
    match filesystem {
        FsKind::Tmpfs => Some("tmpfs has no disk: the page cache is where its data lives"),
        FsKind::Overlay => Some(
            "overlayfs hides the cached pages of its files from cachestat and sync_file_range; \
             use a path on the file system below, or a volume",
        ),
        _ => None,
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.detach();
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_pieces(&mut [IoSliceMut::new(buf)], None, self.mode())
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read_pieces(bufs, None, self.mode())
    }
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_once(&[IoSlice::new(buf)], None, self.mode())
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_once(bufs, None, self.mode())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = self.file().seek(to)?;
        self.shared.position.store(position, Ordering::Relaxed);
        Ok(position)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file().as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.file().as_raw_fd()
    }
}

impl From<File> for fs::File {
    fn from(file: File) -> fs::File {
        file.into_std()
    }
}
