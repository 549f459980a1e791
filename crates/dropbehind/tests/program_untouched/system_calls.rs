//! The writer's system calls, under strace.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use dropbehind::{Mode, OpenOptions};
use dropbehind_testbed::{Fs, Need, need, residency};

use crate::common::{self, FILE_VARIABLE, Kind, MIB};
use crate::parts::{ext4, path_of_part};

/// The writer under strace. Markers, which nothing else calls, delimit the part to look at.
#[test]
#[ignore = "a part of another test"]
fn writes_under_a_trace() {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .cache_mode(std::env::var("MODE").unwrap().parse().unwrap())
        // Fixed: on a disk that seems slow, two windows are soon full and the writer waits.
        .window_bytes(16 << 20)
        .open(path_of_part())
        .unwrap();
    let block = vec![5; 4 << 10];
    // The first write looks at the cache and wakes the flusher.
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

/// The writing thread's calls between the first and the last marker.
fn calls_of_the_writer(path: &Path, mode: Mode, writes: u64) -> Vec<String> {
    let trace = path.with_extension("trace");
    let part = common::part("system_calls::writes_under_a_trace");
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
        // strace prints a call twice if another thread's line interrupts it.
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

/// Whether others have extended the file.
fn is_look_at_the_end(call: &str) -> bool {
    call.starts_with("fstat(") || call.starts_with("newfstatat(")
}

/// Takes these calls out: in modes that drop, one for each 64 KiB that are written, in pages.
fn without_looks_at_the_end(calls: Vec<String>, mode: Mode, writes: usize) -> Vec<String> {
    let (looks, others): (Vec<_>, Vec<_>) = calls.into_iter().partition(|c| is_look_at_the_end(c));
    let most = if mode.drops() { writes / 16 } else { 0 };
    assert!(looks.len() <= most, "{mode}: {looks:?}");
    others
}

#[test]
fn a_write_is_one_call_and_a_kick_at_most_one_more_a_batch() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    need!(Need::Tool("strace"));
    let place = ext4(64 * MIB);
    for mode in Mode::ALL {
        let _ = fs::remove_file(place.path());
        let calls = calls_of_the_writer(&place.path(), mode, 500);
        let calls = without_looks_at_the_end(calls, mode, 1000);
        let (writes, others): (Vec<_>, Vec<_>) = calls.iter().partition(|call| is_write(call));
        assert_eq!(writes.len(), 1000, "{mode}");
        // A batch is at least a megabyte, and 1000 writes are four.
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
        let _ = fs::remove_file(place.path());
        // All of them together are less than a batch.
        let calls = calls_of_the_writer(&place.path(), mode, 100);
        let calls = without_looks_at_the_end(calls, mode, 200);
        assert_eq!(calls.len(), 200, "{mode}: {calls:?}");
        assert!(calls.iter().all(|call| is_write(call)), "{mode}: {calls:?}");
    }
}

/// Others may have cached what is there.
#[test]
fn a_write_that_overwrites_takes_one_look_more() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    need!(Need::Tool("strace"));
    let place = ext4(64 * MIB);
    calls_of_the_writer(&place.path(), Mode::DONTCACHE, 100);
    residency::evict(&place.path());
    let calls = calls_of_the_writer(&place.path(), Mode::DONTCACHE, 100);
    let (writes, looks): (Vec<_>, Vec<_>) = calls.iter().partition(|call| is_write(call));
    assert_eq!((writes.len(), looks.len()), (200, 200), "{calls:?}");
    // strace 6.1 does not know its name.
    let is_look = |call: &&String| call.starts_with("cachestat") || call.contains("_0x1c3(");
    assert!(looks.iter().all(is_look), "{looks:?}");
}
