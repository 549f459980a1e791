//! Files of which an observer reports who brought in what.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use dropbehind_linux::drop_clean;
use dropbehind_policy::{Brought, ByteRange, Mode};
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::{Fs, Need, Scratch, need, pattern, residency};

use crate::as_much_cached;
use crate::common::{KIB, Kind, MIB, Place, cached_bytes, write_pattern};
use crate::observing::{Observing, Tracing};

mod what_others_brought_in_stays {
    use super::*;

    #[test]
    fn ext4() {
        need!(Need::Root);
        need!(all Kind::Mounted(Fs::Ext4).needs());
        super::what_others_brought_in_stays(&Place::new(Kind::Mounted(Fs::Ext4), 32 * MIB));
    }

    #[test]
    fn xfs() {
        need!(Need::Root);
        need!(all Kind::Mounted(Fs::Xfs).needs());
        super::what_others_brought_in_stays(&Place::new(Kind::Mounted(Fs::Xfs), 32 * MIB));
    }

    #[test]
    fn btrfs() {
        need!(Need::Root);
        need!(all Kind::Mounted(Fs::Btrfs).needs());
        super::what_others_brought_in_stays(&Place::new(Kind::Mounted(Fs::Btrfs), 32 * MIB));
    }

    #[test]
    fn raw_device() {
        need!(Need::Root);
        need!(all Kind::RawDevice.needs());
        super::what_others_brought_in_stays(&Place::new(Kind::RawDevice, 32 * MIB));
    }
}

fn what_others_brought_in_stays(place: &Place) {
    in_some_attempt(|reclaim| {
        let observing = Observing::new(Mode::DONTCACHE);
        let path = place.cold_file(1);
        let trace = Tracing::reported();
        let observed = observing.observe_told(&path, &trace.reported);
        let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(&pattern::filled(3, 0, 24 << 20)).unwrap();
        drop(file);
        let told = |start, end, ours| Brought::new(ByteRange::new(start * MIB, end * MIB), ours);
        // Ours, then others'; what nobody tells of is not dropped either.
        observed.brought([told(0, 16, true), told(8, 12, false)]);
        observed.closed();
        let state = observing.finished();
        let counters = &state.counters;
        assert_eq!((counters.brought_bytes, counters.left_bytes), (16 * MIB, 0));
        assert_eq!(counters.dropped_bytes, 16 * MIB, "{state:?}");
        // Pages that the kernel wrote before a look count as read; of those that nobody told
        // of, it is not known then that anything was done.
        let moved = state.counts.written_bytes + state.counts.read_bytes;
        assert!(moved >= 16 * MIB, "{state:?}");
        let pages = residency::cached(&path).unwrap();
        assert_eq!(pages.dirty_pages + pages.writeback_pages, 0, "{pages:?}");
        assert!(cached_bytes(&path) <= 12 * MIB, "{state:?}");
        as_much_cached(reclaim, &path, 12 * MIB, &state)
    });
}

/// Pages may be evicted and come back for others, which nobody has reported yet.
#[test]
fn what_has_come_back_before_the_drop_stays() {
    need!(Need::Root, Need::Cachestat);
    let Tracing { reported, _stop } = Tracing::new();
    in_some_attempt(|reclaim| {
        let scratch = Scratch::new().unwrap();
        let path = scratch.file("theirs");
        let mut file = fs::File::create(&path).unwrap();
        write_pattern(&mut file, 1, 0, 16 * MIB, MIB);
        file.sync_all().unwrap();
        reported.reported_until(reported.mark());
        let observing = Observing::new(Mode::DONTCACHE);
        let observed = observing.observe_told(&path, &reported);
        let told = |start, end, ours| Brought::new(ByteRange::new(start * MIB, end * MIB), ours);
        let come_back = |start| {
            drop_clean(file.as_fd(), start * MIB, 4 * MIB).unwrap();
            let gone = cached_bytes(&path) <= 12 * MIB;
            let reader = fs::File::open(&path).unwrap();
            let mut bytes = vec![0; 4 * MIB as usize];
            reader.read_exact_at(&mut bytes, start * MIB).unwrap();
            gone
        };
        let mut evicted = come_back(4);
        let mark = reported.mark();
        evicted &= come_back(8);
        observed.brought([told(0, 16, true), told(4, 8, false)]);
        reported.reported_until(mark);
        observed.closed();
        // The rest goes, and what came after the mark is not given up however often it is tried.
        assert!(!observing.flusher.drain(Duration::from_secs(3)));
        assert!(evicted && cached_bytes(&path) <= 8 * MIB);
        let mark = reported.mark();
        observed.brought([told(8, 12, false)]);
        reported.reported_until(mark);
        let state = observing.finished();
        assert!(cached_bytes(&path) <= 8 * MIB, "{state:?}");
        assert_eq!(state.counters.left_bytes, 0, "{state:?}");
        as_much_cached(reclaim, &path, 8 * MIB, &state)
    });
}

/// What the program has brought in again is not given up before that is reported.
#[test]
fn what_is_reported_late_is_dropped() {
    need!(Need::Root, Need::Cachestat);
    let Tracing { reported, _stop } = Tracing::new();
    let scratch = Scratch::new().unwrap();
    let path = scratch.file("ours");
    let file = fs::File::create(&path).unwrap();
    reported.reported_until(reported.mark());
    let observing = Observing::new(Mode::DONTCACHE);
    let observed = observing.observe_told(&path, &reported);
    write_pattern(&mut &file, 1, 0, 4 * MIB, MIB);
    file.sync_all().unwrap();
    let all = Brought::new(ByteRange::new(0, 4 * MIB), true);
    observed.brought([all]);
    observed.closed();
    assert!(!observing.flusher.drain(Duration::from_secs(3)));
    assert!(cached_bytes(&path) > 0);
    reported.reported_until(reported.mark());
    let state = observing.finished();
    assert_eq!(cached_bytes(&path), 0, "{state:?}");
    assert_eq!(state.counters.left_bytes, 0, "{state:?}");
}

/// A program can read every second page of a sparse file as often as it likes, and lets them
/// go by itself.
#[test]
fn of_pages_far_from_each_other_so_many_are_remembered() {
    need!(Need::Root, Need::Cachestat);
    const MOST: u64 = 1 << 17;
    const PAGES: u64 = 200_000;
    let trace = Tracing::reported();
    let scratch = Scratch::new().unwrap();
    let path = scratch.file("sparse");
    let file = fs::File::create(&path).unwrap();
    file.set_len(PAGES * 8 * KIB).unwrap();
    for mode in [Mode::DONTCACHE, Mode::WRITE_THROUGH] {
        let observing = Observing::new(mode);
        let observed = observing.observe_told(&path, &trace.reported);
        observed.brought(
            (0..PAGES).map(|page| {
                Brought::new(ByteRange::new(page * 8 * KIB, (page * 8 + 4) * KIB), true)
            }),
        );
        observed.closed();
        let state = observing.finished();
        let pages = match mode.drops() {
            true => state.counters.brought_bytes,
            false => state.counts.written_bytes + state.counts.read_bytes,
        } / (4 * KIB);
        // They are counted now and then.
        assert!((MOST - 8192..MOST + 8192).contains(&pages), "{state:?}");
        let notes = observing.flusher.degraded();
        assert!(
            notes
                .iter()
                .any(|note| note.contains("far from each other"))
        );
    }
}
