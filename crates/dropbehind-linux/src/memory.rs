//! This process's memory.

/// From now on, blocks of 128 KiB and more return to the kernel as soon as they are freed, where
/// the C library can: glibc raises that limit to the size of any larger block that is freed, up
/// to 32 MiB, unless it is set (mallopt(3), `M_MMAP_THRESHOLD`).
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only changes how malloc(3) gets memory.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
    }
}

/// Returns unused memory to the kernel, where the C library can: glibc's malloc_trim(3) also
/// does so in the middle of its heaps. It takes a millisecond for some ten megabytes.
pub fn return_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only touches memory that malloc(3) has not handed out.
    unsafe {
        libc::malloc_trim(0);
    }
}
