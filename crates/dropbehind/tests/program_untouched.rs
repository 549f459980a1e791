//! What a program sees of us besides its bytes: nothing. Its descriptors, its
//! locks, its signals, its children and its system calls are its own.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use common::{KIB, Kind, MIB, PATIENCE, Place, cached_bytes, read_pattern, write_pattern};
use dropbehind::{File, Flusher, Mode, OpenOptions};
use dropbehind_testbed::{Fs, Need, need, pattern, residency};

const FILE_VARIABLE: &str = "DROPBEHIND_TEST_FILE";

fn ext4(size_bytes: u64) -> Place {
    Place::new(Kind::Mounted(Fs::Ext4), size_bytes)
}

/// Runs a part in a process of its own, on a file of an ext4.
fn run_part(name: &str) {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = ext4(64 * MIB);
    let status = common::part(name)
        .env(FILE_VARIABLE, place.path())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

fn path_of_part() -> PathBuf {
    std::env::var_os(FILE_VARIABLE).unwrap().into()
}

// ---- descriptors ------------------------------------------------------------

fn descriptors() -> BTreeMap<u32, PathBuf> {
    fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| {
            let path = entry.unwrap().path();
            let number = path.file_name()?.to_str()?.parse().ok()?;
            // The listing's own is gone by now.
            Some((number, fs::read_link(path).ok()?))
        })
        .collect()
}

#[test]
#[ignore = "a part of another test"]
fn descriptors_stay_as_they_are() {
    let path = path_of_part();
    // Another file, so that a plain one has the number ours will have.
    let plain = fs::File::create(&path).unwrap();
    let (number, with_plain) = (plain.as_raw_fd(), descriptors());
    drop(plain);
    let mut file = File::create(&path).unwrap();
    assert_eq!(descriptors(), with_plain);
    for part in 0..4 {
        write_pattern(&mut file, 1, part * 8 * MIB, 8 * MIB, 64 * KIB);
        assert_eq!(descriptors(), with_plain, "while it is written");
    }
    file.sync_all().unwrap();
    assert!(file.settle(PATIENCE).unwrap());
    assert_eq!(descriptors(), with_plain, "when it is written");
    assert_eq!(file.as_raw_fd(), number);
    drop(file);
    let mut file = File::open(&path).unwrap();
    let reading = descriptors();
    read_pattern(&mut &file, 1, 4 * MIB);
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut buffer = vec![0; 5 << 20];
    file.read_exact(&mut buffer).unwrap();
    assert_eq!(descriptors(), reading);
    assert_eq!(reading.len(), with_plain.len());
}

#[test]
fn the_descriptor_table_is_that_of_the_plain_program() {
    run_part("descriptors_stay_as_they_are");
}

/// As programs do that start others: everything but the standard descriptors
/// is closed, whoever it belongs to.
#[test]
#[ignore = "a part of another test"]
fn closes_everything() {
    let path = path_of_part();
    let mut file = File::create(&path).unwrap();
    write_pattern(&mut file, 1, 0, 24 * MIB, MIB);
    let raw = file.as_raw_fd();
    // SAFETY: descriptors that others own are closed, which is what is tried
    // here. None of them is used afterwards but for `file`'s, whose calls must
    // fail as the plain program's do.
    assert_eq!(unsafe { libc::close_range(3, u32::MAX, 0) }, 0);
    assert!(fs::metadata(format!("/proc/self/fd/{raw}")).is_err());
    let error = file.write(b"more").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    let error = file.sync_all().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    // The descriptor must not be closed a second time.
    let stats = file.stats();
    std::mem::forget(file);
    // The flusher has its own, and goes on.
    assert!(Flusher::shared().unwrap().drain(PATIENCE), "{stats:?}");
    let next = path.with_extension("next");
    let mut file = File::create(&next).unwrap();
    write_pattern(&mut file, 2, 0, 24 * MIB, MIB);
    file.sync_all().unwrap();
    assert!(file.settle(PATIENCE).unwrap());
    assert_eq!(cached_bytes(&next), 0);
    assert_eq!(cached_bytes(&path), 0);
    assert_eq!(
        read_pattern(&mut fs::File::open(&path).unwrap(), 1, MIB),
        24 * MIB
    );
}

#[test]
fn a_program_that_closes_all_descriptors_goes_on() {
    run_part("closes_everything");
}

#[test]
fn from_std_and_into_std_change_nothing_of_the_file() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = ext4(32 * MIB);
    let path = place.cold_file(1);
    let mut std = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    std.seek(SeekFrom::Start(5 * MIB)).unwrap();
    let (number, flags) = (std.as_raw_fd(), status_flags(&std));
    let mut ours = File::from_std(std, Mode::DONTCACHE).unwrap();
    assert_eq!(ours.stream_position().unwrap(), 5 * MIB);
    write_pattern(&mut ours, 2, 5 * MIB, 10 * MIB, MIB);
    let mut std = ours.into_std();
    assert_eq!(std.as_raw_fd(), number);
    assert_eq!(status_flags(&std), flags);
    assert_eq!(std.stream_position().unwrap(), 15 * MIB);
    std.sync_all().unwrap();
    assert!(Flusher::shared().unwrap().drain(PATIENCE));
    assert_eq!(cached_bytes(&path), 0);
    let mut data = vec![0; 10 << 20];
    std.read_exact_at(&mut data, 5 * MIB).unwrap();
    pattern::check(2, 5 * MIB, &data).unwrap();
    // A clone keeps the file ours.
    let ours = File::from_std(std, Mode::DONTCACHE).unwrap();
    let clone = ours.try_clone().unwrap();
    drop(ours.into_std());
    clone.write_at(&data, 0).unwrap();
    assert!(clone.settle(PATIENCE).unwrap());
}

fn status_flags(file: impl AsFd) -> rustix::fs::OFlags {
    rustix::fs::fcntl_getfl(file).unwrap()
}

// ---- locks ------------------------------------------------------------------

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

/// Closing *any* descriptor of a file gives up the process's record locks on
/// it: even one that the flusher opened, were it in the program's table.
#[test]
fn record_locks_survive_the_flushers_descriptors() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = ext4(64 * MIB);
    let path = place.path();
    let locked = fs::File::create(&path).unwrap();
    assert!(lock_record(&locked, libc::F_WRLCK));
    let somebody_gets_it = || {
        common::part("somebody_else_wants_the_lock")
            .env(FILE_VARIABLE, &path)
            .output()
            .unwrap()
            .status
            .success()
    };
    assert!(!somebody_gets_it());
    // Its own descriptor, since a close of it would give the lock up.
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

#[test]
fn a_flock_is_released_at_once_on_close() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = ext4(64 * MIB);
    for _ in 0..5 {
        let mut file = File::create(place.path()).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        write_pattern(&mut file, 1, 0, 12 * MIB, MIB);
        let other = fs::File::open(place.path()).unwrap();
        let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        assert!(rustix::fs::flock(&other, lock).is_err());
        drop(file);
        // The flusher still has work to do for the file.
        rustix::fs::flock(&other, lock).unwrap();
    }
}

// ---- system calls -----------------------------------------------------------

/// The writer that is traced. Markers that nobody else writes show where the
/// part to look at begins and ends.
#[test]
#[ignore = "a part of another test"]
fn writes_under_a_trace() {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .mode(std::env::var("MODE").unwrap().parse().unwrap())
        // Fixed: on a disk that seems slow two windows are soon full, and the
        // writer waits.
        .window_bytes(16 << 20)
        .open(path_of_part())
        .unwrap();
    let block = vec![5; 4 << 10];
    // The first write looks around and wakes the flusher.
    file.write_all(&block).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    for _ in 0..2 {
        // SAFETY: a call without arguments that anything depends on.
        unsafe { libc::getppid() };
        for _ in 0..std::env::var("WRITES").unwrap().parse().unwrap() {
            file.write_all(&block).unwrap();
        }
    }
    // SAFETY: as above.
    unsafe { libc::getppid() };
    file.sync_all().unwrap();
}

/// The calls of the thread that writes, between the first and the last marker.
fn calls_of_the_writer(path: &Path, mode: Mode, writes: u64) -> Vec<String> {
    let trace = path.with_extension("trace");
    let part = common::part("writes_under_a_trace");
    let output = Command::new("strace")
        .args(["-f", "-e", "trace=all", "-o"])
        .arg(&trace)
        .arg(part.get_program())
        .args(part.get_args())
        .env(FILE_VARIABLE, path)
        .env("MODE", mode.to_string())
        .env("WRITES", writes.to_string())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let trace = fs::read_to_string(&trace).unwrap();
    let marker = trace
        .lines()
        .find(|line| line.contains("getppid("))
        .expect("a marker");
    let writer = marker.split_whitespace().next().unwrap();
    let own: Vec<String> = trace
        .lines()
        .filter_map(|line| line.split_once(char::is_whitespace))
        .filter(|(thread, _)| *thread == writer)
        .map(|(_, call)| call.trim_start().to_owned())
        // A call that another thread's line interrupts stands there twice.
        .filter(|call| !call.starts_with("<..."))
        .collect();
    let is_marker = |call: &String| call.starts_with("getppid(");
    let first = own.iter().position(is_marker).unwrap();
    let last = own.iter().rposition(is_marker).unwrap();
    own[first..last]
        .iter()
        .filter(|call| !is_marker(call))
        .cloned()
        .collect()
}

fn is_write(call: &str) -> bool {
    call.starts_with("write(")
}

#[test]
fn a_write_is_one_call_and_a_kick_at_most_one_more_a_batch() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    need!(Need::Tool("strace"));
    let place = ext4(64 * MIB);
    for mode in Mode::ALL {
        let calls = calls_of_the_writer(&place.path(), mode, 500);
        let (writes, others): (Vec<_>, Vec<_>) = calls.iter().partition(|call| is_write(call));
        assert_eq!(writes.len(), 1000, "{mode}");
        // A batch is a megabyte at least, and 1000 writes are four.
        let kicks = others
            .iter()
            .filter(|call| call.starts_with("futex(") && call.contains("FUTEX_WAKE"))
            .count();
        assert_eq!(kicks, others.len(), "{mode}: {others:?}");
        let most = if mode.is_buffered() { 0 } else { 6 };
        assert!(kicks <= most, "{mode}: {others:?}");
    }
}

#[test]
fn writes_with_no_kick_due_make_no_other_call() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    need!(Need::Tool("strace"));
    let place = ext4(64 * MIB);
    for mode in [Mode::DONTCACHE, Mode::NOREUSE, Mode::WRITE_BEHIND] {
        // All of them together are less than a batch.
        let calls = calls_of_the_writer(&place.path(), mode, 100);
        assert_eq!(calls.len(), 200, "{mode}: {calls:?}");
        assert!(calls.iter().all(|call| is_write(call)), "{mode}: {calls:?}");
    }
}

// ---- times ------------------------------------------------------------------

#[test]
fn a_writer_leaves_the_access_time_alone() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = ext4(64 * MIB);
    // The beds are mounted without access times; here they matter.
    let with_times = rustix::mount::MountFlags::RELATIME;
    let folder = place.path().parent().unwrap().to_owned();
    rustix::mount::mount_remount(&folder, with_times, c"").unwrap();
    let path = place.cold_file(1);
    // Part of it is cached, so that we have to find out which.
    residency::warm(&path, MIB..5 * MIB);
    // Older than the modification: the next access would be noted (relatime).
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for (read, block_bytes) in [(false, MIB), (true, 64 * KIB)] {
        let plain = fs::File::options().write(true).open(&path).unwrap();
        plain
            .set_times(fs::FileTimes::new().set_accessed(long_ago))
            .unwrap();
        let before = fs::metadata(&path).unwrap();
        let mut file = OpenOptions::new()
            .read(read)
            .write(true)
            .open(&path)
            .unwrap();
        write_pattern(&mut file, 2, 0, 32 * MIB, block_bytes);
        file.sync_all().unwrap();
        assert!(file.settle(PATIENCE).unwrap());
        let after = fs::metadata(&path).unwrap();
        assert_eq!(
            (after.atime(), after.atime_nsec()),
            (before.atime(), before.atime_nsec()),
            "readable: {read}"
        );
        assert!(after.mtime() >= before.mtime());
        // A read of the program's is noted as ever.
        drop(file);
        let mut reader = File::open(&path).unwrap();
        reader.read_exact(&mut [0; 100]).unwrap();
        assert!(fs::metadata(&path).unwrap().atime() > before.atime());
    }
}

// ---- fork -------------------------------------------------------------------

/// Runs `child` in a child of this process, which has many threads and holds
/// many locks; a hang counts as a failure.
fn in_a_fork(child: impl FnOnce()) {
    // SAFETY: the child runs code that allocates and starts threads, which
    // glibc allows after a fork; that ours allows it too is what is tried.
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
            // SAFETY: the child is ours and not reaped yet.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
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
        // Threads that hold our locks again and again, so that some forks
        // happen while they do.
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
        // Also when a child fails: the scope waits for its threads.
        let _stop = StopAtEnd(&stop);
        for round in 0..25 {
            in_a_fork(|| child_of_a_fork(&path, &inherited, &with_own, round));
        }
    });
    // The parent's flusher has noticed nothing.
    assert!(inherited.settle(PATIENCE).unwrap());
    assert!(with_own.settle(PATIENCE).unwrap());
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
    run_part("forks");
}

// ---- signals ----------------------------------------------------------------

/// The signals blocked in each of this process's threads that are ours.
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
            // Two cannot be blocked, and two are the C library's own.
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
    run_part("handlers_run_on_the_programs_threads");
}

// ---- limits -----------------------------------------------------------------

/// With as many descriptors as it may have, the program still gets the next one
/// it is entitled to, and we still work.
#[test]
#[ignore = "a part of another test"]
fn few_descriptors() {
    let path = path_of_part();
    let mut file = File::create(&path).unwrap();
    let mut held = vec![fs::File::open("/dev/null").unwrap()];
    let limit = libc::rlimit {
        rlim_cur: 64,
        rlim_max: 64,
    };
    // SAFETY: the limit is a valid structure.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(set, 0);
    while let Ok(another) = fs::File::open("/dev/null") {
        held.push(another);
    }
    write_pattern(&mut file, 1, 0, 24 * MIB, MIB);
    file.sync_all().unwrap();
    assert!(file.settle(PATIENCE).unwrap());
    assert_eq!(residency::sample(&file).unwrap().cached_pages, 0);
    held.pop();
    assert_eq!(fs::File::open("/dev/null").unwrap().into_raw_fd(), 63);
}

#[test]
fn a_program_at_its_limit_of_descriptors_keeps_them_all() {
    run_part("few_descriptors");
}
