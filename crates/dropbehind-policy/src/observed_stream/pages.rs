//! What a look asks the shell.

use crate::action::Counted;
use crate::range::ByteRange;

/// The file's pages, and the clocks, as a look sees them.
pub trait Pages {
    /// The file's size in bytes; `None` when the kernel does not tell.
    fn size_bytes(&self) -> Option<u64>;
    /// Counts the pages of a range; `None` when the kernel does not tell.
    fn count(&self, range: ByteRange) -> Option<Counted>;
    /// The time, in nanoseconds of the disk's clock.
    fn now_ns(&self) -> u64;
    /// What this thread has used of the processor, in nanoseconds.
    fn processor_ns(&self) -> u64;
}
