//! What the shell has to do about a file.

use alloc::vec::Vec;

use super::FileNumber;
use super::brought::Brought;
use crate::range::ByteRange;
use crate::range_set::RangeSet;
use crate::shelf::Fate;

/// What the shell has to do about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileAction {
    /// Give the file a stream of its own.
    Stream(FileNumber),
    /// Report to the file's stream which pages entered the cache, in this order.
    Report(FileNumber, Vec<Brought>),
    /// Report to the file's stream that nobody uses the file any more; answered, at some time,
    /// with [`ObservedFiles::stream_finished`](super::ObservedFiles::stream_finished).
    Close(FileNumber),
    /// Put the small, closed file on the shelf, with these ranges of ours, of which the second
    /// ones are held; answered, at some time, with
    /// [`ObservedFiles::unshelved`](super::ObservedFiles::unshelved).
    Shelve(FileNumber, RangeSet, RangeSet),
    /// Give up the descriptor of a file on the shelf: it was opened again, and closed with nothing
    /// more brought in.
    Release(FileNumber),
    /// This range was used again and stays, or else goes: report that to the file's stream, if
    /// there is one.
    Decide(FileNumber, ByteRange, bool),
    /// This is what becomes of this range of a file on the shelf.
    DecideShelved(FileNumber, ByteRange, Fate),
    /// Nothing is left to do for the file.
    Forget(FileNumber),
}
