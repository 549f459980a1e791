//! Reasons why there is no trace.

use std::fmt;
use std::io;

/// Why the page cache cannot be traced here.
#[derive(Debug)]
pub enum CacheTraceError {
    /// The caller lacks the privilege.
    NotPermitted,
    /// tracefs is mounted nowhere that we know, and cannot be mounted.
    NoTracefs(io::Error),
    /// tracefs exists, but not the tracepoint.
    NoTracepoint(io::Error),
    /// The tracepoint doesn't give a folio's order, as in older kernels.
    NoOrder,
    /// A call failed, or returned something impossible.
    Other(&'static str, io::Error),
}

impl CacheTraceError {
    /// An error of `call`.
    pub(super) fn of(call: &'static str, error: io::Error) -> Self {
        if is_refusal(&error) {
            Self::NotPermitted
        } else {
            Self::Other(call, error)
        }
    }

    pub(super) fn of_tracefs(error: io::Error) -> Self {
        if is_refusal(&error) {
            Self::NotPermitted
        } else {
            Self::NoTracefs(error)
        }
    }

    /// A tracepoint's records have an unknown format.
    pub(super) fn strange_format() -> Self {
        let strange = io::ErrorKind::InvalidData.into();
        Self::Other("reading the tracepoint's format", strange)
    }

    pub(super) fn of_tracepoint(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NoTracepoint(error),
            _ => Self::of("reading the tracepoint's description", error),
        }
    }
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

impl fmt::Display for CacheTraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPermitted => f.write_str("tracing all processes is not permitted"),
            Self::NoTracefs(error) => write!(f, "the kernel has no tracefs: {error}"),
            Self::NoTracepoint(error) => {
                write!(f, "the kernel does not trace the page cache: {error}")
            }
            Self::NoOrder => f.write_str("the kernel does not report the size of a folio"),
            Self::Other(call, error) => write!(f, "{call}: {error}"),
        }
    }
}

impl std::error::Error for CacheTraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotPermitted | Self::NoOrder => None,
            Self::NoTracefs(error) | Self::NoTracepoint(error) | Self::Other(_, error) => {
                Some(error)
            }
        }
    }
}
