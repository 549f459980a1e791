//! The simulated page cache of one file.

use dropbehind_policy::{ByteRange, Counted};

use crate::random::Random;

pub(crate) const PAGE: u64 = 4096;

const CACHED: u8 = 1;
const DIRTY: u8 = 2;
const WRITEBACK: u8 = 4;
/// Skipped, failed or redirtied by the file system: no bound covers it.
const ASTRAY: u8 = 8;
/// Dirtied in an eager mode, by a stream that is not lazy about it.
const EAGER: u8 = 16;

/// Nobody of ours: another process, or a stream of a flusher that is gone.
pub(crate) const OTHERS: u32 = 0;

/// A run of pages on its way to the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) file: usize,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Page {
    /// First page and length of the folio.
    folio: (u32, u32),
    /// Who brought it in: a stream's name, or [`OTHERS`].
    owner: u32,
    /// Who dirtied it, while it is dirty or under writeback.
    dirtier: u32,
    dirty_ns: u64,
    /// Requests of ours since it was dirtied last.
    asked: u32,
    /// Mapped, or in a CPU's batch, up to this time.
    pinned_ns: u64,
}

/// A file and what the cache holds of it.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) number: usize,
    pub(crate) size: u64,
    pub(crate) unlinked_ns: Option<u64>,
    /// More than one process or stream writes it.
    pub(crate) shared: bool,
    /// Dirty or writeback pages show as whole folios, as the kernel tags them.
    pub(crate) folio_tags: bool,
    pub(crate) largest_folio: u32,
    flags: Vec<u8>,
    pages: Vec<Page>,
}

/// Who brings or dirties pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Actor {
    pub(crate) owner: u32,
    pub(crate) eager: bool,
}

impl Actor {
    pub(crate) const OTHER: Actor = Actor {
        owner: OTHERS,
        eager: false,
    };
}

/// Pages that became dirty or clean, to whom they were counted.
pub(crate) type Balance<'a> = &'a mut dyn FnMut(u32, i64);

impl File {
    pub(crate) fn new(number: usize, most_pages: usize) -> File {
        File {
            number,
            size: 0,
            unlinked_ns: None,
            shared: false,
            folio_tags: false,
            largest_folio: 1,
            flags: vec![0; most_pages],
            pages: vec![Page::default(); most_pages],
        }
    }

    pub(crate) fn pages(&self) -> usize {
        self.flags.len()
    }

    fn span(&self, range: ByteRange) -> std::ops::Range<usize> {
        let first = (range.start / PAGE).min(self.flags.len() as u64) as usize;
        let end = range.end.div_ceil(PAGE).min(self.flags.len() as u64) as usize;
        first..end.max(first)
    }

    /// Brings absent pages in, in folios as large as fit.
    fn bring(&mut self, span: std::ops::Range<usize>, owner: u32, pinned_ns: u64) {
        let mut at = span.start;
        while at < span.end {
            if self.flags[at] & CACHED != 0 {
                at += 1;
                continue;
            }
            let mut length = 1;
            while length * 2 <= self.largest_folio as usize
                && at.is_multiple_of(length * 2)
                && at + length * 2 <= span.end
                && self.flags[at + length..at + length * 2]
                    .iter()
                    .all(|flags| flags & CACHED == 0)
            {
                length *= 2;
            }
            for page in at..at + length {
                self.flags[page] = CACHED;
                self.pages[page] = Page {
                    folio: (at as u32, length as u32),
                    owner,
                    pinned_ns,
                    ..Page::default()
                };
            }
            at += length;
        }
    }

    pub(crate) fn write(
        &mut self,
        now_ns: u64,
        range: ByteRange,
        actor: Actor,
        pinned_ns: u64,
        balance: Balance<'_>,
    ) {
        let span = self.span(range);
        self.bring(span.clone(), actor.owner, pinned_ns);
        for at in span {
            let flags = self.flags[at];
            let page = &mut self.pages[at];
            if flags & (DIRTY | WRITEBACK) == 0 {
                page.dirtier = actor.owner;
                balance(actor.owner, 1);
            } else if flags & ASTRAY != 0 {
                // Counts again: whoever wrote it now answers for it.
                page.dirtier = actor.owner;
                balance(actor.owner, 1);
            }
            page.dirty_ns = now_ns;
            page.asked = 0;
            self.flags[at] =
                (flags | DIRTY) & !(ASTRAY | EAGER) | if actor.eager { EAGER } else { 0 };
        }
        self.size = self.size.max(range.end);
    }

    /// Reads the range; answers which parts were not cached.
    pub(crate) fn read(&mut self, range: ByteRange, owner: u32, pinned_ns: u64) -> Vec<ByteRange> {
        let span = self.span(ByteRange::new(range.start, range.end.min(self.size)));
        let absent: Vec<bool> = span
            .clone()
            .map(|at| self.flags[at] & CACHED == 0)
            .collect();
        self.bring(span.clone(), owner, pinned_ns);
        runs(span.start, absent.into_iter())
    }

    /// Which parts of the range are cached.
    pub(crate) fn resident(&self, range: ByteRange) -> Vec<ByteRange> {
        let span = self.span(range);
        runs(
            span.start,
            self.flags[span].iter().map(|flags| flags & CACHED != 0),
        )
    }

    /// What cachestat says: a page written again under writeback counts twice.
    pub(crate) fn count(&self, range: ByteRange) -> Counted {
        let (mut cached, mut dirty, mut writeback) = (0, 0, 0);
        let span = self.span(range);
        if self.folio_tags {
            let mut at = span.start;
            while at < span.end {
                if self.flags[at] & CACHED == 0 {
                    at += 1;
                    continue;
                }
                let (first, length) = self.pages[at].folio;
                let folio = first as usize..(first + length) as usize;
                let inside = (folio.end.min(span.end) - at) as u64;
                let tags = self.flags[folio.clone()]
                    .iter()
                    .fold(0, |all, one| all | one);
                cached += inside;
                dirty += inside * u64::from(tags & DIRTY != 0);
                writeback += inside * u64::from(tags & WRITEBACK != 0);
                at = folio.end;
            }
        } else {
            for flags in &self.flags[span] {
                cached += u64::from(flags & CACHED);
                dirty += u64::from(flags & DIRTY) / u64::from(DIRTY);
                writeback += u64::from(flags & WRITEBACK) / u64::from(WRITEBACK);
            }
        }
        Counted {
            cached_bytes: cached * PAGE,
            dirty_bytes: dirty * PAGE,
            writeback_bytes: writeback * PAGE,
        }
    }

    /// Sends dirty pages that are not under writeback to the disk, but for
    /// those that are locked.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn start_writeback(
        &mut self,
        range: ByteRange,
        ours: bool,
        locked_in_thousand: u64,
        older_than_ns: u64,
        random: &mut Random,
        balance: Balance<'_>,
        send: &mut dyn FnMut(Request),
    ) {
        let mut run: Option<Request> = None;
        for at in self.span(range) {
            let flags = self.flags[at];
            let page = &mut self.pages[at];
            let mut taken = flags & DIRTY != 0 && page.dirty_ns <= older_than_ns;
            if taken && ours {
                page.asked += 1;
            }
            if taken && flags & WRITEBACK != 0 {
                // Skipped, and no count tells it from one written again since.
                taken = false;
                stray(&mut self.flags[at], page, balance);
            }
            if taken && random.chance(locked_in_thousand) {
                taken = false;
                stray(&mut self.flags[at], page, balance);
            }
            if taken {
                self.flags[at] = self.flags[at] & !DIRTY | WRITEBACK;
            }
            run = match run {
                Some(open) if taken && open.count < 256 => Some(Request {
                    count: open.count + 1,
                    ..open
                }),
                open => {
                    if let Some(open) = open {
                        send(open);
                    }
                    taken.then_some(Request {
                        file: self.number,
                        first: at,
                        count: 1,
                    })
                }
            };
        }
        if let Some(open) = run {
            send(open);
        }
    }

    /// The disk is done with a request; with `redirty`, it failed and the file
    /// system keeps the pages dirty.
    pub(crate) fn complete(
        &mut self,
        request: Request,
        now_ns: u64,
        redirty: bool,
        balance: Balance<'_>,
    ) {
        for at in request.first..request.first + request.count {
            if self.flags[at] & WRITEBACK == 0 {
                continue; // truncated in the meantime
            }
            let page = &mut self.pages[at];
            if redirty && self.flags[at] & DIRTY == 0 {
                stray(&mut self.flags[at], page, balance);
                self.flags[at] |= DIRTY;
                page.dirty_ns = now_ns;
            }
            self.flags[at] &= !WRITEBACK;
            if self.flags[at] & DIRTY == 0 {
                if self.flags[at] & ASTRAY == 0 {
                    balance(page.dirtier, -1);
                }
                self.flags[at] &= !(ASTRAY | EAGER);
            }
        }
    }

    /// POSIX_FADV_DONTNEED: drops clean folios that are wholly in the range.
    pub(crate) fn dont_need(&mut self, range: ByteRange, now_ns: u64) {
        let span = self.span(range);
        let mut at = span.start;
        while at < span.end {
            if self.flags[at] & CACHED == 0 {
                at += 1;
                continue;
            }
            let (first, length) = self.pages[at].folio;
            let folio = first as usize..(first + length) as usize;
            let inside = folio.start >= span.start && folio.end <= span.end;
            if inside {
                self.drop_folio(folio.clone(), now_ns);
            }
            at = folio.end;
        }
    }

    fn drop_folio(&mut self, folio: std::ops::Range<usize>, now_ns: u64) {
        let held = self.flags[folio.clone()]
            .iter()
            .any(|flags| flags & (DIRTY | WRITEBACK) != 0)
            || self.pages[folio.start].pinned_ns > now_ns;
        if !held {
            self.flags[folio].fill(0);
        }
    }

    /// Memory is short: some clean folios go, whoever brought them in.
    pub(crate) fn reclaim(&mut self, now_ns: u64, in_thousand: u64, random: &mut Random) {
        let mut at = 0;
        while at < self.flags.len() {
            if self.flags[at] & CACHED == 0 {
                at += 1;
                continue;
            }
            let (first, length) = self.pages[at].folio;
            let folio = first as usize..(first + length) as usize;
            at = folio.end;
            if random.chance(in_thousand) {
                self.drop_folio(folio, now_ns);
            }
        }
    }

    /// The file ends at `size` now; folios beyond are gone, dirty or not.
    pub(crate) fn truncate(&mut self, size: u64, balance: Balance<'_>) {
        let end = size.div_ceil(PAGE).min(self.flags.len() as u64) as usize;
        for at in end..self.flags.len() {
            let flags = std::mem::take(&mut self.flags[at]);
            if flags & (DIRTY | WRITEBACK) != 0 && flags & ASTRAY == 0 {
                balance(self.pages[at].dirtier, -1);
            }
            // A folio cut by the new end is split by the kernel.
            let first = self.pages[at].folio.0 as usize;
            if flags & CACHED != 0 && first < end {
                for part in first..end {
                    self.pages[part].folio = (part as u32, 1);
                }
            }
        }
        self.size = size;
    }

    /// The stream no longer answers for these pages.
    pub(crate) fn disown(&mut self, owner: u32, range: ByteRange) {
        for at in self.span(range) {
            if self.pages[at].owner == owner {
                self.pages[at].owner = OTHERS;
            }
        }
    }

    /// Cached bytes that this stream brought in.
    pub(crate) fn bytes_of(&self, owner: u32) -> u64 {
        let pages = self.flags.iter().zip(&self.pages);
        let cached = pages.filter(|(flags, page)| *flags & CACHED != 0 && page.owner == owner);
        cached.count() as u64 * PAGE
    }

    /// An eagerly written page, dirty since before `since_ns`, that nobody ever
    /// asked for.
    pub(crate) fn forgotten_page(&self, since_ns: u64) -> Option<usize> {
        (0..self.flags.len()).find(|&at| {
            let wanted = DIRTY | EAGER;
            self.flags[at] & wanted == wanted
                && self.pages[at].asked == 0
                && self.pages[at].dirty_ns < since_ns
        })
    }

    /// Nobody of ours answers for any page.
    pub(crate) fn orphan(&mut self) {
        for at in 0..self.flags.len() {
            self.pages[at].owner = OTHERS;
            self.flags[at] &= !EAGER;
        }
    }

    pub(crate) fn unwritten_bytes(&self) -> u64 {
        let dirty = self
            .flags
            .iter()
            .filter(|flags| *flags & (DIRTY | WRITEBACK) != 0);
        dirty.count() as u64 * PAGE
    }
}

fn stray(flags: &mut u8, page: &Page, balance: Balance<'_>) {
    if *flags & ASTRAY == 0 {
        *flags |= ASTRAY;
        balance(page.dirtier, -1);
    }
}

fn runs(first: usize, wanted: impl Iterator<Item = bool>) -> Vec<ByteRange> {
    let mut found: Vec<ByteRange> = Vec::new();
    for (offset, wanted) in wanted.enumerate() {
        let start = (first + offset) as u64 * PAGE;
        match found.last_mut() {
            _ if !wanted => {}
            Some(last) if last.end == start => last.end += PAGE,
            _ => found.push(ByteRange::new(start, start + PAGE)),
        }
    }
    found
}
