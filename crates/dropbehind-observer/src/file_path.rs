//! The path of an open file.

use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

/// The path of an open file, as far as the kernel still knows one.
pub(crate) fn path_of(file: impl AsFd) -> PathBuf {
    let number = file.as_fd().as_raw_fd();
    std::fs::read_link(format!("/proc/thread-self/fd/{number}")).unwrap_or_default()
}
