//! How the disk behaves.

use std::ops::Range;
use std::time::Duration;

use crate::request::{Request, RequestKind};

/// Which requests fail, whatever they touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failing {
    /// None.
    #[default]
    Nothing,
    /// Reads.
    Reads,
    /// Writes and discards.
    Writes,
    /// Flushes of the disk's cache.
    Flushes,
    /// Everything.
    All,
}

/// What the owner of the disk has ordered so far.
#[derive(Debug, Default)]
pub(crate) struct DiskSettings {
    pub(crate) write_bytes_per_second: Option<u64>,
    pub(crate) read_bytes_per_second: Option<u64>,
    pub(crate) latency: Duration,
    /// Leaves speeds and latency unused while set.
    pub(crate) hurry: bool,
    pub(crate) failing: Failing,
    pub(crate) bad_ranges: Vec<Range<u64>>,
    pub(crate) errors_per_million: u32,
    pub(crate) vanished: bool,
    random: u64,
}

impl DiskSettings {
    /// How long a transfer takes; `None` is for ever.
    pub(crate) fn transfer_ns(&self, kind: RequestKind, bytes: f64) -> Option<f64> {
        let speed = match kind {
            _ if self.hurry || self.vanished => None,
            RequestKind::Read => self.read_bytes_per_second,
            RequestKind::Write => self.write_bytes_per_second,
            RequestKind::Discard | RequestKind::Flush => None,
        };
        match speed {
            None => Some(0.0),
            Some(0) => None,
            Some(speed) => Some(bytes * 1e9 / speed as f64),
        }
    }

    pub(crate) fn latency_ns(&self) -> u64 {
        if self.hurry || self.vanished {
            return 0;
        }
        u64::try_from(self.latency.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether a request that arrives now fails.
    pub(crate) fn fails(&mut self, request: &Request) -> bool {
        self.vanished || self.fails_by_kind(request.kind) || self.fails_by_place(request)
    }

    fn fails_by_kind(&self, kind: RequestKind) -> bool {
        match self.failing {
            Failing::Nothing => false,
            Failing::Reads => kind == RequestKind::Read,
            Failing::Writes => matches!(kind, RequestKind::Write | RequestKind::Discard),
            Failing::Flushes => kind == RequestKind::Flush,
            Failing::All => true,
        }
    }

    fn fails_by_place(&mut self, request: &Request) -> bool {
        if !matches!(request.kind, RequestKind::Read | RequestKind::Write) {
            return false;
        }
        let end = request.offset + request.length;
        let touches = |bad: &Range<u64>| request.offset < bad.end && bad.start < end;
        self.bad_ranges.iter().any(touches) || self.draw_error()
    }

    fn draw_error(&mut self) -> bool {
        if self.errors_per_million == 0 {
            return false;
        }
        // Knuth's MMIX generator; its high bits are good enough for dice.
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % 1_000_000 < u64::from(self.errors_per_million)
    }
}
