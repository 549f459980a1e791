//! A helper process that shares nothing with the program beside it: setsid(2),
//! close_range(2).

use crate::errno::check;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The highest descriptor tried where close_range(2) is missing.
const HIGHEST_DESCRIPTOR: libc::c_int = 1 << 16;

/// Makes a command run in its own session, with only its standard descriptors.
///
/// So no key on the terminal reaches it, and it holds no pipe open.
pub fn detach(command: &mut Command) -> &mut Command {
    // SAFETY: only calls that are allowed between fork and exec are made.
    unsafe { command.pre_exec(in_child) }
}

fn in_child() -> io::Result<()> {
    // SAFETY: no arguments.
    check(unsafe { libc::setsid() }.into())?;
    // Marked instead of closed: one of them reports the exec to the parent.
    // SAFETY: integers; marking takes no descriptor away from anybody.
    let marked = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3 as libc::c_uint,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    // `CLOSE_RANGE_CLOEXEC` exists since Linux 5.11.
    if marked != 0 {
        for fd in 3..HIGHEST_DESCRIPTOR {
            // SAFETY: as above; most of them are not open, which does no harm.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}
