//! `close(2)`, with what it says.

use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};

/// Closes a descriptor and reports the error that dropping it would hide.
///
/// # Errors
/// On file systems that write at close (NFS, FUSE) an error of writeback. The
/// descriptor is closed in any case; `EINTR` means no more than that.
pub fn close(fd: OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is owned, and nobody uses the number after this.
    match unsafe { libc::close(fd.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
