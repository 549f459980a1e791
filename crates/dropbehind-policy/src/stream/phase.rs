//! The phases of a stream's life.

/// A phase of a stream's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The file is open, or has been written to since it was closed.
    Open,
    /// Nobody has the file open.
    Closed {
        /// When it was closed.
        at_ns: u64,
        /// Bytes that are dirty, if so few that they wait for the file's grace.
        small_bytes: Option<u64>,
    },
    /// The file was closed and has no name: the kernel frees its pages unwritten once nobody has
    /// it open. The stream only has to be forgotten.
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

    /// The bytes to be written of a small closed file.
    pub(super) fn small_bytes(self) -> Option<u64> {
        match self {
            Phase::Closed { small_bytes, .. } => small_bytes,
            _ => None,
        }
    }

    /// The file does not wait for its grace any more.
    pub(super) fn end_grace(&mut self) {
        if let Phase::Closed { small_bytes, .. } = self {
            *small_bytes = None;
        }
    }
}
