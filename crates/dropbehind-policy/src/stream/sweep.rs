//! Dirty ranges. They are requested in offset order from where the last request ended, and
//! then from the start again. Always starting at the start, a busy beginning of a file would
//! starve its end.

use super::request::Request;
use crate::grace::AGE_NS;
use crate::mode::Mode;
use crate::range::ByteRange;
use crate::range_set::RangeSet;
use crate::reason::Reason;

/// Dirty ranges closer together than a request are sent in one call: the kernel walks dirty
/// pages only, so the gaps cost nothing. A call covers at most this many.
const RANGES_PER_CALL: usize = 64;

/// What one stream has written eagerly and not requested yet.
#[derive(Clone, Debug)]
pub(super) struct Sweep {
    dirty: RangeSet,
    /// Dirty bytes still to be requested in the current sweep.
    left_bytes: u64,
    /// Where the last request ended.
    cursor: u64,
    /// When the first of it was written, or the last sweep ended.
    since_ns: u64,
    /// The mode of the last write.
    mode: Mode,
}

impl Sweep {
    pub(super) const fn new() -> Sweep {
        Sweep {
            dirty: RangeSet::new(),
            left_bytes: 0,
            cursor: 0,
            since_ns: 0,
            mode: Mode::DONTCACHE,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.dirty.is_empty()
    }

    /// Dirty bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.dirty.bytes()
    }

    /// Dirty bytes of `range`.
    pub(super) fn bytes_of(&self, range: ByteRange) -> u64 {
        self.dirty.bytes_of(range)
    }

    /// The dirty parts of `range`.
    pub(super) fn parts_of(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        self.dirty.overlaps_of(range)
    }

    pub(super) fn wrote(&mut self, now_ns: u64, range: ByteRange, mode: Mode) {
        if self.dirty.is_empty() {
            self.since_ns = now_ns;
        }
        self.mode = mode;
        self.dirty.insert(range);
    }

    /// When the next request is due, and why, if there is a batch or the rest of one.
    pub(super) fn batch_due(&self, now_ns: u64, batch_bytes: u64) -> Option<(u64, Reason)> {
        let usual = if self.mode.drops() {
            Reason::Dontcache
        } else {
            Reason::WriteThrough
        };
        let old = self.since_ns.saturating_add(AGE_NS) <= now_ns;
        if self.dirty.bytes() >= batch_bytes {
            Some((self.since_ns, usual))
        } else if self.left_bytes > 0 {
            Some((self.since_ns, if old { Reason::Age } else { usual }))
        } else {
            None
        }
    }

    /// When dirty pages that don't fill a batch are due.
    pub(super) fn age_due_ns(&self) -> u64 {
        self.since_ns.saturating_add(AGE_NS)
    }

    /// What the next request starts with.
    pub(super) fn next(&self) -> Option<ByteRange> {
        self.dirty
            .first_from(self.cursor)
            .map(|first| ByteRange::new(first.start.max(self.cursor), first.end))
            .or_else(|| self.dirty.first())
    }

    /// Takes the sweep's next request, or the first one of a new sweep.
    ///
    /// A scattered batch takes several requests. What is left of it may wait for more once it
    /// is less than half a batch. Old pages are all requested.
    pub(super) fn take(
        &mut self,
        now_ns: u64,
        request_bytes: u64,
        batch_bytes: u64,
        reason: Reason,
    ) -> Option<Request> {
        if self.left_bytes == 0 {
            self.left_bytes = self.dirty.bytes();
        }
        let taken = self.take_near(request_bytes, request_bytes, reason)?;
        self.left_bytes = self.left_bytes.saturating_sub(taken.bytes);
        let batched = matches!(reason, Reason::Dontcache | Reason::WriteThrough);
        if self.dirty.is_empty() || batched && self.dirty.bytes() <= batch_bytes / 2 {
            self.left_bytes = 0;
        }
        if self.left_bytes == 0 {
            self.since_ns = now_ns;
        }
        Some(taken)
    }

    /// Takes everything dirty, and `more`, in one request for each group of nearby ranges.
    pub(super) fn take_all(
        &mut self,
        more: ByteRange,
        gap_bytes: u64,
        reason: Reason,
    ) -> impl Iterator<Item = Request> + '_ {
        self.dirty.insert(more);
        self.left_bytes = 0;
        core::iter::from_fn(move || self.take_near(gap_bytes, u64::MAX, reason))
    }

    /// Takes ranges no farther apart than `gap_bytes`, and at most `most_bytes`.
    fn take_near(&mut self, gap_bytes: u64, most_bytes: u64, reason: Reason) -> Option<Request> {
        let mut span = ByteRange::default();
        let mut bytes = 0;
        let mut taken = 0;
        let mut next = self.next();
        while let Some(first) = next {
            let near = taken == 0 || first.start - span.end <= gap_bytes;
            if !near || taken == RANGES_PER_CALL || bytes >= most_bytes {
                break;
            }
            let room = most_bytes - bytes;
            let part = if first.len() > room {
                ByteRange::new(first.start, first.start + room).first_request(most_bytes)
            } else {
                first
            };
            self.dirty.remove(part);
            span = if taken == 0 {
                part
            } else {
                ByteRange::new(span.start, part.end)
            };
            bytes += part.len();
            taken += 1;
            if part.end < first.end {
                // Cut at a request boundary: the next request starts with the rest.
                break;
            }
            next = self.dirty.first_from(span.end);
        }
        self.cursor = span.end;
        (taken > 0).then(|| Request::scattered(span, bytes, taken, reason))
    }

    /// Cancels everything that was to be requested.
    pub(super) fn clear(&mut self) {
        self.dirty.clear();
        self.left_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn mib(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start * MIB, end * MIB)
    }

    fn take(sweep: &mut Sweep) -> Option<(ByteRange, u64)> {
        let request = sweep.take(7, 4 * MIB, 4 * MIB, Reason::Age)?;
        Some((request.range, request.bytes))
    }

    #[test]
    fn a_busy_beginning_does_not_starve_the_end() {
        let mut sweep = Sweep::new();
        sweep.wrote(0, mib(0, 1), Mode::DONTCACHE);
        sweep.wrote(0, mib(3, 4), Mode::DONTCACHE);
        sweep.wrote(0, mib(100, 106), Mode::DONTCACHE);
        assert_eq!(take(&mut sweep), Some((mib(0, 4), 2 * MIB)), "over the gap");
        sweep.wrote(0, mib(0, 1), Mode::DONTCACHE);
        assert_eq!(take(&mut sweep), Some((mib(100, 104), 4 * MIB)));
        assert_eq!(take(&mut sweep), Some((mib(104, 106), 2 * MIB)));
        assert_eq!(take(&mut sweep), Some((mib(0, 1), MIB)));
        assert!(sweep.is_empty());
        assert_eq!(take(&mut sweep), None);
    }

    #[test]
    fn a_batch_is_asked_for_to_the_half_and_what_is_old_whole() {
        let batch_bytes = 4 * MIB;
        for (reason, begun) in [(Reason::Dontcache, false), (Reason::Age, true)] {
            let mut sweep = Sweep::new();
            for start in [0, 10, 20, 30] {
                sweep.wrote(0, mib(start, start + 1), Mode::DONTCACHE);
            }
            assert_eq!(
                sweep.batch_due(0, batch_bytes),
                Some((0, Reason::Dontcache))
            );
            for now_ns in [1, 2] {
                sweep.take(now_ns, MIB, batch_bytes, reason);
            }
            assert_eq!(sweep.batch_due(0, batch_bytes).is_some(), begun);
        }
    }
}
