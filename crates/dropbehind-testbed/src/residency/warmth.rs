//! Setting the scene: a cold file, or one of which an exact part is warm.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{cachestat, page_bytes};

/// How long clean pages may resist eviction, as they do while they wait in
/// another processor's batch.
const PATIENCE: Duration = Duration::from_secs(5);

/// Writes a file's dirty pages and drops all of its pages.
///
/// This uses up writeback errors that no later opener has seen; descriptors
/// that are open already still get theirs.
///
/// # Panics
///
/// When it cannot, or when pages remain: a test that needs a cold file and
/// has a warm one would prove nothing.
pub fn evict(path: &Path) {
    let file = open(path);
    let start = Instant::now();
    loop {
        file.sync_data()
            .unwrap_or_else(|error| panic!("syncing {}: {error}", path.display()));
        advise(&file, libc::POSIX_FADV_DONTNEED);
        let left = cachestat::count(file.as_fd(), 0..u64::MAX)
            .unwrap_or_else(|error| panic!("counting {}: {error}", path.display()));
        if left.cached_pages == 0 {
            return;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "{left:?} stay of {}",
            path.display()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads a range of bytes page by page with readahead off: the pages that it
/// touches become resident, and no others.
///
/// # Panics
///
/// When the file cannot be read that far.
pub fn warm(path: &Path, range: Range<u64>) {
    let file = open(path);
    advise(&file, libc::POSIX_FADV_RANDOM);
    let page = page_bytes();
    let mut byte = [0];
    for index in range.start / page..range.end.div_ceil(page) {
        file.read_exact_at(&mut byte, index * page)
            .unwrap_or_else(|error| panic!("warming {}: {error}", path.display()));
    }
}

fn open(path: &Path) -> File {
    File::open(path).unwrap_or_else(|error| panic!("opening {}: {error}", path.display()))
}

fn advise(file: &File, advice: libc::c_int) {
    // SAFETY: the call takes numbers only.
    let result = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice) };
    assert_eq!(
        result,
        0,
        "fadvise: {}",
        io::Error::from_raw_os_error(result)
    );
}
