//! Streams that the kernel tells of what was brought in.

use dropbehind_policy::residency::ResidencyMap;
use dropbehind_policy::{
    Action, ByteRange, Counted, Disk, DiskConfig, Dropped, Inspected, Mode, Next, Stats,
    StreamConfig, StreamId, Writeback,
};

const ID: StreamId = StreamId(1);
const MIB: u64 = 1 << 20;

fn mib(start: u64, end: u64) -> ByteRange {
    ByteRange::new(start * MIB, end * MIB)
}

fn opened() -> Disk {
    opened_as(true)
}

fn opened_as(traced: bool) -> Disk {
    let mut disk = Disk::new(DiskConfig::default());
    let config = StreamConfig {
        traced,
        observed: true,
        window_bytes: Some(8 * MIB),
        ..StreamConfig::default()
    };
    let mut nothing = ResidencyMap::unknown();
    nothing.observed(ByteRange::WHOLE, []);
    disk.opened(ID, config, nothing);
    disk
}

/// Closes the file and does all that is to be done, on a disk that writes at once;
/// answers what was dropped, and the sums.
fn end(disk: &mut Disk, mut now_ns: u64) -> (Vec<ByteRange>, Stats) {
    let mut dropped = Vec::new();
    disk.closed(now_ns, ID);
    for _ in 0..1000 {
        match disk.next(now_ns) {
            Next::Do(Action::Forget { .. }) => return (dropped, *disk.forgotten(ID).unwrap()),
            Next::Do(action) => answer(disk, now_ns, action, &mut dropped),
            Next::At(due_ns) => now_ns = due_ns,
            Next::Idle => panic!("nothing is left to do, but to forget it"),
        }
    }
    panic!("it never ends");
}

fn answer(disk: &mut Disk, now_ns: u64, action: Action, dropped: &mut Vec<ByteRange>) {
    match action {
        Action::Count { range, .. } => disk.counted(now_ns, ID, range, Counted::default()),
        Action::Inspect { .. } => disk.inspected(now_ns, ID, Inspected { unlinked: false }),
        Action::Drop { ranges, .. } => {
            let gone = Dropped::Tried {
                before_bytes: None,
                after_bytes: 0,
            };
            dropped.extend(&ranges);
            disk.dropped(now_ns, ID, ranges.into_iter().map(|range| (range, gone)));
        }
        _ => {}
    }
}

#[test]
fn what_was_cut_off_is_not_waited_for() {
    let mut disk = opened();
    disk.brought(1, ID, mib(0, 1), false);
    disk.resized(1, ID, 0);
    let (_, counters) = end(&mut disk, 2);
    assert_eq!(counters.dropped_bytes, MIB);
}

#[test]
fn what_lies_in_the_gap_of_a_request_is_still_to_be_passed() {
    let part = MIB / 4;
    let gap = ByteRange::new(part, 2 * part);
    let mut disk = opened();
    disk.brought(1, ID, ByteRange::new(0, 3 * part), false);
    disk.wrote(1, ID, ByteRange::new(0, part), Mode::DONTCACHE);
    disk.wrote(1, ID, ByteRange::new(2 * part, 3 * part), Mode::DONTCACHE);
    disk.closed(1, ID);
    let mut dropped = Vec::new();
    let mut now_ns = 1;
    loop {
        match disk.next(now_ns) {
            Next::Do(action) => answer(&mut disk, now_ns, action, &mut dropped),
            Next::At(due_ns) => now_ns = due_ns,
            Next::Idle => break,
        }
    }
    assert_eq!(
        dropped,
        [ByteRange::new(0, part), ByteRange::new(2 * part, 3 * part),]
    );
    disk.passed(now_ns, ID, gap);
    let (dropped, _) = end(&mut disk, now_ns);
    assert_eq!(dropped, [gap]);
}

/// Nothing may come for a long time that would have it decided about.
#[test]
fn a_deleted_file_is_not_kept_open_for_what_is_held() {
    let mut disk = opened();
    disk.brought(1, ID, mib(0, 4), true);
    disk.passed(1, ID, mib(0, 4));
    disk.closed(2, ID);
    let mut now_ns = 2;
    for _ in 0..100 {
        match disk.next(now_ns) {
            Next::Do(Action::Inspect { .. }) => {
                disk.inspected(now_ns, ID, Inspected { unlinked: true });
            }
            Next::Do(Action::Forget { .. }) => return,
            Next::Do(action) => panic!("{action:?}"),
            Next::At(due_ns) => now_ns = due_ns,
            Next::Idle => break,
        }
    }
    panic!("it is not forgotten");
}

#[test]
fn a_folio_goes_once_all_of_it_has_been_passed() {
    let mut disk = opened();
    let mut now_ns = 1;
    let mut folio_is_gone = false;
    disk.brought(now_ns, ID, mib(0, 2), false);
    for passed in [mib(0, 1), mib(1, 2)] {
        assert!(!folio_is_gone);
        disk.passed(now_ns, ID, passed);
        loop {
            match disk.next(now_ns) {
                Next::Do(Action::Drop { ranges, .. }) => {
                    folio_is_gone |= ranges == [mib(0, 2)];
                    let dropped = ranges.into_iter().map(|range| {
                        let after_bytes = if folio_is_gone { 0 } else { range.len() };
                        let before_bytes = Some(range.len());
                        let tried = Dropped::Tried {
                            before_bytes,
                            after_bytes,
                        };
                        (range, tried)
                    });
                    disk.dropped(now_ns, ID, dropped);
                }
                Next::Do(action) => panic!("{action:?}"),
                Next::At(due_ns) => now_ns = due_ns,
                Next::Idle => break,
            }
        }
    }
    assert!(folio_is_gone, "nobody has closed the file");
}

#[test]
fn what_is_brought_in_anew_has_not_been_passed() {
    let mut disk = opened();
    disk.brought(1, ID, mib(0, 8), false);
    disk.passed(1, ID, mib(0, 8));
    disk.brought(1, ID, mib(0, 8), false);
    assert_eq!(disk.next(1), Next::Idle);
    disk.passed(2, ID, mib(0, 8));
    assert!(matches!(disk.next(2), Next::Do(Action::Drop { .. })));
}

#[test]
fn a_write_from_far_before_the_window_into_it_is_seen_to() {
    let behind = Mode {
        writeback: Writeback::Behind,
        ..Mode::DONTCACHE
    };
    let mut disk = opened();
    disk.brought(1, ID, mib(0, 20), false);
    disk.wrote(1, ID, mib(0, 20), behind);
    disk.wrote(1, ID, mib(2, 16), behind);
    let (_, counters) = end(&mut disk, 2);
    assert_eq!((counters.dropped_bytes, counters.left_bytes), (20 * MIB, 0));
}

#[test]
fn after_a_cut_nothing_is_undecided() {
    let mut disk = opened();
    disk.resized(1, ID, 0);
    disk.wrote(1, ID, mib(0, 1), Mode::DONTCACHE);
    let stream = disk.stream(ID).unwrap();
    assert_eq!(stream.undecided(mib(0, 2)), []);
}

#[test]
fn what_a_flush_cannot_drop_is_tried_again_at_the_close() {
    for traced in [true, false] {
        resists_until_the_close(traced);
    }
}

fn resists_until_the_close(traced: bool) {
    let mut disk = opened_as(traced);
    if traced {
        disk.brought(1, ID, mib(0, 1), false);
        disk.passed(1, ID, mib(0, 1));
    } else {
        disk.wrote(1, ID, mib(0, 1), Mode::DONTCACHE);
    }
    disk.flush(1, ID);
    let mut now_ns = 1;
    loop {
        match disk.next(now_ns) {
            Next::Do(Action::Drop { ranges, .. }) => {
                // Somebody has it mapped.
                let outcome = |range: ByteRange| {
                    let (before_bytes, after_bytes) = (None, range.len());
                    (
                        range,
                        Dropped::Tried {
                            before_bytes,
                            after_bytes,
                        },
                    )
                };
                disk.dropped(now_ns, ID, ranges.into_iter().map(outcome));
            }
            Next::Do(action) => answer(&mut disk, now_ns, action, &mut Vec::new()),
            Next::At(due_ns) => now_ns = due_ns,
            Next::Idle => break,
        }
    }
    let (dropped, counters) = end(&mut disk, now_ns);
    assert_eq!(dropped, [mib(0, 1)]);
    assert_eq!((counters.brought_bytes, counters.left_bytes), (MIB, 0));
}
