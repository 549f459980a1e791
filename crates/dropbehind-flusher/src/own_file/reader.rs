//! Reading without leaving pages behind.
//!
//! The reader checks how much of the next chunk is cached, and then asks the kernel to read
//! the chunk ahead. So it knows, to the page, what this read brought in, and bounds how much
//! is cached. The kernel's own readahead has two windows, which grow to the disk's
//! `read_ahead_kb`, and that can be more than all we may use. It never starts, since every
//! page is cached before it is read.
//!
//! Whole huge pages of which nothing is cached are read in [large
//! folios](dropbehind_linux::large_read) if the file system has them. That is cheaper than
//! single pages, and so are the copying and dropping that follow.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dropbehind_linux::{
    Access, FsKind, LargeRead, advise_access, cached_pages, drop_clean, filesystem, huge_page_size,
    page_size, will_need,
};
use dropbehind_policy::range::round_up;
use dropbehind_policy::{ByteRange, RangeSet};

use super::OwnFile;
use super::fetchers::{Fetch, Fetched};
use crate::disk_handle::ReadAhead;
use crate::residency;
use crate::trace::{Begun, Deed, DropReason};

/// The first chunk read ahead in a file: a small file is not worth more.
const FIRST_CHUNK_BYTES: u64 = 256 << 10;
/// Largest chunk.
const CHUNK_BYTES: u64 = 2 << 20;
/// After this many chunks in a row that came in single pages, no more large ones are tried:
/// the file system has none, or memory is too fragmented.
const SMALL_CHUNKS: u32 = 2;
/// Chunks kept ahead of the reader: 8 MiB, as much as one window of the kernel's own
/// readahead where that is large. On a disk of 1 GB/s, 4 MiB were 6 % slower.
const CHUNKS_AHEAD: u64 = 4;
/// A large folio carries a mark, and reading it starts the kernel's readahead
/// (`PG_readahead`; `page_cache_async_ra` in `mm/readahead.c`). That begins at the first page
/// that is not cached, unless all of the next `read_ahead_kb` is cached. So that much is kept
/// ahead where large folios are used. They are not used if the disk's setting is larger than
/// this.
const READ_AHEAD_MOST_BYTES: u64 = 8 << 20;
/// A chunk is requested when the reader is this close to needing it ahead, and is waited for
/// in steps of [`APPEAR_STEP`].
const SLACK_BYTES: u64 = CHUNK_BYTES / 4;
const APPEAR_STEP: Duration = Duration::from_micros(20);
/// When the flusher is this far behind, the reader drops pages itself. With the chunks ahead
/// and the one being read, this stays below 16 MiB. A long read at the position is one call, and
/// has all that it reads in the cache at once.
const HELP_BYTES: u64 = 2 << 20;
/// Separate ranges that were cached before they were read: beyond this many, they are not counted.
const FOUND_MOST: usize = 1024;
/// A chunk that was read ahead, and which parts of it are ours.
#[derive(Debug)]
struct Chunk {
    range: ByteRange,
    brought: Vec<ByteRange>,
    /// The read that brings it in, if another thread waits for that.
    fetch: Option<Arc<Fetch>>,
    /// A read of this chunk is over, so what must be cached behind it is cached.
    entered: bool,
}

impl Chunk {
    /// Where the last page may be that carries the kernel's mark: any page that others brought in,
    /// or a large folio's first one.
    fn marked(&self) -> Option<u64> {
        if self.brought.iter().map(|part| part.len()).sum::<u64>() < self.range.len() {
            return Some(self.range.end);
        }
        self.fetch.as_ref().map(|_| self.range.start)
    }
}

/// What a single read brings in, to be handed over when it is done.
#[derive(Debug, Default)]
pub struct Prepared {
    /// The pages read, if the read goes on with the stream.
    pages: ByteRange,
    claimed: ByteRange,
    once: Vec<ByteRange>,
    /// Parts that were not cached, and that the kernel may read ahead.
    beyond: Vec<ByteRange>,
    coming: Vec<(ByteRange, Arc<Fetch>)>,
    /// What must be cached before the read begins, whether or not it will be read, and the
    /// fetches that bring it in.
    appearing: (ByteRange, Vec<Arc<Fetch>>),
}

impl Prepared {
    /// Waits until everything is on its way, so that the kernel doesn't start its own
    /// readahead. Runs without the reader's lock.
    pub fn wait(&self, fd: BorrowedFd<'_>, file: &OwnFile) {
        for (range, coming) in &self.coming {
            coming.wait_or(|| {
                // An unreadable page fails the whole folio it is in. In single pages, the
                // others can be read.
                let _ = drop_clean(fd, range.start, range.len());
                fetch(fd, *range, file.disk.read_ahead().call_bytes);
            });
        }
        let (range, fetches) = &self.appearing;
        if range.is_empty() {
            // Most reads stay in the chunk that the previous one entered.
            return;
        }
        let pages = range.len() / page_size();
        loop {
            // Checked first, so that what is done by now is counted below.
            let all_done = fetches.iter().all(|fetch| fetch.is_done());
            let cached = cached_pages(fd, range.start, range.len());
            if cached.is_ok_and(|cached| cached >= pages) || all_done {
                return;
            }
            std::thread::sleep(APPEAR_STEP);
        }
    }
}

/// The reading side of an open file.
#[derive(Debug)]
pub struct Reader {
    /// Where the last read ended.
    next: u64,
    ahead: VecDeque<Chunk>,
    ahead_end: u64,
    chunk_bytes: u64,
    size_bytes: u64,
    /// Chunks in a row that should have come in large folios and did not.
    small_chunks: u32,
    /// The readahead advice is normal: the kernel reads ahead as the disk is set.
    advised: bool,
    /// `None` before the first read. The disk's setting may change, but not for an open file.
    read_ahead: Option<ReadAhead>,
    /// Nothing is read ahead.
    random: bool,
    /// Reads under way.
    reading: u32,
    /// The last of them hands over everything that was read ahead.
    settles: bool,
    /// What was cached before it was read, and has not been told to the flusher.
    found: RangeSet,
    /// What the stream's read would claim, while no other read is under way: until one begins,
    /// nobody gives up the chunks that it reads.
    unclaimed: ByteRange,
}

impl Reader {
    /// A reader at the start of a file of `size_bytes`. If accesses are to be `random`, it reads
    /// nothing ahead.
    pub fn new(size_bytes: u64, random: bool) -> Reader {
        Reader {
            next: 0,
            ahead: VecDeque::new(),
            ahead_end: 0,
            chunk_bytes: FIRST_CHUNK_BYTES,
            size_bytes,
            small_chunks: 0,
            advised: false,
            read_ahead: None,
            random,
            reading: 0,
            settles: false,
            found: RangeSet::new(),
            unclaimed: ByteRange::default(),
        }
    }

    fn read_ahead(&mut self, file: &OwnFile) -> ReadAhead {
        *self
            .read_ahead
            .get_or_insert_with(|| file.disk.read_ahead())
    }

    /// Makes sure that everything in `range` is cached or on its way, and records who brought
    /// it in. The result goes to [`Reader::after_read`].
    pub fn before_read(
        &mut self,
        fd: BorrowedFd<'_>,
        file: &Arc<OwnFile>,
        range: ByteRange,
    ) -> Prepared {
        self.reading += 1;
        if !self.unclaimed.is_empty() {
            file.claims.claim(std::mem::take(&mut self.unclaimed));
        }
        let page_bytes = page_size();
        let read_ahead = self.read_ahead(file);
        if range.end > self.size_bytes {
            // The file may have grown; past its end there is nothing to fetch.
            if let Ok(size_bytes) = dropbehind_linux::size_bytes(fd) {
                self.size_bytes = size_bytes;
            }
        }
        let file_end = round_up(self.size_bytes, page_bytes);
        let pages = range
            .page_aligned_outward(page_bytes)
            .intersection(ByteRange::new(0, file_end));
        // A read of several chunks is a stream by itself.
        let goes_on = self.next == range.start || range.len() > CHUNK_BYTES;
        self.next = range.end;
        if self.random || !goes_on {
            // It may touch a large folio of the stream, and the pages behind that may be dropped by
            // now. Then the kernel reads ahead: it begins within its window, and reads at most as
            // much again.
            let window_bytes = match self.advised {
                true => read_ahead.own_bytes.min(READ_AHEAD_MOST_BYTES),
                false => 0,
            };
            let end = pages.end.saturating_add(2 * window_bytes);
            let end = end.min(file_end).max(pages.end);
            let claimed = ByteRange::new(pages.start, end);
            file.claims.claim(claimed);
            let once = self.fetch(fd, file, pages, read_ahead.call_bytes);
            let all_new = once.iter().map(|part| part.len()).sum::<u64>() >= pages.len();
            let beyond = match all_new {
                true => Vec::new(),
                false => residency::absent_in(fd, ByteRange::new(pages.end, end)),
            };
            return Prepared {
                claimed,
                once,
                beyond,
                ..Prepared::default()
            };
        }
        let behind = self
            .ahead
            .front()
            .map_or(self.ahead_end, |chunk| chunk.range.start);
        if pages.start < behind || pages.start > self.ahead_end {
            // The stream continues somewhere else.
            self.finish(fd, file);
            self.ahead_end = pages.start;
            self.chunk_bytes = FIRST_CHUNK_BYTES;
        }
        // Beyond the bytes asked for, fetch whole chunks, once the reader comes within reach
        // of the last one.
        let read_ahead_bytes = read_ahead.own_bytes;
        let large = self.small_chunks < SMALL_CHUNKS && read_ahead_bytes <= READ_AHEAD_MOST_BYTES;
        let wanted = if large && self.chunk_bytes == CHUNK_BYTES {
            pages.end + round_up(read_ahead_bytes, CHUNK_BYTES).max(2 * CHUNK_BYTES) + SLACK_BYTES
        } else {
            pages.end + (CHUNKS_AHEAD - 1) * self.chunk_bytes
        };
        self.fetch_until(fd, file, wanted.min(file_end), file_end);
        // A read of a page that carries the kernel's mark starts its readahead.
        let read_ahead_bytes = self.read_ahead(file).own_bytes.min(READ_AHEAD_MOST_BYTES);
        let looks_until = |chunk: &Chunk| Some(chunk.marked()? + read_ahead_bytes + page_bytes);
        let is_here = |chunk: &Chunk| chunk.range.overlaps(pages);
        let here = self.ahead.iter().filter(|chunk| is_here(chunk));
        if let Some(wanted) = here.filter_map(looks_until).max() {
            self.fetch_until(fd, file, wanted.min(file_end), file_end);
        }
        let mut appearing = ByteRange::default();
        for chunk in &self.ahead {
            if let (true, false, Some(end)) = (is_here(chunk), chunk.entered, looks_until(chunk)) {
                appearing = ByteRange::new(chunk.range.end, end.min(file_end).max(chunk.range.end));
            }
        }
        // Other threads may read what follows, and finish first.
        let claimed = ByteRange::new(pages.start, pages.end.max(appearing.end));
        match self.reading {
            1 => self.unclaimed = claimed,
            _ => file.claims.claim(claimed),
        }
        let bring = self
            .ahead
            .iter()
            .filter(|chunk| chunk.range.overlaps(appearing));
        let appearing = (
            appearing,
            bring.filter_map(|chunk| chunk.fetch.clone()).collect(),
        );
        let here = self.ahead.iter().filter(|chunk| is_here(chunk));
        Prepared {
            pages,
            claimed,
            appearing,
            coming: here
                .filter_map(|chunk| Some((chunk.range, chunk.fetch.clone()?)))
                .collect(),
            ..Prepared::default()
        }
    }

    /// Has the kernel read `range` in steps of `step_bytes`. Returns the parts that were not cached
    /// before.
    fn fetch(
        &mut self,
        fd: BorrowedFd<'_>,
        file: &OwnFile,
        range: ByteRange,
        step_bytes: u64,
    ) -> Vec<ByteRange> {
        let absent = self.look(fd, file, range);
        for part in &absent {
            fetch(fd, *part, step_bytes);
        }
        absent
    }

    /// The parts of `range` that are not cached; none if that is unknown. Remembers the others.
    pub(super) fn look(
        &mut self,
        fd: BorrowedFd<'_>,
        file: &OwnFile,
        range: ByteRange,
    ) -> Vec<ByteRange> {
        let Ok(cached) = residency::resident_in(fd, range) else {
            return Vec::new();
        };
        let cached: RangeSet = cached.into_iter().collect();
        // What was read ahead is ours, and not reported yet.
        let ahead = self.ahead.iter().flat_map(|chunk| &chunk.brought);
        let ahead: RangeSet = ahead.copied().collect();
        for part in cached.iter().flat_map(|part| ahead.gaps_of(part)) {
            if self.found.count() < FOUND_MOST {
                self.found.insert(part);
            }
        }
        let found_bytes = self.found.bytes();
        file.found_bytes.store(found_bytes, Ordering::Relaxed);
        cached.gaps_of(range).collect()
    }

    /// Takes what was cached before it was read.
    pub(super) fn take_found(&mut self) -> RangeSet {
        std::mem::take(&mut self.found)
    }

    /// Fetches chunk after chunk until `wanted` is reached.
    fn fetch_until(&mut self, fd: BorrowedFd<'_>, file: &Arc<OwnFile>, wanted: u64, file_end: u64) {
        while self.ahead_end < wanted {
            let end = round_up(self.ahead_end + 1, self.chunk_bytes).min(file_end);
            let range = ByteRange::new(self.ahead_end, end);
            file.claims.claim(range);
            let chunk = self.fetch_ahead(fd, file, range);
            self.ahead.push_back(chunk);
            self.ahead_end = end;
            self.chunk_bytes = (self.chunk_bytes * 2).min(CHUNK_BYTES);
        }
    }

    fn fetch_ahead(&mut self, fd: BorrowedFd<'_>, file: &Arc<OwnFile>, range: ByteRange) -> Chunk {
        let large = self.fetch_large(fd, file, range);
        let call_bytes = self.read_ahead(file).call_bytes;
        Chunk {
            range,
            brought: match large {
                Some(_) => vec![range],
                None => self.fetch(fd, file, range, call_bytes),
            },
            fetch: large,
            entered: false,
        }
    }

    /// Has another thread read a whole huge page of which nothing is cached.
    fn fetch_large(
        &mut self,
        fd: BorrowedFd<'_>,
        file: &Arc<OwnFile>,
        range: ByteRange,
    ) -> Option<Arc<Fetch>> {
        let whole = range.len() == CHUNK_BYTES && huge_page_size() == Some(CHUNK_BYTES);
        if !whole || self.small_chunks >= SMALL_CHUNKS {
            return None;
        }
        if !self.advised {
            // On other file systems, single pages would carry the mark, too, for no benefit.
            let folios = matches!(
                filesystem(fd),
                Ok(FsKind::Ext4 | FsKind::Xfs | FsKind::BlockDevice)
            );
            if !folios {
                self.small_chunks = SMALL_CHUNKS;
                return None;
            }
            // Other advice may double the kernel's readahead.
            self.advised = advise_access(fd, Access::Normal).is_ok();
            // With the advice, the kernel takes the setting anew.
            self.read_ahead = Some(file.disk.read_ahead());
        }
        if self.read_ahead(file).own_bytes > READ_AHEAD_MOST_BYTES {
            return None;
        }
        if !residency::resident_in(fd, range).is_ok_and(|resident| resident.is_empty()) {
            return None;
        }
        let read = LargeRead::new(fd, range.start).ok();
        let fetch = read.and_then(|read| file.disk.fetchers.start(read));
        if fetch.is_none() {
            self.small_chunks = SMALL_CHUNKS;
        }
        fetch
    }

    /// Releases what a read that reached `position` is done with, so that it may be dropped.
    pub fn after_read(
        &mut self,
        fd: BorrowedFd<'_>,
        file: &Arc<OwnFile>,
        prepared: Prepared,
        position: u64,
    ) {
        // Released first, or the flusher would find a range claimed that it was just told to
        // drop.
        self.reading -= 1;
        match self.unclaimed.is_empty() {
            true => file.claims.release(prepared.claimed),
            false => self.unclaimed = ByteRange::default(),
        }
        for part in prepared.once {
            file.read(fd, part);
        }
        for part in prepared.beyond {
            for came in residency::resident_in(fd, part).unwrap_or_default() {
                file.read(fd, came);
            }
        }
        for chunk in &mut self.ahead {
            chunk.entered |= chunk.range.overlaps(prepared.pages);
        }
        let settles = self.reading == 0 && std::mem::take(&mut self.settles);
        // Inside the file, the page at the position is still to be read.
        match settles || position >= self.size_bytes {
            true => self.finish(fd, file),
            false => self.release(fd, file, position),
        }
    }

    /// Hands over chunks before `position` to be dropped.
    fn release(&mut self, fd: BorrowedFd<'_>, file: &Arc<OwnFile>, position: u64) {
        let is_done = |chunk: &Chunk| chunk.range.end <= position;
        while self.ahead.front().is_some_and(is_done)
            && let Some(chunk) = self.ahead.pop_front()
        {
            if let Some(fetch) = chunk.fetch {
                match fetch.wait() {
                    Fetched::Large => self.small_chunks = 0,
                    Fetched::Small | Fetched::Failed => self.small_chunks += 1,
                }
            }
            file.claims.release(chunk.range);
            for part in chunk.brought {
                file.read(fd, part);
                if file.slot.undropped_bytes() > HELP_BYTES {
                    drop_read(fd, file, part);
                }
            }
        }
    }

    /// Hands over everything that was read ahead, as soon as no read is under way: one would have the
    /// kernel read ahead again. The file is being settled.
    pub fn settle(&mut self, fd: BorrowedFd<'_>, file: &Arc<OwnFile>) {
        self.settles = self.reading > 0;
        if !self.settles {
            self.finish(fd, file);
        }
    }

    /// Hands over everything that was read ahead: the file is being closed or given back, say.
    pub fn finish(&mut self, fd: BorrowedFd<'_>, file: &Arc<OwnFile>) {
        self.release(fd, file, u64::MAX);
    }
}

/// Drops what was read, in the reader's thread. Nothing of a written file: only the flusher can
/// ask whether its writeback failed.
fn drop_read(fd: BorrowedFd<'_>, file: &OwnFile, range: ByteRange) {
    if file.was_written() {
        return;
    }
    let Some(_dropping) = file.claims.begin_drop(range) else {
        return;
    };
    let begun = Begun::now();
    let cached_bytes = match residency::count(fd, range) {
        Ok(counted) if counted.unwritten_bytes() > 0 => return,
        Ok(counted) => counted.cached_bytes,
        // Before 6.5 and on overlayfs: a drop leaves what others have written.
        Err(_) => match residency::cached_bytes(fd, range) {
            Ok(cached_bytes) => cached_bytes,
            Err(_) => return,
        },
    };
    if drop_clean(fd, range.start, range.len()).is_ok() {
        file.helped_bytes.fetch_add(range.len(), Ordering::Relaxed);
        let deed = Deed::Drop(DropReason::Reader);
        begun.made(deed, &file.label, fd, range, cached_bytes);
    }
}

/// Has the kernel read `range` in steps of `step_bytes`, which is what it reads in one call.
fn fetch(fd: BorrowedFd<'_>, range: ByteRange, step_bytes: u64) {
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min(at + step_bytes);
        // If this fails, the read itself fetches the pages.
        let _ = will_need(fd, at, end - at);
        at = end;
    }
}
