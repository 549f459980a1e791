//! Reports of files whose writeback fails: the tracepoint `filemap:filemap_set_wb_err` (since
//! Linux 4.13), through perf_event_open(2).
//!
//! After a failed writeback the kernel takes the pages for clean although the disk never got
//! them. Asking for the error state that fsync(2) reports marks it as seen, and then it is
//! not reported to files opened later. This tracepoint consumes nothing, and nothing is
//! recorded while nothing fails.
//!
//! The error is set before the pages stop being under writeback: `ext4_finish_bio`
//! (fs/ext4/page-io.c), `iomap_finish_ioend_buffered` (fs/iomap/ioend.c),
//! `end_bbio_data_write` (fs/btrfs/extent_io.c), `end_buffer_async_write` (fs/buffer.c). So
//! if pages are counted as clean and this is read afterwards, it shows whether their
//! writeback failed.

mod counter;
mod ext4_errors;

use crate::cache_trace::format::Field;
use crate::cache_trace::ring::Rings;
use crate::cache_trace::{CacheTraceError, KernelInode, monotonic_ns, records, tracefs};

use counter::Counter;
use ext4_errors::Ext4Errors;
use std::io;
use std::time::{Duration, Instant};

const TRACEPOINT: &str = "filemap/filemap_set_wb_err";
/// A failure is counted some microseconds before it is recorded. A virtual machine's host may
/// take the processor away in between. After this long, the failure counts as lost.
const PATIENCE: Duration = Duration::from_millis(20);

/// A report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritebackFailure {
    /// Writeback of pages of this file failed.
    File(KernelInode),
    /// An ext4 file system on this device, as tracepoints name it, reported an error: the
    /// pages of any of its files may look clean and not be readable from the disk.
    FileSystem(u32),
    /// So much failed in a short time that some reports were lost, or it failed on a processor
    /// that has been offline since the record began.
    Lost,
}

/// A record of writeback failures on the whole machine.
#[derive(Debug)]
pub struct WritebackFailures {
    rings: Rings,
    /// What failed up to this time was in earlier rings.
    rings_from_ns: u64,
    /// The kernel ends a processor's ring when that goes offline, as all but one do when the
    /// machine is suspended. What is counted and was not recorded shows that.
    counter: io::Result<Counter>,
    /// How many of the counted failures were recorded.
    recorded: u64,
    ring_bytes: usize,
    tracepoint: u64,
    device: Field,
    number: Field,
    /// `None` while ext4 is not loaded.
    ext4_errors: Option<Ext4Errors>,
}

impl WritebackFailures {
    /// Starts recording. Each online processor gets a ring of `ring_bytes`, rounded up to a
    /// power of two of pages. A failure takes 56 bytes. Rings are locked memory.
    ///
    /// Failures on a processor that has been offline in between are noticed as lost since
    /// Linux 5.12, with `CAP_BPF`.
    ///
    /// # Errors
    ///
    /// Those of [`CacheTrace::open`](crate::CacheTrace::open), except
    /// [`CacheTraceError::NoOrder`].
    pub fn open(ring_bytes: usize) -> Result<Self, CacheTraceError> {
        let (tracepoint, text) = tracefs::tracepoint(TRACEPOINT)?;
        let (device, number) = (Field::find(&text, "s_dev")?, Field::find(&text, "i_ino")?);
        let counter = Counter::new();
        let rings = Rings::of_tracepoint(tracepoint, ring_bytes)?;
        let recorded = counter.as_ref().map_or(0, Counter::failures);
        Ok(Self {
            rings,
            rings_from_ns: 0,
            counter,
            recorded,
            ring_bytes,
            tracepoint,
            device,
            number,
            ext4_errors: Ext4Errors::open().ok(),
        })
    }

    /// A file system was mounted, so the kernel may have loaded ext4.
    pub fn mounts_changed(&mut self) {
        if self.ext4_errors.is_none() {
            self.ext4_errors = Ext4Errors::open().ok();
        }
    }

    /// Passes on what failed since the last call. Takes a microsecond if nothing failed.
    pub fn read(&mut self, mut take: impl FnMut(WritebackFailure)) {
        if let Some(errors) = &mut self.ext4_errors {
            let failed = |device| take(WritebackFailure::FileSystem(device));
            if errors.drain(failed) {
                take(WritebackFailure::Lost);
            }
        }
        let begun = Instant::now();
        let mut missing = u64::MAX;
        let overflowed = loop {
            // Before the drain: our processor may be taken away, too, and then all that was
            // missing is there.
            let waited = begun.elapsed() > PATIENCE;
            let overflowed = self.drain(&mut take);
            // Counted after the drain: what is recorded meanwhile must not stand for what is
            // not. A failure that is never recorded is missing each time.
            missing = missing.min(self.counted().saturating_sub(self.recorded));
            if overflowed {
                break true;
            }
            if missing == 0 {
                return;
            }
            if waited {
                break false;
            }
        };
        take(WritebackFailure::Lost);
        self.recorded += missing;
        // Not after an overflow: any user may cause those all the time.
        if !overflowed {
            self.replace_rings(&mut take);
        }
    }

    /// Opens new rings, for the processors that have lost theirs.
    fn replace_rings(&mut self, take: &mut impl FnMut(WritebackFailure)) {
        let Ok(rings) = Rings::of_tracepoint(self.tracepoint, self.ring_bytes) else {
            return;
        };
        let until_ns = monotonic_ns();
        self.drain_until(until_ns, take);
        self.rings = rings;
        self.rings_from_ns = until_ns;
    }

    /// How many failures there have been; 0 if that is not known.
    fn counted(&self) -> u64 {
        self.counter.as_ref().map_or(0, Counter::failures)
    }

    /// Returns whether records were lost.
    fn drain(&mut self, take: &mut impl FnMut(WritebackFailure)) -> bool {
        self.drain_until(u64::MAX, take)
    }

    /// The same, counting only what failed up to this time.
    fn drain_until(&mut self, until_ns: u64, take: &mut impl FnMut(WritebackFailure)) -> bool {
        let mut lost = false;
        let counts = self.rings_from_ns + 1..=until_ns;
        let was_full = self.rings.drain(|record| {
            if records::is_loss(record) {
                lost = true;
            } else if let Some((time_ns, raw)) = records::sampled(record)
                && let Some(device) = self.device.read(raw)
                && let Some(number) = self.number.read(raw)
                && let Ok(device) = u32::try_from(device)
            {
                self.recorded += u64::from(counts.contains(&time_ns));
                take(WritebackFailure::File(KernelInode { device, number }));
            }
        });
        lost || was_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CacheTrace, block_device_number};
    use dropbehind_testbed::{FailingDisk, need};
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A test must not see the failures of another.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    #[test]
    fn failures_are_told_and_losses_too() {
        need!(all FailingDisk::needs(None));
        let _alone = ONE_AT_A_TIME.lock();
        let disk = FailingDisk::raw().unwrap();
        let mut device = File::options().write(true).open(disk.device()).unwrap();
        let mut roomy = WritebackFailures::open(1 << 20).unwrap();
        let mut narrow = WritebackFailures::open(0).unwrap();
        let block = vec![1; 1 << 20];
        for _ in 0..FailingDisk::TOO_MUCH_BYTES >> 20 {
            device.write_all(&block).unwrap();
        }
        device.sync_all().unwrap_err();
        let number = block_device_number(device.as_fd()).unwrap();
        let mut told = 0;
        roomy.read(|failure| {
            told += u32::from(
                matches!(failure, WritebackFailure::File(inode) if inode.number == number),
            );
        });
        assert!(told > 0);
        let mut losses = 0;
        narrow.read(|failure| losses += u32::from(failure == WritebackFailure::Lost));
        assert!(losses > 0, "of {told}");
        narrow.read(|failure| panic!("{failure:?} once more"));
    }

    /// As on processors that have been offline: nothing is recorded there.
    #[test]
    fn failures_that_nobody_records_are_lost() {
        need!(all FailingDisk::needs(None));
        let _alone = ONE_AT_A_TIME.lock();
        let disk = FailingDisk::raw().unwrap();
        let mut failures = WritebackFailures::open(1 << 16).unwrap();
        failures.rings = Rings::default();
        let device = File::options().write(true).open(disk.device()).unwrap();
        let block = vec![1; 1 << 20];
        for _ in 0..FailingDisk::TOO_MUCH_BYTES >> 20 {
            (&device).write_all(&block).unwrap();
        }
        device.sync_all().unwrap_err();
        let mut told = Vec::new();
        failures.read(|failure| told.push(failure));
        assert_eq!(told, [WritebackFailure::Lost]);
        failures.read(|failure| panic!("{failure:?} once more"));

        // From then on they are recorded again.
        let number = block_device_number(device.as_fd()).unwrap();
        let again = FailingDisk::raw().unwrap();
        let mut device = File::options().write(true).open(again.device()).unwrap();
        for _ in 0..FailingDisk::TOO_MUCH_BYTES >> 20 {
            device.write_all(&block).unwrap();
        }
        device.sync_all().unwrap_err();
        assert_ne!(block_device_number(device.as_fd()).unwrap(), number);
        let mut files = 0;
        failures.read(|failure| files += u32::from(matches!(failure, WritebackFailure::File(_))));
        assert!(files > 0);
    }

    /// A completion interrupts programs in the kernel, such as the one that joins pages.
    #[test]
    fn failures_that_interrupt_programs_are_recorded() {
        need!(all FailingDisk::needs(None));
        let _alone = ONE_AT_A_TIME.lock();
        let disk = FailingDisk::raw().unwrap();
        let device = File::options().write(true).open(disk.device()).unwrap();
        let _programs = CacheTrace::open(1 << 20).unwrap();
        let mut failures = WritebackFailures::open(16 << 20).unwrap();
        let stopped = AtomicBool::new(false);
        let block = vec![1; 1 << 20];
        let mut lost = 0;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let file = tempfile::tempfile().unwrap();
                    while !stopped.load(Ordering::Relaxed) {
                        for page in 0..1024 {
                            file.write_all_at(&block[..1], page * 4096).unwrap();
                        }
                        file.set_len(0).unwrap();
                    }
                });
            }
            for _ in 0..4 {
                for offset in (0..FailingDisk::TOO_MUCH_BYTES).step_by(1 << 20) {
                    device.write_all_at(&block, offset).unwrap();
                }
                device.sync_all().unwrap_err();
                failures.read(|failure| lost += u32::from(failure == WritebackFailure::Lost));
            }
            stopped.store(true, Ordering::Relaxed);
        });
        assert_eq!(lost, 0);
    }

    /// What fails meanwhile, and is recorded, does not stand for what was not.
    #[test]
    fn failures_that_nobody_records_are_lost_beside_others() {
        need!(all FailingDisk::needs(None));
        let _alone = ONE_AT_A_TIME.lock();
        let disk = FailingDisk::raw().unwrap();
        let device = File::options().write(true).open(disk.device()).unwrap();
        let block = vec![1; 1 << 20];
        for _ in 0..FailingDisk::TOO_MUCH_BYTES >> 20 {
            (&device).write_all(&block).unwrap();
        }
        device.sync_all().unwrap_err();
        let mut failures = WritebackFailures::open(1 << 20).unwrap();
        let stopped = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut place = FailingDisk::TOO_MUCH_BYTES;
                while !stopped.load(Ordering::Relaxed) {
                    device.write_all_at(&block[..4096], place).unwrap();
                    let _ = device.sync_data();
                    place += 4096;
                }
            });
            let mut files = 0;
            while files < 10 {
                let is_file = |failure| u32::from(matches!(failure, WritebackFailure::File(_)));
                failures.read(|failure| files += is_file(failure));
            }
            // As if ten more had failed, and nobody had recorded them.
            failures.recorded -= 10;
            let mut losses = [0; 10];
            for losses in &mut losses {
                let is_loss = |failure| u32::from(failure == WritebackFailure::Lost);
                failures.read(|failure| *losses += is_loss(failure));
            }
            stopped.store(true, Ordering::Relaxed);
            // One that was being recorded while the rings were replaced may be lost, too.
            assert_eq!((losses[0], &losses[5..]), (1, &[0; 5][..]), "{losses:?}");
        });
    }
}
