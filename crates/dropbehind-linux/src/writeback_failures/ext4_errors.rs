//! Errors of ext4 file systems: the tracepoint `ext4:ext4_error` (since Linux 4.18).
//!
//! ext4 writes data to extents that read as zeros until its journal marks them as written
//! (`ext4_end_io_end`, fs/ext4/page-io.c). If the journal fails, these pages stop being under
//! writeback without an error of their own. The file system reports its error before that.

use crate::cache_trace::format::Field;
use crate::cache_trace::ring::Rings;
use crate::cache_trace::{CacheTraceError, records, tracefs};

const TRACEPOINT: &str = "ext4/ext4_error";

#[derive(Debug)]
pub(super) struct Ext4Errors {
    rings: Rings,
    device: Field,
}

impl Ext4Errors {
    /// # Errors
    ///
    /// Those of [`CacheTrace::open`](crate::CacheTrace::open); there is no such tracepoint
    /// while ext4 is not loaded.
    pub(super) fn open() -> Result<Self, CacheTraceError> {
        let (tracepoint, text) = tracefs::tracepoint(TRACEPOINT)?;
        let device = Field::find(&text, "dev")?;
        let rings = Rings::of_tracepoint(tracepoint, 0)?;
        Ok(Self { rings, device })
    }

    /// Passes on the file systems' devices, as tracepoints name them. Returns whether records
    /// were lost.
    pub(super) fn drain(&mut self, mut take: impl FnMut(u32)) -> bool {
        let mut lost = false;
        let was_full = self.rings.drain(|record| {
            lost |= records::is_loss(record);
            if let Some((_, raw)) = records::sampled(record)
                && let Some(device) = self.device.read(raw)
                && let Ok(device) = u32::try_from(device)
            {
                take(device);
            }
        });
        lost || was_full
    }
}
