//! Observes unmodified programs from outside.
//!
//! An observer learns from fanotify which files are opened and closed, and from a
//! tracepoint who brings which page into the cache. It hands that to
//! the [flusher](dropbehind_flusher). The programs are never touched.

#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod block_inodes;
mod board;
mod budget;
mod device;
mod file_path;
mod files;
mod glob;
mod in_time;
mod inodes;
mod names;
mod observer;
pub mod opens;
mod overlay;
mod owners;
pub mod path_pattern;
mod programs;
pub mod prometheus;
pub mod rules;
pub mod rules_file;
mod rules_in_force;
mod small_files;
pub mod snapshot;
mod source;
pub mod status;

pub use dropbehind_config::{shown, shown_json, size};
pub use observer::{Observer, ObserverConfig, ObserverError, open_trace};
pub use source::{Source, left_alone};
