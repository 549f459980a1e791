//! Detects accesses that start where the last one ended.

use crate::range::ByteRange;

/// Follows one open file's accesses.
#[derive(Clone, Copy, Debug, Default)]
pub struct SequentialDetector {
    next: Option<u64>,
    run_bytes: u64,
}

impl SequentialDetector {
    /// Records an access. Returns whether it starts where the last one ended, or, for the
    /// first one, at the start of the file.
    pub fn observe(&mut self, range: ByteRange) -> bool {
        let sequential = match self.next {
            Some(next) => next == range.start,
            None => range.start == 0,
        };
        self.run_bytes = if sequential {
            self.run_bytes.saturating_add(range.len())
        } else {
            range.len()
        };
        self.next = Some(range.end);
        sequential
    }

    /// Bytes accessed without a jump, up to now.
    pub fn run_bytes(&self) -> u64 {
        self.run_bytes
    }

    /// Where a sequential access would start.
    pub fn expected(&self) -> u64 {
        self.next.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_starts_a_new_run() {
        let mut detector = SequentialDetector::default();
        assert!(detector.observe(ByteRange::new(0, 10)));
        assert!(detector.observe(ByteRange::new(10, 30)));
        assert_eq!(detector.run_bytes(), 30);
        assert!(!detector.observe(ByteRange::new(31, 32)));
        assert_eq!(detector.run_bytes(), 1);
        assert!(!SequentialDetector::default().observe(ByteRange::new(4096, 8192)));
    }
}
