//! Signals of a process that stands before another one: received as data,
//! stopped by and died of as the other was.
//!
//! Sources: `signalfd(2)`, `signal(7)`, `sigaction(2)` on `si_code`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Received {
    /// Which.
    pub signal: i32,
    /// A process sent it, with kill(2) and the like, to us or to our group. Else
    /// it is the kernel's: a key on the terminal, a timer, the end of a child.
    pub sent: bool,
}

/// Every signal that can be received as data, instead of being acted upon.
///
/// Left out are `SIGKILL` and `SIGSTOP`, which cannot be, and those that tell
/// of a fault of our own.
#[derive(Debug)]
pub struct SignalFd {
    fd: OwnedFd,
}

/// Signals of the program's own faults; and the two that nobody can receive.
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
    /// Begins to receive, in the calling thread, which must be the only one:
    /// the signals are blocked in it from now on. Ended children are kept
    /// until they are waited for, also where that was switched off.
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

    /// The next signal; `None` if none is there.
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
        Ok(Some(Received {
            signal: i32::try_from(info.ssi_signo).unwrap_or_default(),
            sent: [libc::SI_USER, libc::SI_QUEUE, libc::SI_TKILL].contains(&info.ssi_code),
        }))
    }
}

impl AsFd for SignalFd {
    /// For polling: readable when a signal is there.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Lets a signal take its default effect on this process, which has it blocked.
///
/// It is raised before it is unblocked: one that is pending already is the same
/// one then, and does not come twice.
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
/// In a process group that nobody could continue (an orphaned one), the
/// terminal's stop signals have no effect, and this returns at once.
pub fn stop_by(signal: i32) {
    take_default_effect(signal);
}

/// Ends this process by a signal, so that whoever waits for it sees the same
/// as if it were the child that died of it. No core is dumped.
///
/// Where the signal does not end a process, it exits with 128 and the number, as
/// shells show it.
pub fn die_by(signal: i32) -> ! {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a valid struct, and integers. The limit alone would not keep a
    // program that the kernel pipes cores to from being started.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
    take_default_effect(signal);
    std::process::exit(128 + signal)
}
