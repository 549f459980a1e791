//! Why there is no observer.

use std::fmt;
use std::io;

/// Why there is no observer.
#[derive(Debug)]
pub enum ObserverError {
    /// `CAP_SYS_ADMIN` in the initial user namespace is missing.
    NotPermitted,
    /// The kernel has no fanotify.
    NoFanotify,
    /// `/proc` shows another pid namespace than the caller's, so its numbers stand for other
    /// processes.
    ForeignProc,
    /// Something else failed.
    Failed {
        /// What was tried.
        doing: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
}

impl fmt::Display for ObserverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObserverError::NotPermitted => {
                f.write_str("observing programs needs CAP_SYS_ADMIN (root), for fanotify")
            }
            ObserverError::NoFanotify => {
                f.write_str("this kernel was built without fanotify (CONFIG_FANOTIFY)")
            }
            ObserverError::ForeignProc => f.write_str(
                "/proc belongs to another pid namespace; mount one for this namespace (unshare \
                 does so with --mount-proc)",
            ),
            ObserverError::Failed { doing, error } => write!(f, "{doing}: {error}"),
        }
    }
}

impl std::error::Error for ObserverError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ObserverError::Failed { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Turns the kernel's answer to this into an error.
pub(super) fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> ObserverError {
    move |error| match error.raw_os_error() {
        Some(libc::EPERM) => ObserverError::NotPermitted,
        Some(libc::ENOSYS) => ObserverError::NoFanotify,
        _ => ObserverError::Failed { doing, error },
    }
}
