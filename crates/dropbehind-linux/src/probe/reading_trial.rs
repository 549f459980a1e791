//! What can be tried by reading alone, on a file that is not ours.

use super::blocks::{direct_io, direct_io_bytes, fiemap};
use super::page_count::{Counting, went};
use super::support::Support;
use super::threads::{descriptor_table, io_priority, own_description};
use super::uncached_io::dontcache_read;
use super::{Probe, SCRATCH_PAGES};
use crate::advice::drop_clean;
use crate::cachestat::cachestat;
use crate::disk::disk_of;
use crate::file::{FileKind, file_info, filesystem, size_bytes};
use crate::kernel::kernel_version;
use crate::mincore::resident_ranges;
use crate::page::page_size;
use crate::vectored::pread;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// A range of the file of which nothing is cached, so that trying things on it affects
/// nobody.
fn untouched_range(fd: BorrowedFd<'_>, counting: Counting) -> Option<(u64, u64)> {
    let len = SCRATCH_PAGES * page_size();
    let size = size_bytes(fd).ok()?;
    let step = (size / 64).max(len).next_multiple_of(page_size());
    (0..64)
        .map(|index| index * step)
        .take_while(|offset| offset + len <= size)
        .find(|&offset| counting.is_empty(fd, offset, len))
        .map(|offset| (offset, len))
}

/// Tries on the file itself what needs no writing.
pub(super) fn probe_by_reading(path: &Path, why_not_written: &str) -> io::Result<Probe> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let fd = file.as_fd();
    let info = file_info(fd)?;
    let not_written = || Support::untested(why_not_written);
    let mut found = Probe {
        kernel: kernel_version(),
        filesystem: filesystem(fd)?,
        disk: disk_of(fd)?,
        cachestat: not_written(),
        mincore: not_written(),
        sync_file_range: not_written(),
        fadvise_dontneed: not_written(),
        dontcache_write: not_written(),
        dontcache_overwrite: not_written(),
        dontcache_read: not_written(),
        fiemap: not_written(),
        direct_io: not_written(),
        own_description: own_description(fd, info.id),
        descriptor_table: descriptor_table(fd),
        io_priority: io_priority(),
    };
    if info.kind == FileKind::Other {
        return Ok(found);
    }
    if info.size_bytes == 0 {
        found.cachestat = Support::untested("the file is empty");
        found.mincore = found.cachestat.clone();
        found.fadvise_dontneed = found.cachestat.clone();
        found.dontcache_read = found.cachestat.clone();
        found.fiemap = found.cachestat.clone();
        found.direct_io = found.cachestat.clone();
        return Ok(found);
    }
    found.fiemap = fiemap(fd);
    let alignment = direct_io_bytes(info.direct_io_alignment, info.kind, fd);
    found.direct_io = direct_io(fd, alignment);

    let counted = |result: io::Result<u64>, what: &str| match result {
        Ok(0) => Support::ineffective(format!("{what} nothing of what was just read")),
        Ok(_) => Support::Works,
        Err(error) => Support::missing(&error),
    };
    let counting = if cachestat(fd, 0, 1).is_ok() {
        Counting::Cachestat
    } else if resident_ranges(fd, 0, 1).is_ok() {
        Counting::Mincore
    } else {
        Counting::Impossible
    };
    let untouched = untouched_range(fd, counting);
    let (offset, len) = untouched.unwrap_or((0, SCRATCH_PAGES * page_size()));
    if untouched.is_some() {
        found.dontcache_read = dontcache_read(fd, offset, len, counting);
    } else {
        found.dontcache_read = Support::untested("no range is free of others' pages");
    }
    let mut buf = vec![0; usize::try_from(len).map_err(|_| Errno::OVERFLOW)?];
    pread(fd, &mut buf, offset)?;
    found.cachestat = counted(
        cachestat(fd, offset, len).map(|stat| stat.cached_pages),
        "counts",
    );
    found.mincore = counted(
        resident_ranges(fd, offset, len).map(|ranges| ranges.len() as u64),
        "sees",
    );
    // Don't drop pages that others brought in, just to try.
    found.fadvise_dontneed = if untouched.is_none() {
        Support::untested("no range is free of others' pages")
    } else {
        match drop_clean(fd, offset, len) {
            Ok(()) => went(fd, offset, len, counting),
            Err(error) => Support::missing(&error),
        }
    };
    Ok(found)
}
