//! Counting cached pages wherever that is possible.
//!
//! cachestat(2) counts exactly, since Linux 6.5, but not on overlayfs: there it looks at the
//! overlay's inode, which has no pages. mincore(2) on a mapping shows which pages are cached,
//! on all kernels, and on overlayfs those of the file below. Which of them are still to be
//! written is asked by reads around the page cache that wait for nothing. Neither takes a
//! writeback error from anybody's fsync(2).

use crate::cachestat::{CacheStat, cachestat};
use crate::direct_read::{DirectReader, is_unwritten};
use crate::fact::Fact;
use crate::file::{FsKind, filesystem};
use crate::kernel::{KernelVersion, kernel_version};
use crate::mincore::resident_ranges;
use crate::page::page_size;
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// Unwritten pages are counted in pieces, of which all count if one is unwritten: the longest
/// piece, and the number of pieces in a short range.
const PIECE_MAX_BYTES: u64 = 128 << 10;
const PIECES: u64 = 512;

/// Since then, a read that must not wait distinguishes clean pages from others.
const ANSWERS_SINCE: KernelVersion = KernelVersion {
    major: 5,
    minor: 13,
};

/// Returns whether the kernel has cachestat(2), which distinguishes dirty pages from those
/// under writeback. A sandbox may hide it.
#[must_use]
pub fn has_cachestat() -> bool {
    static HAS: Fact = Fact::new();
    HAS.is(|| {
        // SAFETY: the number is never that of an open file, and nothing is done with it.
        let nothing = unsafe { BorrowedFd::borrow_raw(i32::MAX) };
        let counted = cachestat(nothing, 0, 0);
        counted.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::BADF))
    })
}

/// Returns whether [`cachestat`] sees the pages of this file: where the kernel has it, and not on
/// overlayfs. That does not change while the file exists.
#[must_use]
pub fn cachestat_sees(fd: BorrowedFd<'_>) -> bool {
    has_cachestat() && matches!(filesystem(fd), Ok(kind) if kind != FsKind::Overlay)
}

/// Counts the pages that a range touches with [`cachestat`]; a `len` of 0 means to the end of
/// the file. Changes nothing about the description, which may be anybody's.
///
/// # Errors
///
/// Those of [`cachestat`]; `ENOSYS` also on overlayfs, where it would see nothing.
pub fn count_pages(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<CacheStat> {
    if !has_cachestat() {
        return Err(Errno::NOSYS.into());
    }
    let counted = cachestat(fd, offset, len)?;
    if counted.cached_pages == 0 && matches!(filesystem(fd), Ok(FsKind::Overlay)) {
        return Err(Errno::NOSYS.into());
    }
    Ok(counted)
}

/// The cached pages that a range touches; a `len` of 0 means to the end of the file. Changes
/// nothing about the description.
///
/// # Errors
///
/// Those of [`cachestat`] and [`resident_ranges`].
pub fn cached_pages(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<u64> {
    match count_pages(fd, offset, len) {
        Ok(counted) => Ok(counted.cached_pages),
        Err(error) if is_missing(&error) => {
            let resident = resident(fd, offset, len)?;
            Ok(pages_of(&resident))
        }
        Err(error) => Err(error),
    }
}

/// Counts the pages that a range touches, also where cachestat(2) is missing; a `len` of 0
/// means to the end of the file.
///
/// Where it is missing, pages under writeback count as dirty, some clean pages beside dirty ones
/// do, too, and so do all while a writer holds the inode's lock. `fd` must be a description of
/// our own: it reads around the page cache from then on.
///
/// # Errors
///
/// Those of [`cachestat`] and [`resident_ranges`], and:
///
/// - `ENOSYS`: what is cached can be told, but not what is still to be written: before Linux
///   5.13, on btrfs and overlayfs, and on file systems without direct I/O.
/// - `EIO`, `ENOSPC`: writeback of the file has failed. fsync(2) still reports that. Not all
///   kernels say so here.
pub fn count_own_pages(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<CacheStat> {
    let missing = match count_pages(fd, offset, len) {
        Err(error) if is_missing(&error) => error,
        counted => return counted,
    };
    let resident = resident(fd, offset, len)?;
    // btrfs answers only about single pages, and about clean ones beside dirty ones wrongly.
    if kernel_version() < ANSWERS_SINCE || filesystem(fd)? == FsKind::Btrfs {
        return Err(missing);
    }
    let mut unwritten_bytes = 0;
    for range in &resident {
        unwritten_bytes += unwritten_bytes_of(fd, range.clone()).map_err(|error| {
            let cannot_answer = [Errno::OPNOTSUPP, Errno::INVAL, Errno::BADF];
            match Errno::from_io_error(&error) {
                Some(errno) if cannot_answer.contains(&errno) => Errno::NOSYS.into(),
                _ => error,
            }
        })?;
    }
    Ok(CacheStat {
        cached_pages: pages_of(&resident),
        dirty_pages: unwritten_bytes / page_size(),
        ..CacheStat::default()
    })
}

fn is_missing(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NOSYS)
}

fn resident(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<Vec<Range<u64>>> {
    let len = if len == 0 { u64::MAX - offset } else { len };
    resident_ranges(fd, offset, len)
}

fn pages_of(ranges: &[Range<u64>]) -> u64 {
    let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    bytes / page_size()
}

/// The bytes of a range of cached pages that are still to be written.
fn unwritten_bytes_of(fd: BorrowedFd<'_>, range: Range<u64>) -> io::Result<u64> {
    let page = page_size();
    let bytes = range.end - range.start;
    let piece_bytes = (bytes / PIECES).clamp(page, PIECE_MAX_BYTES);
    let mut unwritten_bytes = 0;
    let mut ahead = vec![range];
    while let Some(part) = ahead.pop() {
        let len = part.end - part.start;
        let unwritten = match len <= DirectReader::RANGE_MAX_BYTES {
            true => is_unwritten(fd, part.start, len)?,
            false => Some(true),
        };
        match unwritten {
            Some(false) => {}
            Some(true) if len > piece_bytes => {
                let middle = part.start + (len / 2).next_multiple_of(page);
                ahead.push(middle..part.end);
                ahead.push(part.start..middle);
            }
            // If that is unknown, somebody is writing to the file.
            Some(true) | None => unwritten_bytes += len,
        }
    }
    Ok(unwritten_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropbehind_testbed::{Fs, MountedFs, need};
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_is_still_to_be_written_is_found_without_cachestat() {
        if kernel_version() < ANSWERS_SINCE {
            dropbehind_testbed::skip!("needs Linux 5.13");
        }
        for filesystem in [Fs::Ext4, Fs::Xfs] {
            need!(all MountedFs::needs(filesystem));
            let bed = MountedFs::new(filesystem, 400 << 20).unwrap();
            let writer = File::create_new(bed.file("file")).unwrap();
            let own = File::open(bed.file("file")).unwrap();
            let unwritten =
                |start: u64, end: u64| unwritten_bytes_of(own.as_fd(), start..end).unwrap();
            let data = vec![1; 8 << 20];
            writer.write_all_at(&data, 0).unwrap();
            assert_eq!(unwritten(0, 8 << 20), 8 << 20, "{filesystem:?}");
            writer.sync_all().unwrap();
            assert_eq!(unwritten(0, 8 << 20), 0, "{filesystem:?}");
            // A folio may be as large as 2 MiB.
            writer.write_all_at(&data[..100], 4 << 20).unwrap();
            assert_eq!(unwritten(0, 4 << 20), 0, "{filesystem:?}");
            assert!((1..=2 << 20).contains(&unwritten(0, 8 << 20)));
            assert_eq!(unwritten(6 << 20, 8 << 20), 0, "{filesystem:?}");
        }
    }

    #[test]
    fn a_wait_leaves_nothing_to_be_written() {
        for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
            need!(all MountedFs::needs(filesystem));
            let bed = MountedFs::new(filesystem, 400 << 20).unwrap();
            let writer = File::create_new(bed.file("file")).unwrap();
            writer.write_all_at(&vec![1; 8 << 20], 0).unwrap();
            let own = File::open(bed.file("file")).unwrap();
            crate::write_and_wait_unseen(own.as_fd(), 0, 8 << 20).unwrap();
            let counts = dropbehind_testbed::residency::cached(&bed.file("file"));
            let counts = counts.unwrap();
            assert_eq!(counts.unwritten_pages(), 0, "{filesystem:?}");
            assert_eq!(counts.cached_pages * page_size(), 8 << 20);
        }
    }
}
