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

use crate::cache_trace::event::{Recorded, Tasks};
use crate::cache_trace::format::Field;
use crate::cache_trace::ring::Rings;
use crate::cache_trace::{CacheTraceError, KernelInode, records, strange_format, tracefs};

const TRACEPOINT: &str = "filemap/filemap_set_wb_err";

/// A report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritebackFailure {
    /// Writeback of pages of this file failed.
    File(KernelInode),
    /// So much failed in a short time that some reports were lost.
    Lost,
}

/// A record of writeback failures on the whole machine.
#[derive(Debug)]
pub struct WritebackFailures {
    rings: Rings,
    device: Field,
    number: Field,
    /// Scratch space for records that wrap around a ring's end.
    joined: Vec<u8>,
}

impl WritebackFailures {
    /// Starts recording. Each online processor gets a ring of `ring_bytes`, rounded up to a
    /// power of two of pages. A failure takes 56 bytes. Rings are locked memory.
    ///
    /// # Errors
    ///
    /// Those of [`CacheTrace::open`](crate::CacheTrace::open), except
    /// [`CacheTraceError::NoOrder`].
    pub fn open(ring_bytes: usize) -> Result<Self, CacheTraceError> {
        let (tracepoint, text) = tracefs::tracepoint(TRACEPOINT)?;
        let field = |name| Field::find(&text, name).ok_or_else(strange_format);
        let (device, number) = (field("s_dev")?, field("i_ino")?);
        let rings =
            Rings::of_all_processors(Recorded::Tracepoint(tracepoint), Tasks::Untold, ring_bytes)?;
        for ring in rings.iter() {
            ring.enable()?;
        }
        Ok(Self {
            rings,
            device,
            number,
            joined: Vec::new(),
        })
    }

    /// Passes on what failed since the last call. Makes no system call, and takes next to no
    /// time if nothing failed.
    pub fn read(&mut self, mut take: impl FnMut(WritebackFailure)) {
        for ring in self.rings.iter_mut() {
            let was_full = ring.drain(&mut self.joined, |record| {
                if records::is_loss(record) {
                    take(WritebackFailure::Lost);
                } else if let Some(raw) = records::sampled(record)
                    && let Some(device) = self.device.read(raw)
                    && let Some(number) = self.number.read(raw)
                    && let Ok(device) = u32::try_from(device)
                {
                    take(WritebackFailure::File(KernelInode { device, number }));
                }
            });
            if was_full {
                take(WritebackFailure::Lost);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_device_number;
    use dropbehind_testbed::{FailingDisk, need};
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn failures_are_told_and_losses_too() {
        need!(all FailingDisk::needs(None));
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
}
