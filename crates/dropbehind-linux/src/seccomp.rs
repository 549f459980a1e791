//! Stopping a program at each open and exec: seccomp(2) with `SECCOMP_RET_USER_NOTIF` (since Linux 5.0;
//! without `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`, so before 5.19, a signal may end a stopped
//! call with `EINTR`).
//!
//! The filter never changes what a call does: each is answered with
//! `SECCOMP_USER_NOTIF_FLAG_CONTINUE` (since Linux 5.5). It takes no privilege, but a process
//! without `CAP_SYS_ADMIN` must first give up gaining rights by exec (`PR_SET_NO_NEW_PRIVS`).
//!
//! Whoever has received a call must answer it, or its thread waits for ever; once nobody has the
//! listener any more, filtered calls fail with `ENOSYS`. So [two holders](Holders) share
//! memory into which the kernel itself writes what each has received. The one that is left
//! answers for the other.

mod filter;
mod holders;

pub use filter::{are_stopped_at_opens, stopped_calls_may_wait};
pub use holders::Holders;

use crate::errno::check;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

pub(crate) use filter::{Filter, install};

/// `SECCOMP_IOCTL_NOTIF_RECV` and others, include/uapi/linux/seccomp.h.
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
const IS_VALID: libc::c_ulong = 0x4008_2102;
const SET_FLAGS: libc::c_ulong = 0x4008_2104;
/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`.
const CONTINUE: u32 = 1;
/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`, since Linux 6.6.
const SYNC_WAKE_UP: u64 = 1;

/// The kernel's `struct seccomp_notif`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Notification {
    id: u64,
    thread: u32,
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

/// A system call that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoppedCall {
    id: u64,
    /// The thread that made it, in our pid namespace; 0 if it is not in there.
    pub thread: i32,
    /// The system call's number, on the thread's architecture.
    pub number: i32,
    /// What it asks for.
    pub request: Request,
}

/// What a stopped call asks for. Addresses are in the caller's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// open(2), openat(2), creat(2); execve(2) and execveat(2), which read the file.
    Open {
        /// From where a relative path leads; may be `AT_FDCWD`.
        directory: i32,
        /// Where the path is.
        path: u64,
        /// As in open(2).
        flags: i32,
    },
    /// openat2(2).
    OpenHow {
        /// From where a relative path leads; may be `AT_FDCWD`.
        directory: i32,
        /// Where the path is.
        path: u64,
        /// Where its `struct open_how` is.
        how: u64,
    },
    /// A file gets another name: rename(2), link(2) and their like.
    Rename,
    /// io_uring_setup(2): what the caller opens through a ring is not stopped.
    Ring,
}

/// How openat2(2) is to open a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// As in open(2).
    pub flags: i32,
    /// How the path is to be resolved.
    pub resolve: u64,
}

impl StoppedCall {
    /// Reads a path from the caller's memory. Check [`Listener::waits`] afterwards: the thread
    /// may have ended, and another one got its number.
    ///
    /// # Errors
    /// - `EPERM`: the caller lets nobody look into its memory, or is no descendant of ours and
    ///   yama allows no more.
    /// - `EFAULT`: no path is there.
    /// - `ENAMETOOLONG`.
    pub fn path(&self, address: u64) -> io::Result<CString> {
        const PATH_MAX: usize = 4096;
        let mut path = Vec::new();
        while path.len() < PATH_MAX {
            let start = address.wrapping_add(path.len() as u64);
            // The next page may not be there, nor be needed.
            let mut part = [0; 1024];
            let room = part.len() - (start % part.len() as u64) as usize;
            let length = read_memory(self.thread, start, &mut part[..room])?;
            let part = &part[..length];
            if let Some(end) = part.iter().position(|&byte| byte == 0) {
                path.extend_from_slice(&part[..end]);
                return Ok(CString::new(path)?);
            }
            path.extend_from_slice(part);
        }
        Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG))
    }

    /// Reads a `struct open_how` from the caller's memory.
    ///
    /// # Errors
    /// Those of [`StoppedCall::path`].
    pub fn how(&self, address: u64) -> io::Result<OpenHow> {
        let mut how = [0; 24];
        let length = read_memory(self.thread, address, &mut how)?;
        if length < how.len() {
            return Err(io::Error::from_raw_os_error(libc::EFAULT));
        }
        let word = |at: usize| {
            let bytes = how[at..at + 8].try_into();
            u64::from_ne_bytes(bytes.unwrap_or_default())
        };
        Ok(OpenHow {
            // The kernel refuses other bits.
            flags: word(0) as i32,
            resolve: word(16),
        })
    }
}

/// process_vm_readv(2).
fn read_memory(thread: i32, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let address = usize::try_from(address).map_err(|_| crate::errno::invalid())?;
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address),
        iov_len: into.len(),
    };
    // SAFETY: this writes to `into` only, and no more than fits; the kernel checks the other
    // process's address.
    let read =
        unsafe { libc::process_vm_readv(thread, &raw const local, 1, &raw const remote, 1, 0) };
    match usize::try_from(read) {
        Ok(0) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Ok(read) => Ok(read),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// The descriptor on which stopped calls are received and answered.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
}

impl Listener {
    /// The descriptor that a program's start under the filter has given.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Listener {
        // A thread that is stopped and the one that looks take turns: each wakes the other on the
        // processor that it gives up. Older kernels refuse that.
        // SAFETY: the request takes its argument by value.
        unsafe { libc::ioctl(fd.as_raw_fd(), SET_FLAGS as _, SYNC_WAKE_UP) };
        Listener { fd }
    }

    /// Returns whether the call still waits: its thread has neither ended nor been interrupted.
    #[must_use]
    pub fn waits(&self, call: &StoppedCall) -> bool {
        // SAFETY: the request reads one number.
        unsafe { libc::ioctl(self.fd.as_raw_fd(), IS_VALID as _, &raw const call.id) == 0 }
    }

    /// Receives the next call into this memory, which must be zero; waits until there is one.
    ///
    /// # Safety
    /// `into` is valid for writes for as long as this takes.
    unsafe fn receive(&self, into: *mut Notification) -> io::Result<()> {
        // SAFETY: the kernel writes one notification, laid out as it expects.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), RECEIVE as _, into) }.into()).map(drop)
    }

    /// Lets a call happen. It is no error if it does not wait any more.
    fn let_go(&self, id: u64) -> io::Result<()> {
        let response = Response {
            id,
            value: 0,
            error: 0,
            flags: CONTINUE,
        };
        // SAFETY: the kernel reads one response, laid out as it expects.
        let sent = unsafe { libc::ioctl(self.fd.as_raw_fd(), SEND as _, &raw const response) };
        match check(sent.into()) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            // It was answered already.
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(()),
            other => other.map(drop),
        }
    }
}

impl AsFd for Listener {
    /// For polling: readable while a call waits to be received; hung up once no process is left
    /// under the filter.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Notification {
    fn call(&self) -> StoppedCall {
        StoppedCall {
            id: self.id,
            thread: self.thread as i32,
            number: self.number,
            request: filter::request(self),
        }
    }
}

/// Finds out whether this kernel and whatever sandbox we are in know the filter's answer
/// (`SECCOMP_GET_ACTION_AVAIL`, since Linux 4.14), let us answer stopped calls, share memory with
/// the other holder, and look at files with openat2(2) (since Linux 5.6).
///
/// # Errors
/// Each names the call that failed.
/// - [`io::ErrorKind::Unsupported`]: the kernel has no listeners (`EOPNOTSUPP`), a sandbox hides a call
///   (`ENOSYS`), or the calls of this architecture are not known.
/// - [`io::ErrorKind::PermissionDenied`]: a sandbox forbids a call (`EPERM`).
pub fn can_stop_at_opens() -> io::Result<()> {
    const GET_ACTION_AVAIL: libc::c_uint = 2;
    Filter::new()?;
    let action: u32 = libc::SECCOMP_RET_USER_NOTIF;
    // SAFETY: the kernel reads one number.
    let known = unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAIL, 0, &raw const action) };
    named("seccomp(2)", check(known))?;
    for request in [RECEIVE, SEND, IS_VALID] {
        // A sandbox decides before the kernel looks at the descriptor.
        // SAFETY: no descriptor has this number, so the kernel reads and writes nothing.
        let tried = unsafe { libc::ioctl(-1, request as _, ptr::null_mut::<u8>()) };
        match check(tried.into()) {
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => {}
            result => named("ioctl(2)", result)?,
        }
    }
    named("memfd_create(2)", Holders::new().map(drop))?;
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = openat2(CWD, "/", flags, Mode::empty(), ResolveFlags::empty());
    named("openat2(2)", root.map(drop))
}

fn named(call: &str, result: Result<(), impl Into<io::Error>>) -> io::Result<()> {
    result.map_err(|error| {
        let error = error.into();
        io::Error::new(error.kind(), format!("{call}: {error}"))
    })
}

/// Whether this process may look into the memory of any other one (`CAP_SYS_PTRACE`).
#[must_use]
pub fn may_trace() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};
    capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::SYS_PTRACE))
}

/// Whose memory yama lets a process look into (kernel.yama.ptrace_scope): 0 that of the same
/// user, 1 its descendants', more of none unless [it may trace](may_trace). 0 without yama.
#[must_use]
pub fn yama_scope() -> u32 {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let scope = scope.ok().and_then(|scope| scope.trim().parse().ok());
    scope.unwrap_or(0)
}
