//! `RWF_DONTCACHE`, and whether the pages are dropped.

use super::page_count::{Counting, went};
use super::scratch_file::ScratchFile;
use super::support::Support;
use crate::page::page_size;
use crate::vectored::{IoFlags, preadv2};
use rustix::io::Errno;
use std::io::{self, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::path::Path;

impl ScratchFile {
    pub(super) fn dontcache_write(&self, directory: &Path, counting: Counting) -> Support {
        let fresh = match self.empty_twin(directory) {
            Ok(fresh) => fresh,
            Err(error) => return Support::untested(format!("no second scratch file: {error}")),
        };
        match fresh.fill_uncached() {
            Ok(()) => fresh.gone_once_clean(counting),
            Err(error) => Support::missing(&error),
        }
    }

    /// Call it while the file is written, clean and not cached.
    pub(super) fn dontcache_overwrite(&self, counting: Counting) -> Support {
        if let Some(left) = pages_in_the_way(self.fd(), 0, self.len(), counting) {
            return left;
        }
        match self.fill_uncached() {
            Ok(()) => self.gone_once_clean(counting),
            Err(error) => Support::missing(&error),
        }
    }

    /// Makes the file clean, and checks whether the pages of an uncached operation went.
    fn gone_once_clean(&self, counting: Counting) -> Support {
        self.clean_uncached();
        went(self.fd(), 0, self.len(), counting)
    }
}

/// Why the effect on new pages cannot be seen: pages are already cached, and the operation
/// must leave those.
fn pages_in_the_way(
    fd: BorrowedFd<'_>,
    offset: u64,
    len: u64,
    counting: Counting,
) -> Option<Support> {
    match counting.cached_pages(fd, offset, len) {
        Some(0) | None => None,
        // It still shows whether the call is refused, by reading only pages that are cached.
        Some(_) => Some(match read_uncached(fd, offset, len.min(page_size())) {
            Ok(()) => Support::untested("the file's pages cannot be dropped first"),
            Err(error) => Support::missing(&error),
        }),
    }
}

fn read_uncached(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let mut buf = vec![0; usize::try_from(len).map_err(|_| Errno::OVERFLOW)?];
    let bufs = &mut [IoSliceMut::new(&mut buf)];
    preadv2(fd, bufs, Some(offset), IoFlags::DONTCACHE)?;
    Ok(())
}

/// Call it while the range is not cached.
pub(super) fn dontcache_read(
    fd: BorrowedFd<'_>,
    offset: u64,
    len: u64,
    counting: Counting,
) -> Support {
    if let Some(left) = pages_in_the_way(fd, offset, len, counting) {
        return left;
    }
    match read_uncached(fd, offset, len) {
        Ok(()) => went(fd, offset, len, counting),
        Err(error) => Support::missing(&error),
    }
}
