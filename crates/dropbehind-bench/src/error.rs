//! Why a benchmark could not be run.

use std::fmt;
use std::io;
use std::path::Path;

/// A sentence with the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// What was asked for makes no sense; nothing was done.
    Usage(String),
    /// An operation failed.
    Failed(String),
    /// The user ended it.
    Interrupted,
}

impl Error {
    /// A failed call on a file.
    pub(crate) fn io(doing: &str, path: &Path, error: &io::Error) -> Self {
        let step = match error.raw_os_error() {
            None if error.kind() == io::ErrorKind::InvalidData => {
                "It holds no results; name a file that `dropbehind bench` wrote"
            }
            Some(libc::ENOSPC) => "Free space there, or give a smaller --size",
            Some(libc::EACCES | libc::EPERM) => "Run as root, or give another --dir",
            Some(libc::ENOENT) => "Create it first, or give another name",
            Some(libc::EROFS) => "Give a directory that can be written with --dir",
            _ => "Look into the kernel's log (dmesg) if the disk is to blame",
        };
        Self::Failed(format!(
            "{doing} {} failed: {error}. {step}.",
            path.display()
        ))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Failed(text) => f.write_str(text),
            Self::Interrupted => f.write_str("interrupted; what was measured so far is saved."),
        }
    }
}

impl std::error::Error for Error {}
