//! Errors stay the program's: each comes out of exactly the call that reports
//! it without us, and nothing hangs that does not hang without us. Every test
//! runs twice, once with the standard library's file, and compares.

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
