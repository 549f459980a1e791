//! Uncached buffered I/O and write-behind, in user space.
//!
//! A program that streams a lot of data fills the page cache with pages that nobody reads
//! again, and piles up dirty data. A [`File`] of this library uses the page cache like any
//! other file, but a flusher thread starts its writeback early and drops the pages that its
//! I/O brought in. Neither costs a system call on the write path. Pages that others had
//! cached stay.
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
//!     .cache_mode(Mode::DONTCACHE)
//!     .open("backup.img")?;
//! backup.write_all(&[0; 1 << 20])?;
//! backup.sync_all()?;
//! # Ok(())
//! # }
//! ```
//!
//! The two controls are independent: see [`Mode`].

//! On systems other than Linux the same [`File`] reads and writes plainly, and no mode has an
//! effect, so that portable programs need no second way.

#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod attached;
#[cfg(target_os = "linux")]
pub mod config;
pub mod control;
#[cfg(target_os = "linux")]
mod facts;
#[cfg(target_os = "linux")]
mod file;
#[cfg(not(target_os = "linux"))]
#[path = "plain_file.rs"]
mod file;
mod like_std;
mod open_options;
mod settings;
pub mod strategy;

#[cfg(target_os = "linux")]
pub use attached::{Attached, Reading};
pub use dropbehind_policy::{Mode, Stats};
pub use file::File;
pub use open_options::OpenOptions;

/// The two controls that make up a [`Mode`].
pub mod mode {
    pub use dropbehind_policy::{Mode, Residency, Writeback};
}

/// What [`Stats`] counts, by reason.
pub mod stats {
    pub use dropbehind_policy::{Reason, ReasonBytes, Stats};
}

/// What is written back and dropped, as it happens: for a sink of the program's own.
#[cfg(target_os = "linux")]
pub mod trace {
    pub use dropbehind_flusher::trace::{Deed, DropReason, Record, TracedFile, trace_to};
    pub use dropbehind_policy::ByteRange;
}

/// The background threads, for programs that want a flusher of their own.
#[cfg(target_os = "linux")]
pub mod flusher {
    pub use dropbehind_flusher::{DiskStats, Flusher, FlusherBuilder};
    pub use dropbehind_linux::IoPriority;
}
