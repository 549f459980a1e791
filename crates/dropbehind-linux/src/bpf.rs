//! Programs that run in the kernel, and memory that they share with us: bpf(2).
//!
//! Only what the [trace of the page cache](crate::cache_trace) needs.

pub(crate) mod instruction;
mod map;
mod program;

pub(crate) use map::{ArrayMap, WakeMap};
pub(crate) use program::{Program, ProgramKind};

use std::ffi::c_long;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A command of bpf(2), with the part of `union bpf_attr` that it reads.
///
/// # Safety
///
/// The kernel reads and writes what the attributes point to, as the command defines.
unsafe fn bpf<A>(command: c_long, attributes: &mut A) -> io::Result<c_long> {
    // SAFETY: the size passed is that of the attributes; the caller vouches for what they
    // point to.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attributes),
            size_of::<A>(),
        )
    };
    crate::errno::check(answer).map(|()| answer)
}

/// A command that creates a descriptor.
///
/// # Safety
///
/// That of [`bpf`], and the command is one that returns a new descriptor.
unsafe fn bpf_open<A>(command: c_long, attributes: &mut A) -> io::Result<OwnedFd> {
    // SAFETY: the caller's.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: a new descriptor, which fits the type and which nobody else knows of.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

/// `BPF_OBJ_NAME_LEN` bytes; tools show this name.
const NAME: [u8; 16] = *b"dropbehind\0\0\0\0\0\0";
