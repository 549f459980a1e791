//! Asking whether writeback of a file failed, without privilege and without taking
//! the error from anybody's fsync(2).
//!
//! After a failed writeback the kernel takes the pages for clean, though the disk never
//! got them. It notes the failure twice (`mapping_set_error` in
//! include/linux/pagemap.h), and both notes before the pages stop being under
//! writeback, see [`WritebackFailures`](crate::WritebackFailures):
//!
//! * in the flags `AS_EIO` and `AS_ENOSPC` of the inode. Every direct read looks at them
//!   and clears them, before it looks at what it is to read
//!   (`filemap_write_and_wait_range` in mm/filemap.c);
//! * in an `errseq_t`, of which each description has a sample. fsync(2) goes by this one
//!   alone. Whoever asks for it marks it as seen, and a file that is opened later is not
//!   told of what somebody has seen.
//!
//! So the flags are asked first. They say nothing once an fsync(2) has reported the error,
//! of whomsoever, since that clears them, too. But then the `errseq_t` has been seen, and
//! to ask for it as well takes nothing from anybody. One case is left: a failure that is
//! noted between the two questions, a microsecond, is marked as seen. Whoever has the file
//! open by then is told of it all the same.
//!
//! The other way round would be worse. To mark an error as seen and then to have the kernel
//! write the pages once more, for a new error, loses it where the disk works again by then:
//! ext4 does not convert a new file's extents in a second writeback, so that the data reads
//! as zeroes and nothing tells of it (Linux 6.18).

use crate::advice::{Access, advise_access};
use crate::file::{FsKind, file_info};
use crate::page::page_size;
use crate::writeback::writeback_error_of_description;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::LazyLock;

/// Whether a file can be asked if its writeback failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Askable {
    /// It can, through the description that was prepared.
    Yes,
    /// Others on its file system can: it has no direct reads (encrypted, verified, with
    /// its data in the journal or in the inode), or may not be read.
    NotThisFile,
    /// Its file system is neither ext4, xfs nor btrfs, and it is no block device.
    NotThere,
}

/// Prepares a description of our own for [`writeback_error`]: it reads around the page
/// cache from now on, and without reading ahead.
pub fn prepare_to_ask(fd: BorrowedFd<'_>) -> Askable {
    let Ok(info) = file_info(fd) else {
        return Askable::NotThisFile;
    };
    let known = [
        FsKind::Ext4,
        FsKind::Xfs,
        FsKind::Btrfs,
        FsKind::BlockDevice,
    ];
    if !known.contains(&info.filesystem) {
        return Askable::NotThere;
    }
    let prepared = || -> rustix::io::Result<bool> {
        let flags = rustix::fs::fcntl_getfl(fd)?;
        if flags & OFlags::ACCMODE == OFlags::WRONLY
            || matches!(info.direct_io_alignment, Some((0, _)))
        {
            return Ok(false);
        }
        rustix::fs::fcntl_setfl(fd, flags | OFlags::DIRECT)?;
        Ok(true)
    };
    // btrfs tries once more through the page cache (`btrfs_file_read_iter`).
    if matches!(prepared(), Ok(true)) && advise_access(fd, Access::Random).is_ok() {
        Askable::Yes
    } else {
        Askable::NotThisFile
    }
}

/// The address of a page that nobody can write to; it stays as long as the process. A
/// direct read into it fails before the disk is asked for anything.
static NOWHERE: LazyLock<Option<usize>> = LazyLock::new(|| {
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let mapped = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            page_len(),
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    };
    mapped.ok().map(|start| start.addr())
});

fn page_len() -> usize {
    usize::try_from(page_size()).unwrap_or(4096)
}

/// The error of a writeback of the file that failed since `fd`, which was
/// [prepared](prepare_to_ask), was opened, or before that if nobody has asked for it since;
/// `None` when there was none. Told once. Pages that were counted clean before this was
/// asked are on the disk when there was none.
///
/// The page at `offset` should be clean, and for btrfs cached: what is dirty there is
/// written and waited for. Except on block devices the call takes the inode's lock, shared,
/// and so waits for a write(2) that is under way. What others' direct reads would have been
/// told of the error is taken from them, which fsync(2) does as well. The access time
/// changes as with a read, unless the description has `O_NOATIME`.
///
/// # Errors
///
/// It could not be asked:
///
/// - `ENXIO`: the file ends before `offset`.
/// - `ENOMEM`, `EINTR`: not now.
/// - `EBADF`, `EINVAL`: not this description, or not at this offset.
pub fn writeback_error(fd: BorrowedFd<'_>, offset: u64) -> io::Result<Option<io::Error>> {
    let nowhere = NOWHERE.ok_or(Errno::NOMEM)?;
    let offset = libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel writes nothing where nothing can be written.
    let read = unsafe {
        libc::pread(
            fd.as_raw_fd(),
            std::ptr::without_provenance_mut(nowhere),
            page_len(),
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
