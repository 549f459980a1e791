//! Which pages of a file were cached at one moment.

use std::os::fd::BorrowedFd;

use dropbehind_linux::{resident_ranges, size_bytes};
use dropbehind_policy::residency::ResidencyMap;
use dropbehind_policy::{ByteRange, Counted};

use crate::residency;

/// Which pages of a file others had in the cache at one moment.
///
/// What was not looked at counts as theirs, except beyond the end that the file had then,
/// where nothing can have been cached.
#[derive(Clone, Debug)]
pub struct CacheMap {
    pub(crate) map: ResidencyMap,
    /// Bytes that were cached.
    pub cached_bytes: u64,
    /// Bytes of those that were not on the disk yet; 0 where the kernel does not say.
    pub unwritten_bytes: u64,
}

impl CacheMap {
    /// A map in which nothing of the file is cached.
    pub fn empty() -> CacheMap {
        CacheMap::without(0, [], 0, 0)
    }

    /// A map in which nothing is known, so that all of the file counts as others'.
    pub fn unknown() -> CacheMap {
        CacheMap {
            map: ResidencyMap::unknown(),
            cached_bytes: 0,
            unwritten_bytes: 0,
        }
    }

    /// What is cached now, to the page.
    pub fn now(fd: BorrowedFd<'_>) -> CacheMap {
        let size = size_bytes(fd).unwrap_or(u64::MAX);
        let whole = residency::whole(size);
        CacheMap {
            map: residency::map_of_file(fd, size),
            cached_bytes: residency::cached_bytes(fd, whole).unwrap_or(0),
            unwritten_bytes: unwritten_bytes(fd, whole),
        }
    }

    /// Like [`CacheMap::now`], but without pages that are just being read from the disk:
    /// whoever reads them began a moment ago. mincore(2) reports only pages that are up to
    /// date, cachestat(2) all.
    pub fn now_without_reads_under_way(fd: BorrowedFd<'_>) -> CacheMap {
        let size = size_bytes(fd).unwrap_or(u64::MAX);
        let whole = residency::whole(size);
        let mut now = CacheMap::without(0, [], 0, unwritten_bytes(fd, whole));
        for piece in residency::cached_pieces(fd, whole) {
            let Ok(resident) = resident_ranges(fd, piece.start, piece.len()) else {
                return CacheMap::now(fd);
            };
            let resident: Vec<ByteRange> = resident.into_iter().map(ByteRange::from).collect();
            now.cached_bytes += resident.iter().map(|part| part.len()).sum::<u64>();
            now.map.observed(piece, resident);
        }
        now
    }

    /// The map of a file of this size of which only these parts are known not to have been cached.
    pub fn without(
        size_bytes: u64,
        absent: impl IntoIterator<Item = ByteRange>,
        cached_bytes: u64,
        unwritten_bytes: u64,
    ) -> CacheMap {
        let mut map = ResidencyMap::unknown();
        map.truncated(size_bytes);
        for part in absent {
            map.observed(part, []);
        }
        CacheMap {
            map,
            cached_bytes,
            unwritten_bytes,
        }
    }

    /// The parts of `range` that were not cached then.
    pub fn absent(&self, range: ByteRange) -> Vec<ByteRange> {
        self.map.brought(range).collect()
    }

    /// The parts of the file that are cached now and were not then.
    pub fn brought_since(&self, fd: BorrowedFd<'_>) -> Vec<ByteRange> {
        let size = size_bytes(fd).unwrap_or(0);
        let cached = residency::cached_parts(fd, residency::whole(size));
        let brought = cached.iter().flat_map(|part| self.map.brought(*part));
        brought.collect()
    }
}

fn unwritten_bytes(fd: BorrowedFd<'_>, range: ByteRange) -> u64 {
    residency::count_observed(fd, range).map_or(0, Counted::unwritten_bytes)
}
