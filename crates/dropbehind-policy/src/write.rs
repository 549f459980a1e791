//! A write, as its program reports it.

use crate::mode::Mode;
use crate::range::ByteRange;

/// What a look at a write's pages, right before it, found in the cache. Of writes whose order is not
/// known, those come first that brought pages in, then those that may keep them, and last those that
/// found them there: by then it is known which are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// None of them was cached, so this write brought them in.
    Absent,
    /// There was no look.
    NotLooked,
    /// All of them were cached: brought in by an earlier write or read of ours, or by others.
    Cached,
}

/// A write, as its program reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The bytes.
    pub range: ByteRange,
    /// The mode of the write.
    pub mode: Mode,
    /// What was cached of the range before.
    pub found: Found,
}

impl Write {
    /// A write without a look.
    pub const fn new(range: ByteRange, mode: Mode) -> Write {
        Write {
            range,
            mode,
            found: Found::NotLooked,
        }
    }
}
