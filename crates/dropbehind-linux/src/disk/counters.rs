//! A disk's own counters, in files of sysfs that stay open: opening one takes longer than
//! reading it. `stat` and `inflight` in Documentation/ABI/stable/sysfs-block.

use super::{DiskInfo, sysfs};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The size of sectors in sysfs, whatever the device's own.
const SECTOR_BYTES: u64 = 512;

/// A file of a disk in sysfs.
#[derive(Debug)]
struct Numbers(File);

impl Numbers {
    fn of(disk: &DiskInfo, name: &str) -> io::Result<Self> {
        if disk.virtual_ {
            return Err(io::ErrorKind::Unsupported.into());
        }
        File::open(sysfs(disk.id).join(name)).map(Self)
    }

    /// Reads the file anew.
    fn read<T>(&self, parse: impl FnOnce(&str) -> Option<T>) -> io::Result<T> {
        // Seventeen numbers of 64 bits fit.
        let mut text = [0; 512];
        let read = self.0.read_at(&mut text, 0)?;
        let text = str::from_utf8(&text[..read]).ok();
        text.and_then(parse)
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

fn numbers(text: &str) -> impl Iterator<Item = u64> + '_ {
    text.split_ascii_whitespace()
        .map_while(|number| number.parse().ok())
}

/// What a disk has done since it appeared: the counters in `/sys/block/NAME/stat`. They wrap
/// at the size of the kernel's `long`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Reads completed.
    pub read_ios: u64,
    /// Reads merged into others before they were submitted.
    pub read_merges: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Time that reads took, summed over all reads.
    pub read_ticks_ms: u64,
    /// Writes completed.
    pub write_ios: u64,
    /// Writes merged into others before they were submitted.
    pub write_merges: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time that writes took, summed over all writes.
    pub write_ticks_ms: u64,
    /// Requests on their way at the moment.
    pub in_flight: u64,
    /// Time during which any request was on its way.
    pub busy_ms: u64,
    /// Time that requests took, summed over all requests.
    pub queued_ms: u64,
    /// Bytes discarded (since Linux 4.18, else 0).
    pub discarded_bytes: u64,
    /// Cache flushes completed (since Linux 5.5, else 0).
    pub flush_ios: u64,
    /// Time that cache flushes took, summed over all (since Linux 5.5, else 0).
    pub flush_ticks_ms: u64,
}

impl DiskCounters {
    fn parse(text: &str) -> Option<Self> {
        // Older kernels show fewer.
        let mut fields = [0; 17];
        let found = fields.iter_mut().zip(numbers(text));
        let count = found.map(|(field, number)| *field = number).count();
        if count < 11 {
            return None;
        }
        Some(Self {
            read_ios: fields[0],
            read_merges: fields[1],
            read_bytes: fields[2].wrapping_mul(SECTOR_BYTES),
            read_ticks_ms: fields[3],
            write_ios: fields[4],
            write_merges: fields[5],
            written_bytes: fields[6].wrapping_mul(SECTOR_BYTES),
            write_ticks_ms: fields[7],
            in_flight: fields[8],
            busy_ms: fields[9],
            queued_ms: fields[10],
            discarded_bytes: fields[13].wrapping_mul(SECTOR_BYTES),
            flush_ios: fields[15],
            flush_ticks_ms: fields[16],
        })
    }
}

/// A disk's counters, for a thread that reads them often.
#[derive(Debug)]
pub struct DiskStatistics(Numbers);

impl DiskStatistics {
    /// # Errors
    ///
    /// - [`io::ErrorKind::Unsupported`]: a virtual disk, which has none.
    /// - `ENOENT`: the disk is gone.
    pub fn of(disk: &DiskInfo) -> io::Result<Self> {
        Numbers::of(disk, "stat").map(Self)
    }

    /// Their values now. Takes some microseconds.
    ///
    /// # Errors
    ///
    /// - `ENODEV`: the disk is gone.
    pub fn read(&self) -> io::Result<DiskCounters> {
        self.0.read(DiskCounters::parse)
    }
}

/// How many requests a disk is working on, for a thread that asks often.
#[derive(Debug)]
pub struct InFlight(Numbers);

impl InFlight {
    /// # Errors
    ///
    /// - [`io::ErrorKind::Unsupported`]: a virtual disk, which has none.
    /// - `ENOENT`: the disk is gone.
    pub fn of(disk: &DiskInfo) -> io::Result<Self> {
        Numbers::of(disk, "inflight").map(Self)
    }

    /// Its writes, of everybody. Takes some microseconds.
    ///
    /// # Errors
    ///
    /// - `ENODEV`: the disk is gone.
    pub fn writes(&self) -> io::Result<u64> {
        self.0.read(|text| numbers(text).nth(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_old_and_new_kernels() {
        let new = "28828 8311 3214130 18149 20483 8741 42499976 124609 2 30424 159060 3442 47 100 16295 261 7\n";
        let counters = DiskCounters::parse(new).unwrap();
        assert_eq!(counters.read_bytes, 3_214_130 * 512);
        assert_eq!(counters.written_bytes, 42_499_976 * 512);
        assert_eq!(counters.write_ticks_ms, 124_609);
        assert_eq!(counters.in_flight, 2);
        assert_eq!(counters.busy_ms, 30_424);
        assert_eq!(counters.discarded_bytes, 51_200);
        assert_eq!((counters.flush_ios, counters.flush_ticks_ms), (261, 7));
        let old = DiskCounters::parse("1 2 3 4 5 6 7 8 9 10 11").unwrap();
        assert_eq!((old.queued_ms, old.flush_ios), (11, 0));
        assert_eq!(DiskCounters::parse("1 2 3"), None);
    }
}
