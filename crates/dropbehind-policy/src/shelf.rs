//! Small files that observed programs have closed.
//!
//! They wait for their [grace](crate::grace): what is deleted within it is never
//! written because of us. Beyond the budget the oldest half is written and dropped
//! at once. None of them becomes a [stream](crate::stream): tens of thousands a second
//! are closed when an archive is unpacked, and a slot, a place in several queues and
//! a search for what was written cost more than the file.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::action::Counted;
use crate::grace::{GRACE_NS, SMALL_FILES_BYTES, SMALL_FILES_COUNT};
use crate::mode::{Mode, Writeback};
use crate::observed_files::FileNumber;
use crate::range::ByteRange;
use crate::range_set::RangeSet;

/// Nobody tells when writeback is over, so a file is looked at again after this.
const LOOK_NS: u64 = 20_000_000;
/// So often; then it is left to the kernel, five seconds after its writeback began.
const LOOKS: u32 = 250;
/// The same where the kernel is to write it: that wakes every five seconds, and
/// writes what is 30 s old.
const LAZY_LOOK_NS: u64 = 1_000_000_000;
const LAZY_LOOKS: u32 = 120;
/// Clean pages are dropped so often: the kernel holds some for a moment, as when a
/// processor has them in a batch of its own.
const DROPS: u32 = 10;

/// What the shell is to do about a file on the shelf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShelfAction {
    /// Look at it; answered with [`Shelf::looked`].
    Look(ShelfPlace),
    /// Start its writeback; no answer.
    Write(ShelfPlace),
    /// Drop what is ours of it, which is clean; answered with [`Shelf::dropped`].
    Drop(ShelfPlace),
    /// Nothing is left to do for it.
    Done {
        /// The place it had.
        place: ShelfPlace,
        /// The file.
        file: FileNumber,
        /// Bytes of ours that are not cached any more.
        dropped_bytes: u64,
        /// Bytes of ours that stayed.
        left_bytes: u64,
    },
}

/// A file's place on the shelf. A file may have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShelfPlace(u64);

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShelfNext {
    /// Do this now.
    Do(ShelfAction),
    /// Nothing before this time, unless something happens.
    At(u64),
    /// Nothing, until something happens.
    Idle,
}

#[derive(Clone, Debug)]
struct SmallFile {
    file: FileNumber,
    mode: Mode,
    ours: RangeSet,
    /// Bytes of ours when it came.
    bytes: u64,
    since_ns: u64,
    looks: u32,
    drops: u32,
}

/// The small files that wait.
#[derive(Clone, Debug, Default)]
pub struct Shelf {
    files: BTreeMap<ShelfPlace, SmallFile>,
    /// Closed, the oldest first.
    closed: VecDeque<ShelfPlace>,
    closed_bytes: u64,
    /// Written or dropped, and to be looked at again; the first is due first.
    again: BTreeSet<(u64, ShelfPlace)>,
    /// Follows from an answer, and comes before all else.
    at_once: VecDeque<ShelfAction>,
    /// So many of the oldest are due, whatever their age.
    crowd: usize,
    last_place: u64,
    waiting_bytes: u64,
}

impl Shelf {
    /// An empty shelf.
    pub const fn new() -> Shelf {
        Shelf {
            files: BTreeMap::new(),
            closed: VecDeque::new(),
            closed_bytes: 0,
            again: BTreeSet::new(),
            at_once: VecDeque::new(),
            crowd: 0,
            last_place: 0,
            waiting_bytes: 0,
        }
    }

    /// True when nothing waits.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.at_once.is_empty()
    }

    /// Bytes of ours that wait.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// What of a file is ours.
    pub fn ours(&self, place: ShelfPlace) -> Option<&RangeSet> {
        Some(&self.files.get(&place)?.ours)
    }

    /// A file was closed, of which this is ours.
    pub fn put(&mut self, now_ns: u64, file: FileNumber, mode: Mode, ours: RangeSet) -> ShelfPlace {
        self.last_place += 1;
        let place = ShelfPlace(self.last_place);
        let bytes = ours.bytes();
        self.waiting_bytes += bytes;
        self.closed_bytes += bytes;
        self.closed.push_back(place);
        let small = SmallFile {
            file,
            mode,
            ours,
            bytes,
            since_ns: now_ns,
            looks: 0,
            drops: 0,
        };
        self.files.insert(place, small);
        if self.closed.len() > SMALL_FILES_COUNT || self.closed_bytes > SMALL_FILES_BYTES {
            self.crowd = self.crowd.max(self.closed.len().div_ceil(2));
        }
        place
    }

    /// Others brought in this range, where nothing of ours is any more.
    pub fn keep(&mut self, file: FileNumber, range: ByteRange) {
        let of_file = |small: &&mut SmallFile| small.file == file;
        for small in self.files.values_mut().filter(of_file) {
            small.ours.remove(range);
        }
    }

    /// What to do next. With `flush`, nothing waits for its grace.
    pub fn next(&mut self, now_ns: u64, flush: bool) -> ShelfNext {
        if let Some(action) = self.at_once.pop_front() {
            return ShelfNext::Do(action);
        }
        if let Some(&(due_ns, place)) = self.again.first()
            && (due_ns <= now_ns || flush && self.is_lazy(place))
        {
            self.again.pop_first();
            return ShelfNext::Do(ShelfAction::Look(place));
        }
        match self.next_due(now_ns, flush) {
            None => return ShelfNext::Idle,
            Some(due_ns) if due_ns > now_ns => return ShelfNext::At(due_ns),
            Some(_) => {}
        }
        let Some(place) = self.closed.pop_front() else {
            return ShelfNext::Idle;
        };
        self.crowd = self.crowd.saturating_sub(1);
        self.closed_bytes -= self.files.get(&place).map_or(0, |small| small.bytes);
        ShelfNext::Do(ShelfAction::Look(place))
    }

    /// When there is something to do; `None` for never, unless something happens.
    pub fn next_due(&self, now_ns: u64, flush: bool) -> Option<u64> {
        let at_once = !self.at_once.is_empty() || flush && !self.closed.is_empty();
        if at_once || self.crowd > 0 {
            return Some(now_ns);
        }
        let again = self.again.first();
        let again = again.map(|&(due_ns, place)| match flush && self.is_lazy(place) {
            true => now_ns,
            false => due_ns,
        });
        let oldest = self.closed.front().and_then(|place| self.files.get(place));
        let closed = oldest.map(|oldest| oldest.since_ns.saturating_add(GRACE_NS));
        again.into_iter().chain(closed).min()
    }

    /// The kernel is to write the file.
    fn is_lazy(&self, place: ShelfPlace) -> bool {
        let small = self.files.get(&place);
        small.is_some_and(|small| small.mode.writeback == Writeback::Lazy)
    }

    /// The answer to [`ShelfAction::Look`]: what was counted of what is ours, or
    /// `None` where the file has no name any more. With `flush`, nothing is left to
    /// the kernel.
    pub fn looked(
        &mut self,
        now_ns: u64,
        place: ShelfPlace,
        counted: Option<Counted>,
        flush: bool,
    ) {
        let Some(small) = self.files.get_mut(&place) else {
            return;
        };
        let Some(counted) = counted else {
            // The kernel frees the pages unwritten with the last descriptor.
            return self.done(place, 0);
        };
        if flush {
            small.mode.writeback = Writeback::Eager;
        }
        let lazy = small.mode.writeback == Writeback::Lazy;
        if small.ours.is_empty() {
            return self.done(place, 0);
        }
        if counted.unwritten_bytes() == 0 {
            if !small.mode.drops() {
                return self.done(place, u64::MAX);
            }
            self.at_once.push_back(ShelfAction::Drop(place));
            return;
        }
        let (looks, pause_ns) = match lazy {
            true => (LAZY_LOOKS, LAZY_LOOK_NS),
            false => (LOOKS, LOOK_NS),
        };
        small.looks += 1;
        if small.looks > looks {
            return self.done(place, u64::MAX);
        }
        if counted.writeback_bytes == 0 && !lazy {
            // New, locked when it was asked for, or written again.
            self.at_once.push_back(ShelfAction::Write(place));
        }
        self.again.insert((now_ns + pause_ns, place));
    }

    /// The answer to [`ShelfAction::Drop`]: so many bytes of ours are cached still.
    pub fn dropped(&mut self, now_ns: u64, place: ShelfPlace, left_bytes: u64) {
        let Some(small) = self.files.get_mut(&place) else {
            return;
        };
        small.drops += 1;
        if left_bytes == 0 || small.drops >= DROPS {
            return self.done(place, left_bytes);
        }
        self.again.insert((now_ns + LOOK_NS, place));
    }

    /// The file cannot be counted or dropped: it is left to the kernel.
    pub fn failed(&mut self, place: ShelfPlace) {
        self.done(place, u64::MAX);
    }

    /// It is done with, and at most so many bytes of ours are cached.
    fn done(&mut self, place: ShelfPlace, left_bytes: u64) {
        let Some(small) = self.files.remove(&place) else {
            return;
        };
        self.waiting_bytes -= small.bytes;
        let left_bytes = left_bytes.min(small.ours.bytes());
        self.at_once.push_back(ShelfAction::Done {
            place,
            file: small.file,
            dropped_bytes: small.bytes - left_bytes,
            left_bytes,
        });
    }
}
