//! What others had, and is still there.

use dropbehind_testbed::attempts::Gone;
use dropbehind_testbed::residency::{page_bytes, resident_map};
use std::path::Path;

/// Says so when less than these first bytes of a file is cached.
pub(crate) fn still_cached(path: &Path, bytes: u64) -> Result<(), Gone> {
    let wanted = bytes.div_ceil(page_bytes()) as usize;
    let map = resident_map(path).expect("a map");
    let found = map[..wanted].iter().filter(|&&page| page).count();
    if found == wanted {
        return Ok(());
    }
    let name = path.display();
    Err(format!("{found} of {wanted} pages of {name} are cached"))
}
