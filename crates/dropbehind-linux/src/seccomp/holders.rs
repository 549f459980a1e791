//! Memory that both holders of a listener share, so that each can answer what the other has
//! received.

use super::{Listener, Notification, StoppedCall};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// What one holder has received.
#[repr(C)]
struct Slot {
    /// The kernel writes this, its first word being the ID; all zero while nothing waits for
    /// an answer.
    notification: Notification,
    /// How many calls it has received.
    received: AtomicU64,
    /// The thread that receives them, in the holders' pid namespace.
    thread: AtomicI32,
}

/// The memory that two holders share, each as number 0 or 1.
///
/// A holder receives one call at a time. The kernel writes it into this memory in the same call
/// that marks it as received, so no moment is left in which a holder may die and nobody knows
/// what it had received.
#[derive(Debug)]
pub struct Holders {
    memory: OwnedFd,
    slots: NonNull<Slot>,
}

// SAFETY: the mapping lives as long as the value, and is accessed by atomics and by volatile
// copies, of which each slot's holder makes all that may overlap.
unsafe impl Send for Holders {}
// SAFETY: likewise.
unsafe impl Sync for Holders {}

const BYTES: usize = 2 * size_of::<Slot>();

impl Holders {
    /// New memory, in which nothing is received.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`.
    pub fn new() -> io::Result<Holders> {
        let memory = memfd_create("dropbehind-holders", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&memory, BYTES as u64)?;
        Holders::with(memory)
    }

    /// The memory behind this descriptor, of another process's value.
    ///
    /// # Errors
    /// `EINVAL`: that is something else. Those of mmap(2).
    pub fn with(memory: OwnedFd) -> io::Result<Holders> {
        if rustix::fs::fstat(&memory)?.st_size != BYTES as i64 {
            return Err(crate::errno::invalid());
        }
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &memory,
                0,
            )
        }?;
        let slots = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Holders { memory, slots })
    }

    fn slot(&self, holder: usize) -> *mut Slot {
        assert!(holder < 2);
        // SAFETY: the mapping holds two slots.
        unsafe { self.slots.as_ptr().add(holder) }
    }

    fn received_by(&self, holder: usize) -> &AtomicU64 {
        // SAFETY: the mapping is aligned and lives as long as `self`; any value is valid.
        unsafe { &(*self.slot(holder)).received }
    }

    fn thread_of(&self, holder: usize) -> &AtomicI32 {
        // SAFETY: as for `received_by`.
        unsafe { &(*self.slot(holder)).thread }
    }

    /// The thread with which this holder receives calls; 0 if it has not begun to.
    #[must_use]
    pub fn thread(&self, holder: usize) -> i32 {
        self.thread_of(holder).load(Ordering::Relaxed)
    }

    /// How many calls this holder has received.
    #[must_use]
    pub fn count(&self, holder: usize) -> u64 {
        self.received_by(holder).load(Ordering::Relaxed)
    }

    /// The ID of the call that this holder has received and not answered, or 0.
    #[must_use]
    pub fn waiting(&self, holder: usize) -> u64 {
        // SAFETY: as for `received_by`; the kernel and the holder write it.
        unsafe { ptr::read_volatile(&raw const (*self.slot(holder)).notification.id) }
    }

    /// The calling thread receives this holder's calls from now on.
    pub fn begin(&self, holder: usize) {
        self.thread_of(holder)
            .store(crate::thread_id(), Ordering::Relaxed);
    }

    /// Receives the next call as this holder, and waits until there is one. `None` if its caller
    /// died meanwhile.
    ///
    /// # Errors
    /// `EINTR`.
    pub fn receive(&self, holder: usize, listener: &Listener) -> io::Result<Option<StoppedCall>> {
        let place = {
            // SAFETY: only the address is taken.
            unsafe { &raw mut (*self.slot(holder)).notification }
        };
        // The kernel takes only memory that is zero.
        // SAFETY: only this holder writes its slot, one call at a time.
        unsafe { ptr::write_volatile(place, Notification::default()) };
        // SAFETY: the slot lives as long as `self`.
        match unsafe { listener.receive(place) } {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            Err(error) => return Err(error),
        }
        self.received_by(holder).fetch_add(1, Ordering::Relaxed);
        // SAFETY: the kernel has written it; the other holder at most zeroes it.
        let notification = unsafe { ptr::read_volatile(place) };
        Ok((notification.id != 0).then(|| notification.call()))
    }

    /// Lets a call happen that this holder has received.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn let_go(&self, holder: usize, listener: &Listener, call: &StoppedCall) -> io::Result<()> {
        let answered = listener.let_go(call.id);
        self.clear(holder);
        answered
    }

    /// Lets the call happen that the other holder has received, if it has not answered yet.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn let_go_for(&self, other: usize, listener: &Listener) -> io::Result<()> {
        match self.waiting(other) {
            0 => Ok(()),
            id => listener.let_go(id),
        }
    }

    /// Forgets the call that a holder has received. Only that holder may do so while it lives.
    pub fn clear(&self, holder: usize) {
        // SAFETY: the mapping is aligned and lives as long as `self`.
        unsafe { ptr::write_volatile(&raw mut (*self.slot(holder)).notification.id, 0) };
    }
}

impl AsFd for Holders {
    /// The memory, for the other holder.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

impl Drop for Holders {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference to it is left. It cannot fail for a whole
        // mapping.
        let _ = unsafe { rustix::mm::munmap(self.slots.as_ptr().cast(), BYTES) };
    }
}
