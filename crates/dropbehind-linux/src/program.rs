//! Starting a program as if it had been started instead of us: fork(2), unshare(2) or seccomp(2),
//! execvp(3).
//!
//! The child gets what this process was given at its start ([`StartState`]), and everything
//! else that is inherited. Timers and the parent-death signal, which an exec keeps but a fork
//! does not, are carried over. Variables that named this process name the child.

use crate::environment::Environment;
use crate::passing::{receive_descriptor, send_descriptor};
use crate::pidfd::Pidfd;
use crate::seccomp::{Filter, Listener, install};
use crate::start_state::StartState;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::ptr;

/// A program's name, looked up in `PATH`, and its arguments.
#[derive(Debug)]
pub struct CommandLine {
    words: Vec<CString>,
}

impl CommandLine {
    /// The name, which counts as the first argument, and the arguments.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the list is empty, or a word contains a zero byte.
    pub fn new(words: impl IntoIterator<Item = OsString>) -> io::Result<Self> {
        let words: Vec<CString> = words
            .into_iter()
            .map(|word| CString::new(word.into_vec()).map_err(|_| crate::errno::invalid()))
            .collect::<Result<_, _>>()?;
        if words.is_empty() {
            return Err(crate::errno::invalid());
        }
        Ok(Self { words })
    }

    /// Whether the program is set to give rights to whoever executes it: those of its owner or
    /// group, or capabilities. If it is a script, that is without effect.
    #[must_use]
    pub fn gains_rights(&self) -> bool {
        use std::os::unix::ffi::OsStrExt;
        use std::os::unix::fs::MetadataExt;
        use std::path::Path;
        let name = Path::new(std::ffi::OsStr::from_bytes(self.words[0].as_bytes()));
        let search = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        let folders: Vec<_> = match self.words[0].as_bytes().contains(&b'/') {
            true => vec!["".into()],
            false => std::env::split_paths(&search).collect(),
        };
        let mut programs = folders.into_iter().map(|folder| folder.join(name));
        let found = programs.find_map(|path| Some((std::fs::metadata(&path).ok()?, path)));
        let Some((metadata, path)) = found else {
            return false;
        };
        const GIVES: u32 = libc::S_ISUID | libc::S_ISGID;
        let has_capabilities = || {
            let size = rustix::fs::getxattr(&path, c"security.capability", &mut [0_u8; 0][..]);
            size.is_ok_and(|size| size > 0)
        };
        metadata.is_file() && (metadata.mode() & GIVES != 0 || has_capabilities())
    }

    /// The argument for execvp(3); valid as long as `self`.
    fn pointers(&self) -> Vec<*const libc::c_char> {
        let words = self.words.iter().map(|word| word.as_ptr());
        words.chain([ptr::null()]).collect()
    }

    /// Becomes the program: keeps this process's number, with what it was given at its start.
    /// Returns only if that fails.
    ///
    /// # Errors
    ///
    /// Those of execve(2). By then, the process has lost any standard descriptors that were
    /// closed when it started, and no longer ignores `SIGPIPE`.
    pub fn become_it(&self, start: StartState) -> io::Error {
        let pointers = self.pointers();
        // SAFETY: the list ends with a null pointer, and its pointers lead to strings that
        // `self` owns. The standard descriptors that are closed again are those that nobody
        // could use in the first place.
        unsafe {
            start.restore();
            libc::execvp(pointers[0], pointers.as_ptr());
        }
        io::Error::last_os_error()
    }
}

/// What happened to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// It ended with this exit status.
    Exited(i32),
    /// This signal killed it.
    Died(i32),
    /// This signal stopped it.
    Stopped(i32),
}

/// How a program's opens become known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// It gets a mount namespace of its own, so that the mounts in it can be marked. That takes
    /// `CAP_SYS_ADMIN`.
    MountNamespace,
    /// It is [stopped at each open](crate::seccomp).
    StoppedAtOpens,
}

/// A child in a mount namespace of its own or [stopped at each open](Apart), which becomes a
/// program when told to.
///
/// If it is not told to, it ends when this is dropped or this process ends.
#[derive(Debug)]
pub struct Program {
    process: Pid,
    pidfd: Pidfd,
    go: Option<OwnedFd>,
    /// A successful exec closes it; otherwise it gets four bytes of errno.
    outcome: OwnedFd,
    timers: Timers,
    listener: Option<Listener>,
}

/// The timers of setitimer(2).
type Timers = [libc::itimerval; 3];
const TIMERS: [libc::c_int; 3] = [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF];

/// Disarms this process's timers, to give them to the child.
fn take_timers() -> Timers {
    TIMERS.map(|timer| {
        // SAFETY: all zeroes disarm a timer, and the old value is written.
        unsafe {
            let none: libc::itimerval = std::mem::zeroed();
            let mut before: libc::itimerval = std::mem::zeroed();
            // The type of the first argument differs between C libraries.
            libc::setitimer(timer as _, &raw const none, &raw mut before);
            before
        }
    })
}

impl Program {
    /// Forks the child. This process must have only one thread, and its signals blocked
    /// ([`SignalFd`](crate::SignalFd)), as the child's are until it execs.
    ///
    /// # Errors
    ///
    /// - `EPERM`: a mount namespace takes `CAP_SYS_ADMIN`, or a sandbox forbids it.
    /// - `ENOSPC`: too many mount namespaces.
    /// - `EBUSY`: this process is stopped at its opens already, and there can be only one
    ///   listener.
    /// - `ENOSYS`, `EINVAL`: the kernel has no seccomp(2), or no listeners.
    /// - `EAGAIN`: the limit on processes.
    /// - `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn start_held(command: &CommandLine, start: StartState, apart: Apart) -> io::Result<Self> {
        let filter = match apart {
            Apart::MountNamespace => None,
            Apart::StoppedAtOpens => Some(Filter::new()?),
        };
        let (hand_out, take) = UnixStream::pair()?;
        let (wait_to_go, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let (outcome, tell) = pipe_with(PipeFlags::CLOEXEC)?;
        let pointers = command.pointers();
        let mut parent_death_signal: libc::c_int = 0;
        // SAFETY: the integer is written.
        unsafe { libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut parent_death_signal) };
        let timers = take_timers();
        // SAFETY: there is only this thread.
        let mut environment = unsafe { Environment::new() };
        let mut held = Held {
            pointers: &pointers,
            environment: &mut environment,
            start,
            timers: &timers,
            parent_death_signal,
            // The other ends must not be open in the child, or it would wait for itself.
            not_ours: [go.as_raw_fd(), outcome.as_raw_fd(), take.as_raw_fd()],
            wait_to_go: wait_to_go.as_raw_fd(),
            tell: tell.as_raw_fd(),
            filter: filter.as_ref(),
            hand_out: hand_out.as_raw_fd(),
        };
        // SAFETY: the child only makes calls that are allowed after a fork.
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            // SAFETY: this is the child.
            unsafe { held.live() };
        }
        let process = match Pid::from_raw(forked) {
            Some(process) if forked > 0 => process,
            _ => return Err(io::Error::last_os_error()),
        };
        drop((wait_to_go, tell, hand_out));
        let mut program = Self {
            process,
            pidfd: Pidfd::open(forked)?,
            go: Some(go),
            outcome,
            timers,
            listener: None,
        };
        match program.told()? {
            Some(0) => {
                if filter.is_some() {
                    program.listener = Some(Listener::new(receive_descriptor(take.as_fd())?));
                }
                Ok(program)
            }
            told => {
                program.abandon()?;
                Err(match told {
                    Some(errno) => io::Error::from_raw_os_error(errno),
                    None => io::ErrorKind::UnexpectedEof.into(),
                })
            }
        }
    }

    /// Where its opens are received, if it is stopped at them. They wait for answers from here on.
    pub fn take_listener(&mut self) -> Option<Listener> {
        self.listener.take()
    }

    /// The child's number.
    #[must_use]
    pub fn process(&self) -> i32 {
        self.process.as_raw_nonzero().get()
    }

    /// Tells the child to become the program.
    ///
    /// # Errors
    ///
    /// - `EPIPE`: it is gone.
    pub fn release(&mut self) -> io::Result<()> {
        if let Some(go) = self.go.take() {
            rustix::io::write(&go, b"!")?;
        }
        Ok(())
    }

    /// For polling: readable once it is known whether the child has become the program. After
    /// that, [`Program::exec_error`] does not block.
    #[must_use]
    pub fn outcome(&self) -> BorrowedFd<'_> {
        self.outcome.as_fd()
    }

    /// Why the child could not become the program; `None` if it did, or died before.
    ///
    /// # Errors
    ///
    /// - `EINTR`.
    pub fn exec_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.told()?.map(io::Error::from_raw_os_error))
    }

    fn told(&self) -> io::Result<Option<i32>> {
        let mut errno = [0; 4];
        let read = rustix::io::read(&self.outcome, &mut errno)?;
        Ok((read == errno.len()).then(|| i32::from_ne_bytes(errno)))
    }

    /// Sends a signal to the child.
    ///
    /// # Errors
    ///
    /// Those of [`Pidfd::send_signal`].
    pub fn send_signal(&self, signal: i32) -> io::Result<()> {
        self.pidfd.send_signal(signal)
    }

    /// What happened to the child since the last call. If it has ended, this reaps it, and
    /// must not be called again.
    ///
    /// # Errors
    ///
    /// - `ECHILD`: it was reaped before.
    pub fn change(&self) -> io::Result<Option<Change>> {
        self.wait(WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOHANG)
    }

    /// Waits until the child has ended, and reaps it.
    ///
    /// # Errors
    ///
    /// - `ECHILD`: it was reaped before.
    pub fn wait_for_end(&self) -> io::Result<Change> {
        loop {
            match self.wait(WaitIdOptions::EXITED) {
                Ok(Some(change)) => return Ok(change),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn wait(&self, options: WaitIdOptions) -> io::Result<Option<Change>> {
        let Some(status) = waitid(WaitId::Pid(self.process), options)? else {
            return Ok(None);
        };
        Ok(status
            .exit_status()
            .map(Change::Exited)
            .or_else(|| status.terminating_signal().map(Change::Died))
            .or_else(|| status.stopping_signal().map(Change::Stopped)))
    }

    /// Ends a child that was not released, waits for its end, and takes the timers back.
    ///
    /// # Errors
    ///
    /// - `ECHILD`: it was reaped before.
    pub fn abandon(mut self) -> io::Result<()> {
        self.go = None;
        self.wait_for_end()?;
        for (timer, value) in TIMERS.into_iter().zip(&self.timers) {
            // SAFETY: a valid struct; the old value is not needed.
            unsafe { libc::setitimer(timer as _, value, ptr::null_mut()) };
        }
        Ok(())
    }
}

/// What the child needs between fork and exec, without allocating.
struct Held<'a> {
    pointers: &'a [*const libc::c_char],
    environment: &'a mut Environment,
    start: StartState,
    timers: &'a Timers,
    parent_death_signal: libc::c_int,
    not_ours: [RawFd; 3],
    wait_to_go: RawFd,
    tell: RawFd,
    filter: Option<&'a Filter>,
    hand_out: RawFd,
}

impl Held<'_> {
    /// # Safety
    ///
    /// Only in the child of a fork. Every call made here is safe there.
    unsafe fn live(&mut self) -> ! {
        // SAFETY: descriptors of this process's own table, pointers to what the parent owned
        // at the fork, and the condition above.
        unsafe {
            for fd in self.not_ours {
                libc::close(fd);
            }
            let errno = self.set_apart();
            self.tell_errno(errno);
            let mut word = 0_u8;
            if errno != 0 || libc::read(self.wait_to_go, (&raw mut word).cast(), 1) != 1 {
                libc::_exit(125);
            }
            if self.parent_death_signal != 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, self.parent_death_signal);
            }
            for (timer, value) in TIMERS.into_iter().zip(self.timers) {
                libc::setitimer(timer as _, value, ptr::null_mut());
            }
            self.environment.take_on();
            self.start.restore();
            libc::execvp(self.pointers[0], self.pointers.as_ptr());
            self.tell_errno(*libc::__errno_location());
            libc::_exit(127)
        }
    }

    /// Returns an errno, or 0.
    ///
    /// # Safety
    ///
    /// As [`Held::live`].
    unsafe fn set_apart(&self) -> libc::c_int {
        // SAFETY: calls that are allowed after a fork; nothing is opened under the filter before
        // the exec.
        unsafe {
            match self.filter {
                None if libc::unshare(libc::CLONE_NEWNS) == 0 => 0,
                None => *libc::__errno_location(),
                Some(filter) => match install(filter) {
                    Ok(listener) => {
                        let errno = send_descriptor(self.hand_out, listener);
                        libc::close(listener);
                        errno
                    }
                    Err(errno) => errno,
                },
            }
        }
    }

    /// # Safety
    ///
    /// As [`Held::live`].
    unsafe fn tell_errno(&self, errno: libc::c_int) {
        let bytes = errno.to_ne_bytes();
        // SAFETY: the bytes outlive the call. This few are written to a pipe at once.
        unsafe { libc::write(self.tell, bytes.as_ptr().cast(), bytes.len()) };
    }
}
