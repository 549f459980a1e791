//! Who else is at work on a disk: locks on a file of sysfs that every process can open.
//!
//! Whoever is at work holds a read lock on a byte of its own of the disk's `stat`
//! file. Read locks exclude nobody, end with their process however that ends, and
//! leave nothing behind. Containers with a sysfs mount of another network
//! namespace have other inodes, and are not seen.

use crate::disk::{DiskInfo, sysfs};
use crate::processor_time::processor_time;
use crate::record_lock::{lock_call, span};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// One thread's presence on a disk. Others see it from [`enter`](Self::enter) to
/// [`leave`](Self::leave), or until it is dropped.
#[derive(Debug)]
pub struct Presence {
    stat: File,
    byte: i64,
    entered: bool,
}

impl Presence {
    /// Not there yet. The calling thread's number is the byte, so that no two
    /// threads of a process ID namespace have the same.
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

    /// Others see us from now on.
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

    /// Others don't see us any more.
    pub fn leave(&mut self) {
        if self.entered {
            let mut lock = span(libc::F_UNLCK, self.byte, self.byte);
            // Unlocking what is locked can't fail, and ends with us anyway.
            let _ = lock_call(self.stat.as_fd(), libc::F_OFD_SETLK, &mut lock);
            self.entered = false;
        }
    }

    /// How many others are there; from `most` on they are not counted any more,
    /// since each takes two calls, nor after so much of a processor's time: a call
    /// takes longer the more locks there are.
    ///
    /// A lock on several bytes is none of ours, and hides others. It counts as `most`.
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
            // Which read locks are there tells only what they would exclude.
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
