//! Children of a fork.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dropbehind::flusher::Flusher;
use dropbehind::{File, OpenOptions};
use dropbehind_testbed::{pattern, residency};

use crate::common::{KIB, MIB, PATIENCE, read_pattern, write_pattern};
use crate::parts::{path_of_part, run_part};

/// Runs `child` in a forked child of this process, which has many threads and holds many
/// locks. A hang counts as a failure.
fn in_a_fork(child: impl FnOnce()) {
    // SAFETY: the child runs code that allocates and starts threads, which glibc allows
    // after a fork. Whether our code allows it, too, is what this tests.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        // SAFETY: ends the child without the harness's exit handlers.
        unsafe { libc::_exit(if done.is_ok() { 0 } else { 1 }) };
    }
    let started = std::time::Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: `status` is valid, and the child is ours.
        let ended = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
        if ended == pid {
            assert!(
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
                "{status:#x}"
            );
            return;
        }
        if started.elapsed() > PATIENCE {
            let threads = [pid.to_string(), "self".to_owned()].map(|process| threads_of(&process));
            // SAFETY: the child is ours and not reaped yet.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            panic!("the child hangs:{}\nits parent:{}", threads[0], threads[1]);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The state and the kernel's stack of each thread of a process.
fn threads_of(process: &str) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let mut threads = String::new();
    for task in tasks.flatten() {
        let told = ["stat", "syscall", "stack"].map(|name| {
            let told = std::fs::read_to_string(task.path().join(name));
            told.unwrap_or_else(|error| error.to_string())
        });
        threads += &format!("\n{}", told.join(""));
    }
    threads
}

#[test]
#[ignore = "a part of another test"]
fn forks() {
    let path = path_of_part();
    let inherited = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .open(&path)
        .unwrap();
    write_pattern(&mut &inherited, 1, 0, 12 * MIB, MIB);
    let own = Flusher::builder().build().unwrap();
    let with_own = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .flusher(&own)
        .open(path.with_extension("own"))
        .unwrap();
    write_pattern(&mut &with_own, 4, 0, 4 * MIB, MIB);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // These threads take our locks again and again, so that some forks happen while a
        // lock is held.
        scope.spawn(|| {
            let mut buffer = vec![0; 64 << 10];
            while !stop.load(Ordering::Relaxed) {
                for block in 0..64 {
                    inherited.read_at(&mut buffer, block * 64 * KIB).unwrap();
                }
                inherited.set_len(12 * MIB).unwrap();
                let _ = (inherited.stats(), own.stats());
                inherited.settle(Duration::from_millis(1)).unwrap();
            }
        });
        scope.spawn(|| {
            let mut number = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                let scratch = path.with_extension(format!("scratch-{}", number % 4));
                write_pattern(
                    &mut File::create(scratch).unwrap(),
                    1,
                    0,
                    2 * MIB,
                    256 * KIB,
                );
                number += 1;
            }
        });
        // Stops them even if a child fails: the scope waits for its threads.
        let _stop = StopAtEnd(&stop);
        for round in 0..25 {
            in_a_fork(|| child_of_a_fork(&path, &inherited, &with_own, round));
        }
    });
    // The parent's flusher has noticed nothing.
    assert!(inherited.settle(PATIENCE).unwrap());
    assert!(with_own.settle(PATIENCE).unwrap());
}

/// The child and its parent write at the same position, in turn.
#[test]
#[ignore = "a part of another test"]
fn writes_in_turn() {
    let path = path_of_part();
    let mut file = File::create(&path).unwrap();
    for turn in 0..4 {
        write_pattern(&mut file, 1, 2 * turn * MIB, MIB, MIB);
        in_a_fork(|| {
            write_pattern(&mut &file, 1, (2 * turn + 1) * MIB, MIB, MIB);
            assert!(file.settle(PATIENCE).unwrap());
        });
    }
    file.sync_all().unwrap();
    assert!(file.settle(PATIENCE).unwrap());
    assert_eq!(residency::sample(&file).unwrap().cached_pages, 0);
    assert_eq!(file.stats().brought_bytes, 4 * MIB);
    let length = read_pattern(&mut File::open(&path).unwrap(), 1, MIB);
    assert_eq!(length, 8 * MIB);
}

/// A thread has just begun to use the library.
#[test]
#[ignore = "a part of another test"]
fn forks_at_first_use() {
    let path = path_of_part();
    let write = |name| {
        let mut file = File::create(path.with_extension(name)).unwrap();
        write_pattern(&mut file, 1, 0, 128 * KIB, 64 * KIB);
        assert!(file.settle(PATIENCE).unwrap());
    };
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let delay = Duration::from_nanos(u64::from(now.subsec_nanos()) % 400_000);
    let begin = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begin.wait();
            write("first");
        });
        begin.wait();
        let started = std::time::Instant::now();
        while started.elapsed() < delay {
            std::hint::spin_loop();
        }
        in_a_fork(|| write("child"));
    });
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn child_of_a_fork(path: &Path, inherited: &File, with_own: &File, round: u64) {
    let mut buffer = vec![0; 100 << 10];
    inherited.read_exact_at_all(&mut buffer, MIB);
    pattern::check(1, MIB, &buffer).unwrap();
    let offset = (20 + round) * MIB;
    let data = pattern::filled(round, offset, 1 << 20);
    assert_eq!(inherited.write_at(&data, offset).unwrap(), data.len());
    assert_eq!(with_own.write_at(&data, offset).unwrap(), data.len());
    inherited.set_len(60 * MIB).unwrap();
    inherited.sync_data().unwrap();
    let _ = (inherited.stats(), with_own.stats());
    assert!(inherited.settle(PATIENCE).unwrap());
    assert!(with_own.settle(PATIENCE).unwrap());
    let new = path.with_extension("child");
    let mut file = File::create(&new).unwrap();
    write_pattern(&mut file, 3, 0, 8 * MIB, MIB);
    file.sync_all().unwrap();
    assert!(file.settle(PATIENCE).unwrap());
    assert_eq!(residency::sample(&file).unwrap().cached_pages, 0);
    drop(file);
    let length = read_pattern(&mut File::open(&new).unwrap(), 3, MIB);
    assert_eq!(length, 8 * MIB);
}

trait ReadExactAt {
    fn read_exact_at_all(&self, buffer: &mut [u8], offset: u64);
}

impl ReadExactAt for File {
    fn read_exact_at_all(&self, buffer: &mut [u8], offset: u64) {
        let mut done = 0;
        while done < buffer.len() {
            let count = self
                .read_at(&mut buffer[done..], offset + done as u64)
                .unwrap();
            assert_ne!(count, 0);
            done += count;
        }
    }
}

#[test]
fn a_child_of_a_fork_uses_inherited_files_and_new_ones() {
    run_part("forks::forks");
}

#[test]
fn a_child_of_a_fork_moves_the_position_for_its_parent() {
    run_part("forks::writes_in_turn");
}

#[test]
fn a_fork_at_first_use_makes_no_child_hang() {
    (0..80).for_each(|_| run_part("forks::forks_at_first_use"));
}
