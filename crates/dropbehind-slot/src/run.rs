//! A run of pages and its mode, in one atomic word.

use dropbehind_policy::{ByteRange, Found, Mode, Write};

/// The unit of a run, whatever the system's page size: all are multiples of 4 KiB.
const UNIT_BYTES: u64 = 4096;
const START_BITS: u32 = 40;
const LENGTH_BITS: u32 = 18;
/// A mode, and what was found in the cache before.
const MODE_BITS: u32 = 6;
const CACHED_BIT: u64 = 1 << 4;
const ABSENT_BIT: u64 = 1 << 5;
const LENGTH_MAX: u64 = (1 << LENGTH_BITS) - 1;
const START_MAX: u64 = (1 << START_BITS) - 1;
const MODE_MAX: u64 = (1 << MODE_BITS) - 1;

/// A start of 40 bits, a length of 18 bits, a bit for pages that a look found cached before and one
/// for those that it found absent, and a mode of 4 bits. The first two are in units of 4 KiB: files
/// up to 4 PiB, runs up to 1 GiB. The value 0 means no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run(pub(crate) u64);

impl Run {
    /// The runs that cover `range`: more than one only for ranges over 1 GiB, none for empty
    /// ranges or those beyond 4 PiB.
    pub fn covering(range: ByteRange, mode: Mode) -> impl Iterator<Item = Run> {
        let first = range.start / UNIT_BYTES;
        let end = if range.is_empty() {
            first
        } else {
            range.end.div_ceil(UNIT_BYTES).min(START_MAX + 1)
        };
        let mut at = first;
        core::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let length = (end - at).min(LENGTH_MAX);
            let run = Run::pack(at, length, mode.to_bits());
            at += length;
            Some(run)
        })
    }

    fn pack(start: u64, length: u64, mode: u8) -> Run {
        Run(start << (LENGTH_BITS + MODE_BITS) | length << MODE_BITS | u64::from(mode))
    }

    fn start(self) -> u64 {
        self.0 >> (LENGTH_BITS + MODE_BITS)
    }

    fn length(self) -> u64 {
        self.0 >> MODE_BITS & LENGTH_MAX
    }

    /// The bytes of the run, in whole units.
    pub fn range(self) -> ByteRange {
        ByteRange::new(
            self.start() * UNIT_BYTES,
            (self.start() + self.length()) * UNIT_BYTES,
        )
    }

    /// The mode of the run.
    pub fn mode(self) -> Mode {
        Mode::from_bits((self.0 & 15) as u8)
    }

    /// The same run, of pages of which a look found this.
    pub fn of(self, found: Found) -> Run {
        Run(self.0
            | match found {
                Found::NotLooked => 0,
                Found::Absent => ABSENT_BIT,
                Found::Cached => CACHED_BIT,
            })
    }

    /// What a look found of its pages right before they were written.
    pub fn found(self) -> Found {
        match self.0 & (ABSENT_BIT | CACHED_BIT) {
            0 => Found::NotLooked,
            ABSENT_BIT => Found::Absent,
            _ => Found::Cached,
        }
    }

    /// The run as the policy takes it.
    pub fn write(self) -> Write {
        Write {
            range: self.range(),
            mode: self.mode(),
            found: self.found(),
        }
    }

    /// The run in a word, unless that is 0.
    pub(crate) fn from_word(word: u64) -> Option<Run> {
        (word != 0).then_some(Run(word))
    }

    /// Joins this run and `next`, if `next` starts within or right after it in the same mode.
    pub(crate) fn extended(self, next: Run) -> Option<Run> {
        let (start, end) = (self.start(), self.start() + self.length());
        let mode = self.0 & MODE_MAX;
        if next.0 & MODE_MAX != mode || next.start() < start || next.start() > end {
            return None;
        }
        let length = end.max(next.start() + next.length()) - start;
        (length <= LENGTH_MAX).then(|| Run::pack(start, length, mode as u8))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn covers_outward_and_extends() {
        let mode = Mode::DONTCACHE;
        let one: Vec<Run> = Run::covering(ByteRange::new(100, 5000), mode).collect();
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].range(), ByteRange::new(0, 8192));
        assert_eq!(one[0].mode(), mode);
        let next = Run::covering(ByteRange::new(5000, 20000), mode)
            .next()
            .unwrap();
        let both = one[0].extended(next).unwrap();
        assert_eq!(both.range(), ByteRange::new(0, 20480));
        assert_eq!(next.extended(one[0]), None, "backwards");
        let other = Run::covering(ByteRange::new(8192, 9000), Mode::NOREUSE).next();
        assert_eq!(one[0].extended(other.unwrap()), None, "another mode");
        for found in [Found::Absent, Found::Cached] {
            let looked = next.of(found);
            let write = looked.write();
            assert_eq!(
                (write.range, write.mode, write.found),
                (next.range(), mode, found)
            );
            assert_eq!(one[0].extended(looked), None, "whose pages are these?");
        }
        assert_eq!(next.found(), Found::NotLooked);
    }

    #[test]
    fn long_ranges_take_several_runs() {
        let range = ByteRange::new(0, 20 << 30);
        let runs: Vec<Run> = Run::covering(range, Mode::NOREUSE).collect();
        let covered: u64 = runs.iter().map(|run| run.range().len()).sum();
        assert_eq!((runs.len(), covered), (21, range.len()));
        assert_eq!(
            Run::covering(ByteRange::new(9, 9), Mode::NOREUSE).count(),
            0
        );
    }
}
