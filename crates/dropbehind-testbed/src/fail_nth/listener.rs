//! Answering the calls that a filter reports.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use libc::{c_int, c_long, c_ulong};

use super::CallFilter;
use crate::context::checked;

const NOTIF_RECV: c_ulong = 0xc050_2100;
const NOTIF_SEND: c_ulong = 0xc018_2101;
const FLAG_CONTINUE: u32 = 1;
const PATH_MAX: usize = 4096;

/// A reported system call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) number: c_long,
    pub(super) arguments: [u64; 6],
    id: u64,
    thread: libc::pid_t,
}

impl Call {
    /// The path that an argument points to, in the caller's memory.
    pub(super) fn path(&self, argument: usize) -> Option<String> {
        let start = usize::try_from(*self.arguments.get(argument)?).ok()?;
        let page = rustix::param::page_size();
        let mut path = Vec::new();
        // Page by page: the next one may not be there, nor be needed.
        while path.len() < PATH_MAX {
            let address = start.checked_add(path.len())?;
            let mut part = vec![0; page - address % page];
            let length = self.read_memory(address, &mut part)?;
            let part = &part[..length];
            if let Some(end) = part.iter().position(|&byte| byte == 0) {
                path.extend_from_slice(&part[..end]);
                return Some(String::from_utf8_lossy(&path).into_owned());
            }
            path.extend_from_slice(part);
        }
        None
    }

    fn read_memory(&self, address: usize, into: &mut [u8]) -> Option<usize> {
        let local = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        let remote = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(address),
            iov_len: into.len(),
        };
        // SAFETY: writes to `into` only, as far as it goes; the kernel checks
        // the other process's address.
        let read = unsafe {
            libc::process_vm_readv(self.thread, &raw const local, 1, &raw const remote, 1, 0)
        };
        usize::try_from(read).ok().filter(|&length| length > 0)
    }
}

/// The kernel's `struct seccomp_notif`.
#[repr(C)]
#[derive(Default)]
struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    architecture: u32,
    instruction: u64,
    arguments: [u64; 6],
}

/// The kernel's `struct seccomp_notif_resp`.
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// What there is to know next.
enum Report {
    Call(Call),
    Nothing,
    /// No process is left under the filter.
    AllGone,
}

/// The descriptor that reports come from.
pub(super) struct Listener {
    descriptor: OwnedFd,
}

impl Listener {
    pub(super) fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor }
    }

    fn wait(&self, milliseconds: c_int) -> io::Result<Report> {
        let mut poll = libc::pollfd {
            fd: self.descriptor.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor, as the count says.
        let ready = checked(unsafe { libc::poll(&raw mut poll, 1, milliseconds) });
        match ready {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Report::Nothing),
            Err(error) => Err(error),
            Ok(_) if poll.revents & libc::POLLIN != 0 => self.receive(),
            Ok(_) if poll.revents != 0 => Ok(Report::AllGone),
            Ok(_) => Ok(Report::Nothing),
        }
    }

    fn receive(&self) -> io::Result<Report> {
        let mut notification = Notification::default();
        // SAFETY: the kernel writes one notification, laid out as it expects.
        let received = checked(unsafe {
            libc::ioctl(
                self.descriptor.as_raw_fd(),
                NOTIF_RECV as _,
                &raw mut notification,
            )
        });
        match received {
            // The caller died, or we were interrupted.
            Err(error) if is_over(&error) || error.kind() == io::ErrorKind::Interrupted => {
                Ok(Report::Nothing)
            }
            Err(error) => Err(error),
            Ok(_) => Ok(Report::Call(Call {
                number: notification.number.into(),
                arguments: notification.arguments,
                id: notification.id,
                thread: notification.pid as libc::pid_t,
            })),
        }
    }

    /// Answers a call: with an error, or by letting it happen.
    fn answer(&self, call: &Call, errno: Option<i32>) -> io::Result<()> {
        let response = Response {
            id: call.id,
            value: 0,
            error: errno.map_or(0, |errno| -errno),
            flags: if errno.is_some() { 0 } else { FLAG_CONTINUE },
        };
        // SAFETY: the kernel reads one response, laid out as it expects.
        let sent = checked(unsafe {
            libc::ioctl(
                self.descriptor.as_raw_fd(),
                NOTIF_SEND as _,
                &raw const response,
            )
        });
        match sent {
            // The caller died meanwhile.
            Err(error) if is_over(&error) => Ok(()),
            other => other.map(drop),
        }
    }
}

fn is_over(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOENT)
}

/// What to do with which call.
pub(super) struct Plan {
    pub(super) calls: Vec<CallFilter>,
    pub(super) nth: u64,
    pub(super) errno: i32,
    pub(super) sticky: bool,
    pub(super) deadline: Instant,
}

/// What came of it.
#[derive(Default)]
pub(super) struct Ending {
    pub(super) calls_seen: u64,
    pub(super) failed_call: Option<String>,
    pub(super) timed_out: bool,
}

impl Plan {
    /// Answers calls until nobody is left to make one, or time is over.
    pub(super) fn carry_out(&self, listener: &Listener) -> io::Result<Ending> {
        let mut ending = Ending::default();
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                ending.timed_out = true;
                return Ok(ending);
            }
            // Rounded up, lest the last millisecond is spent polling.
            let milliseconds = c_int::try_from(left.as_millis()).unwrap_or(c_int::MAX - 1) + 1;
            match listener.wait(milliseconds)? {
                Report::Call(call) => {
                    let errno = self.judge(&call, &mut ending);
                    listener.answer(&call, errno)?;
                }
                Report::Nothing => {}
                Report::AllGone => return Ok(ending),
            }
        }
    }

    /// The error that a call shall fail with, if it shall.
    fn judge(&self, call: &Call, ending: &mut Ending) -> Option<i32> {
        let description = self.calls.iter().find_map(|filter| filter.describe(call))?;
        ending.calls_seen += 1;
        let seen = ending.calls_seen;
        let fails = self.nth != 0 && (seen == self.nth || self.sticky && seen > self.nth);
        if !fails {
            return None;
        }
        ending.failed_call.get_or_insert(description);
        Some(self.errno)
    }
}
