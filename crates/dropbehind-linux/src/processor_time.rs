//! What the calling thread has used of the processor.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The calling thread's time so far. Where the cost of something says how often it
/// is done, this is what counts: on a busy machine a thread may be kept waiting in
/// the midst of it.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
