//! Memory that both holders of a listener share, so that each can answer what the other has
//! received.

use super::{Listener, Notification, StoppedCall};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// What one holder has received.
#[repr(C)]
struct Slot {
    /// The kernel writes this, its first word being the ID; all zero while nothing waits for
    /// an answer.
    notification: Notification,
    shared: Shared,
}

/// What a holder tells the other one.
#[repr(C)]
struct Shared {
    /// How many calls it has received, and how often it has looked at those that it puts off.
    done: AtomicU64,
    /// The IDs of calls that it has received and lets wait; 0 where there is none.
    put_off: [AtomicU64; PUT_OFF],
    /// How many calls it has let happen without telling what they do.
    missed: AtomicU64,
    /// The ID of the last call of its that the other one has let happen.
    answered: AtomicU64,
    /// The thread that receives them, in the holders' pid namespace.
    thread: AtomicI32,
    /// Not 0 while it looks at files.
    looking: AtomicU32,
}

/// As many calls may be put off by a holder at once.
const PUT_OFF: usize = 256;

/// The memory that two holders share, each as number 0 or 1.
///
/// A holder receives one call at a time, and may put it off to receive the next one. The kernel
/// writes it into this memory in the same call that marks it as received, so no moment is left in
/// which a holder may die and nobody knows what it had received.
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

    fn shared(&self, holder: usize) -> &Shared {
        // SAFETY: the mapping is aligned and lives as long as `self`; any value is valid.
        unsafe { &(*self.slot(holder)).shared }
    }

    /// The thread with which this holder receives calls; 0 if it has not begun to.
    #[must_use]
    pub fn thread(&self, holder: usize) -> i32 {
        self.shared(holder).thread.load(Ordering::Relaxed)
    }

    /// Grows with each call that this holder receives, and each time it
    /// [looks](Self::looked) at those that it puts off.
    #[must_use]
    pub fn count(&self, holder: usize) -> u64 {
        self.shared(holder).done.load(Ordering::Relaxed)
    }

    /// Shows the other holder that this one works, though it receives nothing.
    pub fn looked(&self, holder: usize) {
        self.shared(holder).done.fetch_add(1, Ordering::Relaxed);
    }

    /// Shows the other holder whether this one looks at files, which may mean waiting for the
    /// server of their file system.
    pub fn set_looking(&self, holder: usize, looks: bool) {
        let looking = &self.shared(holder).looking;
        looking.store(looks.into(), Ordering::SeqCst);
    }

    /// Returns whether this holder looks at files.
    #[must_use]
    pub fn is_looking(&self, holder: usize) -> bool {
        self.shared(holder).looking.load(Ordering::SeqCst) != 0
    }

    /// Returns whether the other holder has [let this call happen](Self::let_go_for), which this one
    /// received; of several, it knows only the last one.
    #[must_use]
    pub fn is_answered(&self, holder: usize, call: &StoppedCall) -> bool {
        self.shared(holder).answered.load(Ordering::SeqCst) == call.id
    }

    /// Counts a call that this holder lets happen, or has let happen, without telling anybody what
    /// it does.
    pub fn miss(&self, holder: usize) {
        self.shared(holder).missed.fetch_add(1, Ordering::Relaxed);
    }

    /// How many calls the holders have [missed](Self::miss), those that died included.
    #[must_use]
    pub fn missed(&self) -> u64 {
        let missed = |holder| self.shared(holder).missed.load(Ordering::Relaxed);
        missed(0) + missed(1)
    }

    /// Returns whether this holder puts off a call.
    #[must_use]
    pub fn puts_off(&self, holder: usize) -> bool {
        let mut put_off = self.shared(holder).put_off.iter();
        put_off.any(|id| id.load(Ordering::Relaxed) != 0)
    }

    /// Puts off the call that this holder has received last, which then waits until
    /// [`Holders::let_go`]. Returns false if as many are put off as may be.
    #[must_use]
    pub fn put_off(&self, holder: usize, call: &StoppedCall) -> bool {
        let mut places = self.shared(holder).put_off.iter();
        let free = places.find(|id| id.load(Ordering::Relaxed) == 0);
        let Some(place) = free else { return false };
        // In this order: the other one must find it in either place.
        place.store(call.id, Ordering::SeqCst);
        self.clear_received(holder);
        true
    }

    /// The ID of the call that this holder has received and not answered, or 0.
    #[must_use]
    pub fn waiting(&self, holder: usize) -> u64 {
        // SAFETY: as for `shared`; the kernel and the holder write it.
        unsafe { ptr::read_volatile(&raw const (*self.slot(holder)).notification.id) }
    }

    /// The calling thread receives this holder's calls from now on.
    pub fn begin(&self, holder: usize) {
        self.shared(holder)
            .thread
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
        self.looked(holder);
        // SAFETY: the kernel has written it; the other holder at most zeroes it.
        let notification = unsafe { ptr::read_volatile(place) };
        Ok((notification.id != 0).then(|| notification.call()))
    }

    /// Lets a call happen that this holder has received or put off.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn let_go(&self, holder: usize, listener: &Listener, call: &StoppedCall) -> io::Result<()> {
        let answered = listener.let_go(call.id);
        let mut places = self.shared(holder).put_off.iter();
        match places.find(|id| id.load(Ordering::Relaxed) == call.id) {
            Some(place) => place.store(0, Ordering::Relaxed),
            None => self.clear_received(holder),
        }
        answered
    }

    /// Lets the calls happen that the other holder has received or put off, and has not answered
    /// yet.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn let_go_for(&self, other: usize, listener: &Listener) -> io::Result<()> {
        // What it puts off meanwhile is in both places, or still in the first one.
        let received = self.waiting(other);
        let put_off = self.shared(other).put_off.iter();
        let put_off = put_off.map(|id| id.load(Ordering::SeqCst));
        let ids = put_off.chain([received]).filter(|&id| id != 0);
        // One that fails must not keep the others waiting.
        let let_go = |id| {
            self.shared(other).answered.store(id, Ordering::SeqCst);
            listener.let_go(id)
        };
        ids.map(let_go).fold(Ok(()), Result::and)
    }

    /// Forgets the calls that a holder has received, and that it looks at files. Only that holder
    /// may do so while it lives.
    pub fn clear(&self, holder: usize) {
        self.clear_received(holder);
        self.set_looking(holder, false);
        for id in &self.shared(holder).put_off {
            id.store(0, Ordering::Relaxed);
        }
    }

    fn clear_received(&self, holder: usize) {
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
