//! Files that others write and read, observed from outside: the programs here use `std::fs`
//! alone.

#[path = "../../../dropbehind/tests/common/mod.rs"]
mod common;
mod left;
mod observing;
mod reported;
mod threads;

use std::fs;
use std::path::Path;

use common::{Place, cached_bytes};
use dropbehind_flusher::ObservedState;
use dropbehind_testbed::reclaim::{Gone, Reclaim};

fn writer(place: &Place) -> fs::File {
    fs::OpenOptions::new()
        .write(true)
        .create(!place.is_raw())
        .truncate(!place.is_raw())
        .open(place.path())
        .unwrap()
}

/// Says so when less is cached than before, but for what the kernel took; more
/// than that is a failure.
fn as_much_cached(
    reclaim: &Reclaim,
    path: &Path,
    had_bytes: u64,
    state: &ObservedState,
) -> Result<(), Gone> {
    let bytes = cached_bytes(path);
    assert!(bytes <= had_bytes, "{bytes}: {state:?}");
    reclaim
        .stays(path, bytes, had_bytes)
        .map_err(|gone| format!("{gone}: {state:?}"))
}
