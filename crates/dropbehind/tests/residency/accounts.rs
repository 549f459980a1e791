//! What is cached, and what the file's own counters say of it.

use std::path::Path;

use dropbehind::{File, Mode, OpenOptions, Stats};
use dropbehind_testbed::attempts::Gone;
use dropbehind_testbed::residency;

use crate::common::{PATIENCE, Place, cached_bytes};

/// Every byte brought in is either gone or known to be left.
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

/// Says so when less is cached than should be; more than that is a failure.
pub(crate) fn all_cached(path: &Path, wanted_bytes: u64) -> Result<(), Gone> {
    let cached = cached_bytes(path);
    assert!(cached <= wanted_bytes, "{cached} of {wanted_bytes}");
    if cached == wanted_bytes {
        return Ok(());
    }
    Err(format!("{cached} of {wanted_bytes} bytes are cached"))
}

/// A writer that does not empty what is there.
pub(crate) fn open_to_overwrite(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

/// A new file, or the device.
pub(crate) fn create(place: &Place, mode: Mode) -> File {
    OpenOptions::new()
        .write(true)
        .create(!place.is_raw())
        .mode(mode)
        .open(place.path())
        .unwrap()
}

/// Where two maps differ, for a message that can be read.
pub(crate) fn compare(wanted: &[bool], found: &[bool], file: &File) -> Result<(), Gone> {
    assert_eq!(wanted.len(), found.len());
    let pages = |wanted_there: bool| {
        let differs =
            move |page: &usize| wanted[*page] == wanted_there && found[*page] != wanted_there;
        (0..wanted.len()).filter(differs)
    };
    if let Some(first) = pages(false).next() {
        let count = pages(false).count();
        panic!(
            "{count} pages too many, from {first} on; {:?}",
            file.stats()
        );
    }
    match pages(true).next() {
        None => Ok(()),
        Some(first) => Err(format!(
            "{} pages gone, from {first} on",
            pages(true).count()
        )),
    }
}

pub(crate) fn all_kept(path: &Path, before: &[bool], file: &File) -> Result<(), Gone> {
    let after = residency::resident_map(path).unwrap();
    compare(before, &after, file)?;
    let warm_bytes = before.iter().filter(|page| **page).count() as u64 * residency::page_bytes();
    all_cached(path, warm_bytes)
}
