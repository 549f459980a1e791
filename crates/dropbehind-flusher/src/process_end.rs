//! The end of the process: what its flushers are to write is requested before.
//!
//! Otherwise the last megabytes that a program wrote would stay dirty until the kernel likes,
//! since the threads that were about to request them end with the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;

use crate::flusher::{Flusher, Inner};

/// The calls only queue requests. One that takes longer than this waits for a disk that hangs,
/// and the process can end without it.
const PATIENCE: Duration = Duration::from_secs(5);

/// No lock: one that another thread held at a fork would stay locked in the child forever.
static FLUSHERS: ArcSwapOption<Vec<Weak<Inner>>> = ArcSwapOption::const_empty();
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Has the flusher request what is left to write when the process ends.
pub(crate) fn wait_for(flusher: &Arc<Inner>) {
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        // If that fails, the kernel writes the rest, as without us.
        let _ = dropbehind_linux::at_exit(submit);
    }
    FLUSHERS.rcu(|all| {
        let living = all.iter().flat_map(|all| all.iter());
        let living = living.filter(|one| one.strong_count() > 0).cloned();
        Some(Arc::new(
            living.chain([Arc::downgrade(flusher)]).collect::<Vec<_>>(),
        ))
    });
}

extern "C" fn submit() {
    let all = FLUSHERS.load_full();
    for inner in all.iter().flat_map(|all| all.iter()) {
        if let Some(inner) = inner.upgrade() {
            Flusher { inner }.submit(PATIENCE);
        }
    }
}
