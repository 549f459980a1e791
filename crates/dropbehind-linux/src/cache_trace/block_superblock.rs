//! The inodes that the pages of block devices belong to: block/bdev.c.
//!
//! They are in a file system of the kernel's own that is mounted nowhere, so no
//! call tells its number: stat(2), /proc/PID/maps and /proc/locks all name the
//! file system of the device node. The number is given once, at boot. So we read
//! a page of a block device with a trace of this thread alone, and look it up
//! there.

use super::event::Scope;
use super::format::Format;
use super::ring::Ring;
use super::{TraceRecord, records, tracefs};
use crate::advice::{Access, advise_access, drop_clean};
use crate::block::block_size_bytes;
use crate::file::FileKind;
use crate::loop_device::attach_loop_device;
use crate::mincore::resident_ranges;
use crate::page::page_size;
use rustix::fs::{MemfdFlags, major, memfd_create, minor};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// So many places of a device are tried.
const PLACES: u64 = 32;
/// Enough for as many places to be tried.
const OWN_DEVICE_BYTES: u64 = 1 << 20;

/// The number of the inode that a block device's pages belong to: the device's
/// own number, as the kernel writes it.
///
/// # Errors
///
/// - `ENOTBLK`: not a block device.
/// - Those of fstat(2).
pub fn block_device_number(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let stat = rustix::fs::fstat(fd)?;
    if FileKind::of(&stat) != FileKind::Block {
        return Err(io::Error::from_raw_os_error(libc::ENOTBLK));
    }
    Ok(kernel_device(stat.st_rdev).into())
}

/// A device's number as the kernel writes it, `MAJOR << 20 | MINOR`, from one as of
/// makedev(3).
#[must_use]
pub fn kernel_device(device: u64) -> u32 {
    major(device) << 20 | minor(device)
}

/// The device number of the superblock that the pages of all block devices belong
/// to, as the kernel writes it. It stays the same until the next boot, and is
/// found out only once in a process.
///
/// One page of the given device is read for that which was not cached, and dropped
/// again. The device is opened anew, so nothing is changed for who else has this
/// description. Where all of the device is cached, a loop device is made and read
/// instead.
///
/// # Errors
///
/// - `ENOTBLK`: not a block device.
/// - `PermissionDenied`, `Unsupported`: see [`CacheTraceError`].
/// - `NotFound`: the device has no page that is not cached, and no loop device can
///   be made. Another device may have.
/// - Those of open(2) and read(2).
///
/// [`CacheTraceError`]: super::CacheTraceError
pub fn block_superblock(fd: BorrowedFd<'_>) -> io::Result<u32> {
    static FOUND: OnceLock<u32> = OnceLock::new();

    let number = block_device_number(fd)?;
    if let Some(&found) = FOUND.get() {
        return Ok(found);
    }
    let found = find(fd, number)?;
    Ok(*FOUND.get_or_init(|| found))
}

fn find(fd: BorrowedFd<'_>, number: u64) -> io::Result<u32> {
    let device = File::open(format!("/proc/thread-self/fd/{}", fd.as_raw_fd()))?;
    // The number of the descriptor may be another's by now.
    if block_device_number(device.as_fd())? != number {
        return Err(io::Error::from_raw_os_error(libc::ESTALE));
    }
    find_on(&device).or_else(|error| find_on_own_device().map_err(|_| error))
}

fn find_on(device: &File) -> io::Result<u32> {
    advise_access(device.as_fd(), Access::Random)?;
    let page_bytes = page_size();
    let device_pages = block_size_bytes(device.as_fd())? / page_bytes;
    let trial = Trial::new(device)?;
    let mut failed = io::ErrorKind::NotFound.into();
    let places = PLACES.min(device_pages);
    // From the end, where less is cached as a rule.
    for place in (0..places).rev() {
        match trial.read(device_pages * place / places * page_bytes) {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn find_on_own_device() -> io::Result<u32> {
    let memory = memfd_create("dropbehind", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&memory, OWN_DEVICE_BYTES)?;
    let device = attach_loop_device(memory.as_fd())?;
    find_on(&File::open(device.path())?)
}

struct Trial<'a> {
    device: &'a File,
    number: u64,
    tracepoint: u64,
    format: Format,
}

impl<'a> Trial<'a> {
    fn new(device: &'a File) -> io::Result<Self> {
        let (tracepoint, format) = tracefs::tracepoint()?;
        Ok(Self {
            device,
            number: block_device_number(device.as_fd())?,
            tracepoint,
            format,
        })
    }

    /// Reads a page that is not cached, and says whose it became.
    fn read(&self, offset: u64) -> io::Result<Option<u32>> {
        let fd = self.device.as_fd();
        let page_bytes = page_size();
        if !resident_ranges(fd, offset, page_bytes)?.is_empty() {
            return Ok(None);
        }
        let mut ring = Ring::open(self.tracepoint, Scope::ThisThread, 1)?;
        ring.event().enable()?;
        let read = self.device.read_at(&mut [0], offset);
        let mut found = None;
        ring.drain(&mut Vec::new(), |bytes| {
            let record = records::parse(bytes, &self.format);
            if let Some(TraceRecord::Added {
                inode,
                first_page,
                pages,
                ..
            }) = record.map(|stamped| stamped.record)
                && inode.number == self.number
                && (first_page..first_page + pages).contains(&(offset / page_bytes))
            {
                found = Some((inode.device, first_page, pages));
            }
        });
        // Added it is before it is read, and so even if that fails.
        let Some((superblock, first_page, pages)) = found else {
            return read.map(|_| None);
        };
        drop_clean(fd, first_page * page_bytes, pages * page_bytes)?;
        Ok(Some(superblock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropbehind_testbed::{LoopDisk, need, residency};

    fn found_with(device: &File) -> u32 {
        find(device.as_fd(), block_device_number(device.as_fd()).unwrap()).unwrap()
    }

    #[test]
    fn a_device_is_left_as_it_was() {
        need!(all LoopDisk::needs());
        let disk = LoopDisk::new(1 << 20).unwrap();
        let device = File::open(disk.path()).unwrap();
        let cached = || residency::sample(&device).unwrap().cached_pages;
        drop_clean(device.as_fd(), 0, 0).unwrap();
        assert_eq!(cached(), 0);
        let uncached = found_with(&device);
        assert_eq!(cached(), 0);

        // Nothing is learned from a device that is cached, nor is it dropped.
        device.read_exact_at(&mut vec![0; 1 << 20], 0).unwrap();
        assert_eq!(cached() * page_size(), 1 << 20);
        let error = find_on(&device).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(found_with(&device), uncached);
        assert_eq!(cached() * page_size(), 1 << 20);
    }

    #[test]
    fn a_device_without_a_page_will_do() {
        need!(all LoopDisk::needs());
        let small = File::open(LoopDisk::new(512).unwrap().path()).unwrap();
        let large = File::open(LoopDisk::new(1 << 20).unwrap().path()).unwrap();
        assert_eq!(found_with(&small), found_with(&large));
    }
}
