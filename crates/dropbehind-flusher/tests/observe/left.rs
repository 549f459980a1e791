//! What observed files leave in the cache, on each kind of place.

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use dropbehind_policy::Mode;
use dropbehind_testbed::reclaim::{Reclaim, in_some_attempt};
use dropbehind_testbed::residency::{self, Sampler};
use dropbehind_testbed::{Fs, disk_io, need, pattern};

use crate::common::{
    self, Dice, KIB, Kind, MIB, Place, cached_bytes, check_on_disk, write_pattern,
};
use crate::observing::Observing;
use crate::{as_much_cached, writer};

/// Runs each test on each kind of place, on a disk of its own.
macro_rules! everywhere {
    ($($name:ident: $size:expr;)*) => {
        everywhere!(@on ext4, Kind::Mounted(Fs::Ext4), $($name: $size;)*);
        everywhere!(@on xfs, Kind::Mounted(Fs::Xfs), $($name: $size;)*);
        everywhere!(@on btrfs, Kind::Mounted(Fs::Btrfs), $($name: $size;)*);
        everywhere!(@on raw_device, Kind::RawDevice, $($name: $size;)*);
    };
    (@on $place:ident, $kind:expr, $($name:ident: $size:expr;)*) => {
        mod $place {
            use super::*;

            $(
                #[test]
                fn $name() {
                    need!(all $kind.needs());
                    super::$name(&Place::new($kind, $size * MIB));
                }
            )*
        }
    };
}

everywhere! {
    a_file_written_leaves_nothing: 256;
    a_file_overwritten_leaves_nothing: 64;
    what_others_had_stays_when_it_is_overwritten: 32;
    what_others_had_stays_when_it_is_read: 32;
    what_others_had_here_and_there_stays: 64;
    a_read_costs_one_read_and_leaves_nothing: 128;
    random_writes_leave_nothing: 64;
    modes_that_keep_write_and_keep: 32;
}

fn a_file_written_leaves_nothing(place: &Place) {
    let observing = Observing::new(Mode::DONTCACHE);
    let path = place.path();
    let mut file = writer(place);
    let observed = observing.observe(&path);
    let sampler = Sampler::start(&path, Duration::from_millis(2)).unwrap();
    write_pattern(&mut file, 1, 0, place.size_bytes(), MIB);
    drop(file);
    observed.closed();
    let state = observing.finished();
    let peaks = sampler.stop().unwrap();
    assert_eq!(cached_bytes(&path), 0, "{state:?}");
    assert!(peaks.samples > 10, "{peaks:?}");
    assert_eq!(state.counters.left_bytes, 0, "{state:?}");
    // Pages that the kernel wrote before a look count as read.
    let moved = state.counts.written_bytes + state.counts.read_bytes;
    assert!(moved >= place.size_bytes(), "{state:?}");
    check_on_disk(&path, 1, place.size_bytes());
}

fn a_file_overwritten_leaves_nothing(place: &Place) {
    let observing = Observing::new(Mode::DONTCACHE);
    let path = place.cold_file(1);
    let observed = observing.observe(&path);
    let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    write_pattern(&mut file, 2, 0, place.size_bytes(), 64 * KIB);
    drop(file);
    observed.closed();
    let state = observing.finished();
    assert_eq!(cached_bytes(&path), 0, "{state:?}");
    check_on_disk(&path, 2, place.size_bytes());
}

/// Has half of a file cached, as another process would, and says how much that
/// is.
fn half_cached(path: &Path, size_bytes: u64) -> u64 {
    let mut file = fs::File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    let mut half = vec![0; usize::try_from(size_bytes / 2).unwrap()];
    file.read_exact(&mut half).unwrap();
    cached_bytes(path)
}

fn what_others_had_stays_when_it_is_overwritten(place: &Place) {
    in_some_attempt(|reclaim| {
        let observing = Observing::new(Mode::DONTCACHE);
        let path = place.cold_file(1);
        let had_bytes = half_cached(&path, place.size_bytes());
        let observed = observing.observe(&path);
        let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        write_pattern(&mut file, 2, 0, place.size_bytes(), 64 * KIB);
        drop(file);
        observed.closed();
        let state = observing.finished();
        assert!(state.counters.kept_bytes > 0, "{state:?}");
        as_much_cached(reclaim, &path, had_bytes, &state)
    });
}

fn what_others_had_stays_when_it_is_read(place: &Place) {
    in_some_attempt(|reclaim| {
        let observing = Observing::new(Mode::DONTCACHE);
        let path = place.cold_file(1);
        let had_bytes = half_cached(&path, place.size_bytes());
        let observed = observing.observe(&path);
        let file = fs::read(&path).unwrap();
        assert_eq!(file.len() as u64, place.size_bytes());
        observed.closed();
        as_much_cached(reclaim, &path, had_bytes, &observing.finished())
    });
}

/// Has two of three pages of a file cached, as memory that is short leaves them.
fn cached_here_and_there(path: &Path, size_bytes: u64) -> u64 {
    use rustix::fs::{Advice, fadvise};
    let file = fs::File::open(path).unwrap();
    let length = std::num::NonZeroU64::new;
    for offset in (0..size_bytes).step_by(128 << 10) {
        // In single pages: readahead of the kernel's own would make large folios.
        fadvise(&file, offset, length(128 << 10), Advice::WillNeed).unwrap();
    }
    fs::read(path).unwrap();
    for page in (0..size_bytes / 4096).step_by(3) {
        fadvise(&file, page * 4096, length(4096), Advice::DontNeed).unwrap();
    }
    cached_bytes(path)
}

fn what_others_had_here_and_there_stays(place: &Place) {
    in_some_attempt(|reclaim| {
        let observing = Observing::new(Mode::DONTCACHE);
        let path = place.cold_file(1);
        let had_bytes = cached_here_and_there(&path, place.size_bytes());
        assert!(had_bytes < place.size_bytes() / 4 * 3, "{had_bytes}");
        let observed = observing.observe(&path);
        fs::read(&path).unwrap();
        observed.closed();
        as_much_cached(reclaim, &path, had_bytes, &observing.finished())
    });
}

fn a_read_costs_one_read_and_leaves_nothing(place: &Place) {
    let path = place.cold_file(1);
    let plain_bytes = read_from_disk(place);
    residency::evict(&path);
    let reclaim = Reclaim::watch();
    let observing = Observing::new(Mode::DONTCACHE);
    let observed = observing.observe(&path);
    let observed_bytes = read_from_disk(place);
    observed.closed();
    let state = observing.finished();
    assert_eq!(cached_bytes(&path), 0, "{state:?}");
    // What was read ahead and taken by the kernel before its turn is read twice.
    let taken_bytes = reclaim.bytes_of(&path).unwrap();
    // btrfs reads more than the file either way.
    assert!(
        (observed_bytes - taken_bytes) * 100 <= plain_bytes * 102,
        "{observed_bytes} bytes were read from the disk, and {plain_bytes} unobserved"
    );
}

/// Reads all of the place's file; the bytes that the disk read for it.
fn read_from_disk(place: &Place) -> u64 {
    let before = disk_io::disk_io(place.device()).unwrap();
    let mut file = fs::File::open(place.path()).unwrap();
    let length = common::read_pattern(&mut file, 1, 64 * KIB);
    assert_eq!(length, place.size_bytes());
    let after = disk_io::disk_io(place.device()).unwrap();
    after.since(before).read_bytes
}

fn random_writes_leave_nothing(place: &Place) {
    let observing = Observing::new(Mode::DONTCACHE);
    let path = place.cold_file(1);
    let observed = observing.observe(&path);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let mut dice = Dice::new(5);
    for _ in 0..4000 {
        let at = dice.below(place.size_bytes() / 4096) * 4096;
        file.write_all_at(&pattern::filled(1, at, 4096), at)
            .unwrap();
    }
    drop(file);
    observed.closed();
    let state = observing.finished();
    // Writes of whole pages bring in nothing else, except where a folio is
    // larger than a page.
    assert_eq!(cached_bytes(&path), 0, "{state:?}");
    check_on_disk(&path, 1, place.size_bytes());
}

fn modes_that_keep_write_and_keep(place: &Place) {
    let reclaim = Reclaim::watch();
    let observing = Observing::new(Mode::WRITE_THROUGH);
    let path = place.path();
    let mut file = writer(place);
    let observed = observing.observe(&path);
    write_pattern(&mut file, 1, 0, place.size_bytes(), MIB);
    drop(file);
    observed.closed();
    let state = observing.finished();
    as_much_cached(&reclaim, &path, place.size_bytes(), &state).unwrap();
    let pages = residency::cached(&path).unwrap();
    assert_eq!(pages.dirty_pages + pages.writeback_pages, 0, "{pages:?}");
}
