//! Where a stream is in its life.

/// Where a stream is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Somebody has the file open, or has written to it since it was closed.
    Open,
    /// Nobody has the file open.
    Closed {
        /// Since then.
        at_ns: u64,
        /// So little is dirty that it waits for the file's grace.
        small_bytes: Option<u64>,
    },
    /// Nobody has the file open, and it was unlinked: the kernel frees its pages unwritten.
    /// All that is left is to forget it.
    Deleted,
    /// Nothing is left to do.
    Forgotten,
}

impl Phase {
    pub(super) fn is_closed(self) -> bool {
        self != Phase::Open
    }

    /// When the file was closed, while that matters.
    pub(super) fn closed_ns(self) -> Option<u64> {
        match self {
            Phase::Closed { at_ns, .. } => Some(at_ns),
            _ => None,
        }
    }

    /// What of a small closed file is to be written.
    pub(super) fn small_bytes(self) -> Option<u64> {
        match self {
            Phase::Closed { small_bytes, .. } => small_bytes,
            _ => None,
        }
    }

    /// The file waits for no grace any more.
    pub(super) fn end_grace(&mut self) {
        if let Phase::Closed { small_bytes, .. } = self {
            *small_bytes = None;
        }
    }
}
