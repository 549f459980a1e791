//! Detecting a fork: threads don't survive in the child.
//!
//! `getpid` would detect it, too, at the price of a system call each time. A counter that a
//! fork handler increments costs one load.
//!
//! Sources: `fork(2)`, `pthread_atfork(3)`. `vfork` and `posix_spawn` run no
//! handlers, and their children only call `exec`.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);
/// No `Once`: one that another thread was just calling at a fork would make the child wait forever.
/// Threads that come at once each register, and the counter then moves by more than one.
static REGISTERED: AtomicBool = AtomicBool::new(false);

static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn before() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// How many forks there were between the process that called this first and this one.
///
/// Compare it with its value when a thread was started: if they differ, the thread belongs to
/// another process.
pub fn fork_generation() -> u32 {
    count(&GENERATION)
}

/// A number that changes when this process forks, both here and in the child.
///
/// While it is unchanged since a descriptor was opened, no forked child has that descriptor.
pub fn fork_count() -> u32 {
    count(&FORKS)
}

fn count(counter: &AtomicU32) -> u32 {
    if !REGISTERED.load(Ordering::Relaxed) {
        // SAFETY: the handlers only add to atomics, which is allowed in the
        // child of a multi-threaded process, and they live as long as the code.
        // Failure (ENOMEM) leaves forks unnoticed, as without the handlers.
        let _ = unsafe { libc::pthread_atfork(Some(before), None, Some(in_child)) };
        REGISTERED.store(true, Ordering::Relaxed);
    }
    counter.load(Ordering::Relaxed)
}
