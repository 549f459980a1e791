//! Installing the filter in the child and getting its listener to the parent.
//!
//! Once the filter is in force, any system call of the child may be one that
//! waits for an answer, and nobody can answer before the parent has the
//! listener. So the child makes no call: it leaves the descriptor's number in
//! shared memory and spins until the parent has copied it from there.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, c_long, c_uint, sock_filter, sock_fprog};
use rustix::mm::{MapFlags, ProtFlags};

use super::CallFilter;
use super::listener::Listener;
use crate::context::{Context, checked};

/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(20);

/// States of the handshake. Fresh memory is 0: nothing has happened yet.
const OFFERED: u32 = 1;
const TAKEN: u32 = 2;
const REFUSED: u32 = 3;

/// The parent's side.
pub(super) struct Handshake {
    page: Arc<Page>,
}

impl Handshake {
    /// Makes a command start under a filter for `calls`.
    pub(super) fn prepare(command: &mut Command, calls: &[CallFilter]) -> io::Result<Self> {
        let page = Arc::new(Page::new()?);
        let childs_page = Arc::clone(&page);
        let program = filter_program(calls)?;
        // SAFETY: the hook runs between fork and exec. It makes system calls
        // and touches memory that was allocated before, nothing else.
        unsafe {
            command.pre_exec(move || {
                childs_page.pid.store(libc::getpid(), Ordering::Relaxed);
                childs_page.offer(install(&program)?)
            })
        };
        Ok(Self { page })
    }

    /// Waits for the child's listener.
    pub(super) fn listener(self) -> io::Result<Listener> {
        let start = Instant::now();
        while self.page.state.load(Ordering::Acquire) != OFFERED {
            // The command is gone, and with it the other owner of the page.
            if Arc::strong_count(&self.page) == 1 || start.elapsed() > PATIENCE {
                return Err(io::Error::other("the command did not start"));
            }
            thread::sleep(Duration::from_micros(100));
        }
        let copied = self.copy_listener();
        let answer = if copied.is_ok() { TAKEN } else { REFUSED };
        self.page.state.store(answer, Ordering::Release);
        copied.context(|| "taking over the seccomp listener")
    }

    fn copy_listener(&self) -> io::Result<Listener> {
        let pid = self.page.pid.load(Ordering::Relaxed);
        // SAFETY: takes numbers only.
        let process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let process = owned(process)?;
        let listener = self.page.listener.load(Ordering::Relaxed);
        // SAFETY: takes numbers only.
        let listener =
            unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), listener, 0) };
        Ok(Listener::new(owned(listener)?))
    }
}

fn owned(descriptor: c_long) -> io::Result<OwnedFd> {
    let descriptor = c_int::try_from(descriptor).map_err(io::Error::other)?;
    checked(descriptor)?;
    // SAFETY: a system call has just returned it, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// What parent and child share.
struct Shared {
    pid: AtomicI32,
    listener: AtomicI32,
    state: AtomicU32,
}

/// Memory that stays shared across a fork.
struct Page {
    shared: NonNull<Shared>,
}

// SAFETY: what it points to consists of atomics and lives as long as the value.
unsafe impl Send for Page {}
// SAFETY: likewise.
unsafe impl Sync for Page {}

impl Page {
    fn new() -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                size_of::<Shared>(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
            )
        }?;
        let shared = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { shared })
    }

    /// The child's side: offers the listener and waits until it is taken.
    fn offer(&self, listener: c_int) -> io::Result<()> {
        self.listener.store(listener, Ordering::Relaxed);
        self.state.store(OFFERED, Ordering::Release);
        let start = Instant::now();
        loop {
            match self.state.load(Ordering::Acquire) {
                TAKEN => return Ok(()),
                // Reading the clock is no system call where it matters, and
                // the filter has none for it.
                OFFERED if start.elapsed() < PATIENCE => std::hint::spin_loop(),
                _ => return Err(io::Error::from_raw_os_error(libc::ENOTCONN)),
            }
        }
    }
}

impl std::ops::Deref for Page {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        // SAFETY: the mapping is page-aligned, large enough, zeroed, which is
        // a valid value of all fields, and lives as long as `self`.
        unsafe { self.shared.as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference to it is left. It
        // cannot fail for a whole mapping.
        let _ = unsafe { rustix::mm::munmap(self.shared.as_ptr().cast(), size_of::<Shared>()) };
    }
}

/// A filter that reports the calls of these names. Arguments are looked at by
/// the listener: a filter cannot follow pointers.
fn filter_program(calls: &[CallFilter]) -> io::Result<Vec<sock_filter>> {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const JUMP_IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    const NUMBER_AT: u32 = 0;
    const ARCHITECTURE_AT: u32 = 4;
    const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") {
        0xc000_003e
    } else if cfg!(target_arch = "aarch64") {
        0xc000_00b7
    } else {
        0
    };

    if ARCHITECTURE == 0 {
        return Err(io::Error::other("no filter for this architecture"));
    }
    let step = |code: u32, jump_if_not: u8, k: u32| sock_filter {
        // All codes are small.
        code: code as u16,
        jt: 0,
        jf: jump_if_not,
        k,
    };
    let mut program = vec![
        step(LOAD, 0, ARCHITECTURE_AT),
        // 32-bit programs have other numbers; they are let through.
        sock_filter {
            jt: 1,
            ..step(JUMP_IF_EQUAL, 0, ARCHITECTURE)
        },
        step(RETURN, 0, libc::SECCOMP_RET_ALLOW),
        step(LOAD, 0, NUMBER_AT),
    ];
    for call in calls {
        let number = u32::try_from(call.number()).map_err(io::Error::other)?;
        program.push(step(JUMP_IF_EQUAL, 1, number));
        program.push(step(RETURN, 0, libc::SECCOMP_RET_USER_NOTIF));
    }
    program.push(step(RETURN, 0, libc::SECCOMP_RET_ALLOW));
    Ok(program)
}

/// Puts the calling process under the filter and returns the listener.
fn install(program: &[sock_filter]) -> io::Result<c_int> {
    const NEW_LISTENER: c_uint = 1 << 3;
    // Only a fatal signal interrupts a reported call, so none is reported
    // twice because of a signal (Linux 5.19).
    const WAIT_KILLABLE: c_uint = 1 << 5;

    let mut result = set_filter(program, NEW_LISTENER | WAIT_KILLABLE);
    if is_error(&result, libc::EINVAL) {
        result = set_filter(program, NEW_LISTENER);
    }
    if is_error(&result, libc::EACCES) {
        // Without privileges, a process must first renounce gaining any.
        // SAFETY: takes numbers only.
        checked(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
        result = set_filter(program, NEW_LISTENER | WAIT_KILLABLE);
        if is_error(&result, libc::EINVAL) {
            result = set_filter(program, NEW_LISTENER);
        }
    }
    result
}

fn is_error(result: &io::Result<c_int>, errno: c_int) -> bool {
    result
        .as_ref()
        .is_err_and(|error| error.raw_os_error() == Some(errno))
}

fn set_filter(program: &[sock_filter], flags: c_uint) -> io::Result<c_int> {
    let program = sock_fprog {
        // The table of calls is far shorter than the limit.
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies the program, which lives across the call.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    checked(listener as c_int)
}
