//! Signals are handled on the program's own threads.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use dropbehind::File;

use crate::common::{KIB, MIB, PATIENCE, write_pattern};
use crate::parts::{path_of_part, run_part};

/// The signals that each of our threads in this process blocks.
fn blocked_in_our_threads() -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            Some(line.split_whitespace().nth(1)?.to_owned())
        };
        if let (Some(name), Some(blocked)) = (field("Name:"), field("SigBlk:"))
            && name.starts_with("dropbehind")
        {
            found.insert(name, u64::from_str_radix(&blocked, 16).unwrap());
        }
    }
    found
}

static HANDLED: AtomicU64 = AtomicU64::new(0);
static HANDLED_BY_OURS: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    let mut name = [0_u8; 16];
    // SAFETY: the call writes 16 bytes at most, and is allowed in a handler.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    HANDLED.fetch_add(1, Ordering::Relaxed);
    if name.starts_with(b"dropbehind") {
        HANDLED_BY_OURS.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
#[ignore = "a part of another test"]
fn handlers_run_on_the_programs_threads() {
    let mut file = File::create(path_of_part()).unwrap();
    write_pattern(&mut file, 1, 0, 12 * MIB, MIB);
    let ours = blocked_in_our_threads();
    assert!(ours.len() >= 2, "a keeper and a disk's thread: {ours:?}");
    for (name, blocked) in ours {
        for signal in 1..=64 {
            // Two cannot be blocked, and two are reserved by the C library.
            let exempt = [libc::SIGKILL, libc::SIGSTOP, 32, 33].contains(&signal);
            assert!(
                exempt || blocked & 1 << (signal - 1) != 0,
                "{name} takes signal {signal}"
            );
        }
    }
    // SAFETY: the handler adds to atomics and asks for its thread's name.
    unsafe { libc::signal(libc::SIGUSR1, on_signal as *const () as usize) };
    for step in 0..100 {
        // SAFETY: to this very process.
        unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
        write_pattern(&mut file, 1, (12 + step % 20) * MIB, 256 * KIB, 64 * KIB);
    }
    assert!(file.settle(PATIENCE).unwrap());
    assert!(HANDLED.load(Ordering::Relaxed) > 0);
    assert_eq!(HANDLED_BY_OURS.load(Ordering::Relaxed), 0);
}

#[test]
fn none_of_our_threads_runs_a_signal_handler() {
    run_part("signals::handlers_run_on_the_programs_threads");
}
