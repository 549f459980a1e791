//! Small files, many at once.
//!
//! What the library does for a file pays off from some hundred KiB on. Smaller ones are read and
//! written in one call each. Many of them are synced by one call, since the file system commits
//! them together anyway, and a flush of the disk's cache for each would take longest of all. A
//! thread does that while the next ones are copied.

use super::Copying;
use super::attributes::Attributes;
use super::choices::{Making, Overwrite, Reflink, Sparse};
use super::existing::Way;
use super::file::without_half;
use super::original::Original;
use crate::destination::Destination;
use crate::error::{Doing, Failure, so_far};
use crate::place::Place;
use dropbehind_linux::{FsKind, cached_pages, drop_clean, page_size};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

/// The largest file that is copied in one go.
const SMALL_BYTES: u64 = 128 << 10;
/// From so many files on, one sync of the file system takes less time than theirs. It also brings
/// to the disk what others have written there, which a few files are not worth.
const SYNC_TOGETHER: usize = 16;

/// A small copy that is not synced yet. All of its pages are ours, since the file is new.
#[derive(Debug)]
pub(super) struct Small {
    copy: File,
    path: PathBuf,
}

impl Copying<'_> {
    /// Copies a small file into a new one. Gives it back, untouched, if it takes more than that.
    pub(super) fn small(
        &mut self,
        mut original: Original,
        source: &Place<'_>,
        target: &Place<'_>,
        is_named: bool,
    ) -> Result<Option<Original>, Failure> {
        if !self.is_small(&original, target) {
            return Ok(Some(original));
        }
        let Ok(cached) = cached_pages(original.file.as_fd(), 0, 0) else {
            return Ok(Some(original));
        };
        let pages = original.metadata.len().div_ceil(page_size());
        if cached != 0 && cached < pages {
            // Only the library knows to the page what to drop.
            return Ok(Some(original));
        }
        // What is there stays if the source cannot be looked at.
        let attributes = Attributes::of(original.file.as_fd(), original.metadata.clone())
            .map_err(|errno| Failure::io(Doing::Open, source.path, &errno.into()))?;
        // Nothing is read for a copy that is not made. The user is asked once, below.
        if self.backups.is_none() && self.choices.overwrite != Overwrite::Ask {
            match self.way(source, &original.metadata, target, is_named)? {
                Way::Skip | Way::Newer => return Ok(None),
                Way::Clear => {}
                Way::Into(_) | Way::ThroughLink => return Ok(Some(original)),
            }
        }
        let read = self.read_small(&mut original);
        if cached == 0 {
            // It is only a wish; the copy is what counts.
            let _ = drop_clean(original.file.as_fd(), 0, 0);
        }
        let permissions = self.first_permissions(&attributes);
        let made = match read {
            Some(len) => Destination::make_file(target, permissions)?.map(|copy| (copy, len)),
            None => None,
        };
        let Some((mut copy, len)) = made else {
            let rewound = original.file.rewind();
            return rewound
                .map(|()| Some(original))
                .map_err(|error| Failure::io(Doing::Read, source.path, &error));
        };
        self.announce(source.path, target.path, None);
        let written = copy.write_all(&self.session.buffer.bytes()[..len]);
        written.map_err(|error| {
            let written = copy.stream_position().unwrap_or(0);
            let so_far = so_far(written, Some(len as u64));
            let failure = Failure::after(Doing::Write, target.path, &error, &so_far);
            without_half(failure, true, &copy, target)
        })?;
        let counters = self.session.progress.counters();
        counters.read.fetch_add(len as u64, Relaxed);
        let unsynced = counters.unsynced.fetch_add(len as u64, Relaxed) + len as u64;
        self.session.stats.peak_cached_bytes = self.session.stats.peak_cached_bytes.max(unsynced);
        counters.written.fetch_add(len as u64, Relaxed);
        if self.has_more_names(&original.metadata, is_named)
            && let Ok(metadata) = copy.metadata()
        {
            self.remember(&original.metadata, target, &metadata, is_named);
        }
        let (wanted, mode) = (self.choices.preserve, self.final_mode(&attributes));
        let (from, to) = (original.file.as_fd(), copy.as_fd());
        let preserved = attributes.preserve(from, to, target.path, wanted, mode);
        let small = Small {
            copy,
            path: target.path.to_owned(),
        };
        self.finishing
            .add_small(&mut self.session, small, len as u64);
        preserved.map(|()| None)
    }

    /// Whether a source is to be copied like this.
    fn is_small(&self, original: &Original, target: &Place<'_>) -> bool {
        let choices = self.choices;
        let metadata = &original.metadata;
        let bytes = metadata.len();
        let is_small = original.is_readable
            && !choices.atomic
            && !choices.verify
            && !target.follows_links
            && choices.end.sync
            && choices.making == Making::Copies
            && choices.sparse == Sparse::Auto
            && self.session.is_plain()
            && bytes <= SMALL_BYTES
            && bytes < choices.settings.block_bytes as u64
            // It has no holes.
            && metadata.blocks() * 512 >= bytes
            && choices.reflink != Reflink::Always;
        let may_be_shared = || {
            let directory = rustix::fs::fstat(target.directory);
            let known = |to| self.cannot_share.contains(&(metadata.dev(), to));
            !directory.is_ok_and(|directory| known(directory.st_dev))
        };
        is_small && (choices.reflink == Reflink::Never || bytes == 0 || !may_be_shared())
    }

    /// Reads all of a file up to the size that it had; `None` if it cannot be read in one go. A
    /// file of `/proc` may have more than its size says.
    fn read_small(&mut self, original: &mut Original) -> Option<usize> {
        let size = usize::try_from(original.metadata.len()).ok()?;
        let buffer = self.session.buffer.bytes();
        let most = if size > 0 { size } else { buffer.len() };
        let mut read = 0;
        while read < most {
            match original.file.read(&mut buffer[read..most]) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        // The other way of copying tells the user what is odd about it.
        (read == size).then_some(read)
    }
}

/// What became of a batch.
#[derive(Debug)]
pub(super) struct Synced {
    pub(super) failures: Vec<Failure>,
    /// The device that was synced as a whole.
    pub(super) device: Option<u64>,
    /// Bytes that are on the disk and could not be dropped.
    pub(super) left_bytes: u64,
}

/// Brings copies to the disk, and drops their pages.
pub(super) fn sync_and_drop(batch: &[Small]) -> Synced {
    let device = sync_together(batch.iter().map(|small| small.copy.as_fd()));
    let (mut failures, mut left_bytes) = (Vec::new(), 0);
    for small in batch {
        let synced = match device {
            Some(_) => Ok(()),
            None => small.copy.sync_all(),
        };
        match synced {
            Ok(()) => {
                // Pages that somebody else reads just now cannot be dropped.
                let _ = drop_clean(small.copy.as_fd(), 0, 0);
                left_bytes += cached_pages(small.copy.as_fd(), 0, 0).unwrap_or(0) * page_size();
            }
            // The cache may hold the only copy.
            Err(error) => failures.push(Failure::unsynced(&small.path, &error)),
        }
    }
    Synced {
        failures,
        device,
        left_bytes,
    }
}

/// Syncs the file system of many copies, and returns its device. `None` if that was not possible, or
/// if something there failed: then each file must tell.
pub(super) fn sync_together<'a>(copies: impl Iterator<Item = BorrowedFd<'a>>) -> Option<u64> {
    let copies: Vec<BorrowedFd<'_>> = copies.collect();
    let first = *copies.first().filter(|_| copies.len() >= SYNC_TOGETHER)?;
    let kind = dropbehind_linux::filesystem(first).ok()?;
    // Of others it is not known whether that brings all to the disk; before Linux 5.17 it does
    // not say all that failed.
    let is_known = matches!(kind, FsKind::Ext4 | FsKind::Xfs | FsKind::Btrfs);
    let kernel = dropbehind_linux::kernel_version();
    if !is_known || (kernel.major, kernel.minor) < (5, 17) {
        return None;
    }
    let device = |copy| Some(rustix::fs::fstat(copy).ok()?.st_dev);
    let first_device = device(first)?;
    if copies
        .iter()
        .any(|copy| device(*copy) != Some(first_device))
    {
        return None;
    }
    // The oldest description: it reports all that failed since it was opened.
    rustix::fs::syncfs(first).ok()?;
    // It succeeds on a file system that became read-only after an error, and on ext4 before 6.13
    // once that was shut down. Syncing a file fails then, and takes no time otherwise.
    for copy in [Some(&first), copies.last()].into_iter().flatten() {
        rustix::fs::fsync(copy).ok()?;
    }
    Some(first_device)
}
