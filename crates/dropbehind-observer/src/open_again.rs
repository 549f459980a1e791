//! Files that a process has open already, and whose open no event reported.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;

use dropbehind_linux::{FileKind, OpenFile};

/// A description of our own of a file that a process has open. What has been deleted
/// or may only be written can be opened so, too.
pub(crate) fn open_again(process: i32, open: &OpenFile) -> Option<OwnedFd> {
    let descriptor = open.descriptor?;
    if open.kind == FileKind::Other {
        return None;
    }
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOATIME)
        .open(format!("/proc/{process}/fd/{descriptor}"))
        .ok()?;
    Some(file.into())
}
