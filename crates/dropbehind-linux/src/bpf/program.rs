//! A program in the kernel: `BPF_PROG_LOAD` of bpf(2).

use super::{NAME, bpf, bpf_open};
use std::ffi::{CStr, c_long};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

const PROG_LOAD: c_long = 5;
const OBJ_GET_INFO_BY_FD: c_long = 15;
const RAW_TRACEPOINT_OPEN: c_long = 17;
/// The verifier gives up with `EAGAIN` when a signal arrives (`do_check`, kernel/bpf/verifier.c).
/// Handling it takes less time than verifying, so few attempts fail.
const LOAD_ATTEMPTS: u32 = 100;
/// The project's own. None of the helpers we call is GPL-only.
const LICENSE: &CStr = c"MIT OR Apache-2.0";

/// What `BPF_PROG_LOAD` reads of `union bpf_attr`.
#[repr(C)]
struct Attributes {
    kind: u32,
    instructions: u32,
    first: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// What `BPF_OBJ_GET_INFO_BY_FD` reads of `union bpf_attr`.
#[repr(C)]
struct InfoAttributes {
    fd: u32,
    bytes: u32,
    info: u64,
}

/// `struct bpf_prog_info` as of Linux 5.12, the first with `recursion_misses`.
#[repr(C)]
struct Info {
    before: [u64; 26],
    recursion_misses: u64,
}

/// What `BPF_RAW_TRACEPOINT_OPEN` reads of `union bpf_attr`.
#[repr(C)]
struct RawTracepointAttributes {
    name: u64,
    program: u32,
    unused: u32,
}

/// What runs a program: `enum bpf_prog_type`.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum ProgramKind {
    /// A perf event of a tracepoint. While such a program runs on a processor, the kernel
    /// neither runs nor records others there (`trace_call_bpf`, kernel/trace/bpf_trace.c).
    Tracepoint = 5,
    /// The tracepoint itself, whatever else runs on the processor, but the program.
    RawTracepoint = 17,
}

/// A program that runs at a tracepoint.
#[derive(Debug)]
pub(crate) struct Program {
    fd: OwnedFd,
}

impl Program {
    /// Has the kernel verify and load a program.
    ///
    /// # Errors
    ///
    /// - `EPERM`: without `CAP_BPF` and `CAP_PERFMON` (`CAP_SYS_ADMIN` before Linux 5.8).
    /// - `EINVAL`, `EACCES`: the kernel does not know an instruction or a helper, or cannot
    ///   verify that the program is safe.
    pub(crate) fn load(kind: ProgramKind, instructions: &[u64]) -> io::Result<Self> {
        let mut attributes = Attributes {
            kind: kind as u32,
            instructions: u32::try_from(instructions.len()).map_err(io::Error::other)?,
            first: instructions.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            log_level: 0,
            log_bytes: 0,
            log: 0,
            kernel_version: 0,
            flags: 0,
            name: NAME,
        };
        // SAFETY: the kernel reads as many instructions as there are, and a zero-terminated
        // text; the command creates a descriptor.
        let mut load = || unsafe { bpf_open(PROG_LOAD, &mut attributes) };
        let mut loaded = load();
        for _ in 1..LOAD_ATTEMPTS {
            match &loaded {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => loaded = load(),
                _ => break,
            }
        }
        Ok(Self { fd: loaded? })
    }

    /// Runs a program for raw tracepoints on all processors until this descriptor is closed.
    ///
    /// # Errors
    ///
    /// - `ENOENT`: there is no such tracepoint.
    /// - `EINVAL`: the program is of another kind.
    /// - `EPERM`: without `CAP_PERFMON` (`CAP_SYS_ADMIN` before Linux 5.8).
    pub(crate) fn attach(&self, tracepoint: &CStr) -> io::Result<OwnedFd> {
        let mut attributes = RawTracepointAttributes {
            name: tracepoint.as_ptr() as u64,
            program: self.fd.as_raw_fd().cast_unsigned(),
            unused: 0,
        };
        // SAFETY: the kernel reads a zero-terminated text; the command creates a descriptor.
        unsafe { bpf_open(RAW_TRACEPOINT_OPEN, &mut attributes) }
    }

    /// How many times it was not run because a program (for a raw tracepoint: this one) was
    /// running on that processor, as far as the kernel counts that: for tracepoints since
    /// Linux 6.7.
    pub(crate) fn misses(&self) -> io::Result<u64> {
        let mut info = Info {
            before: [0; 26],
            recursion_misses: 0,
        };
        let mut attributes = InfoAttributes {
            fd: self.fd.as_raw_fd().cast_unsigned(),
            bytes: size_of::<Info>() as u32,
            info: (&raw mut info) as u64,
        };
        // SAFETY: the kernel writes no more to `info` than its size. The sizes inside, which
        // it reads, are zero, so it writes nowhere else.
        unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut attributes) }?;
        Ok(info.recursion_misses)
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::instruction::Assembler;
    use crate::bpf::instruction::Operation::{Add, Move};
    use crate::bpf::instruction::Register::R0;
    use dropbehind_testbed::{Need, need};
    use std::os::unix::thread::JoinHandleExt;
    use std::time::Duration;

    #[test]
    fn a_program_is_loaded_though_signals_arrive() {
        extern "C" fn handle(_: libc::c_int) {}

        need!(Need::Root);
        let handler = handle as extern "C" fn(libc::c_int);
        // SAFETY: the handler does nothing, and no other test uses this signal.
        unsafe { libc::signal(libc::SIGUSR2, handler as libc::sighandler_t) };
        let loader = std::thread::spawn(|| {
            let mut program = Assembler::default();
            program.compute(Move, R0, 0);
            for _ in 0..200 {
                program.compute(Add, R0, 1);
            }
            program.compute(Move, R0, 0);
            program.exit();
            let instructions = program.finish();
            for _ in 0..2000 {
                Program::load(ProgramKind::Tracepoint, &instructions).unwrap();
            }
        });
        while !loader.is_finished() {
            // SAFETY: the thread was not joined yet, so its handle is valid.
            unsafe { libc::pthread_kill(loader.as_pthread_t(), libc::SIGUSR2) };
            std::thread::sleep(Duration::from_millis(1));
        }
        loader.join().unwrap();
    }
}
