//! Files whose end moves leave nothing behind, and keep what others had.

use std::fs;
use std::os::unix::fs::FileExt;

use dropbehind::Mode;
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency;

use crate::accounts::{all_cached, assert_balanced, create, open_to_overwrite, settle};
use crate::common::{MIB, Place, cached_bytes};

everywhere! {
    the_page_of_an_end_that_moves_is_dropped_like_others: 16;
    what_a_cut_leaves_dirty_is_given_up: 16;
}

fn the_page_of_an_end_that_moves_is_dropped_like_others(place: &Place) {
    let (path, page) = (place.path(), residency::page_bytes());
    let file = create(place, Mode::DONTCACHE);
    for end in [MIB, 3 * MIB, 6 * MIB] {
        file.write_all_at(&[7; 100], end).unwrap();
        settle(&file);
        assert_eq!(cached_bytes(&path), 0, "{end}: {:?}", file.stats());
    }
    if place.is_raw() {
        return;
    }
    file.set_len(8 * MIB + 100).unwrap();
    settle(&file);
    assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
    // The first call of all, and one that cuts.
    for end in [6 * MIB + 50, 6 * MIB + 60, 8 * MIB + 100] {
        let first = open_to_overwrite(&path);
        first.set_len(end).unwrap();
        settle(&first);
        assert_eq!(cached_bytes(&path), 0, "{:?}", first.stats());
        assert_balanced(&first.stats());
    }
    // Beyond an end that was cut, and below where it was.
    file.set_len(6 * MIB + 50).unwrap();
    settle(&file);
    file.write_all_at(&[7; 100], 8 * MIB).unwrap();
    settle(&file);
    assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
    // A page that cutting the file brought in is its own.
    let first = open_to_overwrite(&path);
    first.set_len(6 * MIB + 40).unwrap();
    first.write_all_at(&[7; 90], 6 * MIB + 40).unwrap();
    settle(&first);
    first.write_all_at(&[7; 1000], 6 * MIB + 130).unwrap();
    settle(&first);
    assert_eq!(cached_bytes(&path), 0, "{:?}", first.stats());
    in_some_attempt(|reclaim| {
        // Others have the page of the end now.
        file.set_len(8 * MIB + 100).unwrap();
        let reader = fs::File::open(&path).unwrap();
        reader.read_at(&mut [0], 8 * MIB).unwrap();
        file.write_all_at(&[7; 100], 10 * MIB).unwrap();
        settle(&file);
        assert_balanced(&file.stats());
        all_cached(reclaim, &path, page)
    });
}

/// ext4 leaves what is left of a large folio marked dirty.
fn what_a_cut_leaves_dirty_is_given_up(place: &Place) {
    if place.is_raw() {
        return;
    }
    for patch in [MIB + MIB / 2 + 100, 2 * MIB - 100] {
        let file = create(place, Mode::DONTCACHE);
        file.set_len(0).unwrap();
        file.write_all_at(&[3; 2 << 20], 0).unwrap();
        file.sync_all().unwrap();
        file.write_all_at(&[7; 5], patch).unwrap();
        file.set_len(MIB + MIB / 2).unwrap();
        file.sync_all().unwrap();
        settle(&file);
        assert_balanced(&file.stats());
        assert!(file.stats().left_bytes >= cached_bytes(&place.path()));
    }
}
