//! Detecting other flushers of a disk: locks on a sysfs file that every process can open.
//!
//! A working flusher holds a read lock on its own byte of the disk's `stat` file. Read locks
//! exclude nobody, end with their process, however it ends, and leave nothing behind.
//! Containers whose sysfs was mounted for another network namespace have other inodes, and
//! are not seen.

use crate::disk::{DiskInfo, sysfs};
use crate::processor_time::processor_time;
use crate::record_lock::{lock_call, span};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// One thread's presence on a disk. Others see it from [`enter`](Self::enter) until
/// [`leave`](Self::leave) or drop.
#[derive(Debug)]
pub struct Presence {
    stat: File,
    byte: i64,
    entered: bool,
}

impl Presence {
    /// Not present yet. The byte is the calling thread's number, so that no two threads in a
    /// pid namespace share one.
    ///
    /// # Errors
    ///
    /// - [`io::ErrorKind::Unsupported`]: a virtual disk has no such file.
    /// - `ENOENT`: the disk is gone, or there is no sysfs.
    pub fn new(disk: &DiskInfo) -> io::Result<Presence> {
        if disk.virtual_ {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Presence {
            stat: File::open(sysfs(disk.id).join("stat"))?,
            byte: rustix::thread::gettid().as_raw_nonzero().get().into(),
            entered: false,
        })
    }

    /// Makes us visible to others.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: before Linux 3.15.
    /// - `ENOLCK`: the system has no more locks.
    pub fn enter(&mut self) -> io::Result<()> {
        if !self.entered {
            let mut lock = span(libc::F_RDLCK, self.byte, self.byte);
            lock_call(self.stat.as_fd(), libc::F_OFD_SETLK, &mut lock)?;
            self.entered = true;
        }
        Ok(())
    }

    /// Hides us from others.
    pub fn leave(&mut self) {
        if self.entered {
            let mut lock = span(libc::F_UNLCK, self.byte, self.byte);
            // Unlocking cannot fail here, and the lock ends with us anyway.
            let _ = lock_call(self.stat.as_fd(), libc::F_OFD_SETLK, &mut lock);
            self.entered = false;
        }
    }

    /// How many others are present. Stops counting at `most`, since each takes two calls, and
    /// after `at_most` of processor time, since a call takes longer the more locks there are.
    ///
    /// A lock on several bytes is not a flusher's, and may hide others. It counts as `most`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: before Linux 3.15.
    pub fn others(&self, most: u64, at_most: Duration) -> io::Result<u64> {
        let mut others = 0;
        let mut spans = vec![(0, i64::MAX)];
        let until = processor_time() + at_most;
        while let Some((first, last)) = spans.pop() {
            if others >= most || processor_time() > until {
                break;
            }
            // Read locks only show as conflicts, so ask about a write lock.
            let mut lock = span(libc::F_WRLCK, first, last);
            lock_call(self.stat.as_fd(), libc::F_OFD_GETLK, &mut lock)?;
            if i32::from(lock.l_type) == libc::F_UNLCK {
                continue;
            }
            if lock.l_len != 1 {
                return Ok(most);
            }
            others += 1;
            if lock.l_start > first {
                spans.push((first, lock.l_start - 1));
            }
            if lock.l_start < last {
                spans.push((lock.l_start + 1, last));
            }
        }
        Ok(others)
    }
}
