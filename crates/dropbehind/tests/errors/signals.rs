//! Signals that arrive while a write waits.

use std::io::{Seek, SeekFrom, Write};
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dropbehind::OpenOptions;
use dropbehind_testbed::{Need, SlowDisk, SlowDiskOptions, need};

use crate::common::{KIB, MIB, PATIENCE};

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn signals_do_not_cut_a_write_that_waits_for_the_disk() {
    need!(all SlowDisk::needs());
    need!(Need::Cachestat);
    let disk = SlowDisk::new(SlowDiskOptions {
        size_bytes: 64 * MIB,
        write_bytes_per_second: Some(8 * MIB),
        ..SlowDiskOptions::default()
    })
    .unwrap();
    // SAFETY: the action is a valid structure, and the handler only adds to an
    // atomic. Without SA_RESTART, a call that waits ends with EINTR.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()),
            0
        );
    }
    let path = disk.device().to_owned();
    let writer = std::thread::spawn(move || {
        let mut file = OpenOptions::new()
            .write(true)
            .window_bytes(64 * KIB)
            .open(&path)
            .unwrap();
        let block = vec![6; 64 << 10];
        for _ in 0..128 {
            assert_eq!(file.write(&block).unwrap(), block.len());
        }
        assert!(file.settle(PATIENCE).unwrap());
        file.seek(SeekFrom::Start(0)).unwrap();
        file.stats()
    });
    while !writer.is_finished() {
        // SAFETY: the thread is not joined yet, so its handle is valid.
        unsafe { libc::pthread_kill(writer.as_pthread_t(), libc::SIGUSR2) };
        std::thread::sleep(Duration::from_millis(1));
    }
    let stats = writer.join().unwrap();
    assert!(stats.waits > 10, "{stats:?}");
    assert!(SIGNALS.load(Ordering::Relaxed) > 100);
}
