//! Uncached buffered I/O and write-behind, in user space.
//!
//! A program that moves much data once fills the page cache with pages nobody
//! reads again and piles up dirty data. A [`File`] of this library goes through
//! the page cache like any other, but a flusher starts its writeback in time,
//! and drops what this I/O brought in, while it goes on, without a system call
//! on the write path. What others had cached stays.
//!
//! ```no_run
//! use std::io::Write;
//! use dropbehind::{File, Mode, OpenOptions};
//!
//! # fn main() -> std::io::Result<()> {
//! let mut backup = OpenOptions::new()
//!     .write(true)
//!     .create(true)
//!     .truncate(true)
//!     .mode(Mode::DONTCACHE)
//!     .open("backup.img")?;
//! backup.write_all(&[0; 1 << 20])?;
//! backup.sync_all()?;
//! # Ok(())
//! # }
//! ```
//!
//! The two controls are independent: see [`Mode`].

#![cfg(target_os = "linux")]

mod cache_map;
mod claims;
mod control;
mod fetchers;
mod file;
mod flusher;
mod handle;
mod open_options;
mod reader;
mod residency;
mod stats;
pub mod strategy;
mod writeback_errors;

pub use cache_map::CacheMap;
pub use control::{CacheState, DropOutcome};
pub use dropbehind_linux::IoPriority;
pub use dropbehind_policy::{Brought, ByteRange, Counted, RangeSet};
pub use dropbehind_policy::{Mode, Reason, ReasonBytes, Residency, Writeback};
pub use file::File;
pub use flusher::{
    DiskStats, Flusher, FlusherBuilder, Notice, NoticeSink, ObserveOptions, Observed,
    ObservedPages, ObservedState, Provenance,
};
pub use open_options::{OpenOptions, WINDOW_MIN_BYTES};
pub use stats::Stats;
pub use strategy::Strategy;

/// How long a small file that was closed is not written because of us: it may
/// be deleted again.
pub const GRACE: std::time::Duration =
    std::time::Duration::from_nanos(dropbehind_policy::grace::GRACE_NS);
/// Small files that wait, all together, before the oldest are written.
pub const SMALL_FILES_BYTES: u64 = dropbehind_policy::grace::SMALL_FILES_BYTES;
