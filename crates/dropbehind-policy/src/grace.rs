//! Files too small or too young to be worth writing.
//!
//! We should not cause a write of a temporary file that is deleted at once (Kára, in the
//! review of write-behind). And thousands of small files should not be written one by one. So
//! a small file that was closed waits, up to [`GRACE_NS`], for enough others.

/// A closed file with fewer unwritten bytes than this is small.
pub const SMALL_FILE_BYTES: u64 = 1 << 20;
/// How long a small closed file waits. Compilers and editors delete or replace their temporary
/// files within two seconds, but `git gc` deletes the loose objects of a clone after up to four. The
/// kernel's flusher looks for old dirty data every five seconds (`dirty_writeback_centisecs`).
pub const GRACE_NS: u64 = 5_000_000_000;
/// The budget of a disk's small files together: beyond it, the oldest are written.
pub const SMALL_FILES_BYTES: u64 = 32 << 20;
/// The most small files, since each holds a descriptor. Where a process may have few of those, it
/// is less.
pub const SMALL_FILES_COUNT: usize = 256;
/// How long an open file's dirty pages wait if they don't fill a batch, and its clean ones if
/// they are too few for a drop.
pub const AGE_NS: u64 = 1_000_000_000;

/// The small closed files of one disk.
#[derive(Clone, Copy, Debug)]
pub struct SmallFiles {
    bytes: u64,
    count: usize,
    most: usize,
}

impl SmallFiles {
    /// None yet, and room for `most` files.
    pub fn new(most: usize) -> SmallFiles {
        SmallFiles {
            bytes: 0,
            count: 0,
            most,
        }
    }

    /// Adds a file.
    pub fn join(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.count += 1;
    }

    /// Removes a file, with the bytes it was added with.
    pub fn leave(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.count = self.count.saturating_sub(1);
    }

    /// Returns whether there are too many bytes or files, so that the oldest should be
    /// written.
    pub fn over_budget(&self) -> bool {
        self.bytes > SMALL_FILES_BYTES || self.count > self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_makes_room() {
        let mut small = SmallFiles::new(SMALL_FILES_COUNT);
        for _ in 0..10 * SMALL_FILES_COUNT {
            small.join(SMALL_FILES_BYTES);
            small.leave(SMALL_FILES_BYTES);
        }
        assert!(!small.over_budget());
        small.join(SMALL_FILES_BYTES);
        assert!(!small.over_budget());
        small.join(1);
        assert!(small.over_budget());
        small.leave(SMALL_FILES_BYTES);
        for _ in 0..SMALL_FILES_COUNT {
            small.join(1);
        }
        assert!(small.over_budget());
    }
}
