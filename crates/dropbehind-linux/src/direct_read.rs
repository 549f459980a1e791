//! Reading around the page cache, to make a file's writers wait.
//!
//! A direct read of pages that are dirty or under writeback waits until they are written
//! (`kiocb_write_and_wait` in `fs/iomap/direct-io.c`). On ext4, xfs and btrfs it holds the
//! inode's lock meanwhile, shared: writers of the file wait for that lock, readers don't.
//! That is how another process can hold a writer back, inside the kernel and for no longer
//! than the disk takes. If that process dies, its read ends and the lock goes with it.
//!
//! f2fs takes its own lock for direct reads, `i_gc_rwsem`, for which its buffered writers do
//! not wait (`f2fs_dio_read_iter` in `fs/f2fs/file.c`).

use crate::file::{FsKind, file_info};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Memory that cannot be written to. A read into it waits like any other, and then fails, on
/// ext4 and xfs without having asked the disk for anything. Real disk reads would make the
/// kernel's writeback throttling (blk-wbt) believe that a program suffers from the writes,
/// and slow those down.
///
/// btrfs tries once more through the page cache (`btrfs_direct_read`,
/// `btrfs_file_read_iter`), which fails at the first page. That page has just been written,
/// and is usually cached. If it has just been dropped, it is read from the disk, with the
/// kernel's readahead.
#[derive(Debug)]
struct Nowhere {
    start: *mut c_void,
}

/// Address space only. One call reads at most 2 GiB in any case.
const NOWHERE_BYTES: usize = 256 << 20;

// SAFETY: nobody ever reads or writes there.
unsafe impl Send for Nowhere {}

impl Nowhere {
    fn new() -> io::Result<Nowhere> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                NOWHERE_BYTES,
                ProtFlags::empty(),
                flags,
            )
        }?;
        Ok(Nowhere { start })
    }
}

impl Drop for Nowhere {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, and nobody has a reference into it.
        let _ = unsafe { munmap(self.start, NOWHERE_BYTES) };
    }
}

/// Reads ranges of a file around the page cache, into nowhere.
#[derive(Debug)]
pub struct DirectReader {
    file: OwnedFd,
    nowhere: Nowhere,
}

impl DirectReader {
    /// The most that one read waits for, in bytes.
    pub const RANGE_MAX_BYTES: u64 = NOWHERE_BYTES as u64;

    /// Opens a description of its own for the file behind `fd`.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: writers would not wait. This is a block device, a file system not
    ///   named above, or a file that it always reads through the page cache (encrypted,
    ///   verified, with its data in the journal or in the inode). statx(2) reports such files
    ///   since Linux 6.1 (`STATX_DIOALIGN`), but not on btrfs. Unreported ones are accepted,
    ///   and their writers don't wait.
    /// - `EINVAL`: the file system has no direct I/O for this file.
    /// - Those of open(2).
    pub fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let info = file_info(fd)?;
        let locks = matches!(info.filesystem, FsKind::Ext4 | FsKind::Xfs | FsKind::Btrfs);
        if !locks || matches!(info.direct_io_alignment, Some((0, _))) {
            return Err(Errno::OPNOTSUPP.into());
        }
        // The thread may have its own descriptor table.
        let path = format!("/proc/thread-self/fd/{}", fd.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::DIRECT;
        let open = |flags| openat(CWD, path.as_str(), flags, Mode::empty());
        let file = match open(flags | OFlags::NOATIME) {
            // Only a file's owner may use `O_NOATIME`.
            Err(Errno::PERM) => open(flags)?,
            other => other?,
        };
        Ok(Self {
            file,
            nowhere: Nowhere::new()?,
        })
    }

    /// Writes what is dirty in a range, in multiples of 4096, and returns when that is on the
    /// disk. The file's writers wait meanwhile. Of a range longer than
    /// [`RANGE_MAX_BYTES`](Self::RANGE_MAX_BYTES), only the beginning is written.
    ///
    /// # Errors
    ///
    /// - `EIO`, `ENOSPC` and others: it could not be written, now or earlier. fsync(2) still
    ///   reports that to the writers: it uses `errseq_t`, which each description samples and
    ///   which is not looked at here. This does clear the file's flags `AS_EIO` and
    ///   `AS_ENOSPC` (`filemap_check_errors` in `mm/filemap.c`), which the next direct read,
    ///   by any process, would have returned.
    /// - `EIO` is also what ext4 and xfs return if a page of the range was written through a
    ///   mapping at that moment.
    /// - `ENOMEM`, `EAGAIN`: not now.
    pub fn write_range(&self, offset: u64, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_or(NOWHERE_BYTES, |len| len.min(NOWHERE_BYTES));
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?;
        loop {
            // SAFETY: the kernel writes nothing where nothing can be written.
            let read =
                unsafe { libc::pread(self.file.as_raw_fd(), self.nowhere.start, len, offset) };
            if read >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EFAULT) => return Ok(()),
                _ => return Err(error),
            }
        }
    }
}

impl AsFd for DirectReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
