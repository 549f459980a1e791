//! The disk's state that a stream bases its decisions on, and the amounts derived from it.

use super::StreamConfig;
use crate::disk::DiskConfig;
use crate::neighbours::BATCHES;
use crate::pace::{BATCH_MAX_BYTES, Pace};
use crate::write_behind::DEFAULT_WINDOW_BYTES;

/// The state of a stream's disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub now_ns: u64,
    pub page_bytes: u64,
    pub pace: Pace,
    pub default_window_bytes: u64,
    pub request_bytes: u64,
    /// Streams that wait for writeback.
    pub busy_streams: u64,
    /// The bytes that they wait for.
    pub asked_bytes: u64,
    /// How much may be in flight of all streams that share the disk.
    pub flight: Flight,
    /// Streams that wait for room on the disk.
    pub waiting_streams: u64,
    /// Others read from the disk.
    pub beside_readers: bool,
    /// The disk has nothing to write.
    pub idle: bool,
}

/// How much may be in flight of all streams that share a disk. It changes with the disk's pace
/// alone, and is asked for with each event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    bytes: u64,
    beside_readers_bytes: u64,
}

impl Flight {
    pub(crate) fn at(pace: &Pace, disk: &DiskConfig) -> Flight {
        let default_bytes = match disk.window_bytes {
            0 => DEFAULT_WINDOW_BYTES,
            bytes => bytes,
        };
        let bytes = pace.flight_bytes(default_bytes, disk.request_bytes);
        let batch_bytes = pace.batch_bytes(bytes, disk.request_bytes);
        Flight {
            bytes,
            beside_readers_bytes: batch_bytes.saturating_mul(BATCHES),
        }
    }
}

impl Context {
    /// The pause before a stream's next poll. All streams wait for the same disk, so each of
    /// many gets its bytes written later than a single one would. If each polled at a single
    /// one's pace, the polls would take a core.
    pub(super) fn poll_ns(&self) -> u64 {
        let share = 1 + self.streams().saturating_sub(1) / 4;
        self.pace.poll_ns(self.asked_bytes).saturating_mul(share)
    }

    /// A stream's current window, in whole pages and at least one; 0 means none.
    pub(super) fn window_bytes(&self, config: &StreamConfig) -> u64 {
        let wanted = match config.window_bytes {
            Some(fixed) => fixed,
            None => self
                .pace
                .window_bytes(self.default_window_bytes, self.request_bytes(config)),
        };
        match wanted {
            0 => 0,
            wanted => self.whole_pages(wanted),
        }
    }

    /// The size of the next request: no more than all streams together may have in flight, and a
    /// batch beside readers, since a read waits for all of it.
    pub(super) fn next_request_bytes(&self, config: &StreamConfig) -> u64 {
        let most_bytes = match self.beside_readers {
            true => self.batch_bytes(config),
            false => self.flight.bytes,
        };
        let request_bytes = self.request_bytes(config);
        request_bytes.min(self.whole_pages(most_bytes))
    }

    /// In whole pages: a page in two requests would be written twice.
    pub(super) fn request_bytes(&self, config: &StreamConfig) -> u64 {
        self.whole_pages(config.request_bytes.unwrap_or(self.request_bytes))
    }

    fn whole_pages(&self, bytes: u64) -> u64 {
        (bytes - bytes % self.page_bytes).max(self.page_bytes)
    }

    /// How much may be in flight: of a stream with a window of its own, or of all others
    /// together. A window of 0 turns off write-behind and the writer's wait, but doesn't affect
    /// this.
    pub(super) fn flight_bytes(&self, config: &StreamConfig) -> u64 {
        match config.window_bytes {
            Some(fixed) if fixed > 0 => self.window_bytes(config),
            _ => self.flight.bytes,
        }
    }

    /// Returns whether the disk has room for another request of a stream that shares it: one
    /// without a window of its own.
    fn has_room(&self) -> bool {
        self.asked_bytes < self.flight.bytes
            || self.idle && self.asked_bytes < self.pace.share_of(self.default_window_bytes)
    }

    /// Returns whether the disk has room for another request, as far as other streams and
    /// programs are concerned.
    pub(super) fn has_room_for(&self, config: &StreamConfig) -> bool {
        let shares = config
            .window_bytes
            .is_none_or(|window_bytes| window_bytes == 0);
        self.readers_leave_room() && (!shares || self.has_room())
    }

    /// The most of an eager stream that its writer may be ahead of the disk, in halves: its
    /// share of what may be in flight, and as much again.
    pub(super) fn ahead_bytes(&self, config: &StreamConfig) -> u64 {
        let share = self.flight_bytes(config) / self.streams();
        share
            .max(BATCH_MAX_BYTES / 2)
            .min(self.window_bytes(config))
    }

    /// How many streams share the disk. Those that wait mostly have something in flight, too.
    fn streams(&self) -> u64 {
        self.busy_streams.max(self.waiting_streams).max(1)
    }

    /// Returns whether the disk's readers leave room for another request of some stream.
    fn readers_leave_room(&self) -> bool {
        !self.beside_readers || self.asked_bytes < self.flight.beside_readers_bytes
    }

    /// How many dirty bytes are worth a request.
    pub(super) fn batch_bytes(&self, config: &StreamConfig) -> u64 {
        self.pace
            .batch_bytes(self.flight_bytes(config), self.request_bytes(config))
    }
}
