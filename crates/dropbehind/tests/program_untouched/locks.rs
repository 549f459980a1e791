//! The program's locks: record locks, and locks on whole files.

use std::fs;
use std::os::fd::AsRawFd;

use dropbehind::flusher::Flusher;
use dropbehind::{File, Mode};
use dropbehind_testbed::{Fs, need};

use crate::common::{self, FILE_VARIABLE, Kind, MIB, PATIENCE, write_pattern};
use crate::parts::{ext4, path_of_part, run_part};

fn lock_record(file: &fs::File, kind: libc::c_int) -> bool {
    let lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 100,
        l_len: 100,
        l_pid: 0,
    };
    // SAFETY: the call reads the structure, which lives across it.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) == 0 }
}

/// Tries to take the same lock; another process must not get it.
#[test]
#[ignore = "a part of another test"]
fn somebody_else_wants_the_lock() {
    let file = fs::OpenOptions::new()
        .write(true)
        .open(path_of_part())
        .unwrap();
    assert!(lock_record(&file, libc::F_WRLCK));
}

/// Closing *any* descriptor of a file gives up the process's record locks on it. That would
/// include the flusher's, if it were in the program's table.
#[test]
fn record_locks_survive_the_flushers_descriptors() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = ext4(64 * MIB);
    let path = place.path();
    let locked = fs::File::create(&path).unwrap();
    assert!(lock_record(&locked, libc::F_WRLCK));
    let somebody_gets_it = || {
        common::part("locks::somebody_else_wants_the_lock")
            .env(FILE_VARIABLE, &path)
            .output()
            .unwrap()
            .status
            .success()
    };
    assert!(!somebody_gets_it());
    // Keeps `locked` open, since closing any descriptor would give up the lock.
    let clone = locked.try_clone().unwrap();
    let mut file = File::from_std(clone, Mode::DONTCACHE).unwrap();
    write_pattern(&mut file, 1, 0, 32 * MIB, MIB);
    file.sync_all().unwrap();
    assert!(file.settle(PATIENCE).unwrap());
    assert!(!somebody_gets_it(), "while the file is open");
    // The flusher closes its descriptor; ours stays open.
    let still = file.into_std();
    assert!(Flusher::shared().unwrap().drain(PATIENCE));
    assert!(!somebody_gets_it(), "after the flusher has closed its own");
    drop(still);
    assert!(somebody_gets_it(), "a close of the program's gives it up");
}

/// Not beside other tests: a child that they start has the descriptor, too, until its exec.
#[test]
#[ignore = "a part of another test"]
fn flocks() {
    let path = path_of_part();
    for _ in 0..5 {
        let mut file = File::create(&path).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        write_pattern(&mut file, 1, 0, 12 * MIB, MIB);
        let other = fs::File::open(&path).unwrap();
        let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        assert!(rustix::fs::flock(&other, lock).is_err());
        drop(file);
        // The flusher still has work to do for the file.
        rustix::fs::flock(&other, lock).unwrap();
    }
}

#[test]
fn a_flock_is_released_at_once_on_close() {
    run_part("locks::flocks");
}
