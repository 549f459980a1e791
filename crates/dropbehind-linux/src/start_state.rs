//! What this process was given at its start, before Rust's start-up code changed it: a
//! program that we start must get the same.
//!
//! Rust ignores `SIGPIPE` and opens `/dev/null` for closed standard descriptors. Both happen
//! before `main`, so this is recorded by a function that the loader calls even earlier.
//!
//! Sources: `execve(2)` on what is inherited, library/std/src/sys/pal/unix.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Signals as bits; signal 1 is the lowest.
static BLOCKED: AtomicU64 = AtomicU64::new(0);
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// Standard descriptors as bits.
static CLOSED: AtomicU64 = AtomicU64::new(0);
static RECORDED: AtomicBool = AtomicBool::new(false);

const LAST_SIGNAL: i32 = 64;

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

extern "C" fn record() {
    let mut blocked = 0;
    let mut ignored = 0;
    let mut closed = 0;
    // SAFETY: the calls fill the structs they are given, and without a new mask or action
    // they change nothing. They are allowed this early: they don't need the C library to be
    // set up.
    unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut mask);
        for signal in 1..=LAST_SIGNAL {
            if libc::sigismember(&raw const mask, signal) == 1 {
                blocked |= bit(signal);
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            // Fails for the two signals that the C library reserves.
            if libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
                && action.sa_sigaction == libc::SIG_IGN
            {
                ignored |= bit(signal);
            }
        }
        for fd in 0..3 {
            if libc::fcntl(fd, libc::F_GETFD) < 0 {
                closed |= 1 << fd;
            }
        }
    }
    BLOCKED.store(blocked, Relaxed);
    IGNORED.store(ignored, Relaxed);
    CLOSED.store(closed, Relaxed);
    RECORDED.store(true, Relaxed);
}

#[used]
// SAFETY: the section holds pointers to functions of this kind, which the
// loader calls once, before `main`.
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = record;

/// What this process was given at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartState {
    blocked: u64,
    ignored: u64,
    closed: u64,
}

impl StartState {
    /// Returns what was recorded.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`]: the program was linked in a way that runs nothing
    /// before `main`.
    pub fn get() -> io::Result<Self> {
        if !RECORDED.load(Relaxed) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self {
            blocked: BLOCKED.load(Relaxed),
            ignored: IGNORED.load(Relaxed),
            closed: CLOSED.load(Relaxed),
        })
    }

    /// Whether the signal was ignored.
    #[must_use]
    pub fn ignores(self, signal: i32) -> bool {
        (1..=LAST_SIGNAL).contains(&signal) && self.ignored & bit(signal) != 0
    }

    /// Whether the signal was blocked.
    #[must_use]
    pub fn blocks(self, signal: i32) -> bool {
        (1..=LAST_SIGNAL).contains(&signal) && self.blocked & bit(signal) != 0
    }

    /// Whether the standard descriptor was closed: in its place Rust opens `/dev/null`.
    #[must_use]
    pub fn had_closed(self, fd: i32) -> bool {
        (0..3).contains(&fd) && self.closed & (1 << fd) != 0
    }

    /// Restores this state in the calling process. The mask comes last, so that nothing can
    /// go wrong in between. Makes only calls that are allowed between fork and exec.
    ///
    /// # Safety
    ///
    /// The process is about to exec: it no longer uses the standard descriptors, nor expects
    /// any signal's disposition to be its own.
    pub(crate) unsafe fn restore(self) {
        for signal in [libc::SIGPIPE, libc::SIGCHLD] {
            let action = if self.ignores(signal) {
                libc::SIG_IGN
            } else {
                libc::SIG_DFL
            };
            // SAFETY: neither disposition runs any code.
            unsafe { libc::signal(signal, action) };
        }
        for fd in 0..3 {
            if self.had_closed(fd) {
                // SAFETY: the caller does not use it.
                unsafe { libc::close(fd) };
            }
        }
        // SAFETY: the set is initialised by the first call.
        unsafe {
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut mask);
            for signal in 1..=LAST_SIGNAL {
                if self.blocks(signal) {
                    libc::sigaddset(&raw mut mask, signal);
                }
            }
            libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
        }
    }
}
