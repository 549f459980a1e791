//! dropbehind's flusher: the threads that start writeback, count pages and drop them, for two
//! kinds of files.
//!
//! An [own file](own_file) is open in this process, through the library `dropbehind`: its
//! writers and readers report what they did. An [observed file](observed_file) is used by
//! other processes: the kernel's trace shows which pages they brought in, and counting shows
//! what became of those.
//!
//! The policy (crate `dropbehind-policy`) decides what to do, and this crate does it.
//! Programs use the crate `dropbehind` instead.

#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod arrivals;
mod beginning;
mod cache_map;
mod disk_handle;
mod disk_thread;
mod failed_files;
mod failed_writeback;
mod flusher;
mod keeper;
pub mod observed_file;
pub mod own_file;
mod peers;
mod process_end;
pub mod residency;
mod totals;
pub mod trace;

pub use arrivals::{Arrivals, ReportedTrace};
pub use beginning::Beginning;
pub use cache_map::CacheMap;
pub use dropbehind_policy::Stats;
pub use failed_files::{remember_failure, remembers_failure};
pub use failed_writeback::{FailedWriteback, WritebackSign};
pub use flusher::{DiskStats, Flusher, FlusherBuilder};
pub use observed_file::{
    ExcessSink, Notice, NoticeSink, ObserveOptions, Observed, ObservedPages, ObservedState,
    Provenance, Sink, WAIT_LENGTHS, Waits, WriterLimit,
};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex even if a holder has panicked: the counters and lists it protects are
/// consistent at every point.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
