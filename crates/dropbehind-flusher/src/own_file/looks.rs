//! What is cached before a file's users read and write it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dropbehind_linux::{cachestat_sees, monotonic_ns};
use dropbehind_policy::residency::ResidencyMap;
use dropbehind_policy::{ByteRange, Found, Mode, RangeSet};
use dropbehind_slot::{Due, Run};

use super::OwnFile;
use crate::{lock, residency};

/// What a reader has seen cached counts for a write within this time, in nanoseconds.
const LOOK_AGE_NS: u64 = 1_000_000_000;
const WRITER_LOOKED: u64 = u64::MAX;
/// A writer that extends its file checks this often whether others have extended it further. The check
/// takes 0.2 us.
const EXTENDS_BYTES: u64 = 64 << 10;

/// What [`OwnFile::will_write`] found cached.
#[derive(Debug, Default)]
pub struct CachedBefore {
    claimed: Option<ByteRange>,
    /// The pages that were looked at, and the cached parts of them. `None` if there was no look.
    looked: Option<(ByteRange, RangeSet)>,
    zeroed: Option<Run>,
}

impl OwnFile {
    /// Records what is cached before the first write that may have to drop.
    pub fn look_before(&self, fd: BorrowedFd<'_>, mode: Mode) {
        if mode.drops() && self.looked_ns.load(Ordering::Acquire) != WRITER_LOOKED {
            self.look(fd, WRITER_LOOKED);
        }
    }

    /// Records what is cached before the first read that may have to drop: before a write that soon
    /// follows, pages of the read would be cached, too.
    pub fn look_before_read(&self, fd: BorrowedFd<'_>) {
        if self.looked_ns.load(Ordering::Acquire) == 0 {
            self.look(fd, monotonic_ns());
        }
    }

    fn look(&self, fd: BorrowedFd<'_>, when: u64) {
        let mut before = lock(&self.before);
        let looked_ns = self.looked_ns.load(Ordering::Acquire);
        let is_writer = when == WRITER_LOOKED;
        let is_fresh = monotonic_ns().saturating_sub(looked_ns) < LOOK_AGE_NS;
        if looked_ns == WRITER_LOOKED || looked_ns != 0 && !is_writer {
            return;
        }
        // After a while, others may have brought in more.
        if looked_ns != 0 && is_fresh {
            return self.looked_ns.store(when, Ordering::Release);
        }
        // Others may have made it longer since it was opened, and have the new pages cached.
        if let Ok(size_bytes) = dropbehind_linux::size_bytes(fd) {
            lock(&self.config).size_bytes = size_bytes;
        }
        let size_bytes = self.config().size_bytes;
        self.furthest.fetch_max(size_bytes, Ordering::Relaxed);
        *before = Some(residency::map_of_file(fd, size_bytes));
        self.before_is_new.store(true, Ordering::Release);
        // Last: until then, other threads' first writes wait, so that the map has nothing of theirs.
        self.looked_ns.store(when, Ordering::Release);
    }

    /// Announces a write of `range`.
    ///
    /// Unless it only makes longer what was written before, this looks what of it is cached: others may
    /// have brought that in since this file was opened. None of it is dropped before
    /// [`OwnFile::wrote`]. The look is one call of some 0.2 us. There is none before Linux 6.5 and on
    /// overlayfs.
    pub fn will_write(&self, fd: BorrowedFd<'_>, range: ByteRange, mode: Mode) -> CachedBefore {
        let mut found = CachedBefore::default();
        let mut end = self.furthest.fetch_max(range.end, Ordering::Relaxed);
        // Others may have extended it since.
        let looks = range.start / EXTENDS_BYTES != range.end / EXTENDS_BYTES || range.start > end;
        if looks
            && mode.drops()
            && range.start >= end
            && let Ok(size_bytes) = dropbehind_linux::size_bytes(fd)
        {
            self.furthest.fetch_max(size_bytes, Ordering::Relaxed);
            end = end.max(size_bytes);
        }
        found.zeroed = self.will_zero(fd, end, range.start, mode);
        let extends = end == range.start;
        if !mode.drops() || extends && !self.slot.is_quiet() {
            return found;
        }
        if !self.sees_cached(fd) {
            return found;
        }
        let pages = range.page_aligned_outward(dropbehind_linux::page_size());
        let Ok(counted) = residency::count_seen(fd, pages) else {
            return found;
        };
        if counted.cached_bytes > 0 {
            // Some of it may be ours, and about to be dropped.
            self.claims.claim(pages);
            found.claimed = Some(pages);
            let cached = residency::resident_in(fd, pages).unwrap_or_else(|_| vec![pages]);
            found.looked = Some((pages, cached.into_iter().collect()));
        } else {
            found.looked = Some((pages, RangeSet::new()));
        }
        found
    }

    /// Returns whether a look before a write is one cheap call.
    fn sees_cached(&self, fd: BorrowedFd<'_>) -> bool {
        *self.looks.get_or_init(|| cachestat_sees(fd))
    }

    /// The page in which a file of `size_bytes` ends, if it is not cached and the next write begins in a
    /// later page, at `start`. The kernel then reads that page, and zeroes it behind the end
    /// (`iomap_zero_range`, fs/iomap/buffered-io.c). It also does so if the size is set, to more or to
    /// less: then `start` is `u64::MAX`, and `size_bytes` the smaller of the two sizes.
    pub(super) fn will_zero(
        &self,
        fd: BorrowedFd<'_>,
        size_bytes: u64,
        start: u64,
        mode: Mode,
    ) -> Option<Run> {
        let page = dropbehind_linux::page_size();
        let last = ByteRange::new(size_bytes - size_bytes % page, size_bytes);
        let ends_in_page = !last.is_empty() && start / page > size_bytes / page;
        if !ends_in_page || !mode.drops() || self.config().block_device || !self.sees_cached(fd) {
            return None;
        }
        let counted = residency::count_seen(fd, last.page_aligned_outward(page)).ok()?;
        let run = Run::covering(last, mode).next()?;
        (counted.cached_bytes == 0).then_some(run.of(Found::Absent))
    }

    /// Reports such a page as written.
    pub(super) fn zeroed(&self, page: Option<Run>) -> Due {
        page.map_or(Due::default(), |page| {
            self.zeroed.store(true, Ordering::SeqCst);
            self.slot.wrote(page, 0)
        })
    }

    /// What was cached before the first I/O that may have to drop, if somebody has looked since this
    /// was called last.
    pub(crate) fn take_before(&self) -> Option<ResidencyMap> {
        if !self.before_is_new.load(Ordering::Acquire) {
            return None;
        }
        let mut before = lock(&self.before);
        self.before_is_new.store(false, Ordering::Relaxed);
        before.take()
    }

    /// Reports a write that has returned. `cached` is what [`OwnFile::will_write`] said. The result is
    /// for [`OwnFile::slow_down`].
    pub fn wrote(
        self: &Arc<Self>,
        fd: BorrowedFd<'_>,
        range: ByteRange,
        bytes: u64,
        mode: Mode,
        cached: CachedBefore,
    ) -> Due {
        // First: what is counted last is waited for.
        let due = self.zeroed(cached.zeroed);
        let due = due.and(match &cached.looked {
            None => self.tell_written(fd, range, bytes, mode),
            Some((pages, parts)) => self.tell_looked(fd, range, bytes, mode, *pages, parts),
        });
        self.end_write(&cached);
        due
    }

    /// An announced write ended before `rest`. Reports what it brought into the cache there: a file system
    /// may add pages first, and then find no room for the data.
    pub fn fell_short(
        self: &Arc<Self>,
        fd: BorrowedFd<'_>,
        rest: ByteRange,
        mode: Mode,
        cached: &CachedBefore,
    ) {
        let pages = rest.page_aligned_outward(dropbehind_linux::page_size());
        let looked = cached.looked.iter();
        let absent = looked.flat_map(|(looked, there)| there.gaps_of(pages.intersection(*looked)));
        for part in absent.chain(cached.zeroed.map(Run::range)) {
            if residency::count_seen(fd, part).is_ok_and(|counted| counted.cached_bytes > 0) {
                for run in Run::covering(part, mode) {
                    self.told(fd, self.zeroed(Some(run.of(Found::Absent))));
                }
            }
        }
    }

    /// An announced write has been reported, or has failed.
    pub fn end_write(&self, cached: &CachedBefore) {
        if let Some(claimed) = cached.claimed {
            self.claims.release(claimed);
        }
    }

    /// Reports a write. Of the pages `looked`, `cached` were cached before, and no others.
    ///
    /// Another process, or a read that drops nothing, may have moved the position since the look. Then
    /// the write is somewhere else, at least in part.
    fn tell_looked(
        self: &Arc<Self>,
        fd: BorrowedFd<'_>,
        range: ByteRange,
        bytes: u64,
        mode: Mode,
        looked: ByteRange,
        cached: &RangeSet,
    ) -> Due {
        self.last_mode.store(mode.to_bits(), Ordering::Relaxed);
        let pages = range.page_aligned_outward(dropbehind_linux::page_size());
        let runs = |part, found| Run::covering(part, mode).map(move |run| run.of(found));
        let there = cached
            .overlaps_of(pages)
            .flat_map(|part| runs(part, Found::Cached));
        let absent = cached
            .gaps_of(pages.intersection(looked))
            .flat_map(|part| runs(part, Found::Absent));
        let before = ByteRange::new(pages.start, looked.start.min(pages.end));
        let after = ByteRange::new(looked.end.max(pages.start), pages.end);
        let elsewhere = [before, after]
            .into_iter()
            .flat_map(|part| runs(part, Found::NotLooked));
        let due = self.push_written(there.chain(absent).chain(elsewhere), bytes);
        self.told(fd, due)
    }
}
