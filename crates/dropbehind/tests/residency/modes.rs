//! The other modes, for a file and for one call.

use dropbehind::{Mode, OpenOptions};
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::{pattern, residency};

use crate::accounts::{all_cached, all_kept, assert_balanced, create, settle};
use crate::common::{KIB, MIB, Place, cached_bytes, check_on_disk, read_pattern, write_pattern};

everywhere! {
    noreuse_leaves_nothing_once_synced: 32;
    modes_that_keep_keep_everything: 16;
    one_write_can_keep_its_pages: 32;
    one_read_can_drop_its_pages: 16;
}

fn noreuse_leaves_nothing_once_synced(place: &Place) {
    let path = place.path();
    let mut file = create(place, Mode::NOREUSE);
    write_pattern(&mut file, 1, 0, place.size_bytes(), MIB);
    // The kernel decides when to write, and nothing is dropped before that.
    assert_eq!(file.stats().writeback_bytes.total(), 0);
    file.sync_all().unwrap();
    settle(&file);
    assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
    assert_balanced(&file.stats());
    drop(file);
    check_on_disk(&path, 1, place.size_bytes());
}

fn modes_that_keep_keep_everything(place: &Place) {
    let path = place.path();
    for mode in Mode::ALL.into_iter().filter(|mode| !mode.drops()) {
        in_some_attempt(|reclaim| {
            if path.exists() {
                residency::evict(&path);
            }
            let mut file = create(place, mode);
            write_pattern(&mut file, 1, 0, place.size_bytes(), MIB);
            file.sync_all().unwrap();
            settle(&file);
            all_cached(reclaim, &path, place.size_bytes())?;
            assert_eq!(file.stats().dropped_bytes, 0, "{mode}");
            drop(file);
            residency::evict(&path);
            let mut file = OpenOptions::new()
                .read(true)
                .cache_mode(mode)
                .open(&path)
                .unwrap();
            assert_eq!(read_pattern(&mut file, 1, MIB), place.size_bytes());
            settle(&file);
            assert_eq!(file.stats().dropped_bytes, 0, "{mode}");
            all_cached(reclaim, &path, place.size_bytes())
        });
    }
}

const BLOCK: u64 = 256 * KIB;

/// The blocks that a mode that keeps writes or reads, in a file whose mode drops.
fn is_kept(block: u64) -> bool {
    block % 5 == 2
}

fn mode_of(block: u64) -> Mode {
    if is_kept(block) {
        Mode::BUFFERED
    } else {
        Mode::DONTCACHE
    }
}

fn one_write_can_keep_its_pages(place: &Place) {
    let path = place.path();
    in_some_attempt(|reclaim| {
        if path.exists() {
            residency::evict(&path);
        }
        let file = create(place, Mode::DONTCACHE);
        for block in 0..place.size_bytes() / BLOCK {
            let offset = block * BLOCK;
            let data = pattern::filled(1, offset, BLOCK as usize);
            // From then on, pages that were brought in to be dropped are kept, too.
            for mode in [Mode::DONTCACHE, mode_of(block)] {
                let count = file.write_at_with(&data, offset, mode).unwrap();
                assert_eq!(count, data.len());
            }
        }
        file.sync_all().unwrap();
        settle(&file);
        assert_balanced(&file.stats());
        all_kept(reclaim, &path, &kept_blocks(place), &file)
    });
    check_on_disk(&path, 1, place.size_bytes());
}

fn one_read_can_drop_its_pages(place: &Place) {
    let path = place.cold_file(1);
    in_some_attempt(|reclaim| {
        residency::evict(&path);
        let file = OpenOptions::new()
            .read(true)
            // No readahead by the kernel: it would bring in more than was asked for.
            .random(true)
            .cache_mode(Mode::BUFFERED)
            .open(&path)
            .unwrap();
        let mut buffer = vec![0; BLOCK as usize];
        // Backwards: what a sequential reader has read ahead is its own, even when a call
        // that keeps reads it later.
        for block in (0..place.size_bytes() / BLOCK).rev() {
            let offset = block * BLOCK;
            let count = file
                .read_at_with(&mut buffer, offset, mode_of(block))
                .unwrap();
            pattern::check(1, offset, &buffer[..count]).unwrap();
        }
        settle(&file);
        assert_balanced(&file.stats());
        all_kept(reclaim, &path, &kept_blocks(place), &file)
    });
}

fn kept_blocks(place: &Place) -> Vec<bool> {
    let page_count = place.size_bytes() / residency::page_bytes();
    let pages_a_block = BLOCK / residency::page_bytes();
    (0..page_count)
        .map(|page| is_kept(page / pages_a_block))
        .collect()
}
