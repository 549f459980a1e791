//! Which pages entered the cache, and who brought them in.

use crate::range::ByteRange;

/// Pages that entered the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brought {
    /// Which pages, in whole pages.
    pub range: ByteRange,
    /// Whether the observed programs brought them in. Otherwise others did, and the pages
    /// must not be dropped.
    pub ours: bool,
    /// Whether they are not to be dropped before it is decided that they
    /// [go](super::FileAction::Decide).
    pub held: bool,
    /// Whether they had been dropped before.
    pub back: bool,
}

impl Brought {
    /// Pages that are dropped once they are clean, if they are `ours`.
    pub const fn new(range: ByteRange, ours: bool) -> Brought {
        Brought {
            range,
            ours,
            held: false,
            back: false,
        }
    }
}

/// What was reported to a stream that has finished without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// These pages entered the cache.
    Brought(Brought),
    /// What was there by then stays, since it was used again.
    Stays(ByteRange),
}
