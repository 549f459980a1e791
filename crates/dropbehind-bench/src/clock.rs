//! Clocks: times that processes share, and CPU time.

use rustix::time::{ClockId, clock_gettime};

/// Length of a step of the series over time.
pub(crate) const SERIES_STEP_NS: u64 = 100_000_000;

fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The monotonic clock, the same in all processes.
pub(crate) fn now_ns() -> u64 {
    read_ns(ClockId::Monotonic)
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    read_ns(ClockId::ThreadCPUTime)
}

/// CPU time of this process.
pub(crate) fn process_cpu_ns() -> u64 {
    read_ns(ClockId::ProcessCPUTime)
}

/// A short pause.
pub(crate) fn pause_ms(milliseconds: u64) {
    std::thread::sleep(std::time::Duration::from_millis(milliseconds));
}
