//! Something that happened to a file.

use std::os::fd::{AsFd, OwnedFd};

use dropbehind_linux::{Event, EventMask, FileId, FileKind, FileStat, file_stat};

/// Something that happened to a file; several things, if the kernel merged their events.
#[derive(Debug)]
pub(crate) struct FileEvent {
    /// The event's own descriptor of the file.
    pub(crate) file: OwnedFd,
    pub(crate) info: FileStat,
    pub(crate) mask: EventMask,
    pub(crate) process: i32,
}

impl FileEvent {
    /// Returns `None` for anything that is not a file.
    pub(crate) fn of(event: Event) -> Option<FileEvent> {
        let file = event.file?;
        let info = file_stat(file.as_fd()).ok()?;
        if info.kind == FileKind::Other {
            return None;
        }
        Some(FileEvent {
            file,
            info,
            mask: event.mask,
            process: event.process,
        })
    }

    pub(crate) fn opened(&self) -> bool {
        self.mask.contains(EventMask::OPEN)
    }

    pub(crate) fn closed(&self) -> bool {
        self.mask
            .intersects(EventMask::CLOSE_WRITE | EventMask::CLOSE_NOWRITE)
    }

    /// A process that could write closed it; the kernel does not say whether it wrote.
    pub(crate) fn closed_by_writer(&self) -> bool {
        self.mask.contains(EventMask::CLOSE_WRITE)
    }

    /// A process wrote, other than through a mapping.
    pub(crate) fn wrote(&self) -> bool {
        self.mask.contains(EventMask::MODIFY)
    }

    /// A process read, other than through a mapping.
    pub(crate) fn read(&self) -> bool {
        self.mask.contains(EventMask::ACCESS)
    }
}

/// The close of a file.
#[derive(Debug)]
pub(crate) struct Close {
    pub(crate) id: FileId,
    /// The file, if it was not known.
    pub(crate) file: Option<OwnedFd>,
    pub(crate) process: i32,
    pub(crate) by_writer: bool,
    /// The file's size then, in bytes.
    pub(crate) size_bytes: u64,
    /// The file was also opened, before or after that.
    pub(crate) merged: bool,
    /// We closed it: the open was ours, or we looked at a program's open file, held it for that
    /// moment, and so were the last to close it.
    pub(crate) by_us: bool,
}
