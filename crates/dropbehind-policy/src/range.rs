//! A half-open range of bytes of a file.

use core::fmt;

/// The bytes from `start` up to, not including, `end`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl ByteRange {
    /// Every byte that a file can hold.
    pub const WHOLE: ByteRange = ByteRange {
        start: 0,
        end: u64::MAX,
    };

    /// The range `[start, end)`; an `end` before `start` gives an empty range.
    pub const fn new(start: u64, end: u64) -> ByteRange {
        ByteRange {
            start,
            end: if end < start { start } else { end },
        }
    }

    /// Bytes in the range.
    pub const fn len(self) -> u64 {
        self.end - self.start
    }

    /// Returns whether the range is empty.
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// The bytes that are in both ranges.
    pub fn intersection(self, other: ByteRange) -> ByteRange {
        ByteRange::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// Returns whether the ranges share a byte.
    pub fn overlaps(self, other: ByteRange) -> bool {
        !self.intersection(other).is_empty()
    }

    /// The parts of the range before and after the other.
    pub fn without(self, other: ByteRange) -> impl Iterator<Item = ByteRange> {
        let before = ByteRange::new(self.start, self.end.min(other.start));
        let after = ByteRange::new(self.start.max(other.end), self.end);
        [before, after].into_iter().filter(|part| !part.is_empty())
    }

    /// The start of the range, up to the last multiple of `request_bytes` within one
    /// request's length. So requests are aligned and extents stay whole.
    pub fn first_request(self, request_bytes: u64) -> ByteRange {
        let end = self.end.min(self.start.saturating_add(request_bytes));
        let aligned = end - end % request_bytes;
        if aligned > self.start {
            ByteRange::new(self.start, aligned)
        } else {
            ByteRange::new(self.start, end)
        }
    }

    /// The smallest range of whole pages around this one.
    pub fn page_aligned_outward(self, page_bytes: u64) -> ByteRange {
        if self.is_empty() {
            return ByteRange::new(self.start, self.start);
        }
        ByteRange::new(
            self.start - self.start % page_bytes,
            round_up(self.end, page_bytes),
        )
    }
}

impl fmt::Debug for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:#x}, {:#x})", self.start, self.end)
    }
}

impl From<core::ops::Range<u64>> for ByteRange {
    fn from(range: core::ops::Range<u64>) -> ByteRange {
        ByteRange::new(range.start, range.end)
    }
}

/// `value` rounded up to a multiple of `unit`, or the largest multiple there is.
pub fn round_up(value: u64, unit: u64) -> u64 {
    match value % unit {
        0 => value,
        rest => value
            .checked_add(unit - rest)
            .unwrap_or(u64::MAX - u64::MAX % unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_end_at_multiples_of_their_length() {
        let first = |start, end| ByteRange::new(start, end).first_request(10);
        assert_eq!(first(13, 50), ByteRange::new(13, 20));
        assert_eq!(first(20, 50), ByteRange::new(20, 30));
        assert_eq!(first(20, 25), ByteRange::new(20, 25));
        assert_eq!(first(13, 18), ByteRange::new(13, 18));
        assert_eq!(first(18, 24), ByteRange::new(18, 20), "a part is left");
    }
}
