//! Detects accesses that start where the last one ended.

use crate::range::ByteRange;

/// Follows one open file's accesses.
#[derive(Clone, Copy, Debug, Default)]
pub struct SequentialDetector {
    next: u64,
}

impl SequentialDetector {
    /// Records an access. Returns whether it starts where the last one ended, or, for the
    /// first one, at the start of the file.
    pub fn observe(&mut self, range: ByteRange) -> bool {
        let sequential = self.next == range.start;
        self.next = range.end;
        sequential
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
        assert!(!detector.observe(ByteRange::new(31, 32)));
        assert!(detector.observe(ByteRange::new(32, 33)));
        assert!(!SequentialDetector::default().observe(ByteRange::new(4096, 8192)));
    }
}
