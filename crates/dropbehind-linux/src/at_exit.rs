//! What a process does before it ends.
//!
//! Sources: `atexit(3)`, `exit(3)`. Handlers run when the program returns from `main` or calls
//! `exit`, while its other threads still run; not when it is killed, aborts, calls `_exit` or
//! replaces itself by `exec`.

use std::io;

/// Has `action` called when the process, or the child of a fork, exits.
///
/// The exiting thread's thread-local values are gone by then.
///
/// # Errors
/// `ENOMEM`.
pub fn at_exit(action: extern "C" fn()) -> io::Result<()> {
    // SAFETY: the function has no arguments and lives as long as the code.
    match unsafe { libc::atexit(action) } {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
    }
}
