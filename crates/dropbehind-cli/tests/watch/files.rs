//! Files that programs write beside a watch, and what stays cached of them.

use crate::user::running_watch::RunningWatch;
use dropbehind_testbed::residency;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

/// A program that knows nothing of us writes 32 MiB.
pub(crate) fn dd(path: &Path) {
    let output = format!("of={}", path.display());
    let dd = Command::new("dd")
        .args(["if=/dev/zero", "bs=1M", "count=32", "status=none", &output])
        .status();
    assert!(dd.unwrap().success());
}

/// Has a program write its input until the watch drops some of that. Which
/// program it is can be told only for as long as it runs, and on a busy machine
/// its events are read late.
pub(crate) fn writes_until_seen(program: &mut Child, path: &Path, watch: &RunningWatch) {
    let mut words = program.stdin.take().unwrap();
    words.write_all(&vec![1; 128 << 20]).unwrap();
    let mut looks = 0;
    while cached_mib(path) >= 64 {
        looks += 1;
        assert!(looks < 3000, "{} MiB\n{}", cached_mib(path), watch.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    words.write_all(&vec![1; 64 << 20]).unwrap();
    drop(words);
    assert!(program.wait().unwrap().success());
}

/// How much of a file is cached, in MiB; a page is one.
pub(crate) fn cached_mib(path: &Path) -> u64 {
    residency::cached(path).unwrap().cached_pages.div_ceil(256)
}

/// That a file of [`dd`] was kept. Of clean pages a machine takes some for itself
/// now and then; whoever drops the file leaves nothing.
#[track_caller]
pub(crate) fn assert_kept(path: &Path, watch: &RunningWatch) {
    let cached = cached_mib(path);
    assert!(
        cached >= 24,
        "{cached} MiB of {}\n{}",
        path.display(),
        watch.log()
    );
}

/// That a file was dropped. What a program has written by the time that its open is
/// told of, late on a busy machine, passes for others' and stays.
#[track_caller]
pub(crate) fn assert_dropped(path: &Path, watch: &RunningWatch) {
    let cached = cached_mib(path);
    assert!(
        cached <= 4,
        "{cached} MiB of {}\n{}",
        path.display(),
        watch.log()
    );
}

/// Waits until the watch has dropped a file but for so much, and so has read all that
/// happened before.
pub(crate) fn until_dropped(path: &Path, watch: &RunningWatch, left_mib: u64) {
    let mut looks = 0;
    while cached_mib(path) > left_mib {
        looks += 1;
        assert!(looks < 3000, "{} stays\n{}", path.display(), watch.log());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A file that is not cached.
pub(crate) fn cold(path: PathBuf, bytes: usize) -> PathBuf {
    std::fs::write(&path, vec![1; bytes]).unwrap();
    residency::evict(&path);
    path
}
