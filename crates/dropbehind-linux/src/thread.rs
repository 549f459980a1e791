//! Threads of a library inside another program.
//!
//! Sources: `gettid(2)`, `pthread_sigmask(3)`.

use std::io;

/// The calling thread's number, as in `/proc/self/task`.
pub fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Blocks every signal in the calling thread while this exists.
///
/// A thread started meanwhile inherits the mask, so none of the program's signal handlers
/// ever run on it.
#[derive(Debug)]
pub struct SignalsBlocked {
    before: libc::sigset_t,
}

impl SignalsBlocked {
    /// Blocks all signals that can be blocked.
    ///
    /// # Errors
    /// None is documented for a valid call.
    pub fn new() -> io::Result<SignalsBlocked> {
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigfillset initialises the set it is given, and never fails
        // for a valid pointer.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: `all` is initialised, and both pointers are valid for the
        // call, which initialises `before` when it succeeds.
        let error =
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: initialised by the successful call above.
        let before = unsafe { before.assume_init() };
        Ok(SignalsBlocked { before })
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: `before` is the mask that the kernel gave for this thread; a
        // null third argument means the old mask is not wanted.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}
