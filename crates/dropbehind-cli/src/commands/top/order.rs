//! The order in which files are shown.

use super::columns::FileRow;
use std::cmp::Ordering;

/// What files are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Key {
    /// The observer's own order: the most active first.
    #[default]
    Activity,
    Speed,
    Written,
    Read,
    Dirty,
    Writeback,
    Cached,
    Dropped,
    Kept,
    Waits,
    Path,
}

impl Key {
    const ALL: [Self; 11] = [
        Self::Activity,
        Self::Speed,
        Self::Written,
        Self::Read,
        Self::Dirty,
        Self::Writeback,
        Self::Cached,
        Self::Dropped,
        Self::Kept,
        Self::Waits,
        Self::Path,
    ];

    /// The heading of its column.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Activity => "",
            Self::Speed => "SPEED",
            Self::Written => "WRITTEN",
            Self::Read => "READ",
            Self::Dirty => "DIRTY",
            Self::Writeback => "WRITEBACK",
            Self::Cached => "CACHED",
            Self::Dropped => "DROPPED",
            Self::Kept => "KEPT",
            Self::Waits => "WAITS",
            Self::Path => "FILE",
        }
    }

    /// Its name in the footer.
    pub(super) fn name(self) -> String {
        match self {
            Self::Activity => "activity".to_owned(),
            key => key.title().to_lowercase(),
        }
    }

    /// The key this many places further on, round and round.
    fn moved(self, steps: usize) -> Self {
        let here = Self::ALL.iter().position(|&key| key == self);
        Self::ALL[(here.unwrap_or(0) + steps) % Self::ALL.len()]
    }

    fn amount(self, row: &FileRow<'_>) -> u64 {
        let file = row.file;
        match self {
            Self::Activity | Self::Path => 0,
            Self::Speed => row.speed.unwrap_or(0),
            Self::Written => file.written_bytes,
            Self::Read => file.read_bytes,
            Self::Dirty => file.dirty_bytes,
            Self::Writeback => file.writeback_bytes,
            Self::Cached => file.cached_bytes,
            Self::Dropped => file.dropped_bytes,
            Self::Kept => file.kept_bytes,
            Self::Waits => file.waits,
        }
    }
}

/// A key, and whether its order is reversed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SortOrder {
    pub(super) key: Key,
    pub(super) reversed: bool,
}

impl SortOrder {
    pub(super) fn next(&mut self) {
        self.key = self.key.moved(1);
    }

    pub(super) fn previous(&mut self) {
        self.key = self.key.moved(Key::ALL.len() - 1);
    }

    /// Sorts the largest first, and names from A on; equal rows keep their order.
    pub(super) fn sort(self, rows: &mut [FileRow<'_>]) {
        rows.sort_by(|a, b| match self.key {
            Key::Activity => Ordering::Equal,
            Key::Path => a.file.path.cmp(&b.file.path),
            key => key.amount(b).cmp(&key.amount(a)),
        });
        if self.reversed {
            rows.reverse();
        }
    }
}
