//! The memory that the kernel writes an event's records to: perf_event_open(2), "MMAP
//! layout".

use super::CacheTraceError;
use super::event::{Event, Recorded};
use super::processors;
use super::records::{HEADER_BYTES, size_of_record};
use crate::deferred_close::close_deferred;
use crate::mapping::Mapping;
use rustix::mm::ProtFlags;
use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

/// A ring wakes pollers after this much was written to it: some fifty records. A wake-up
/// interrupts the program that fills the ring, so not for each record. But it must be often
/// enough that little is cached without our knowing.
const WAKE_BYTES: usize = 4096;

/// The largest size of a record, including a record of losses that may precede it.
const LARGEST_RECORD: usize = 256;

// Offsets in `struct perf_event_mmap_page`, include/uapi/linux/perf_event.h.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// An event and its ring. The kernel writes at the head, we read at the tail.
#[derive(Debug)]
pub(crate) struct Ring {
    event: Event,
    /// The page that describes the ring, followed by the ring itself.
    map: Mapping,
    page_bytes: usize,
    /// A power of two.
    data_bytes: usize,
    /// As in the description page, which nobody but us changes.
    tail: u64,
}

/// The rings of all processors. Dropping them doesn't wait until their events are closed.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    rings: Vec<Ring>,
    /// Scratch space for records that wrap around a ring's end.
    joined: Vec<u8>,
}

impl Rings {
    /// Rings of at least `ring_bytes` that record this tracepoint from now on.
    pub(crate) fn of_tracepoint(number: u64, ring_bytes: usize) -> Result<Self, CacheTraceError> {
        let rings = Self::of_all_processors(Recorded::Tracepoint(number), ring_bytes)?;
        rings.enable()?;
        Ok(rings)
    }

    /// A ring of at least `ring_bytes` for each online processor. None records anything until
    /// they are [enabled](Self::enable).
    pub(crate) fn of_all_processors(
        recorded: Recorded,
        ring_bytes: usize,
    ) -> Result<Self, CacheTraceError> {
        let processors = processors::online().map_err(|error| {
            CacheTraceError::Other("looking for the processors that are online", error)
        })?;
        let mut rings = Vec::with_capacity(processors.len());
        for processor in processors {
            match Ring::open(recorded, processor, ring_bytes) {
                // The processor went offline meanwhile.
                Err(CacheTraceError::Other(_, error))
                    if error.raw_os_error() == Some(libc::ENODEV) => {}
                ring => rings.push(ring?),
            }
        }
        Ok(Self {
            rings,
            joined: Vec::new(),
        })
    }

    /// Records only where this holds.
    pub(crate) fn filter(&self, condition: &CStr) -> io::Result<()> {
        let mut events = self.events();
        events.try_for_each(|event| event.filter(condition))
    }

    /// Starts recording.
    pub(crate) fn enable(&self) -> Result<(), CacheTraceError> {
        let enabled = self.events().try_for_each(Event::enable);
        enabled.map_err(|error| CacheTraceError::Other("ioctl of an event", error))
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.rings.iter().map(|ring| &ring.event)
    }

    /// Takes all records, the oldest of each processor first. Returns true if a ring was so full
    /// that a record may have been lost: the kernel itself reports that only with the next record
    /// that fits.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(&[u8])) -> bool {
        let mut was_full = false;
        for ring in &mut self.rings {
            was_full |= ring.drain(&mut self.joined, &mut take);
        }
        was_full
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        // The mapping holds the event, too.
        let events = self.rings.drain(..).map(|Ring { event, map, .. }| {
            drop(map);
            event.into()
        });
        close_deferred(events.collect());
    }
}

impl Ring {
    /// Opens an event for all processes on one processor. Its ring has at least `ring_bytes`,
    /// and at least a page.
    fn open(
        recorded: Recorded,
        processor: i32,
        ring_bytes: usize,
    ) -> Result<Self, CacheTraceError> {
        let page_bytes = rustix::param::page_size();
        let sizes = ring_bytes
            .div_ceil(page_bytes)
            .max(1)
            .checked_next_power_of_two()
            .and_then(|pages| pages.checked_mul(page_bytes))
            .and_then(|data_bytes| Some((data_bytes, data_bytes.checked_add(page_bytes)?)));
        let (data_bytes, map_bytes) = sizes.ok_or_else(|| {
            CacheTraceError::Other("mmap of a ring", rustix::io::Errno::NOMEM.into())
        })?;
        // A ring that overflows before this wakes nobody.
        let wake_bytes = WAKE_BYTES.min(data_bytes / 2);
        let event = Event::open(recorded, processor, wake_bytes as u32)
            .map_err(|error| CacheTraceError::of("perf_event_open", error))?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let map = Mapping::new(event.as_fd(), 0, map_bytes, access)
            .map_err(|error| CacheTraceError::Other("mmap of a ring", error))?;
        Ok(Self {
            event,
            map,
            page_bytes,
            data_bytes,
            tail: 0,
        })
    }

    /// Takes all records, oldest first, as [`Rings::drain`]. Uses `joined` for records that wrap
    /// around the end.
    fn drain(&mut self, joined: &mut Vec<u8>, take: impl FnMut(&[u8])) -> bool {
        // Acquire: see what the kernel wrote before it moved the head.
        let head = self.map.word(DATA_HEAD).load(Ordering::Acquire);
        if head == self.tail {
            return false;
        }
        // Never more than the ring holds: a wrong head must not lead us out of the mapping.
        let unread = (head.wrapping_sub(self.tail) as usize).min(self.data_bytes);
        let start = self.tail as usize & (self.data_bytes - 1);
        let before_end = unread.min(self.data_bytes - start);
        // SAFETY: both lie within the mapping, after its first page. The kernel writes
        // nothing between tail and head until the tail is moved, which happens after these
        // are used.
        let (first, second) = unsafe {
            let data = self.map.start().as_ptr().add(self.page_bytes);
            (
                std::slice::from_raw_parts(data.add(start), before_end),
                std::slice::from_raw_parts(data, unread - before_end),
            )
        };
        walk(first, second, joined, take);
        self.tail = head;
        // Release: all was read, so the kernel may write there now.
        self.map.word(DATA_TAIL).store(head, Ordering::Release);
        unread + LARGEST_RECORD > self.data_bytes
    }
}

/// Takes the records in `first`, the last of which may continue in `second`, and those in
/// `second`. Ignores everything after an impossible size.
fn walk(first: &[u8], second: &[u8], joined: &mut Vec<u8>, mut take: impl FnMut(&[u8])) {
    let mut rest = first;
    let mut after = second;
    loop {
        if rest.is_empty() {
            rest = std::mem::take(&mut after);
        }
        let Some(size) = size_of_record(rest).filter(|&size| size >= HEADER_BYTES) else {
            return;
        };
        if let Some((record, behind)) = rest.split_at_checked(size) {
            take(record);
            rest = behind;
        } else if let Some((end, behind)) = after.split_at_checked(size - rest.len()) {
            joined.clear();
            joined.extend_from_slice(rest);
            joined.extend_from_slice(end);
            take(joined);
            rest = behind;
            after = &[];
        } else {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::records::tests::record;
    use super::*;

    fn taken(first: &[u8], second: &[u8]) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        walk(first, second, &mut Vec::new(), |record| {
            records.push(record.to_vec())
        });
        records
    }

    #[test]
    fn records_go_over_the_end() {
        let records = [record(1, &[1; 24]), record(2, &[2; 40]), record(3, &[])];
        let bytes = records.concat();
        // Records start at multiples of eight, and so does the ring's end.
        for end in (0..=bytes.len()).step_by(8) {
            let (first, second) = bytes.split_at(end);
            assert_eq!(taken(first, second), records, "{end}");
        }
    }

    #[test]
    fn nonsense_ends_it() {
        let good = record(1, &[1; 8]);
        let mut none = good.clone();
        none[6..8].fill(0);
        assert_eq!(taken(&[good.clone(), none].concat(), &good), [&*good]);
        let mut huge = good.clone();
        huge[6..8].fill(0xFF);
        assert_eq!(taken(&[good.clone(), huge].concat(), &good), [&*good]);
        for len in 0..good.len() {
            assert!(taken(&good[..len], &[]).is_empty());
            assert!(taken(&[], &good[..len]).is_empty());
        }
        // A header that is itself cut off, which the kernel never writes.
        assert!(taken(&good[..4], &good[4..]).is_empty());
    }
}
