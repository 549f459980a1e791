//! What others had, and is still there.

use dropbehind_testbed::reclaim::{Gone, Reclaim};
use dropbehind_testbed::residency::{page_bytes, resident_map};
use std::path::Path;

/// Says so when less than these first bytes of a file is cached, but for what the
/// kernel took.
pub(crate) fn still_cached(reclaim: &Reclaim, path: &Path, bytes: u64) -> Result<(), Gone> {
    let wanted = bytes.div_ceil(page_bytes()) as usize;
    let map = resident_map(path).expect("a map");
    let found = map[..wanted].iter().filter(|&&page| page).count();
    reclaim.stays(path, found as u64 * page_bytes(), bytes)
}
