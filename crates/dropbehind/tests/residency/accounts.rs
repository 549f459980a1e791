//! What is cached, compared with the file's own counters.

use std::path::Path;

use dropbehind::{File, Mode, OpenOptions, Stats};
use dropbehind_testbed::reclaim::{Gone, Reclaim};
use dropbehind_testbed::residency;

use crate::common::{PATIENCE, Place, cached_bytes};

/// Every byte brought in must be gone or counted as left.
pub(crate) fn assert_balanced(stats: &Stats) {
    assert_eq!(
        stats.brought_bytes,
        stats.dropped_bytes + stats.left_bytes,
        "{stats:?}"
    );
}

pub(crate) fn settle(file: &File) {
    assert!(file.settle(PATIENCE).unwrap(), "{:?}", file.stats());
}

/// Fails if more than `wanted_bytes` is cached. Returns an error if less is, beyond what the
/// kernel took.
pub(crate) fn all_cached(reclaim: &Reclaim, path: &Path, wanted_bytes: u64) -> Result<(), Gone> {
    let cached = cached_bytes(path);
    assert!(cached <= wanted_bytes, "{cached} of {wanted_bytes}");
    reclaim.stays(path, cached, wanted_bytes)
}

/// A writer that doesn't truncate the file.
pub(crate) fn open_to_overwrite(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

/// A new file, or the device.
pub(crate) fn create(place: &Place, mode: Mode) -> File {
    OpenOptions::new()
        .write(true)
        .create(!place.is_raw())
        .cache_mode(mode)
        .open(place.path())
        .unwrap()
}

/// Fails if any page is cached that was not `before`. Returns an error if one of those is
/// gone, beyond what the kernel took.
pub(crate) fn all_kept(
    reclaim: &Reclaim,
    path: &Path,
    before: &[bool],
    file: &File,
) -> Result<(), Gone> {
    let after = residency::resident_map(path).unwrap();
    assert_eq!(before.len(), after.len());
    let is_new = |page: &usize| after[*page] && !before[*page];
    let mut new = (0..after.len()).filter(is_new);
    if let Some(first) = new.next() {
        let count = new.count() + 1;
        let stats = file.stats();
        panic!("{count} pages too many, from {first} on; {stats:?}");
    }
    let warm_bytes = before.iter().filter(|page| **page).count() as u64 * residency::page_bytes();
    all_cached(reclaim, path, warm_bytes)
}
