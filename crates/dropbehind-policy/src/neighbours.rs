//! Room for programs that read from the disk while we write to it.
//!
//! Readers wait for their data; writeback can wait. A flusher that fills the disk's queue
//! makes each of their reads queue behind megabytes of writes. That is buffer bloat, as in
//! the work on writeback throttling (block/blk-wbt.c), which uses the same measure: the
//! latency of reads compared with their best. The disk's own counters give the reads
//! completed and the time they took. Pressure stall information would be the other measure,
//! but it includes our own stalls and those of other disks.

/// The interval between samples. In less time, a slow disk completes too few reads.
pub const SAMPLE_NS: u64 = 100_000_000;
/// Fewer reads than this in a sample say nothing about their latency.
const READS_MIN: u64 = 8;
/// Reads suffer when they take this many times their best time,
const SUFFER: u64 = 2;
/// and at least this much longer: half of a rotation. On a fast disk nobody notices less.
const SUFFER_MIN_NS: u64 = 2_000_000;
/// The best latency grows by this part per sample: it takes about a minute to forget half of it.
const FORGET: u64 = 1024;
/// At least this share may be on its way: some megabytes, since a program observed from
/// outside does not wait for us, and what is not written piles up.
const SHARES_MIN: u32 = 2;
/// The number of shares, which are all of it.
pub const SHARES: u32 = 8;

/// How much of the disk's queue we leave to readers.
#[derive(Clone, Copy, Debug)]
pub struct Neighbours {
    last: Option<(u64, u64, u64)>,
    /// The lowest recent read latency.
    best_ns: Option<u64>,
    shares: u32,
    yielded_ns: u64,
}

impl Neighbours {
    /// A disk whose readers have not been sampled.
    pub const fn new() -> Neighbours {
        Neighbours {
            last: None,
            best_ns: None,
            shares: SHARES,
            yielded_ns: 0,
        }
    }

    /// Takes a sample: the disk has completed `reads` since it came up, which took `read_ns`
    /// in total.
    pub fn sampled(&mut self, now_ns: u64, reads: u64, read_ns: u64) {
        let Some((last_ns, last_reads, last_read_ns)) = self.last.replace((now_ns, reads, read_ns))
        else {
            return;
        };
        if self.shares < SHARES {
            self.yielded_ns += now_ns.saturating_sub(last_ns);
        }
        let completed = reads.wrapping_sub(last_reads);
        let suffer = if completed < READS_MIN {
            false
        } else {
            let latency_ns = read_ns.saturating_sub(last_read_ns) / completed;
            let best_ns = self.best_ns.map_or(latency_ns, |best_ns| {
                (best_ns + best_ns / FORGET + 1).min(latency_ns)
            });
            self.best_ns = Some(best_ns);
            latency_ns > best_ns.saturating_mul(SUFFER).max(best_ns + SUFFER_MIN_NS)
        };
        self.shares = if suffer {
            (self.shares / 2).max(SHARES_MIN)
        } else {
            (self.shares + 1).min(SHARES)
        };
    }

    /// The part of `bytes` that may be on its way.
    pub fn share_of(&self, bytes: u64) -> u64 {
        bytes / u64::from(SHARES) * u64::from(self.shares)
    }

    /// How long we have held back.
    pub fn yielded_ns(&self) -> u64 {
        self.yielded_ns
    }
}

impl Default for Neighbours {
    fn default() -> Neighbours {
        Neighbours::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Samples of 100 reads each, with the given latencies.
    fn after(latencies_ns: impl IntoIterator<Item = u64>) -> Neighbours {
        let mut neighbours = Neighbours::new();
        let (mut now_ns, mut reads, mut read_ns) = (0, 0, 0);
        neighbours.sampled(now_ns, reads, read_ns);
        for latency_ns in latencies_ns {
            now_ns += SAMPLE_NS;
            reads += 100;
            read_ns += 100 * latency_ns;
            neighbours.sampled(now_ns, reads, read_ns);
        }
        neighbours
    }

    #[test]
    fn readers_that_suffer_get_room_and_it_is_taken_back() {
        let calm = after([MS; 10]);
        assert_eq!(calm.share_of(32 << 20), 32 << 20);
        assert_eq!(calm.yielded_ns(), 0);
        let suffering = after([MS, MS, 10 * MS, 10 * MS, 10 * MS]);
        assert_eq!(suffering.share_of(32 << 20), 8 << 20);
        assert!(suffering.yielded_ns() > 0);
        let over = after([MS, 10 * MS, 10 * MS].into_iter().chain([MS; 10]));
        assert_eq!(over.share_of(32 << 20), 32 << 20);
    }

    #[test]
    fn little_differences_and_few_reads_are_nobodys_suffering() {
        assert_eq!(after([MS / 10, MS, MS]).share_of(800), 800);
        let mut neighbours = Neighbours::new();
        for sample in 0..10 {
            neighbours.sampled(sample * SAMPLE_NS, sample, sample * sample * 100 * MS);
        }
        assert_eq!(neighbours.share_of(800), 800);
    }

    #[test]
    fn a_disk_that_got_slower_for_good_is_learned() {
        let neighbours = after([MS].into_iter().chain([4 * MS; 3000]));
        assert_eq!(neighbours.share_of(800), 800);
    }
}
