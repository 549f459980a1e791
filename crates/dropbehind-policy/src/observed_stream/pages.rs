//! What a look asks of the shell.

use crate::action::Counted;
use crate::range::ByteRange;

/// A file's pages and the clocks, for a look.
pub trait Pages {
    /// The file's size in bytes; `None` if the kernel doesn't report it.
    fn size_bytes(&self) -> Option<u64>;
    /// Counts the pages of a range; `None` if the kernel doesn't report them.
    fn count(&self, range: ByteRange) -> Option<Counted>;
    /// Returns whether the file has no name any more.
    fn is_deleted(&self) -> bool;
    /// The time, in nanoseconds of the disk's clock.
    fn now_ns(&self) -> u64;
    /// The processor time that this thread has used, in nanoseconds.
    fn processor_ns(&self) -> u64;
}
