//! How much waits at most to show that it is used again.
//!
//! As in ARC, the past decides: what comes back after it was dropped lengthens the queue, since
//! it would have been there with a longer one, and what is used once shortens it. Streams that do
//! not wait take room from those that do, since they have pages under way.

/// What usually waits at most, if memory is not scarce. With this much, a build, a clone with its
/// `gc` and databases of 120 MB read nothing from the disk that they would find in the cache
/// plainly: see the first table in `docs/results/auto.md`.
const USUAL_BYTES: u64 = 256 << 20;
/// Of the memory that is available, at most one part in this many waits.
pub(crate) const MEMORY_SHARE: u64 = 16;
/// Of what a limit of the programs' memory cgroup leaves, at most one part in this many waits. With
/// this, a backup in a cgroup of 256 MiB evicts nothing of a database of 102 MiB beside it:
/// `docs/backup.md`. A sixteenth was shorter than two readaheads of 8 MiB there.
const GROUP_SHARE: u64 = 4;
/// Streams that do not wait leave one part in this many. `dd` of 1000 MiB had 362 MiB cached
/// before they took any, and 261 MiB with this: `docs/results/auto.md`.
const LEFT_BY_STREAMS: u64 = 2;
/// Of what was used once, one part in this many shortens a queue that was lengthened. So it grows
/// as long as more than that comes back. With this, RocksDB reads 87 MiB in place of 153:
/// `docs/results/auto.md`. Other shares were not tried.
const FORGET_SHARE: u64 = 8;

/// The length of the queue, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueLength {
    now_bytes: u64,
    /// If nothing came back, and nothing streams.
    usual_bytes: u64,
    most_bytes: u64,
}

impl QueueLength {
    pub(crate) const fn new() -> QueueLength {
        QueueLength {
            now_bytes: USUAL_BYTES,
            usual_bytes: USUAL_BYTES,
            most_bytes: USUAL_BYTES,
        }
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.now_bytes
    }

    /// After so much of a file was used once, the rest need not wait.
    pub(crate) fn stream_bytes(&self) -> u64 {
        self.now_bytes.min(self.usual_bytes)
    }

    pub(crate) fn set_memory(&mut self, machine_bytes: u64, group_bytes: Option<u64>) {
        let of_group = group_bytes.map_or(u64::MAX, |bytes| bytes / GROUP_SHARE);
        self.most_bytes = of_group.min(machine_bytes / MEMORY_SHARE);
        self.usual_bytes = USUAL_BYTES.min(self.most_bytes);
        let least_bytes = self.usual_bytes / LEFT_BY_STREAMS;
        self.now_bytes = self.now_bytes.clamp(least_bytes, self.most_bytes);
    }

    pub(crate) fn came_back(&mut self, bytes: u64) {
        self.now_bytes = (self.now_bytes + bytes).min(self.most_bytes);
    }

    /// So much came that waits.
    pub(crate) fn waits(&mut self, bytes: u64) {
        let usual_bytes = self.usual_bytes.min(self.now_bytes + bytes);
        self.now_bytes = self.now_bytes.max(usual_bytes);
    }

    /// So much came that does not wait.
    pub(crate) fn streams(&mut self, bytes: u64) {
        let least_bytes = self.usual_bytes / LEFT_BY_STREAMS;
        self.now_bytes = self.now_bytes.saturating_sub(bytes).max(least_bytes);
    }

    /// What waited was used only once.
    pub(crate) fn used_once(&mut self, bytes: u64) {
        let usual_bytes = self.usual_bytes.min(self.now_bytes);
        let forgotten_bytes = bytes / FORGET_SHARE;
        self.now_bytes = self
            .now_bytes
            .saturating_sub(forgotten_bytes)
            .max(usual_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_comes_back_lengthens_the_queue_and_what_is_used_once_shortens_it() {
        let mut length = QueueLength::new();
        length.set_memory(16 << 30, None);
        length.came_back(100 * MIB);
        assert_eq!(length.bytes(), 356 * MIB);
        assert_eq!(length.stream_bytes(), 256 * MIB);
        length.used_once(80 * MIB);
        assert_eq!(length.bytes(), 346 * MIB);
        length.came_back(1 << 40);
        assert_eq!(length.bytes(), 1 << 30);
        length.set_memory(8 << 30, None);
        assert_eq!(length.bytes(), 512 * MIB);
        length.used_once(1 << 40);
        assert_eq!(length.bytes(), 256 * MIB);
        length.set_memory(1 << 30, None);
        length.came_back(MIB);
        assert_eq!(length.bytes(), 64 * MIB);
        length.set_memory(16 << 30, Some(128 * MIB));
        length.came_back(MIB);
        assert_eq!(length.bytes(), 32 * MIB);
    }

    #[test]
    fn streams_take_half_of_the_queue_until_others_wait() {
        let mut length = QueueLength::new();
        length.set_memory(16 << 30, None);
        length.streams(100 * MIB);
        assert_eq!(length.bytes(), 156 * MIB);
        length.used_once(100 * MIB);
        assert_eq!(length.bytes(), 156 * MIB);
        length.streams(100 * MIB);
        assert_eq!(length.bytes(), 128 * MIB);
        assert_eq!(length.stream_bytes(), 128 * MIB);
        length.waits(100 * MIB);
        assert_eq!(length.bytes(), 228 * MIB);
        length.waits(100 * MIB);
        assert_eq!(length.bytes(), 256 * MIB);
        // It was scarce for a while.
        length.set_memory(0, None);
        assert_eq!(length.bytes(), 0);
        length.set_memory(16 << 30, None);
        assert_eq!(length.bytes(), 128 * MIB);
    }
}
