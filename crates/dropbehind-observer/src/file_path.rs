//! The path of an open file.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;

/// The path of an open file, as far as the kernel still knows one.
pub(crate) fn path_of(file: BorrowedFd<'_>) -> PathBuf {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default()
}
