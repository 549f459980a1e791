//! A process that cannot be mistaken for another: pidfd_open(2),
//! pidfd_send_signal(2), since Linux 5.3.

use crate::poll::{Interest, PollEntry, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A process, even if its number is reused.
#[derive(Debug)]
pub struct Pidfd {
    fd: OwnedFd,
}

impl Pidfd {
    /// The process that currently has this number.
    ///
    /// # Errors
    ///
    /// - `ESRCH`: there is no such process.
    /// - `EINVAL`: the number is not positive, or is a thread's.
    /// - `EMFILE`, `ENFILE`, `ENOMEM`; `ENOSYS` before Linux 5.3.
    pub fn open(process: i32) -> io::Result<Self> {
        let pid = Pid::from_raw(process)
            .filter(|_| process > 0)
            .ok_or_else(crate::errno::invalid)?;
        Ok(Self {
            fd: pidfd_open(pid, PidfdFlags::empty())?,
        })
    }

    /// Sends a signal, any number that kill(2) accepts; 0 only checks.
    ///
    /// # Errors
    ///
    /// - `ESRCH`: the process has ended.
    /// - `EPERM`: it is another user's.
    /// - `EINVAL`: there is no such signal.
    pub fn send_signal(&self, signal: i32) -> io::Result<()> {
        // SAFETY: integers, and a null pointer, which means the information that kill(2)
        // would send.
        let returned = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.fd.as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
        crate::errno::check(returned)
    }

    /// Waits until the process has ended, and returns whether it has. It need not be a child
    /// of the caller, and is not reaped.
    ///
    /// # Errors
    ///
    /// - `EINTR`: a signal's handler ran.
    /// - `ENOMEM`.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let mut entry = [PollEntry::new(self.as_fd(), Interest::Readable)];
        Ok(poll(&mut entry, timeout)? > 0)
    }
}

impl AsFd for Pidfd {
    /// For polling: readable when the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
