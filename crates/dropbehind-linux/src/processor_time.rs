//! Processor time that threads have used.

use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::errno::check;

/// The calling thread's time so far. Use it when the cost of some work decides how often it
/// is done: on a busy machine, a thread may be kept waiting in the middle of that work.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Another thread's time so far. A waiting thread uses none, however long it waits. A working
/// one does, even if it has to share its processor.
///
/// # Errors
///
/// `EINVAL`, `ESRCH`: the thread has ended.
pub fn processor_time_of<T>(thread: &JoinHandle<T>) -> io::Result<Duration> {
    let mut clock = 0;
    // A pointer with musl, and a number with glibc.
    let number = thread.as_pthread_t() as libc::pthread_t;
    // SAFETY: whoever has the handle can join the thread, so its number is valid still; and
    // the place for the clock's number outlives the call.
    let error = unsafe { libc::pthread_getcpuclockid(number, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the place for the time outlives the call.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) }.into())?;
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Ok(Duration::new(
        seconds,
        u32::try_from(time.tv_nsec).unwrap_or(0),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn who_waits_uses_none_and_who_works_does() {
        let (end, ended) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        let waiting = thread::spawn(move || {
            begin.send(()).unwrap();
            let _ = ended.recv();
        });
        static WORKS: AtomicBool = AtomicBool::new(true);
        let working = thread::spawn(|| {
            while WORKS.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        begun.recv().unwrap();
        // Wait until the thread waits.
        let mut used = Duration::ZERO;
        while used != processor_time_of(&waiting).unwrap() || used.is_zero() {
            used = processor_time_of(&waiting).unwrap();
            thread::sleep(Duration::from_millis(20));
        }
        let before = processor_time_of(&working).unwrap();
        while processor_time_of(&working).unwrap() <= before {
            thread::yield_now();
        }
        assert_eq!(processor_time_of(&waiting).unwrap(), used);
        WORKS.store(false, Ordering::Relaxed);
        drop(end);
        working.join().unwrap();
        waiting.join().unwrap();
    }
}
