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

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    fn is_mapped(address: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut ranges = maps.lines().filter_map(|line| {
            let (from, to) = line.split(' ').next()?.split_once('-')?;
            let number = |hex| usize::from_str_radix(hex, 16).ok();
            Some(number(from)?..number(to)?)
        });
        ranges.any(|range| range.contains(&address))
    }

    #[test]
    fn a_large_block_returns_though_a_larger_one_was_freed() {
        return_large_blocks();
        drop(vec![1_u8; 16 << 20]);
        let returns = |_| {
            let block = vec![1_u8; 8 << 20];
            let address = block.as_ptr() as usize;
            drop(block);
            // Another test may get that address in the same moment, and keep it for a while.
            std::thread::sleep(std::time::Duration::from_millis(10));
            !is_mapped(address)
        };
        assert!((0..100).any(returns));
    }
}
