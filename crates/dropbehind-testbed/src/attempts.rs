//! Tests of what others had, on a machine whose kernel takes pages as it likes.

/// The kernel may reclaim any clean page at any time, as DAMON does where it is
/// on. So what others had can be gone without our doing; but not in every one
/// of several attempts, while a mistake of ours would be in all of them.
const ATTEMPTS: u32 = 6;

/// What went wrong in an attempt, and may have been the kernel.
pub type Gone = String;

/// Passes if one attempt does. What cannot be the kernel's doing, an attempt
/// asserts.
///
/// # Panics
/// If no attempt passes.
pub fn in_some_attempt(attempt: impl Fn() -> Result<(), Gone>) {
    let mut failed = Vec::new();
    for _ in 0..ATTEMPTS {
        match attempt() {
            Ok(()) => return,
            Err(gone) => {
                println!("another attempt, since {gone}");
                failed.push(gone);
            }
        }
    }
    panic!("in every attempt: {failed:#?}");
}
