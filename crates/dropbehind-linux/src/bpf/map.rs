//! Memory shared between programs in the kernel and us: `BPF_MAP_CREATE` of bpf(2).

use super::{NAME, bpf_open};
use crate::mapping::Mapping;
use rustix::mm::ProtFlags;
use std::ffi::c_long;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

const MAP_CREATE: c_long = 0;
const ARRAY: u32 = 2;
const RINGBUF: u32 = 27;
/// `BPF_F_MMAPABLE`, since Linux 5.5.
const MAPPABLE: u32 = 1 << 10;

/// What `BPF_MAP_CREATE` reads of `union bpf_attr`.
#[repr(C)]
struct Attributes {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; 16],
}

fn create(
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    let mut attributes = Attributes {
        kind,
        key_bytes,
        value_bytes,
        entries,
        flags,
        inner_map_fd: 0,
        numa_node: 0,
        name: NAME,
    };
    // SAFETY: these attributes contain no pointers, and the command creates a descriptor.
    unsafe { bpf_open(MAP_CREATE, &mut attributes) }
}

/// Values of equal size, zero at first, addressed by index.
#[derive(Debug)]
pub(crate) struct ArrayMap {
    fd: OwnedFd,
    mapping: Mapping,
    value_bytes: usize,
}

impl ArrayMap {
    /// `value_bytes` is a multiple of eight.
    ///
    /// # Errors
    ///
    /// - `EPERM`: without `CAP_BPF` (`CAP_SYS_ADMIN` before Linux 5.8).
    /// - `EINVAL`: before Linux 5.5. `ENOSYS`: the kernel was built without bpf(2).
    /// - `ENOMEM`, `E2BIG`.
    pub(crate) fn new(values: usize, value_bytes: usize) -> io::Result<Self> {
        let too_large = |_| io::Error::from_raw_os_error(libc::E2BIG);
        let value_size = u32::try_from(value_bytes).map_err(too_large)?;
        let entries = u32::try_from(values).map_err(too_large)?;
        let fd = create(ARRAY, 4, value_size, entries, MAPPABLE)?;
        let bytes = (values * value_bytes).next_multiple_of(rustix::param::page_size());
        let mapping = Mapping::new(fd.as_fd(), 0, bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(Self {
            fd,
            mapping,
            value_bytes,
        })
    }

    /// The word at this offset of a value.
    ///
    /// # Panics
    ///
    /// If there is no such word.
    pub(crate) fn word(&self, value: usize, offset: usize) -> &AtomicU64 {
        assert!(offset < self.value_bytes);
        self.mapping.word(value * self.value_bytes + offset)
    }
}

impl AsFd for ArrayMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What programs write to wake a poller: a `BPF_MAP_TYPE_RINGBUF` (since Linux 5.8,
/// Documentation/bpf/ringbuf.rst) whose contents nobody reads.
#[derive(Debug)]
pub(crate) struct WakeMap {
    fd: OwnedFd,
    consumer: Mapping,
    producer: Mapping,
}

impl WakeMap {
    /// # Errors
    ///
    /// Those of [`ArrayMap::new`]; `EINVAL` before Linux 5.8.
    pub(crate) fn new() -> io::Result<Self> {
        let page = rustix::param::page_size();
        let bytes = u32::try_from(page).map_err(io::Error::other)?;
        let fd = create(RINGBUF, 0, 0, bytes, 0)?;
        let consumer = Mapping::new(fd.as_fd(), 0, page, ProtFlags::READ | ProtFlags::WRITE)?;
        let producer = Mapping::new(fd.as_fd(), page as u64, page, ProtFlags::READ)?;
        Ok(Self {
            fd,
            consumer,
            producer,
        })
    }

    /// Forgets what was written so far, which then wakes nobody any more.
    pub(crate) fn clear(&self) {
        let position = self.producer.word(0).load(Ordering::Acquire);
        self.consumer.word(0).store(position, Ordering::Release);
    }
}

impl AsFd for WakeMap {
    /// For polling: readable after a write that has not been cleared.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
