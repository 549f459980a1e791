//! The perf events that fill the rings: perf_event_open(2).

use rustix::ioctl::{IntegerSetter, NoArg, Opcode, ioctl, opcode};
use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_COUNT_SW_DUMMY: u64 = 9;
const PERF_SAMPLE_TID: u64 = 1 << 1;
const PERF_SAMPLE_TIME: u64 = 1 << 2;
const PERF_SAMPLE_RAW: u64 = 1 << 10;
const EVERYBODY: libc::pid_t = -1;
const NO_GROUP: libc::c_int = -1;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
const PERF_EVENT_IOC_ENABLE: Opcode = opcode::none(b'$', 0);
const PERF_EVENT_IOC_SET_FILTER: Opcode = opcode::write::<*const libc::c_char>(b'$', 6);
const PERF_EVENT_IOC_SET_BPF: Opcode = opcode::write::<u32>(b'$', 8);

// Bits of the kernel's bit field, in its order.
const DISABLED: u64 = 1 << 0;
const COMM: u64 = 1 << 9;
const TASK: u64 = 1 << 13;
const WATERMARK: u64 = 1 << 14;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const USE_CLOCKID: u64 = 1 << 25;

/// `struct perf_event_attr` as of Linux 4.1, the first that has `clockid`
/// (`PERF_ATTR_SIZE_VER3`).
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
}

/// What an event records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// The tracepoint with this number.
    Tracepoint(u64),
    /// Forks and exits of tasks.
    Forks,
    /// Names of tasks.
    Names,
}

/// An event for all processes on one processor, disabled until [`Event::enable`].
#[derive(Debug)]
pub(crate) struct Event {
    fd: OwnedFd,
}

impl Event {
    /// Wakes pollers after every `wake_bytes` written.
    pub(crate) fn open(recorded: Recorded, processor: i32, wake_bytes: u32) -> io::Result<Self> {
        let (kind, config, tasks) = match recorded {
            Recorded::Tracepoint(number) => (PERF_TYPE_TRACEPOINT, number, 0),
            Recorded::Forks => (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY, TASK),
            Recorded::Names => (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY, COMM),
        };
        let flags = DISABLED | tasks | WATERMARK | SAMPLE_ID_ALL | USE_CLOCKID;
        let attributes = Attributes {
            kind,
            size: size_of::<Attributes>() as u32,
            config,
            sample_period: 1,
            sample_type: PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_RAW,
            read_format: 0,
            // Bit fields start at the other end there.
            flags: if cfg!(target_endian = "big") {
                flags.reverse_bits()
            } else {
                flags
            },
            wakeup_watermark: wake_bytes,
            breakpoint_type: 0,
            config1: 0,
            config2: 0,
            branch_sample_type: 0,
            sample_regs_user: 0,
            sample_stack_user: 0,
            clock: libc::CLOCK_MONOTONIC,
        };
        // SAFETY: the kernel reads `attributes`, whose size they state themselves, and the
        // other arguments are integers.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                EVERYBODY,
                processor,
                NO_GROUP,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        crate::errno::check(fd)?;
        // SAFETY: a new descriptor, which fits the type and which nobody else knows of.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) };
        Ok(Self { fd })
    }

    /// Starts recording.
    pub(super) fn enable(&self) -> io::Result<()> {
        // SAFETY: this request takes no argument that is a pointer.
        Ok(unsafe { ioctl(&self.fd, NoArg::<PERF_EVENT_IOC_ENABLE>::new()) }?)
    }

    /// Records the tracepoint only where this holds of its fields
    /// (Documentation/trace/events.rst, "Event filtering").
    pub(super) fn filter(&self, condition: &CStr) -> io::Result<()> {
        let condition = condition.as_ptr() as usize;
        // SAFETY: this request takes the address of a C string, which lives until the call
        // returns; the kernel copies it.
        Ok(unsafe {
            ioctl(
                &self.fd,
                IntegerSetter::<PERF_EVENT_IOC_SET_FILTER>::new_usize(condition),
            )
        }?)
    }

    /// Runs the program whenever any processor passes the tracepoint, until the event is
    /// closed (perf_event_open(2), `PERF_EVENT_IOC_SET_BPF`; for tracepoints since Linux
    /// 4.7).
    pub(crate) fn run(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let program = program.as_raw_fd() as usize;
        // SAFETY: this request takes a descriptor by value.
        Ok(unsafe {
            ioctl(
                &self.fd,
                IntegerSetter::<PERF_EVENT_IOC_SET_BPF>::new_usize(program),
            )
        }?)
    }
}

impl From<Event> for OwnedFd {
    fn from(event: Event) -> Self {
        event.fd
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
