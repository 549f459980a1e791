//! Parts that run in their own process, on a file on ext4.

use std::path::PathBuf;

use dropbehind_testbed::{Fs, need};

use crate::common::{self, FILE_VARIABLE, Kind, MIB, Place};

pub(crate) fn ext4(size_bytes: u64) -> Place {
    Place::new(Kind::Mounted(Fs::Ext4), size_bytes)
}

/// Runs a part in its own process, on a file on ext4.
pub(crate) fn run_part(name: &str) {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = ext4(64 * MIB);
    let status = common::part(name)
        .env(FILE_VARIABLE, place.path())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

pub(crate) fn path_of_part() -> PathBuf {
    std::env::var_os(FILE_VARIABLE).unwrap().into()
}
