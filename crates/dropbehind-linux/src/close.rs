//! `close(2)`, with its result.

use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};

/// Closes a descriptor and returns the error that dropping it would hide.
///
/// # Errors
/// On file systems that write at close (NFS, FUSE), a writeback error. The descriptor is
/// closed in any case, even with `EINTR`.
pub fn close(fd: OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is owned, and nobody uses the number after this.
    match unsafe { libc::close(fd.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
