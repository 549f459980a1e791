//! What is set or waited for per thread.

use dropbehind_linux::{
    IoPriority, Wake, futex_wait, futex_wake, set_thread_io_priority, thread_io_priority,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

#[test]
fn io_priority_is_the_threads_own() {
    std::thread::spawn(|| {
        for priority in [
            IoPriority::Idle,
            IoPriority::BestEffort(7),
            IoPriority::BestEffort(0),
        ] {
            set_thread_io_priority(priority).unwrap();
            assert_eq!(thread_io_priority().unwrap(), priority);
        }
        let error = set_thread_io_priority(IoPriority::BestEffort(8)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        set_thread_io_priority(IoPriority::Idle).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| set_thread_io_priority(IoPriority::BestEffort(1)).unwrap());
        });
        assert_eq!(thread_io_priority().unwrap(), IoPriority::Idle);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                set_thread_io_priority(IoPriority::Inherit).unwrap();
                assert_eq!(thread_io_priority().unwrap(), IoPriority::Idle);
            });
        });
    })
    .join()
    .unwrap();
}

#[test]
fn futex_tells_why_it_returned() {
    let word = AtomicU32::new(1);
    assert_eq!(futex_wait(&word, 0, None).unwrap(), Wake::Changed);
    let started = Instant::now();
    let pause = Duration::from_millis(20);
    assert_eq!(futex_wait(&word, 1, Some(pause)).unwrap(), Wake::TimedOut);
    assert!(started.elapsed() >= pause);
    assert_eq!(futex_wake(&word, 1).unwrap(), 0);

    let word = Arc::new(AtomicU32::new(0));
    let sleeper = std::thread::spawn({
        let word = Arc::clone(&word);
        move || futex_wait(&word, 0, Some(Duration::from_secs(30))).unwrap()
    });
    while futex_wake(&word, u32::MAX).unwrap() == 0 {
        std::thread::yield_now();
    }
    assert_eq!(sleeper.join().unwrap(), Wake::Woken);
}

/// A private futex would pass every other test, and never wake the other
/// process.
#[test]
fn futex_wakes_another_process() {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let page = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            4096,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
        )
    }
    .unwrap();
    // SAFETY: the page is aligned, zeroed, never unmapped, and accessed only as
    // atomics, by both processes.
    let word: &'static AtomicU32 = unsafe { &*page.cast() };
    // SAFETY: the child makes only system calls before it exits.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let woken = futex_wait(word, 0, Some(Duration::from_secs(10)));
        let code = i32::from(!matches!(woken, Ok(Wake::Woken | Wake::Changed)));
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(code) };
    }
    let started = Instant::now();
    let mut woken = 0;
    while woken == 0 && started.elapsed() < Duration::from_secs(5) {
        std::thread::yield_now();
        woken = futex_wake(word, 1).unwrap();
    }
    word.store(1, Ordering::SeqCst);
    let mut status = 0;
    // SAFETY: the child is ours and `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!((woken, status), (1, 0));
}

#[test]
fn futex_tells_of_signals() {
    extern "C" fn ignore(_: libc::c_int) {}
    // SAFETY: the handler does nothing, and the struct is all-zeroes otherwise,
    // that is, without SA_RESTART.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as *const () as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()),
            0
        );
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    let sleeper = std::thread::spawn(move || {
        // SAFETY: the calling thread's own handle.
        sender.send(unsafe { libc::pthread_self() }).unwrap();
        let word = AtomicU32::new(0);
        futex_wait(&word, 0, Some(Duration::from_secs(30))).unwrap()
    });
    let target = receiver.recv().unwrap();
    while !sleeper.is_finished() {
        // SAFETY: the thread is not joined yet, so its handle is valid.
        unsafe { libc::pthread_kill(target, libc::SIGUSR1) };
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(sleeper.join().unwrap(), Wake::Interrupted);
}
