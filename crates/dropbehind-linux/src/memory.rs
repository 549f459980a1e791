//! The memory of this process.

/// Gives memory that is not used any more back to the kernel, where the C library can:
/// glibc's malloc_trim(3) does so in the midst of its heaps, too. It takes a millisecond for
/// some ten megabytes.
pub fn return_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only touches memory that malloc(3) has not handed out.
    unsafe {
        libc::malloc_trim(0);
    }
}
