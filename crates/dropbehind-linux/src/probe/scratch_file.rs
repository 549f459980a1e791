//! A file of our own to try things on.

use super::SCRATCH_PAGES;
use super::page_count::{DROP_PATIENCE, PATIENCE, wait_until};
use crate::cachestat::cachestat;
use crate::page::page_size;
use crate::vectored::{IoFlags, pwrite, pwritev2};
use crate::writeback::{start_writeback, write_and_wait};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Opens an unnamed scratch file.
fn unnamed_file(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let unnamed = rustix::fs::openat(CWD, directory, flags | OFlags::TMPFILE, mode);
    if let Ok(file) = unnamed {
        return Ok(file);
    }
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    loop {
        let name = directory.join(format!(
            ".dropbehind-probe-{}-{}",
            std::process::id(),
            COUNTER.fetch_add(1, Ordering::Relaxed)
        ));
        match rustix::fs::openat(CWD, &name, flags | OFlags::CREATE | OFlags::EXCL, mode) {
            Ok(file) => {
                rustix::fs::unlink(&name)?;
                return Ok(file);
            }
            // Left behind by a process with the same number that was killed between the two
            // calls.
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

pub(super) struct ScratchFile {
    file: OwnedFd,
    data: Vec<u8>,
}

impl ScratchFile {
    /// Creates a scratch file and fills it with plain writes.
    pub(super) fn new(directory: &Path) -> io::Result<Self> {
        let len = usize::try_from(SCRATCH_PAGES * page_size()).map_err(|_| Errno::OVERFLOW)?;
        // Neither zeros nor a pattern, so that it isn't compressed away or stored among the
        // metadata.
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let data = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .take(len)
        .collect();
        let scratch = Self {
            file: unnamed_file(directory)?,
            data,
        };
        scratch.fill(|rest, offset| pwrite(scratch.fd(), rest, offset))?;
        Ok(scratch)
    }

    /// Another scratch file for the same data, still empty.
    pub(super) fn empty_twin(&self, directory: &Path) -> io::Result<Self> {
        Ok(Self {
            file: unnamed_file(directory)?,
            data: self.data.clone(),
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(super) fn len(&self) -> u64 {
        self.data.len() as u64
    }

    fn fill(&self, write: impl Fn(&[u8], u64) -> io::Result<usize>) -> io::Result<()> {
        let mut done = 0;
        while done < self.data.len() {
            match write(&self.data[done..], done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => done += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes the whole file with `RWF_DONTCACHE`.
    pub(super) fn fill_uncached(&self) -> io::Result<()> {
        self.fill(|rest, offset| {
            pwritev2(
                self.fd(),
                &[IoSlice::new(rest)],
                Some(offset),
                IoFlags::DONTCACHE,
            )
        })
    }

    /// Makes the file clean. It is ours alone, and so are its errors. So it can be synced
    /// where watching is not enough: without cachestat, or if a file system acts only on a
    /// sync.
    pub(super) fn clean(&self) {
        let _ = start_writeback(self.fd(), 0, 0);
        let is_clean = || {
            cachestat(self.fd(), 0, 0).is_ok_and(|stat| stat.cached_pages > 0 && stat.is_clean())
        };
        if !wait_until(DROP_PATIENCE, is_clean) {
            let _ = write_and_wait(self.fd(), 0, 0);
            let _ = rustix::fs::fdatasync(self.fd());
        }
    }

    /// Like [`ScratchFile::clean`], but for pages that leave once they are clean, and so
    /// never show as cached and clean.
    pub(super) fn clean_uncached(&self) {
        let _ = start_writeback(self.fd(), 0, 0);
        let is_clean = || cachestat(self.fd(), 0, 0).is_ok_and(|stat| stat.is_clean());
        if !wait_until(PATIENCE, is_clean) {
            let _ = write_and_wait(self.fd(), 0, 0);
        }
    }
}
