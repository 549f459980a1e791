//! Where appends went, which only the kernel knows.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, TryLockError};

use dropbehind_linux::{page_size, position, size_bytes};
use dropbehind_policy::{ByteRange, Mode};
use dropbehind_slot::Due;

use super::OwnFile;
use crate::lock;

/// The place of appends is looked up once there is so much of them, since a call for each would
/// make a short one take a seventh longer. If another process has appended in between, nobody
/// knows whose these bytes are, and their pages stay cached.
const LOOK_BYTES: u64 = 16 << 10;
/// After another process has appended, the place of each append is looked up until so much in a
/// row was appended by this file alone.
const ALONE_BYTES: u64 = 1 << 20;

/// The appends of one open file. Whoever appends holds its lock, so that the file's position and
/// size are what they were when the append ended. The kernel would make them wait for each other
/// as well.
#[derive(Debug)]
pub(super) struct Appends {
    /// Where the appends that were looked up end. `None` before the first append.
    end: Option<u64>,
    /// Bytes appended since then,
    unplaced_bytes: u64,
    /// in this mode.
    mode: Mode,
    /// Nothing before this is claimed: another process began the page that it ends.
    floor: u64,
    /// Bytes appended since another process appended something.
    alone_bytes: u64,
    /// Whatever the file grows by counts as appended here.
    only_appender: bool,
}

impl Default for Appends {
    fn default() -> Appends {
        Appends {
            end: None,
            unplaced_bytes: 0,
            mode: Mode::BUFFERED,
            floor: 0,
            alone_bytes: ALONE_BYTES,
            only_appender: false,
        }
    }
}

/// What a look found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// Where the appends are.
    pub(super) range: ByteRange,
    pub(super) mode: Mode,
    /// Another process made the file this short before the first of them.
    pub(super) truncated: Option<u64>,
}

impl Appends {
    fn is_due(&self) -> bool {
        self.alone_bytes < ALONE_BYTES || self.unplaced_bytes >= LOOK_BYTES
    }

    /// The last appended byte is before `at`, or the file ends there. The last `last_bytes` of
    /// these bytes are known to be appended here, in any case.
    fn place(&mut self, at: u64, last_bytes: u64) -> Placed {
        let bytes = std::mem::take(&mut self.unplaced_bytes);
        let end = self.end.replace(at).unwrap_or(at.saturating_sub(bytes));
        let mut truncated = None;
        let start = if end + bytes == at || self.only_appender && at >= end {
            self.alone_bytes = self.alone_bytes.saturating_add(bytes);
            end
        } else if at < end + bytes {
            // The file's last bytes were appended since.
            let start = at.saturating_sub(bytes);
            truncated = Some(start);
            self.floor = start.next_multiple_of(page_size());
            start
        } else {
            self.alone_bytes = 0;
            let start = at - last_bytes;
            self.floor = start.next_multiple_of(page_size());
            start
        };
        Placed {
            range: ByteRange::new(start.max(self.floor).min(at), at),
            mode: self.mode,
            truncated,
        }
    }

    /// The same after an append of `last_bytes`, which has moved the file's position behind them
    /// unless another thread has moved it since.
    fn place_last(&mut self, fd: BorrowedFd<'_>, last_bytes: u64) -> Option<Placed> {
        let at = position(fd).ok()?;
        let end = self.end.unwrap_or(0) + self.unplaced_bytes;
        if at == end {
            return Some(self.place(at, last_bytes));
        }
        // Seeks go beyond the end, too. If the file ends where it should, nobody else appended.
        let size_bytes = size_bytes(fd).ok()?;
        let may_end = (last_bytes..=size_bytes).contains(&at) && (at > end || size_bytes < end);
        may_end.then(|| self.place(at, last_bytes))
    }

    /// The same for a file that nobody is appending to.
    fn place_at_end(&mut self, fd: BorrowedFd<'_>) -> Option<Placed> {
        if self.unplaced_bytes == 0 {
            return None;
        }
        Some(self.place(size_bytes(fd).ok()?, 0))
    }

    fn append(&mut self, bytes: u64, mode: Mode) {
        self.unplaced_bytes += bytes;
        self.mode = mode;
    }

    fn resized(&mut self, size_bytes: u64) {
        let page_end = self.end.map_or(0, |end| end.next_multiple_of(page_size()));
        self.end = Some(size_bytes);
        self.unplaced_bytes = 0;
        // If others have appended, the page that is cut may be theirs.
        self.floor = match self.floor > 0 && size_bytes < page_end {
            true => size_bytes.next_multiple_of(page_size()),
            false => 0,
        };
    }
}

impl OwnFile {
    /// Appends by `write` and reports it as [`OwnFile::wrote`] does. `moves` says that the call moves
    /// the file's position behind what it appends.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn append(
        self: &Arc<Self>,
        fd: BorrowedFd<'_>,
        mode: Mode,
        moves: bool,
        write: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut appends = lock(&self.appends);
        if appends.end.is_none() {
            appends.end = size_bytes(fd).ok();
        }
        self.change_mode(fd, &mut appends, mode);
        let count = write()?;
        if count == 0 {
            return Ok(0);
        }
        let bytes = count as u64;
        appends.append(bytes, mode);
        let placed = if !appends.is_due() {
            None
        } else {
            let placed = moves.then(|| appends.place_last(fd, bytes)).flatten();
            placed.or_else(|| appends.place_at_end(fd))
        };
        let due = self.tell_appended(fd, placed, bytes, mode);
        drop(appends);
        self.slow_down(due, bytes);
        Ok(count)
    }

    /// Reports an append that has completed, without waiting for anything. Nobody else appends to
    /// the file.
    pub fn tell_only_append(self: &Arc<Self>, fd: BorrowedFd<'_>, bytes: u64, mode: Mode) {
        let mut appends = lock(&self.appends);
        appends.only_appender = true;
        // The append has made it longer already.
        appends.end.get_or_insert_with(|| self.config().size_bytes);
        self.change_mode(fd, &mut appends, mode);
        appends.append(bytes, mode);
        let placed = match appends.is_due() {
            true => appends.place_at_end(fd),
            false => None,
        };
        self.tell_appended(fd, placed, bytes, mode);
    }

    /// What was appended in another mode is reported with that.
    fn change_mode(self: &Arc<Self>, fd: BorrowedFd<'_>, appends: &mut Appends, mode: Mode) {
        if appends.mode != mode
            && let Some(placed) = appends.place_at_end(fd)
        {
            self.tell_appended(fd, Some(placed), 0, mode);
        }
    }

    fn tell_appended(
        self: &Arc<Self>,
        fd: BorrowedFd<'_>,
        placed: Option<Placed>,
        bytes: u64,
        mode: Mode,
    ) -> Due {
        let Some(placed) = placed else {
            return self.tell_written(fd, ByteRange::new(0, 0), bytes, mode);
        };
        if let Some(size_bytes) = placed.truncated {
            self.tell_resized(size_bytes);
        }
        self.tell_written(fd, placed.range, bytes, placed.mode)
    }

    /// Sets the file's size by `set`, and tells the flusher. No other thread appends meanwhile, so
    /// what is appended before and after it can be told apart.
    ///
    /// # Errors
    /// Those of `set`.
    pub fn resize(
        self: &Arc<Self>,
        fd: BorrowedFd<'_>,
        mode: Mode,
        size_bytes: u64,
        set: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut appends = lock(&self.appends);
        self.place_appends(fd, &mut appends);
        let end = dropbehind_linux::size_bytes(fd).unwrap_or(0);
        let zeroed = match size_bytes == end {
            true => None,
            false => self.will_zero(fd, size_bytes.min(end), u64::MAX, mode),
        };
        set()?;
        let due = self.zeroed(zeroed);
        self.told(fd, due);
        appends.resized(size_bytes);
        self.tell_resized(size_bytes);
        Ok(())
    }

    /// Reports where the last appends went, before others append to the same description.
    pub(super) fn end_appends(self: &Arc<Self>, fd: BorrowedFd<'_>) {
        self.place_appends(fd, &mut lock(&self.appends));
    }

    /// Reports where the last appends went.
    fn place_appends(self: &Arc<Self>, fd: BorrowedFd<'_>, appends: &mut Appends) {
        if let Some(placed) = appends.place_at_end(fd) {
            self.tell_appended(fd, Some(placed), 0, Mode::BUFFERED);
        }
    }

    /// The same for the flusher. `None` if somebody is appending.
    pub(super) fn try_place_appends(&self, fd: BorrowedFd<'_>) -> Option<Option<Placed>> {
        match self.appends.try_lock() {
            Ok(mut appends) => Some(appends.place_at_end(fd)),
            Err(TryLockError::Poisoned(appends)) => Some(appends.into_inner().place_at_end(fd)),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
