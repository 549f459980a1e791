//! Tests of what others had, on a machine whose kernel takes pages as it likes.

use dropbehind_testbed::residency::{page_bytes, resident_map};
use std::path::Path;

/// The kernel may reclaim any clean page at any time, as DAMON does where it is
/// on. So what others had can be gone without our doing; but not in every one
/// of several attempts, while a mistake of ours would be in all of them.
const ATTEMPTS: u32 = 6;

/// What went wrong in an attempt, and may have been the kernel.
pub(crate) type Gone = String;

/// Passes if one attempt does. What cannot be the kernel's doing, an attempt
/// asserts.
pub(crate) fn in_some_attempt(attempt: impl Fn() -> Result<(), Gone>) {
    let mut failed = Vec::new();
    for _ in 0..ATTEMPTS {
        match attempt() {
            Ok(()) => return,
            Err(gone) => failed.push(gone),
        }
    }
    panic!("in every attempt: {failed:#?}");
}

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
