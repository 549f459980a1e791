//! Each of our system calls fails once, in every way in which a kernel or a sandbox could
//! make it fail, and some are missing altogether. The program must not notice: same bytes,
//! success, no panic, no hang.

mod common;

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{Kind, MIB, Place, check_on_disk, read_pattern, write_pattern};
use dropbehind::{File, Mode, OpenOptions};
use dropbehind_testbed::{CallFilter, FailNth, Fs, Outcome, need, residency};

const IN_VARIABLE: &str = "DROPBEHIND_TEST_IN";
const OUT_VARIABLE: &str = "DROPBEHIND_TEST_OUT";
const SIZE_BYTES: u64 = 8 * MIB;
/// Beyond this it's a hang, not a slow machine.
const TIMEOUT: Duration = Duration::from_secs(60);
const ERRORS: [i32; 5] = [
    libc::EIO,
    libc::ENOSYS,
    libc::EPERM,
    libc::EINTR,
    libc::ENOMEM,
];

/// The program under test: copies a file with a small window, so that it waits,
/// drops and settles, and then reads and overwrites part of the copy.
#[test]
#[ignore = "a part of another test"]
fn copies() {
    let open = |options: &mut OpenOptions, variable| {
        let path = std::env::var_os(variable).unwrap();
        options.window_bytes(256 << 10).open(path).unwrap()
    };
    let mut from = open(OpenOptions::new().read(true), IN_VARIABLE);
    let mut to = open(
        OpenOptions::new().read(true).write(true).create(true),
        OUT_VARIABLE,
    );
    assert_eq!(std::io::copy(&mut from, &mut to).unwrap(), SIZE_BYTES);
    to.sync_all().unwrap();
    // How long it takes to give up doesn't matter here.
    to.settle(Duration::from_secs(5)).unwrap();
    to.seek(SeekFrom::Start(0)).unwrap();
    assert_eq!(read_pattern(&mut to, 1, 256 << 10), SIZE_BYTES);
    to.seek(SeekFrom::Start(MIB)).unwrap();
    write_pattern(&mut to, 1, MIB, MIB, 4096);
    let mut page = [0; 4096];
    (&to).seek(SeekFrom::Start(MIB)).unwrap();
    to.read_exact(&mut page).unwrap();
    to.close().unwrap();
    // Another file in a mode that neither drops nor is buffered.
    let mut behind = OpenOptions::new();
    behind.write(true).cache_mode(Mode::WRITE_BEHIND_ANY);
    let mut behind = open(&mut behind, OUT_VARIABLE);
    write_pattern(&mut behind, 1, 0, 2 * MIB, 64 << 10);
    behind.sync_data().unwrap();
}

struct Bed {
    place: Place,
}

impl Bed {
    fn new() -> Bed {
        let place = Place::new(Kind::Mounted(Fs::Ext4), SIZE_BYTES);
        place.cold_file(1);
        Bed { place }
    }

    fn command(&self) -> Command {
        let (from, to) = self.paths();
        // Cold, so that the library has to make its own calls.
        residency::evict(&from);
        // Half of what is overwritten is cached, so a residency map is needed.
        if to.exists() {
            residency::evict(&to);
            residency::warm(&to, MIB..3 * MIB);
        }
        let mut command = common::part("copies");
        command.env(IN_VARIABLE, from).env(OUT_VARIABLE, to);
        command
    }

    fn paths(&self) -> (std::path::PathBuf, std::path::PathBuf) {
        let from = self.place.path();
        let to = from.with_extension("copy");
        (from, to)
    }

    fn assert_fine(&self, outcome: &Outcome, what: &str) {
        let said = String::from_utf8_lossy(&outcome.stderr);
        assert!(!outcome.timed_out, "{what}: a hang; {said}");
        assert!(outcome.status.success(), "{what}: {said}");
        assert!(!said.contains("panicked"), "{what}: {said}");
        check_on_disk(&self.paths().1, 1, SIZE_BYTES);
    }
}

fn calls(texts: &[&str]) -> Vec<CallFilter> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Fails each of these calls once, with every error. Long runs are thinned out in the middle,
/// where calls only repeat.
fn each_may_fail(texts: &[&str], expected: u64) {
    each_may_fail_from(1, texts, expected);
}

fn each_may_fail_from(first: u64, texts: &[&str], expected: u64) {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let bed = Bed::new();
    let counted = FailNth::count(calls(texts))
        .timeout(TIMEOUT)
        .run(bed.command())
        .unwrap();
    bed.assert_fine(&counted, "with nothing failing");
    let seen = counted.calls_seen;
    assert!(seen >= expected, "{texts:?}: only {seen} calls");
    for errno in ERRORS {
        for nth in thinned(seen, 8).into_iter().filter(|nth| *nth >= first) {
            let outcome = FailNth::once(calls(texts), nth, errno)
                .timeout(TIMEOUT)
                .run(bed.command())
                .unwrap();
            let what = format!("call {nth} of {texts:?} fails with {errno}");
            bed.assert_fine(&outcome, &what);
        }
    }
}

/// Every number up to `all_up_to`, then ever fewer, and the last.
fn thinned(last: u64, all_up_to: u64) -> Vec<u64> {
    let mut chosen: Vec<u64> = (1..=last.min(all_up_to)).collect();
    let mut next = all_up_to + all_up_to / 2;
    while next < last {
        chosen.push(next);
        next += next / 2;
    }
    if last > all_up_to {
        chosen.push(last);
    }
    chosen
}

/// Fails all of these calls, from the first on.
fn all_may_fail(texts: &[&str]) {
    all_may_fail_from(1, texts);
}

fn all_may_fail_from(first: u64, texts: &[&str]) {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let bed = Bed::new();
    for errno in ERRORS {
        let outcome = FailNth::from(calls(texts), first, errno)
            .timeout(TIMEOUT)
            .run(bed.command())
            .unwrap();
        assert!(outcome.calls_seen >= first, "{texts:?} is never called");
        let what = format!("every call of {texts:?} fails with {errno}");
        bed.assert_fine(&outcome, &what);
    }
}

#[test]
fn starting_writeback_may_fail() {
    each_may_fail(&["sync_file_range"], 4);
}

#[test]
fn dropping_and_reading_ahead_may_fail() {
    each_may_fail(&["fadvise64"], 4);
}

#[test]
fn counting_may_fail() {
    each_may_fail(&["cachestat"], 8);
}

#[test]
fn mapping_the_cache_may_fail() {
    // Thread arenas reserve memory in the same way, and may fail as well.
    each_may_fail(&["mincore", "mmap:flags=0x4000"], 1);
}

#[test]
fn opening_a_description_of_our_own_may_fail() {
    each_may_fail(
        &[
            "openat:path=/proc/self/",
            "newfstatat:path=/proc/self/",
            "pidfd_open",
            "pidfd_getfd",
        ],
        2,
    );
}

#[test]
fn a_descriptor_table_of_our_own_may_fail() {
    each_may_fail(&["close_range", "unshare", "openat:path=/dev/null"], 1);
}

/// The test harness itself starts the first one.
const OUR_FIRST_THREAD: u64 = 2;

#[test]
fn starting_our_threads_may_fail() {
    each_may_fail_from(OUR_FIRST_THREAD, &["clone3", "clone"], 3);
}

#[test]
fn a_kernel_before_6_5_has_no_cachestat() {
    all_may_fail(&["cachestat"]);
}

#[test]
fn a_kernel_without_sync_file_range_will_do() {
    all_may_fail(&["sync_file_range"]);
}

#[test]
fn a_kernel_without_fadvise_will_do() {
    all_may_fail(&["fadvise64"]);
}

#[test]
fn a_kernel_before_5_9_has_no_close_range() {
    all_may_fail(&["close_range"]);
    all_may_fail(&["close_range", "unshare"]);
}

#[test]
fn a_sandbox_without_threads_will_do() {
    all_may_fail_from(OUR_FIRST_THREAD, &["clone3", "clone"]);
}

#[test]
fn a_sandbox_without_proc_will_do() {
    all_may_fail(&["openat:path=/proc/self/"]);
    all_may_fail(&[
        "openat:path=/proc/self/",
        "newfstatat:path=/proc/self/",
        "pidfd_getfd",
    ]);
}

#[test]
fn a_kernel_with_none_of_our_calls_will_do() {
    all_may_fail(&[
        "cachestat",
        "sync_file_range",
        "fadvise64",
        "close_range",
        "mincore",
        "pidfd_getfd",
        "ioprio_set",
    ]);
}

/// If a call is missing, the file still leaves nothing cached, or a note says why.
#[test]
#[ignore = "a part of another test"]
fn leaves_nothing_or_says_why() {
    let path = std::env::var_os(OUT_VARIABLE).unwrap();
    let mut file = File::create(&path).unwrap();
    write_pattern(&mut file, 1, 0, 24 * MIB, MIB);
    file.sync_all().unwrap();
    assert!(file.settle(Duration::from_secs(20)).unwrap());
    println!(
        "LEFT {} {:?}",
        file.stats().left_bytes,
        dropbehind::flusher::Flusher::shared().map(|flusher| flusher.degraded())
    );
}

#[test]
fn without_a_call_pages_go_in_the_next_best_way() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = Place::new(Kind::Mounted(Fs::Ext4), SIZE_BYTES);
    for (missing, note) in [
        ("cachestat", ""),
        ("sync_file_range", "no sync_file_range"),
        ("close_range", ""),
    ] {
        let path = place.path();
        let mut command = common::part("leaves_nothing_or_says_why");
        command.env(OUT_VARIABLE, &path);
        let outcome = FailNth::every(calls(&[missing]), libc::ENOSYS)
            .timeout(TIMEOUT)
            .run(command)
            .unwrap();
        let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
        assert!(outcome.status.success(), "{missing}: {said}");
        assert!(said.contains(note), "{missing}: {said}");
        assert_eq!(cached(&path), 0, "{missing}: {said}");
    }
}

fn cached(path: &Path) -> u64 {
    common::cached_bytes(path)
}
