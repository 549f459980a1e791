//! How long writers were held.

use std::time::Duration;

/// Bounds by which lengths of waits are counted. What other programs write to a disk costs a
/// millisecond; people notice a tenth of a second.
pub const WAIT_LENGTHS: [Duration; 5] = [
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
];

/// Waits of a file's writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How many have begun.
    pub begun: u64,
    /// For how long in all, in nanoseconds.
    pub ns: u64,
    /// How many are over, by length: of up to each of [`WAIT_LENGTHS`] and longer than the one
    /// before it, and last the longer ones.
    pub by_length: [u64; WAIT_LENGTHS.len() + 1],
}

impl Waits {
    /// Records that a wait is over, which took this long.
    pub(super) fn end(&mut self, length: Duration) {
        let place = WAIT_LENGTHS.iter().position(|bound| length <= *bound);
        self.by_length[place.unwrap_or(WAIT_LENGTHS.len())] += 1;
    }

    /// Adds part of a wait.
    pub(super) fn add(&mut self, part: Duration) {
        self.ns += u64::try_from(part.as_nanos()).unwrap_or(u64::MAX);
    }
}

impl std::ops::AddAssign for Waits {
    fn add_assign(&mut self, other: Waits) {
        self.begun += other.begun;
        self.ns += other.ns;
        for (sum, count) in self.by_length.iter_mut().zip(other.by_length) {
            *sum += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_counts_for_its_length() {
        let mut waits = Waits::default();
        for (length_ms, place) in [(0, 0), (1, 0), (2, 1), (100, 2), (101, 3), (60_000, 5)] {
            let before = waits.by_length[place];
            waits.begun += 1;
            waits.add(Duration::from_millis(length_ms));
            waits.end(Duration::from_millis(length_ms));
            assert_eq!(waits.by_length[place], before + 1, "{length_ms} ms");
        }
        assert_eq!((waits.begun, waits.ns), (6, 60_204_000_000));
        assert_eq!(waits.by_length.iter().sum::<u64>(), 6);
    }
}
