//! Unmodified programs, watched from outside.
//!
//! An observer learns from fanotify which files are opened and closed, looks at
//! their pages with cachestat while they are in use, and hands what it finds to
//! the flusher of the [`dropbehind`] library. The programs are never touched.

#![cfg(target_os = "linux")]

mod board;
mod file_path;
mod files;
mod looked;
mod observer;
mod others;
mod overlay;
mod owners;
pub mod path_pattern;
pub mod prometheus;
pub mod rules;
pub mod rules_file;
mod rules_in_force;
mod scout;
pub mod size;
mod small_files;
pub mod snapshot;
mod source;
mod start_times;
pub mod status;

pub use observer::{Observer, ObserverConfig, ObserverError};
pub use source::Source;
