//! Signals of a process that stands in for another one: it receives them as data, and stops
//! and dies as the other did.
//!
//! Sources: `signalfd(2)`, `signal(7)`, `sigaction(2)` on `si_code`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Received {
    /// Its number.
    pub signal: i32,
    /// Whether a process sent it, with kill(2) or the like, to us or to our group. Otherwise
    /// the kernel did: for a key on the terminal, a timer, or the end of a child.
    pub sent: bool,
    /// Which process that was; `None` if it is in another pid namespace.
    pub sender: Option<u32>,
}

/// Every signal that can be received as data instead of taking effect.
///
/// Left out are `SIGKILL` and `SIGSTOP`, which cannot be received, and signals for faults of
/// our own.
#[derive(Debug)]
pub struct SignalFd {
    fd: OwnedFd,
}

/// Signals for the program's own faults, and the two that cannot be received.
const NOT_RECEIVED: [i32; 9] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];

impl SignalFd {
    /// Starts receiving, in the calling thread, which must be the only one: the signals are
    /// blocked in it from now on. Ended children are kept until they are waited for, even if
    /// that was switched off.
    ///
    /// # Errors
    ///
    /// - `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the set is initialised by the first call; the default
        // disposition runs no code.
        let fd = unsafe {
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut set);
            for signal in NOT_RECEIVED {
                libc::sigdelset(&raw mut set, signal);
            }
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else knows of.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    /// The next signal; `None` if there is none.
    ///
    /// # Errors
    ///
    /// None is documented for a valid descriptor.
    pub fn read(&self) -> io::Result<Option<Received>> {
        let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.fd, &mut bytes) {
            Ok(read) if read == bytes.len() => {}
            Ok(_) => return Ok(None),
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // SAFETY: the struct is made of integers, and there are enough bytes.
        let info: libc::signalfd_siginfo =
            unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
        let sent = [libc::SI_USER, libc::SI_QUEUE, libc::SI_TKILL].contains(&info.ssi_code);
        Ok(Some(Received {
            signal: i32::try_from(info.ssi_signo).unwrap_or_default(),
            sent,
            sender: (sent && info.ssi_pid > 0).then_some(info.ssi_pid),
        }))
    }
}

impl AsFd for SignalFd {
    /// For polling: readable when a signal is there.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Lets a signal, which this process has blocked, take its default effect.
///
/// It is raised before it is unblocked. So if the same signal is already pending, the two
/// merge, and it doesn't come twice.
fn take_default_effect(signal: i32) {
    // SAFETY: the default disposition runs no code of ours; the structs are
    // initialised before they are read.
    unsafe {
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, &raw const default, &raw mut before) != 0 {
            before = default;
        }
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::kill(libc::getpid(), signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        libc::sigaction(signal, &raw const before, std::ptr::null_mut());
    }
}

/// Stops this process as a child was stopped, until it is continued.
///
/// In an orphaned process group, which nobody could continue, the terminal's stop signals
/// have no effect, and this returns at once.
pub fn stop_by(signal: i32) {
    take_default_effect(signal);
}

/// Ends this process by a signal, so that its parent sees the same as if it were the child
/// that the signal killed. No core is dumped.
///
/// If the signal does not end the process, it exits with 128 plus the number, as shells
/// report it.
pub fn die_by(signal: i32) -> ! {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a valid struct, and integers. The limit alone would not stop the kernel from
    // starting a program that it pipes cores to.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
    take_default_effect(signal);
    std::process::exit(128 + signal)
}
