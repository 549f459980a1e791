//! Large blocks return to the kernel as soon as they are freed.
//!
//! The test has a process of its own: malloc(3) maps no new memory while one of its heaps has
//! room, and another test may have left such a heap.

#![cfg(target_env = "gnu")]

use dropbehind_linux::return_large_blocks;

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
    let block = vec![1_u8; 8 << 20];
    let address = block.as_ptr() as usize;
    assert!(is_mapped(address));
    drop(block);
    assert!(!is_mapped(address));
}
