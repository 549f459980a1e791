//! Why writeback was started.

use core::ops::{Index, IndexMut};

/// The reason for a writeback request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A batch of eagerly written pages that are to be dropped was complete.
    Dontcache,
    /// A batch of eagerly written pages that stay was complete.
    WriteThrough,
    /// The write-behind window moved on.
    WriteBehind,
    /// The file was closed.
    Close,
    /// The pages had been dirty for long without filling a batch.
    Age,
    /// The program asked for it: `start_writeback`, `wait_clean`, `drop_behind`.
    Sync,
    /// Too many small files, or too many descriptors held for them.
    Budget,
}

impl Reason {
    /// All reasons, in the order of the statistics.
    pub const ALL: [Reason; 7] = [
        Reason::Dontcache,
        Reason::WriteThrough,
        Reason::WriteBehind,
        Reason::Close,
        Reason::Age,
        Reason::Sync,
        Reason::Budget,
    ];

    /// The name in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Dontcache => "dontcache",
            Reason::WriteThrough => "write_through",
            Reason::WriteBehind => "write_behind",
            Reason::Close => "close",
            Reason::Age => "age",
            Reason::Sync => "sync",
            Reason::Budget => "budget",
        }
    }
}

/// A number of bytes for each [`Reason`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReasonBytes([u64; Reason::ALL.len()]);

impl ReasonBytes {
    /// Reasons and bytes, in the order of [`Reason::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL
            .iter()
            .map(|reason| (*reason, self.0[*reason as usize]))
    }

    /// Bytes for all reasons together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds another count to this one.
    pub fn add(&mut self, other: &ReasonBytes) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

impl Index<Reason> for ReasonBytes {
    type Output = u64;
    fn index(&self, reason: Reason) -> &u64 {
        &self.0[reason as usize]
    }
}

impl IndexMut<Reason> for ReasonBytes {
    fn index_mut(&mut self, reason: Reason) -> &mut u64 {
        &mut self.0[reason as usize]
    }
}
