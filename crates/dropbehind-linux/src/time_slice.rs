//! The time slice that a thread requests from the fair scheduler.
//!
//! Among the threads that are owed processor time, the scheduler runs the one whose slice
//! ends first. So a thread that requests a short slice runs soon after it is woken, for less
//! time at once and no more in total. Needs no privilege. Takes effect since Linux 6.12;
//! earlier kernels accept the request and ignore it.
//!
//! Sources: sched_setattr(2), Documentation/scheduler/sched-eevdf.rst,
//! `__setparam_fair` in kernel/sched/syscalls.c.

use std::io;
use std::mem::size_of;
use std::time::Duration;

use crate::errno::check;

/// The shortest slice that the kernel grants.
pub const TIME_SLICE_MIN: Duration = Duration::from_micros(100);

const SELF: libc::pid_t = 0;
const NO_FLAGS: libc::c_uint = 0;

/// Requests time slices of this length for the calling thread, without changing its policy
/// and niceness. Outside of [`TIME_SLICE_MIN`] and 100 ms, the kernel takes the nearer of the
/// two. Threads that this one starts inherit it.
///
/// A thread under another policy (real-time, deadline, idle) is left alone.
///
/// # Errors
///
/// - `ENOSYS`, `EPERM`: a sandbox without the calls.
pub fn set_thread_time_slice(slice: Duration) -> io::Result<()> {
    let mut attributes = thread_attributes()?;
    let policy = libc::c_int::try_from(attributes.sched_policy);
    if !matches!(policy, Ok(libc::SCHED_OTHER | libc::SCHED_BATCH)) {
        return Ok(());
    }
    attributes.sched_runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: the kernel reads `attributes`, of the size that it says itself.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            SELF,
            &raw const attributes,
            NO_FLAGS,
        )
    };
    check(returned)
}

fn thread_attributes() -> io::Result<libc::sched_attr> {
    let size = size_of::<libc::sched_attr>() as libc::c_uint;
    let mut attributes = libc::sched_attr {
        size,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel writes no more than `size` bytes to `attributes`.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            SELF,
            &raw mut attributes,
            size,
            NO_FLAGS,
        )
    };
    check(returned)?;
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KernelVersion, kernel_version};

    #[test]
    fn a_thread_has_the_slice_it_asked_for_and_its_niceness() {
        std::thread::spawn(|| {
            // SAFETY: integers only.
            unsafe { libc::nice(3) };
            let before = thread_attributes().expect("sched_getattr");
            set_thread_time_slice(Duration::from_micros(700)).expect("sched_setattr");
            let after = thread_attributes().expect("sched_getattr");
            assert_eq!(after.sched_nice, before.sched_nice);
            assert_eq!(after.sched_policy, before.sched_policy);
            let heeded_since = KernelVersion {
                major: 6,
                minor: 12,
            };
            if kernel_version() >= heeded_since {
                assert_eq!(after.sched_runtime, 700_000);
            }
        })
        .join()
        .expect("the thread ends");
    }
}
