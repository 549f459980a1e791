//! `SO_PEERCRED`: who is at the other end of a Unix-domain socket (man 7 unix).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::errno::check;

/// The other end's effective user when it connected. A user who does not exist in our user
/// namespace shows as the overflow user (65534).
///
/// The process is not returned: it is 0 for a peer in a foreign pid namespace, and may be
/// gone.
///
/// # Errors
///
/// `ENOTSOCK` and others, if this is not a connected Unix-domain socket.
pub fn peer_user(socket: impl AsFd) -> io::Result<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    // 12 bytes.
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` and `len` outlive the call, and `len` is the size of `peer`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    check(result.into())?;
    // The kernel's answer for a socket that is not connected.
    if peer.uid == u32::MAX {
        return Err(io::Error::from_raw_os_error(libc::ENOTCONN));
    }
    Ok(peer.uid)
}
