//! Files of which every nth page is written, in order: the pages that this I/O brought in lie
//! between pages that it must not touch.

use std::fs;
use std::path::Path;

use dropbehind::{File, OpenOptions};
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::{pattern, residency};

use crate::accounts::{all_kept, assert_balanced, open_to_overwrite, settle};
use crate::common::{MIB, Place, cached_bytes};

everywhere! {
    strided_writes_of_a_new_file_leave_nothing: 24;
    strided_overwrites_leave_nothing: 24;
    strided_overwrites_keep_exactly_what_others_had_in_the_gaps: 24;
}

/// One page in this many is written.
const STRIDES_PAGES: [u64; 2] = [2, 3];
/// Seed of what is written; the old contents have another.
const SEED: u64 = 2;

/// The offsets of the pages that are written.
fn offsets(place: &Place, stride_pages: u64) -> impl Iterator<Item = u64> {
    let page_count = place.size_bytes() / residency::page_bytes();
    (0..page_count)
        .filter(move |page| page % stride_pages == 0)
        .map(|page| page * residency::page_bytes())
}

fn write_strides(place: &Place, file: &File, stride_pages: u64) {
    let length = usize::try_from(residency::page_bytes()).unwrap();
    let mut written_bytes = 0;
    for offset in offsets(place, stride_pages) {
        let data = pattern::filled(SEED, offset, length);
        assert_eq!(file.write_at(&data, offset).unwrap(), length);
        written_bytes += residency::page_bytes();
    }
    file.sync_all().unwrap();
    settle(file);
    let stats = file.stats();
    assert_balanced(&stats);
    assert_eq!(stats.bytes_written, written_bytes);
    // Ranges lost to a full ring are found again without their gaps. A page that was reported
    // twice may count twice.
    let most_bytes = written_bytes + written_bytes / 8;
    assert!(
        (written_bytes..=most_bytes).contains(&stats.brought_bytes),
        "{stats:?}"
    );
}

/// Checks that the disk holds what was written, and `between` in the gaps.
fn check_strides(path: &Path, stride_pages: u64, between: impl Fn(u64, &[u8]) -> bool) {
    residency::evict(path);
    let page_bytes = usize::try_from(residency::page_bytes()).unwrap();
    let data = fs::read(path).unwrap();
    for (page, found) in data.chunks(page_bytes).enumerate() {
        let offset = page as u64 * residency::page_bytes();
        if (page as u64).is_multiple_of(stride_pages) {
            pattern::check(SEED, offset, found).unwrap();
        } else {
            assert!(between(offset, found), "the gap at {offset}");
        }
    }
}

fn is_old(offset: u64, found: &[u8]) -> bool {
    pattern::check(1, offset, found).is_ok()
}

fn strided_writes_of_a_new_file_leave_nothing(place: &Place) {
    if place.is_raw() {
        // A device has no holes to begin with.
        return;
    }
    let path = place.path();
    for stride_pages in STRIDES_PAGES {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        write_strides(place, &file, stride_pages);
        assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
        let last = offsets(place, stride_pages).last().unwrap();
        let length = file.metadata().unwrap().len();
        assert_eq!(length, last + residency::page_bytes());
        drop(file);
        check_strides(&path, stride_pages, |_, found| {
            found.iter().all(|byte| *byte == 0)
        });
    }
}

fn strided_overwrites_leave_nothing(place: &Place) {
    for stride_pages in STRIDES_PAGES {
        let path = place.cold_file(1);
        let file = open_to_overwrite(&path);
        write_strides(place, &file, stride_pages);
        assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
        drop(file);
        check_strides(&path, stride_pages, is_old);
    }
}

fn strided_overwrites_keep_exactly_what_others_had_in_the_gaps(place: &Place) {
    for stride_pages in STRIDES_PAGES {
        let path = place.cold_file(1);
        in_some_attempt(|reclaim| {
            residency::evict(&path);
            let page = residency::page_bytes();
            for offset in offsets(place, stride_pages).filter(|offset| *offset >= 4 * MIB) {
                let next = offset + page;
                residency::warm(&path, next..(next + page).min(place.size_bytes()));
            }
            let before = residency::resident_map(&path).unwrap();
            let file = open_to_overwrite(&path);
            write_strides(place, &file, stride_pages);
            all_kept(reclaim, &path, &before, &file)
        });
        check_strides(&path, stride_pages, is_old);
    }
}
