//! Noticing a fork: threads do not live on in the child.
//!
//! `getpid` would tell too, at the price of a system call each time; a counter
//! that a fork handler moves costs one load.
//!
//! Sources: `fork(2)`, `pthread_atfork(3)`. `vfork` and `posix_spawn` run no
//! handlers, and their children only call `exec`.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);
static REGISTERED: Once = Once::new();

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// How many forks lie between the process that asked first and this one.
///
/// Compare with the value at the time a thread was started: when they differ,
/// the thread is another process's.
pub fn fork_generation() -> u32 {
    REGISTERED.call_once(|| {
        // SAFETY: the handler only adds to an atomic, which is allowed in the
        // child of a multi-threaded process, and it lives as long as the code.
        // Failure (ENOMEM) leaves forks unnoticed, as without the handler.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    GENERATION.load(Ordering::Relaxed)
}
