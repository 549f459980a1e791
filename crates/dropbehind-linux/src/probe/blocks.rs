//! The file's blocks: where they are, and reading them around the page cache.

use super::support::Support;
use crate::block::logical_sector_bytes;
use crate::extents::next_extent;
use crate::file::FileKind;
use crate::page::page_size;
use crate::vectored::pread;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

pub(super) fn fiemap(fd: BorrowedFd<'_>) -> Support {
    match next_extent(fd, 0) {
        Ok(None) => Support::ineffective("tells of no extents"),
        Ok(Some(_)) => Support::Works,
        Err(error) => Support::missing(&error),
    }
}

/// The alignment that direct I/O on this file needs, in bytes.
pub(super) fn direct_io_bytes(
    alignment: Option<(u32, u32)>,
    kind: FileKind,
    fd: BorrowedFd<'_>,
) -> usize {
    let told = alignment.map(|(memory, offset)| memory.max(offset));
    let sector = match kind {
        FileKind::Block => logical_sector_bytes(fd).ok(),
        FileKind::Regular | FileKind::Other => None,
    };
    let page = page_size() as usize;
    told.or(sector)
        .map_or(page, |bytes| (bytes as usize).max(page))
}

/// Reads around the page cache, through a separate description if possible, so that the flag
/// affects nobody else.
pub(super) fn direct_io(fd: BorrowedFd<'_>, alignment: usize) -> Support {
    let link = format!("/proc/thread-self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let direct = match rustix::fs::openat(CWD, link, flags, Mode::empty()) {
        Ok(direct) => direct,
        Err(Errno::NOENT) => return Support::untested("needs /proc"),
        Err(errno) => return Support::missing(&errno.into()),
    };
    let mut memory = vec![0; 2 * alignment];
    let start = memory.as_ptr().align_offset(alignment);
    let Some(buf) = memory.get_mut(start..start + alignment) else {
        return Support::untested("no aligned memory");
    };
    Support::of(pread(direct.as_fd(), buf, 0).map(drop))
}
