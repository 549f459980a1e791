//! Ranges on their way from many writers to one flusher.
//!
//! One word holds the run that is being extended. A writer that cannot extend it first puts
//! that run into the ring, and then its own run into the word. So a range that was pushed is
//! always in the word or in the ring: a writer stopped at any point holds nothing that others
//! cannot see. The price is that a run can be reported twice, which does no harm to sets of
//! ranges.
//!
//! A full ring loses individual ranges and records the span of what was lost, and in which
//! modes.

use crate::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::run::Run;
use dropbehind_policy::{ByteRange, Found, Mode};

/// After this many runs that don't continue the last one, it is a turn.
pub const TURN: u64 = 16;

/// A multi-producer, single-consumer queue of runs, with a count of bytes.
#[repr(C)]
#[derive(Debug)]
pub struct Lane<const RING: usize> {
    /// The run being extended, or 0 if there is none.
    run: AtomicU64,
    /// All entries that writers have ever claimed.
    tail: AtomicU64,
    /// All entries that the flusher has ever taken.
    head: AtomicU64,
    /// All bytes ever counted, each after its range was pushed.
    total: AtomicU64,
    /// The first byte that was lost to a full ring.
    lost_start: AtomicU64,
    /// The end of the bytes that were lost to a full ring.
    lost_end: AtomicU64,
    /// One bit for each mode in which something was lost.
    lost_modes: AtomicU32,
    ring: [AtomicU64; RING],
}

/// What a drain found besides the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Every range counted before the drain has been reported, so the count is exact.
    pub complete: bool,
    /// Ranges were lost somewhere in these bytes, with the bits of their modes.
    pub lost: Option<(ByteRange, u32)>,
}

/// What a push found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// The ring is half full, so the flusher should be woken.
    pub crowded: bool,
    /// [`TURN`] runs have gone into the ring since the last turn, or it is full.
    pub turn: bool,
}

impl Drained {
    /// The modes in which ranges were lost.
    pub fn lost_modes(modes: u32) -> impl Iterator<Item = Mode> {
        (0..12)
            .filter(move |bit| modes & 1 << bit != 0)
            .map(Mode::from_bits)
    }
}

impl<const RING: usize> Lane<RING> {
    pub(crate) fn new() -> Lane<RING> {
        Lane {
            run: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            total: AtomicU64::new(0),
            lost_start: AtomicU64::new(u64::MAX),
            lost_end: AtomicU64::new(0),
            lost_modes: AtomicU32::new(0),
            ring: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Adds a run.
    pub fn push(&self, run: Run) -> Pushed {
        let mut pushed = Pushed::default();
        loop {
            let current = self.run.load(Ordering::Acquire);
            let next = match Run::from_word(current) {
                None => run,
                Some(open) => match open.extended(run) {
                    Some(extended) => extended,
                    None => {
                        pushed = self.push_ring(open);
                        run
                    }
                },
            };
            let swapped = self.run.compare_exchange_weak(
                current,
                next.0,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if swapped.is_ok() {
                return pushed;
            }
        }
    }

    /// Returns whether the next push is sure not to lose a range. A lane with a single
    /// writer, which asks first and reports the range otherwise if there is no room, loses none.
    pub fn has_room(&self) -> bool {
        let used = self
            .tail
            .load(Ordering::Relaxed)
            .saturating_sub(self.head.load(Ordering::Acquire));
        used < RING as u64
    }

    fn push_ring(&self, run: Run) -> Pushed {
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            let used = tail.saturating_sub(self.head.load(Ordering::Acquire));
            if used >= RING as u64 {
                self.lose(run);
                return Pushed {
                    crowded: true,
                    turn: true,
                };
            }
            match self.tail.compare_exchange_weak(
                tail,
                tail + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    // A swap where a store would do: the model checker orders a plain store
                    // before a swap that did not see it.
                    self.ring[(tail % RING as u64) as usize].swap(run.0, Ordering::AcqRel);
                    return Pushed {
                        crowded: used >= RING as u64 / 2,
                        turn: tail.is_multiple_of(TURN),
                    };
                }
                Err(now) => tail = now,
            }
        }
    }

    fn lose(&self, run: Run) {
        let range = run.range();
        self.lost_start.fetch_min(range.start, Ordering::SeqCst);
        self.lost_end.fetch_max(range.end, Ordering::SeqCst);
        // What was cached before stays, and the kernel writes it.
        if run.found() != Found::Cached {
            // Last, so that a flusher that sees the bit also sees the span.
            self.lost_modes
                .fetch_or(1 << run.mode().to_bits(), Ordering::SeqCst);
        }
    }

    /// Counts bytes whose ranges have been pushed. Returns the new total.
    pub fn count(&self, bytes: u64) -> u64 {
        self.total.fetch_add(bytes, Ordering::SeqCst) + bytes
    }

    /// All bytes counted so far.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::SeqCst)
    }

    /// Takes out everything that is there. Only one thread may drain.
    ///
    /// Read [`Lane::total`] first: if the result is `complete`, all ranges counted in it have
    /// been reported, by this call or an earlier one.
    pub fn drain(&self, mut tell: impl FnMut(Run)) -> Drained {
        fence(Ordering::SeqCst);
        // The word before the ring: a run moves from the word to the ring, never back, and it
        // is in the ring before it leaves the word.
        if let Some(run) = Run::from_word(self.run.swap(0, Ordering::AcqRel)) {
            tell(run);
        }
        let mut complete = true;
        let mut head = self.head.load(Ordering::Relaxed);
        let tail = self.tail.load(Ordering::Acquire);
        while head < tail {
            let entry = &self.ring[(head % RING as u64) as usize];
            match Run::from_word(entry.swap(0, Ordering::AcqRel)) {
                Some(run) => tell(run),
                None => {
                    // Claimed, but not stored yet; the entries behind it wait.
                    complete = false;
                    break;
                }
            }
            head += 1;
            self.head.store(head, Ordering::Release);
        }
        Drained {
            complete,
            lost: self.take_lost(),
        }
    }

    fn take_lost(&self) -> Option<(ByteRange, u32)> {
        if self.lost_modes.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let modes = self.lost_modes.swap(0, Ordering::SeqCst);
        // The span only grows: narrowing it could race with a writer that is losing another
        // range.
        let start = self.lost_start.load(Ordering::SeqCst);
        let end = self.lost_end.load(Ordering::SeqCst);
        Some((ByteRange::new(start, end), modes))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::WRITE_RING;

    const PAGE: u64 = 4096;

    fn turns(offsets: impl Iterator<Item = u64>) -> usize {
        let lane = Lane::<WRITE_RING>::new();
        let mut turns = 0;
        for offset in offsets {
            let range = ByteRange::new(offset, offset + PAGE);
            for run in Run::covering(range, Mode::DONTCACHE) {
                turns += usize::from(lane.push(run).turn);
            }
        }
        turns
    }

    #[test]
    fn only_who_jumps_about_has_turns() {
        let writes = WRITE_RING as u64 / 2;
        assert_eq!(turns((0..writes).map(|page| page * PAGE)), 0);
        let scattered = turns((0..writes).map(|page| page * 10 * PAGE));
        assert_eq!(scattered as u64, writes / TURN);
        // A writer whose ring is full is too far ahead.
        let crowd = turns((0..4 * writes).map(|page| page * 10 * PAGE));
        assert!(crowd as u64 > 4 * writes / TURN, "{crowd}");
    }
}
