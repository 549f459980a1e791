//! The same program with and without us: random operations on our file and on a plain one,
//! which serves as the reference. Bytes, return values, errno, positions and sizes must be
//! the same after every single operation.
//!
//! `DROPBEHIND_OPS` sets the number of operations, `DROPBEHIND_SEED` repeats a
//! run that failed.

mod access;
#[path = "../common/mod.rs"]
mod common;
mod operations;
mod twins;

mod odd_files;
mod random_operations;
mod threads;

use std::time::SystemTime;

use common::{KIB, MIB};

/// Keeps the tests of a pull request down to seconds.
pub(crate) const FAST_OPS: u64 = 6_000;
pub(crate) const SLOW_OPS: u64 = 1_000_000;
/// No file grows beyond this; a raw device is this large.
pub(crate) const SIZE_BYTES: u64 = 6 * MIB;
pub(crate) const LONGEST_IO_BYTES: u64 = 192 * KIB;

pub(crate) fn ops(default: u64) -> u64 {
    std::env::var("DROPBEHIND_OPS").map_or(default, |text| text.parse().expect("a number"))
}

pub(crate) fn seed() -> u64 {
    let chosen = std::env::var("DROPBEHIND_SEED").ok();
    chosen.map_or_else(
        || {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            now.unwrap().as_nanos() as u64
        },
        |text| text.parse().expect("a number"),
    )
}
