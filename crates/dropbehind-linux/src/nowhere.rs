//! Memory that cannot be written to, to read into.

use crate::fact::Fact;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::ffi::c_void;

/// A direct read into it waits like any other, and then fails with `EFAULT`, on ext4 and xfs without
/// having asked the disk for anything. Mapped when first used, until the process ends.
pub(crate) struct Nowhere {
    bytes: usize,
    address: Fact,
}

impl Nowhere {
    pub(crate) const fn new(bytes: usize) -> Nowhere {
        let address = Fact::new();
        Nowhere { bytes, address }
    }

    /// # Errors
    ///
    /// `ENOMEM` if it could not be mapped.
    pub(crate) fn address(&self) -> Result<*mut c_void, Errno> {
        let address = self.address.get(|| {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: a new mapping, at an address of the kernel's choice.
            let mapped = unsafe {
                mmap_anonymous(std::ptr::null_mut(), self.bytes, ProtFlags::empty(), flags)
            };
            mapped.map_or(0, |start| start.addr() as u64)
        });
        match usize::try_from(address) {
            Ok(0) | Err(_) => Err(Errno::NOMEM),
            Ok(address) => Ok(std::ptr::without_provenance_mut(address)),
        }
    }
}
