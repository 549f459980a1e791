//! How to know which pages a stream brings in.

use crate::range_set::RangeSet;

/// What the kernel's trace has named and was not handed on to be dropped.
#[derive(Clone, Debug, Default)]
pub(super) struct Traced {
    /// Neither known to be written nor passed by its readers.
    pub(super) unsorted: RangeSet,
    /// Not to be dropped before it is decided that it goes.
    pub(super) held: RangeSet,
    /// Clean, but resisted all tries while the file was in use: a process may have had it
    /// mapped. It is tried once more when the file is closed.
    pub(super) stuck: RangeSet,
    /// Whether that was the last try.
    pub(super) tried_stuck: bool,
}
