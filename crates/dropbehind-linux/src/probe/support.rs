//! Whether something works, and if not, why.

use rustix::io::Errno;
use std::fmt;
use std::io;

/// Whether something works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// Tried, and the effect was seen.
    Works,
    /// Refused.
    Missing {
        /// The errno.
        errno: i32,
        /// What that means here.
        why: String,
    },
    /// Accepted, but without the effect.
    Ineffective {
        /// What was seen instead.
        why: String,
    },
    /// Not tried, or the effect cannot be seen from here.
    Untested {
        /// What stood in the way.
        why: String,
    },
}

impl Support {
    /// Whether it was tried and the effect was seen.
    #[must_use]
    pub fn works(&self) -> bool {
        *self == Self::Works
    }

    pub(super) fn missing(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => {
                let why = match errno {
                    libc::ENOSYS => "not in this kernel, or refused by a sandbox".to_owned(),
                    libc::EOPNOTSUPP | libc::ENOTTY => {
                        "not supported by this kernel for this file system".to_owned()
                    }
                    libc::EPERM | libc::EACCES => "not permitted".to_owned(),
                    _ => Errno::from_raw_os_error(errno).to_string(),
                };
                Self::Missing { errno, why }
            }
            None => Self::Untested {
                why: error.to_string(),
            },
        }
    }

    pub(super) fn ineffective(why: impl Into<String>) -> Self {
        Self::Ineffective { why: why.into() }
    }

    pub(super) fn untested(why: impl Into<String>) -> Self {
        Self::Untested { why: why.into() }
    }

    pub(super) fn of(result: io::Result<()>) -> Self {
        match result {
            Ok(()) => Self::Works,
            Err(error) => Self::missing(&error),
        }
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Works => f.write_str("works"),
            // The kernel's own words have the number.
            Self::Missing { why, .. } if why.contains("(os error") => write!(f, "missing: {why}"),
            Self::Missing { errno, why } => write!(f, "missing: {why} (errno {errno})"),
            Self::Ineffective { why } => write!(f, "no effect: {why}"),
            Self::Untested { why } => write!(f, "untested: {why}"),
        }
    }
}
