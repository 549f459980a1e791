//! Asking whether writeback of a file failed, without privilege and without taking the error
//! from any process's fsync(2).
//!
//! After a failed writeback the kernel takes the pages for clean although the disk never got
//! them. It records the failure in two places (`mapping_set_error` in
//! include/linux/pagemap.h), both before the pages stop being under writeback, see
//! [`WritebackFailures`](crate::WritebackFailures):
//!
//! * in the inode's flags `AS_EIO` and `AS_ENOSPC`. Every direct read checks and clears them
//!   before it looks at its range (`filemap_write_and_wait_range` in mm/filemap.c);
//! * in an `errseq_t`, which each description samples. fsync(2) uses only this one. Asking
//!   for it marks the error as seen, and an error that has been seen is not reported to files
//!   opened later.
//!
//! So the flags are asked first. They show nothing once anybody has cleared them. fsync(2) does
//! so as it reports the error. Then the `errseq_t` has been seen, and asking for it as well takes
//! nothing from anybody. But other calls clear the flags and leave the `errseq_t` unseen: any
//! direct read, which this question is itself, and `FS_IOC_FIEMAP` with `FIEMAP_FLAG_SYNC`. If
//! another process made such a call after the failure, the question marks the error as seen, and
//! files opened later don't get it. Nobody can tell the two cases apart. Processes that had the
//! file open before the question still get the error. A failure that is recorded between the two questions,
//! within a microsecond, is marked as seen, too. So a process that knows of a failure must not ask
//! again, through any description of the file.
//!
//! The other way round would be worse: marking an error as seen, and then making the kernel
//! write the pages again to get a new error. If the disk works again by then, the error is
//! lost. ext4 does not convert a new file's extents in a second writeback, so the data reads
//! as zeros, and nothing reports that (Linux 6.18).

use crate::advice::{Access, advise_access};
use crate::file::{FsKind, filesystem, has_direct_reads, is_in_inode};
use crate::nowhere::Nowhere;
use crate::page::page_size;
use crate::writeback::writeback_error_of_description;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Whether a file can be asked if its writeback failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Askable {
    /// It can, through the prepared description.
    Yes,
    /// Other files on its file system can. This one has no direct reads (encrypted, verified,
    /// with its data in the journal), or may not be read.
    NotThisFile,
    /// Its data is in its inode (ext4's `inline_data`). The kernel has written none of its pages
    /// back yet, so no writeback can have failed. Prepare again later: once the data has outgrown
    /// the inode, the file may be asked.
    InInode,
    /// Its file system is not ext4, xfs or btrfs, and it is not a block device.
    NotThere,
}

/// Prepares a description of our own for [`writeback_error`]: from now on it reads around the
/// page cache, and without readahead.
pub fn prepare_to_ask(fd: BorrowedFd<'_>) -> Askable {
    let Ok(filesystem) = filesystem(fd) else {
        return Askable::NotThisFile;
    };
    let known = [
        FsKind::Ext4,
        FsKind::Xfs,
        FsKind::Btrfs,
        FsKind::BlockDevice,
    ];
    if !known.contains(&filesystem) {
        return Askable::NotThere;
    }
    // Before anything else is looked at: it may outgrow the inode meanwhile, though never return.
    if filesystem == FsKind::Ext4 && is_in_inode(fd) {
        return Askable::InInode;
    }
    let prepared = || -> rustix::io::Result<bool> {
        let flags = rustix::fs::fcntl_getfl(fd)?;
        if flags & OFlags::ACCMODE == OFlags::WRONLY || !has_direct_reads(fd) {
            return Ok(false);
        }
        rustix::fs::fcntl_setfl(fd, flags | OFlags::DIRECT)?;
        Ok(true)
    };
    // btrfs retries through the page cache (`btrfs_file_read_iter`), so readahead is off.
    let reads_nothing_ahead =
        || filesystem != FsKind::Btrfs || advise_access(fd, Access::Random).is_ok();
    match matches!(prepared(), Ok(true)) && reads_nothing_ahead() {
        true => Askable::Yes,
        false => Askable::NotThisFile,
    }
}

/// The largest page size.
const NOWHERE_BYTES: usize = 64 << 10;
static NOWHERE: Nowhere = Nowhere::new(NOWHERE_BYTES);

/// Returns the error of a failed writeback of the file, once. It covers failures since `fd`,
/// which was [prepared](prepare_to_ask), was opened, and earlier ones that nobody has asked
/// for since. `None` means that there was none, and so pages that were counted as clean
/// before this call are on the disk.
///
/// The page at `offset` should be clean, and on btrfs cached: a dirty page there is written
/// and waited for. Except on block devices, the call takes the inode's lock, shared, and so
/// waits for a write(2) under way. It takes the error from other processes' direct reads, as
/// fsync(2) does, too. Once it has returned the error, another call, through any description, may
/// take the error from files opened later. It changes the access time like any read, unless the
/// description has `O_NOATIME`.
///
/// # Errors
///
/// If it could not be asked:
///
/// - `ENXIO`: the file ends before `offset`.
/// - `ENOMEM`, `EINTR`: not now.
/// - `EBADF`, `EINVAL`: not this description, or not at this offset.
pub fn writeback_error(fd: BorrowedFd<'_>, offset: u64) -> io::Result<Option<io::Error>> {
    let nowhere = NOWHERE.address()?;
    let offset = libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel writes nothing where nothing can be written.
    let read = unsafe {
        libc::pread(
            fd.as_raw_fd(),
            nowhere,
            usize::try_from(page_size()).unwrap_or(NOWHERE_BYTES),
            offset,
        )
    };
    if read >= 0 {
        return Err(Errno::NXIO.into());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EFAULT) => Ok(writeback_error_of_description(fd)),
        Some(libc::EIO | libc::ENOSPC) => Ok(Some(error)),
        _ => Err(error),
    }
}
