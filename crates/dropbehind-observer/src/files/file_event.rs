//! Something that happened to a file, and what it means.

use std::os::fd::OwnedFd;

use dropbehind::CacheMap;
use dropbehind_linux::{EventMask, FileStat, OpenFile, open_files};

/// What tells that an idle file is used again.
pub(super) const WAKE: EventMask = EventMask::MODIFY.union(EventMask::ACCESS);

/// Something that happened to a file; several things, where the kernel merged
/// their events.
#[derive(Debug)]
pub(crate) struct FileEvent {
    /// The event's own descriptor of it.
    pub(crate) file: OwnedFd,
    pub(crate) info: FileStat,
    pub(crate) mask: EventMask,
    pub(crate) process: i32,
    /// What was in the cache when the event was read, if that was soon enough
    /// to mean something.
    pub(crate) before: Option<CacheMap>,
    /// Made in this moment: if those observed write it, nothing of it is older.
    pub(crate) fresh: bool,
}

impl FileEvent {
    pub(super) fn opened(&self) -> bool {
        self.mask.contains(EventMask::OPEN)
    }

    pub(super) fn closed(&self) -> bool {
        self.mask
            .intersects(EventMask::CLOSE_WRITE | EventMask::CLOSE_NOWRITE)
    }

    /// Somebody who could write closed it; whether anything was written is not
    /// told.
    pub(super) fn closed_by_writer(&self) -> bool {
        self.mask.contains(EventMask::CLOSE_WRITE)
    }

    pub(super) fn wrote(&self) -> bool {
        self.mask
            .intersects(EventMask::CLOSE_WRITE | EventMask::MODIFY)
    }

    pub(super) fn read(&self) -> bool {
        self.mask.contains(EventMask::ACCESS)
    }

    /// By a mark on a mount or a file system, which tells of those observed. Marks
    /// on files themselves tell of everybody's reads and writes, and a close is told as
    /// of whoever happened to let go last.
    pub(crate) fn is_by_observed(&self) -> bool {
        self.opened()
    }

    /// By a mark on the file itself, and nothing else.
    pub(super) fn is_access_only(&self) -> bool {
        self.mask.intersects(WAKE) && !self.opened() && !self.closed()
    }

    /// Whether the process has the file open for writing; `None` when it does
    /// not have it open any more.
    pub(super) fn opener_writes(&self) -> Option<bool> {
        self.writes_among(&open_files(self.process).unwrap_or_default())
    }

    /// The same, going by what the process has open.
    pub(super) fn writes_among(&self, open: &[OpenFile]) -> Option<bool> {
        let of_it = open.iter().filter(|file| file.id == self.info.id);
        of_it
            .map(|file| file.writable)
            .reduce(|one, other| one || other)
    }
}
