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

/// What a disk has done since it appeared: some of the counters in `/sys/block/NAME/stat`. They
/// wrap at the size of the kernel's `long`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Reads completed.
    pub read_ios: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Time that reads took, summed over all reads.
    pub read_ticks_ms: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl DiskCounters {
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<u64> = numbers(text).collect();
        let &[
            read_ios,
            _,
            read_sectors,
            read_ticks_ms,
            _,
            _,
            written_sectors,
            ..,
        ] = &*fields
        else {
            return None;
        };
        Some(Self {
            read_ios,
            read_bytes: read_sectors.wrapping_mul(SECTOR_BYTES),
            read_ticks_ms,
            written_bytes: written_sectors.wrapping_mul(SECTOR_BYTES),
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
        let counters = DiskCounters {
            read_ios: 28_828,
            read_bytes: 3_214_130 * 512,
            read_ticks_ms: 18_149,
            written_bytes: 42_499_976 * 512,
        };
        assert_eq!(DiskCounters::parse(new), Some(counters));
        let old = DiskCounters::parse("1 2 3 4 5 6 7 8 9 10 11").unwrap();
        assert_eq!((old.read_ios, old.written_bytes), (1, 7 * 512));
        assert_eq!(DiskCounters::parse("1 2 3"), None);
    }
}
