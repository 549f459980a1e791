//! What the shell has to do, and what it reports back.

use alloc::vec::Vec;

use crate::range::ByteRange;
use crate::reason::Reason;

/// The shell's name for a stream of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// What the shell has to do. If an action has an answer, the shell gives it before it asks
/// for the next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start writeback of the range without waiting; no answer.
    StartWriteback {
        /// The file.
        stream: StreamId,
        /// The bytes.
        range: ByteRange,
        /// How many of them are to be written; the rest are gaps.
        bytes: u64,
        /// Why.
        reason: Reason,
    },
    /// Count the range; answered with [`Disk::counted`](crate::Disk::counted).
    Count {
        /// The file.
        stream: StreamId,
        /// The bytes.
        range: ByteRange,
    },
    /// Drop those of the ranges that are clean; answered with
    /// [`Disk::dropped`](crate::Disk::dropped). Of a stream that is
    /// [traced](crate::StreamConfig::traced), what has entered the cache and was not reported
    /// stays: others may have brought it in.
    Drop {
        /// The file.
        stream: StreamId,
        /// The bytes: one range, or many short ones.
        ranges: Vec<ByteRange>,
    },
    /// See whether the file still has a name; answered with
    /// [`Disk::inspected`](crate::Disk::inspected).
    Inspect {
        /// The file.
        stream: StreamId,
    },
    /// Nothing is left to do for this closed file, and its stream is removed; no answer.
    Forget {
        /// The file.
        stream: StreamId,
    },
}

impl Action {
    /// The file that it is for.
    pub fn stream(&self) -> StreamId {
        match *self {
            Action::StartWriteback { stream, .. }
            | Action::Count { stream, .. }
            | Action::Drop { stream, .. }
            | Action::Inspect { stream }
            | Action::Forget { stream } => stream,
        }
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Do this now.
    Do(Action),
    /// Nothing before this time, unless something happens.
    At(u64),
    /// Nothing, until something happens.
    Idle,
}

/// What cachestat counted in a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Bytes in the cache.
    pub cached_bytes: u64,
    /// Bytes that are dirty and not under writeback.
    pub dirty_bytes: u64,
    /// Bytes under writeback.
    pub writeback_bytes: u64,
}

impl Counted {
    /// Bytes not yet on the disk.
    pub fn unwritten_bytes(self) -> u64 {
        self.dirty_bytes + self.writeback_bytes
    }
}

/// The result of a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The range was clean; the bytes cached before and after.
    Tried {
        /// Bytes cached before the call; `None` if they were not counted.
        before_bytes: Option<u64>,
        /// Bytes cached after the call.
        after_bytes: u64,
    },
    /// The range was not clean, and was left alone.
    NotClean,
    /// It is not known of all that is cached there who brought it in. Reports say so soon.
    Unreported,
}

/// What fstat found out about the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// The file has no name any more, and none of its known users has it open.
    pub unlinked: bool,
}
