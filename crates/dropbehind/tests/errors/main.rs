//! Errors stay the program's: each is returned by exactly the call that returns it without
//! us, and nothing hangs that doesn't hang without us. Every test also runs with the standard
//! library's file, and compares.

#[path = "../common/mod.rs"]
mod common;
mod twins;

mod bad_spot;
mod changed_files;
mod failing_disks;
mod full_disks;
mod no_cachestat;
mod signals;
mod size_limit;
mod writeback;
