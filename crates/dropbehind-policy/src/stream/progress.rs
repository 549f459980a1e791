//! What writers have counted, and how much of it they need not wait for any more.

/// The byte counts of a stream's writers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Bytes written, as counted by the writers.
    written_bytes: u64,
    /// Those of them that were seen clean or left to the kernel.
    done_bytes: u64,
    peak_dirty_bytes: u64,
}

impl Progress {
    pub(super) fn done_bytes(self) -> u64 {
        self.done_bytes
    }

    pub(super) fn dirty_bytes(self) -> u64 {
        self.written_bytes - self.done_bytes
    }

    pub(super) fn peak_dirty_bytes(self) -> u64 {
        self.peak_dirty_bytes
    }

    /// Writers have counted this much, of which `outstanding_bytes` are not clean.
    pub(super) fn wrote(&mut self, written_bytes: u64, outstanding_bytes: u64) {
        self.written_bytes = self.written_bytes.max(written_bytes);
        self.update(outstanding_bytes);
        self.peak_dirty_bytes = self.peak_dirty_bytes.max(self.dirty_bytes());
    }

    pub(super) fn update(&mut self, outstanding_bytes: u64) {
        let done_bytes = self.written_bytes.saturating_sub(outstanding_bytes);
        self.done_bytes = self.done_bytes.max(done_bytes);
    }
}
