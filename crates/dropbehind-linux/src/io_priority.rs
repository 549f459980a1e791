//! I/O priorities: ioprio_set(2) and ioprio_get(2), since Linux 2.6.13
//! (include/uapi/linux/ioprio.h).
//!
//! For writeback, the priority of the thread that submits it counts. Whether it has any
//! effect depends on the disk's scheduler: bfq and mq-deadline honour it, none and kyber
//! don't.

use crate::errno::{check, invalid};
use std::fmt;
use std::io;
use std::str::FromStr;

const IOPRIO_WHO_PROCESS: libc::c_int = 1;
/// With `IOPRIO_WHO_PROCESS`, the calling *thread*.
const SELF: libc::c_int = 0;
const CLASS_SHIFT: u32 = 13;
const CLASS_NONE: u32 = 0;
const CLASS_BEST_EFFORT: u32 = 2;
const CLASS_IDLE: u32 = 3;
const LEVEL_MASK: u32 = 7;

/// A thread's I/O priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IoPriority {
    /// That of the thread that starts it. If no thread has set one, the kernel derives it from
    /// the niceness.
    #[default]
    Inherit,
    /// Only when nobody else uses the disk.
    Idle,
    /// The usual class, from 0 (first) to 7 (last).
    BestEffort(u8),
}

impl fmt::Display for IoPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inherit => f.write_str("inherit"),
            Self::Idle => f.write_str("idle"),
            Self::BestEffort(level) => write!(f, "best-effort:{level}"),
        }
    }
}

/// The text names no [`IoPriority`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseIoPriorityError;

impl fmt::Display for ParseIoPriorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected inherit, idle, or best-effort:0 to best-effort:7")
    }
}

impl std::error::Error for ParseIoPriorityError {}

impl FromStr for IoPriority {
    type Err = ParseIoPriorityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "inherit" => Ok(Self::Inherit),
            "idle" => Ok(Self::Idle),
            _ => match text.strip_prefix("best-effort:").map(str::as_bytes) {
                Some([digit @ b'0'..=b'7']) => Ok(Self::BestEffort(digit - b'0')),
                _ => Err(ParseIoPriorityError),
            },
        }
    }
}

/// Sets the calling thread's I/O priority; [`IoPriority::Inherit`] leaves it as it is.
///
/// # Errors
///
/// - `EINVAL`: a best-effort level above 7.
/// - `EPERM`, `ENOSYS`: a sandbox without the call.
pub fn set_thread_io_priority(priority: IoPriority) -> io::Result<()> {
    let value = match priority {
        IoPriority::Inherit => return Ok(()),
        IoPriority::Idle => CLASS_IDLE << CLASS_SHIFT,
        IoPriority::BestEffort(level) if u32::from(level) <= LEVEL_MASK => {
            CLASS_BEST_EFFORT << CLASS_SHIFT | u32::from(level)
        }
        IoPriority::BestEffort(_) => return Err(invalid()),
    };
    // SAFETY: all arguments are integers; no memory of ours is touched.
    let returned = unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, SELF, value) };
    check(returned)
}

/// The calling thread's I/O priority; [`IoPriority::Inherit`] if none is set. The real-time class, which is never set here, shows as
/// best effort's highest level.
///
/// # Errors
///
/// - `EPERM`, `ENOSYS`: a sandbox without the call.
pub fn thread_io_priority() -> io::Result<IoPriority> {
    // SAFETY: all arguments are integers; no memory of ours is touched.
    let returned = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, SELF) };
    check(returned)?;
    let value = u32::try_from(returned).map_err(|_| invalid())?;
    Ok(match value >> CLASS_SHIFT {
        CLASS_NONE => IoPriority::Inherit,
        CLASS_IDLE => IoPriority::Idle,
        CLASS_BEST_EFFORT => IoPriority::BestEffort((value & LEVEL_MASK) as u8),
        _ => IoPriority::BestEffort(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for priority in [
            IoPriority::Inherit,
            IoPriority::Idle,
            IoPriority::BestEffort(0),
            IoPriority::BestEffort(7),
        ] {
            assert_eq!(priority.to_string().parse(), Ok(priority));
        }
        for wrong in ["", "best-effort", "best-effort:8", "best-effort:07", "Idle"] {
            assert_eq!(wrong.parse::<IoPriority>(), Err(ParseIoPriorityError));
        }
    }
}
