//! The disk's state that a stream bases its decisions on, and the amounts derived from it.

use super::StreamConfig;
use crate::neighbours::BATCHES;
use crate::pace::Pace;
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
    /// Others read from the disk.
    pub beside_readers: bool,
}

impl Context {
    /// The pause before a stream's next poll. All streams wait for the same disk, so each of
    /// many gets its bytes written later than a single one would. If each polled at a single
    /// one's pace, the polls would take a core.
    pub(super) fn poll_ns(&self) -> u64 {
        let share = 1 + self.busy_streams.saturating_sub(1) / 4;
        self.pace.poll_ns().saturating_mul(share)
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

    /// The size of the next request.
    pub(super) fn next_request_bytes(&self, config: &StreamConfig) -> u64 {
        let request_bytes = self.request_bytes(config);
        match self.beside_readers {
            true => request_bytes.min(self.whole_pages(self.batch_bytes(config))),
            false => request_bytes,
        }
    }

    /// In whole pages: a page in two requests would be written twice.
    pub(super) fn request_bytes(&self, config: &StreamConfig) -> u64 {
        self.whole_pages(config.request_bytes.unwrap_or(self.request_bytes))
    }

    fn whole_pages(&self, bytes: u64) -> u64 {
        (bytes - bytes % self.page_bytes).max(self.page_bytes)
    }

    /// How much a stream may have on its way. A window of 0 turns off write-behind and the
    /// writer's wait, but doesn't affect this.
    pub(super) fn room_bytes(&self, config: &StreamConfig) -> u64 {
        match self.window_bytes(config) {
            0 => self
                .pace
                .window_bytes(DEFAULT_WINDOW_BYTES, self.request_bytes(config)),
            window_bytes => window_bytes,
        }
    }

    /// Returns whether the disk's readers leave room for another request of some stream.
    pub(crate) fn readers_leave_room(&self) -> bool {
        let batch_bytes = self
            .pace
            .batch_bytes(self.default_window_bytes, self.request_bytes);
        !self.beside_readers || self.asked_bytes < batch_bytes.saturating_mul(BATCHES)
    }

    /// How many dirty bytes are worth a request.
    pub(super) fn batch_bytes(&self, config: &StreamConfig) -> u64 {
        self.pace
            .batch_bytes(self.room_bytes(config), self.request_bytes(config))
    }
}
