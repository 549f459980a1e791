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

use crate::advice::{Access, advise_access};
use crate::file::{FsKind, filesystem, has_direct_reads};
use crate::mincore::resident_ranges;
use crate::nowhere::Nowhere;
use crate::vectored::IoFlags;
use rustix::fs::{CWD, Mode, OFlags, fcntl_getfl, fcntl_setfl, openat};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Real disk reads would make the kernel's writeback throttling (blk-wbt) believe that a program
/// suffers from the writes, and slow those down.
///
/// btrfs tries once more through the page cache (`btrfs_direct_read`,
/// `btrfs_file_read_iter`), which fails at the first page. That page has just been written,
/// and is usually cached. If it has just been dropped, it is read from the disk, with the
/// kernel's readahead.
static NOWHERE: Nowhere = Nowhere::new(NOWHERE_BYTES);

/// Address space only. One call reads at most 2 GiB in any case.
const NOWHERE_BYTES: usize = 256 << 20;

/// Reads a range of a description with `O_DIRECT` into nowhere. `Ok` means that the kernel had
/// nothing to write there, or has written it.
///
/// # Errors
///
/// Those of preadv2(2) but `EFAULT`, which is what succeeds here.
fn read_into_nowhere(fd: BorrowedFd<'_>, offset: u64, len: u64, flags: IoFlags) -> io::Result<()> {
    let nowhere = NOWHERE.address()?;
    let len = usize::try_from(len).map_or(NOWHERE_BYTES, |len| len.min(NOWHERE_BYTES));
    let offset = libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?;
    let part = libc::iovec {
        iov_base: nowhere,
        iov_len: len,
    };
    let flags = flags.bits().cast_signed();
    loop {
        // SAFETY: one part, which lives as long as the call, and in whose memory the kernel
        // cannot write anything.
        let read = unsafe { libc::preadv2(fd.as_raw_fd(), &raw const part, 1, offset, flags) };
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

/// Makes the reads of a description of our own go around the page cache.
///
/// # Errors
///
/// - `EOPNOTSUPP`: the file is on the network, on FUSE or on tmpfs.
/// - `EINVAL`: the file system has no direct I/O for this file.
/// - `EBADF`: it is not open for reading.
fn make_direct(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = fcntl_getfl(fd)?;
    if flags.contains(OFlags::DIRECT) {
        return Ok(());
    }
    if flags.contains(OFlags::PATH) || flags & OFlags::ACCMODE == OFlags::WRONLY {
        return Err(Errno::BADF.into());
    }
    let kind = filesystem(fd)?;
    if kind.is_remote() || kind == FsKind::Tmpfs || !has_direct_reads(fd) {
        return Err(Errno::OPNOTSUPP.into());
    }
    // Only a file's owner may use `O_NOATIME`.
    match fcntl_setfl(fd, flags | OFlags::DIRECT | OFlags::NOATIME) {
        Err(Errno::PERM) => fcntl_setfl(fd, flags | OFlags::DIRECT)?,
        other => other?,
    }
    // btrfs retries through the page cache.
    advise_access(fd, Access::Random)
}

/// How often to try again while a writer holds the inode's lock.
const LOCK_TRIES: u32 = 16;

/// Returns whether pages of a range, which are all up to date, are dirty or under writeback,
/// without waiting for anything (`filemap_range_needs_writeback` in `mm/filemap.c`, since
/// Linux 5.13; before, `EAGAIN` is the answer for any page that is cached). `None` if a writer
/// holds the inode's lock. `fd` is a description of our own, and reads around the page cache
/// from now on.
///
/// # Errors
///
/// - `EOPNOTSUPP`: this kernel or file system cannot answer without waiting.
/// - `EIO`, `ENOSPC`: writeback of the file has failed, as for
///   [`write_and_wait_unseen`]. Not all kernels say so.
/// - Those of [`write_and_wait_unseen`] else.
pub(crate) fn is_unwritten(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<Option<bool>> {
    make_direct(fd)?;
    for _ in 0..LOCK_TRIES {
        match read_into_nowhere(fd, offset, len, IoFlags::NOWAIT) {
            Ok(()) => return Ok(Some(false)),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Err(_) => {}
        }
        // Beyond the end of the file there are no pages, so only the lock could be in the way.
        let end = crate::size_bytes(fd)?.next_multiple_of(crate::page_size());
        if read_into_nowhere(fd, end, crate::page_size(), IoFlags::NOWAIT).is_ok() {
            return Ok(Some(true));
        }
        std::thread::yield_now();
    }
    Ok(None)
}

/// Writes the dirty pages of a range and waits for their writeback to end, like
/// [`write_and_wait`](crate::write_and_wait()), but leaves the writeback error to whoever asks
/// for it by fsync(2): now, or after opening the file later. `fd` is a description of our own,
/// and reads around the page cache from now on. Writers of the file wait meanwhile.
///
/// # Errors
///
/// - `EIO`, `ENOSPC` and others: it could not be written, now or earlier. fsync(2) still
///   reports that, see [`DirectReader::write_range`].
/// - `EOPNOTSUPP`: the file is on the network, on FUSE or on tmpfs.
/// - `EINVAL`: the file system has no direct I/O for this file.
/// - `EBADF`: the description is not open for reading.
/// - `ENOMEM`, `EAGAIN`: not now.
pub fn write_and_wait_unseen(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    make_direct(fd)?;
    // On btrfs, the first page must be cached, or it is read.
    let all = std::iter::once(offset..offset.saturating_add(len)).collect();
    for range in resident_ranges(fd, offset, len).unwrap_or(all) {
        let mut at = range.start;
        while at < range.end {
            let bytes = (range.end - at).min(DirectReader::RANGE_MAX_BYTES);
            read_into_nowhere(fd, at, bytes, IoFlags::NONE)?;
            at += bytes;
        }
    }
    Ok(())
}

/// Reads ranges of a file around the page cache, into nowhere.
#[derive(Debug)]
pub struct DirectReader {
    file: OwnedFd,
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
        let locks = matches!(filesystem(fd)?, FsKind::Ext4 | FsKind::Xfs | FsKind::Btrfs);
        if !locks || !has_direct_reads(fd) {
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
        NOWHERE.address()?;
        Ok(Self { file })
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
        read_into_nowhere(self.file.as_fd(), offset, len, IoFlags::NONE)
    }
}

impl AsFd for DirectReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
