//! The calls against the running kernel, on real files.
//!
//! What a test needs and the machine lacks (root, a tool, a file system) makes
//! it print a line that starts with `SKIP` and pass.

// One resident range is what most files are expected to have.
#![allow(clippy::single_range_in_vec_init)]

mod block;
mod cache;
mod cache_trace;
mod claims;
mod descriptors;
mod direct_read;
mod disk;
mod extents;
mod fanotify;
mod file;
mod large_read;
mod mount_namespace;
mod presence;
mod probe;
mod processes;
mod setup;
mod threads;
mod vectored;
mod writeback_errors;
