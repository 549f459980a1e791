//! Messages between processes, with a descriptor: unix(7), `SCM_RIGHTS`.

use rustix::net::sockopt::{Timeout, socket_timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// How long to wait for the other side to receive some descriptors.
const PAUSE: Duration = Duration::from_millis(1);

/// Sends a message and, if there is one, a descriptor, through a socket that keeps messages apart
/// (`SOCK_SEQPACKET`). The other side gets all of it or nothing.
///
/// # Errors
/// - `EPIPE`, `ECONNRESET`: the other side is gone.
/// - `EAGAIN`: there was no room for it in the socket's time (`SO_SNDTIMEO`) or, unless it
///   `waits`, at once.
/// - `ETOOMANYREFS`: the user's sockets held more descriptors for as long than this process may
///   have, and it lacks `CAP_SYS_RESOURCE` (unix(7)).
/// - `EMSGSIZE`: it is too long.
pub fn send_message(
    socket: BorrowedFd<'_>,
    message: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
    waits: bool,
) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match send_once(socket, message, descriptor, waits) {
            // The kernel does not wait for this, and reports no end of it.
            Err(error)
                if waits
                    && error.raw_os_error() == Some(libc::ETOOMANYREFS)
                    && socket_timeout(socket, Timeout::Send)?
                        .is_none_or(|patience| began.elapsed() < patience) =>
            {
                std::thread::sleep(PAUSE);
            }
            sent => return sent,
        }
    }
}

fn send_once(
    socket: BorrowedFd<'_>,
    message: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
    waits: bool,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    sendmsg(
        socket,
        &[IoSlice::new(message)],
        &mut ancillary,
        match waits {
            true => SendFlags::NOSIGNAL,
            false => SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        },
    )?;
    Ok(())
}

/// Receives the next such message, without waiting for it, into `buffer`. `None` if there is
/// none yet, a length of 0 once the other side is gone.
///
/// # Errors
/// - [`io::ErrorKind::InvalidData`]: it is longer than the buffer.
/// - Those of recvmsg(2). If there are no descriptors left, the message comes without its own.
pub fn receive_message(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<Option<(usize, Option<OwnedFd>)>> {
    receive(socket, buffer, RecvFlags::DONTWAIT)
}

fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> io::Result<Option<(usize, Option<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = match recvmsg(
        socket,
        &mut [IoSliceMut::new(buffer)],
        &mut ancillary,
        flags,
    ) {
        Err(rustix::io::Errno::AGAIN) => return Ok(None),
        other => other?,
    };
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(Some((received.bytes, descriptor)))
}

/// Waits for a descriptor.
pub(crate) fn receive_descriptor(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let received = receive(socket, &mut [0], RecvFlags::empty())?;
    let descriptor = received.and_then(|received| received.1);
    descriptor.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Sends a descriptor, and returns an errno or 0. Allocates nothing, and makes only calls that
/// are allowed between fork and exec.
pub(crate) fn send_descriptor(socket: RawFd, descriptor: RawFd) -> libc::c_int {
    const BYTES: usize = size_of::<libc::c_int>();
    #[repr(C)]
    struct Rights {
        header: libc::cmsghdr,
        descriptor: libc::c_int,
        padding: libc::c_int,
    }
    let mut byte = 0_u8;
    let mut data = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    // SAFETY: all zeroes are a valid value of both, whose fields differ between C libraries.
    let (mut rights, mut message) = unsafe {
        (
            std::mem::zeroed::<Rights>(),
            std::mem::zeroed::<libc::msghdr>(),
        )
    };
    // SAFETY: takes a number only.
    rights.header.cmsg_len = unsafe { libc::CMSG_LEN(BYTES as libc::c_uint) } as _;
    rights.header.cmsg_level = libc::SOL_SOCKET;
    rights.header.cmsg_type = libc::SCM_RIGHTS;
    rights.descriptor = descriptor;
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut rights).cast();
    // SAFETY: as above.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(BYTES as libc::c_uint) } as _;
    // SAFETY: all that the message points to outlives the call. There is always an errno.
    unsafe {
        match libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL) {
            -1 => *libc::__errno_location(),
            _ => 0,
        }
    }
}

/// Two connected sockets that keep messages apart. Sending waits for room for this long at most.
///
/// # Errors
/// Those of socketpair(2).
pub fn message_sockets(patience: Duration) -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::net::sockopt::set_socket_timeout;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let (first, second) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    set_socket_timeout(&first, Timeout::Send, Some(patience))?;
    set_socket_timeout(&second, Timeout::Send, Some(patience))?;
    Ok((first, second))
}
