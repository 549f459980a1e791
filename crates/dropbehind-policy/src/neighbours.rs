//! Room for programs that read from the disk while we write to it.
//!
//! Readers wait for their data; writeback can wait. Each of their reads queues behind all that
//! is in flight: buffer bloat, as in the work on writeback throttling (block/blk-wbt.c). So
//! while others read, all streams of a disk together keep no more in flight than two batches:
//! one that the disk writes, and the next one, so that it need not wait for us.
//!
//! The disk's own counters show the readers. Pressure stall information would be the other
//! measure, but it includes our own stalls and those of other disks.

/// The interval between samples. The kernel counts the time of reads in milliseconds.
pub const SAMPLE_NS: u64 = 5_000_000;
/// Somebody reads if reads took one part in this many of the time. One that takes less than a
/// tenth of it does little besides.
const TIME_SHARE: u64 = 10;
/// Reads that are longer on average are readahead of files that are read in order: they have
/// the next megabytes at hand already. This is the kernel's default window (`read_ahead_kb`).
const READ_MAX_BYTES: u64 = 128 << 10;
/// They count as reading for this long after that was last seen: programs pause between reads.
/// A read counts once it is over, so it is at least this many times as long as a read took.
const HOLD_NS: u64 = 50_000_000;
const HOLD_READS: u64 = 4;
/// And at most this long. A disk that stood still for a minute says nothing about the next.
const HOLD_MAX_NS: u64 = 1_000_000_000;
/// What may be in flight meanwhile, in batches.
pub const BATCHES: u64 = 2;

/// The disk's counters of completed reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// How many.
    pub count: u64,
    /// How many bytes.
    pub bytes: u64,
    /// How long they took, all together, in nanoseconds.
    pub time_ns: u64,
}

/// Whether others read from the disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Neighbours {
    last: Option<(u64, Reads)>,
    until_ns: u64,
    yielded_ns: u64,
}

impl Neighbours {
    /// Takes a sample of the disk's counters.
    pub fn sampled(&mut self, now_ns: u64, reads: Reads) {
        let Some((last_ns, last)) = self.last.replace((now_ns, reads)) else {
            return;
        };
        let elapsed_ns = now_ns.saturating_sub(last_ns);
        self.yielded_ns += self.until_ns.min(now_ns).saturating_sub(last_ns);
        let count = reads.count.wrapping_sub(last.count);
        let bytes = reads.bytes.wrapping_sub(last.bytes);
        let time_ns = reads.time_ns.saturating_sub(last.time_ns);
        let small = bytes <= count.saturating_mul(READ_MAX_BYTES);
        if count > 0 && small && time_ns >= elapsed_ns / TIME_SHARE {
            let hold_ns = (time_ns / count).saturating_mul(HOLD_READS);
            let hold_ns = hold_ns.clamp(HOLD_NS, HOLD_MAX_NS);
            self.until_ns = now_ns.saturating_add(hold_ns);
        }
    }

    /// Returns whether others read from the disk.
    pub fn read_at(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns
    }

    /// How long we have kept less in flight.
    pub fn yielded_ns(&self) -> u64 {
        self.yielded_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// After a second of samples with so many reads each, of so many bytes and so long.
    fn after(count: u64, bytes: u64, time_ns: u64) -> (Neighbours, u64) {
        let mut neighbours = Neighbours::default();
        let mut reads = Reads::default();
        let mut now_ns = MS;
        neighbours.sampled(now_ns, reads);
        for _ in 0..200 {
            now_ns += SAMPLE_NS;
            reads.count += count;
            reads.bytes += count * bytes;
            reads.time_ns += count * time_ns;
            neighbours.sampled(now_ns, reads);
        }
        (neighbours, now_ns)
    }

    #[test]
    fn who_waits_for_reads_is_seen_and_forgotten() {
        let (neighbours, now_ns) = after(1, 4096, MS);
        assert!(neighbours.read_at(now_ns));
        assert!(neighbours.yielded_ns() > 900 * MS);
        assert!(!neighbours.read_at(now_ns + HOLD_NS));
    }

    #[test]
    fn who_waits_for_long_is_not_forgotten_meanwhile() {
        let (neighbours, now_ns) = after(1, 4096, 100 * MS);
        assert!(neighbours.read_at(now_ns + 300 * MS));
        let (neighbours, now_ns) = after(1, 4096, 100_000 * MS);
        assert!(!neighbours.read_at(now_ns + HOLD_MAX_NS));
    }

    #[test]
    fn nobody_waits_for_long_reads_or_for_few() {
        for (count, bytes, time_ns) in [(0, 0, 0), (4, 1 << 20, 10 * MS), (1, 4096, MS / 10)] {
            let (neighbours, now_ns) = after(count, bytes, time_ns);
            assert!(!neighbours.read_at(now_ns), "{count} of {bytes}");
            assert_eq!(neighbours.yielded_ns(), 0);
        }
    }
}
