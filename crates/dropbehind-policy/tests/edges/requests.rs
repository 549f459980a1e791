//! What is asked for, and in which pieces.

use crate::quick_disk::{ID, MIB, PAGE, disk_with, gone, requests, settle, settle_all};
use dropbehind_policy::{
    Action, ByteRange, Counted, DiskConfig, Dropped, Inspected, Mode, Next, Reason, Residency,
    StreamConfig, Writeback,
};

/// What a request's boundary left of a batch is not as old as the batch was:
/// else a few pages are asked for by themselves every second.
#[test]
fn steady_writing_is_asked_for_in_whole_requests() {
    let mut disk = disk_with(StreamConfig::default());
    let request = DiskConfig::default().request_bytes;
    let (mut at, mut now) = (0, 2);
    let mut asked = Vec::new();
    while at < 200 * MIB {
        let end = at + 300_000;
        disk.wrote(now, ID, ByteRange::new(at, end), Mode::DONTCACHE);
        disk.written_until(now, ID, end);
        asked.extend(requests(&settle(&mut disk, now, false)));
        at = end;
        now += 20_000_000;
    }
    let old = asked.iter().find(|(_, reason)| *reason == Reason::Age);
    assert_eq!(old, None);
    let whole = asked.iter().filter(|(range, _)| range.len() == request);
    assert!(whole.count() * 10 >= asked.len() * 9, "{asked:?}");
}

/// The window shrinks under a writer that waits: only the policy can go on.
#[test]
fn a_window_that_shrinks_sends_what_it_no_longer_holds() {
    let mut disk = disk_with(StreamConfig::default());
    let mode = Mode::new(Writeback::Behind, Residency::Drop);
    disk.wrote(2, ID, ByteRange::new(0, 31 * MIB), mode);
    disk.written_until(2, ID, 31 * MIB);
    let mut now = 3;
    for _ in 0..200_000 {
        match disk.next(now) {
            Next::Do(Action::Count { range, .. }) => {
                // 2 MB/s: a page has been written each 2 ms.
                let done = (now / 2_000_000) * PAGE;
                let left = range.end.saturating_sub(done.max(range.start));
                let counted = Counted {
                    cached_bytes: range.len(),
                    dirty_bytes: 0,
                    writeback_bytes: left,
                };
                disk.counted(now, ID, range, counted);
            }
            Next::Do(Action::Drop { ranges, .. }) => disk.dropped(now, ID, gone(&ranges)),
            Next::Do(Action::Inspect { .. }) => {
                disk.inspected(now, ID, Inspected { unlinked: false });
            }
            Next::Do(_) => {}
            Next::At(due) => now = due,
            Next::Idle => break,
        }
    }
    let done = disk.stream(ID).expect("open").done_bytes();
    assert!(disk.limit_bytes(ID) <= 8 * MIB, "the disk is slow");
    assert!(31 * MIB - done <= MIB, "{} left", 31 * MIB - done);
}

#[test]
fn one_long_write_is_asked_for_in_requests() {
    let request = DiskConfig::default().request_bytes;
    for mode in [Mode::DONTCACHE, Mode::WRITE_BEHIND] {
        let mut disk = disk_with(StreamConfig::default());
        disk.wrote(2, ID, ByteRange::new(PAGE, 100 * MIB), mode);
        disk.written_until(2, ID, 100 * MIB - PAGE);
        let asked = requests(&settle_all(&mut disk, 3));
        assert!(asked.len() > 80);
        for (range, _) in asked {
            assert!(range.len() <= request, "{mode}: {range:?}");
            let at_end = range.end == 100 * MIB;
            assert!(at_end || range.end % request == 0, "{mode}: {range:?}");
        }
    }
}

/// Others write what nobody tells: a page that is dirty when it is to be dropped is
/// asked for once more, and not left to the kernel for half a minute.
#[test]
fn what_is_dirty_again_when_it_is_dropped_is_written_again() {
    for (mode, again) in [(Mode::DONTCACHE, true), (Mode::NOREUSE, false)] {
        let range = ByteRange::new(0, 4 * MIB);
        let mut disk = disk_with(StreamConfig::default());
        disk.wrote(1, ID, range, mode);
        disk.written_until(1, ID, range.len());
        let (mut now, mut redirtied, mut asked) = (1, 0, 0);
        let mut dirty_bytes = range.len();
        while disk.stream(ID).unwrap().brought_bytes() > 0 {
            assert!(now < 100_000_000_000, "{mode:?}");
            let action = match disk.next(now) {
                Next::Do(action) => action,
                Next::At(due_ns) => {
                    now = due_ns;
                    // The kernel writes what is 30 s old.
                    if now > 40_000_000_000 {
                        dirty_bytes = 0;
                    }
                    continue;
                }
                Next::Idle => panic!("{mode:?}: {dirty_bytes} dirty bytes are forgotten"),
            };
            match action {
                Action::StartWriteback { .. } => {
                    asked += 1;
                    dirty_bytes = 0;
                }
                Action::Count { stream, range } => {
                    let counted = Counted {
                        cached_bytes: range.len(),
                        dirty_bytes,
                        writeback_bytes: 0,
                    };
                    disk.counted(now, stream, range, counted);
                }
                Action::Drop { stream, ranges } if redirtied < 2 => {
                    redirtied += 1;
                    dirty_bytes = PAGE;
                    let stayed = ranges.iter().map(|range| (*range, Dropped::NotClean));
                    disk.dropped(now, stream, stayed);
                }
                Action::Drop { stream, ranges } => disk.dropped(now, stream, gone(&ranges)),
                Action::Inspect { stream } => {
                    disk.inspected(now, stream, Inspected { unlinked: false });
                }
                Action::Forget { .. } => {}
            }
        }
        assert_eq!(redirtied, 2);
        assert_eq!(asked >= 3, again, "{mode:?}: {asked} requests");
        assert_eq!(now < 10_000_000_000, again, "{mode:?}: {now} ns");
    }
}

/// Only when a request is over is it decided whose the pages between its ranges are. A read
/// there has said so already.
#[test]
fn what_is_read_between_the_ranges_of_a_request_is_dropped() {
    let mut disk = disk_with(StreamConfig::default());
    let pages = 2048;
    for page in 0..pages {
        let start = 2 * page * PAGE;
        let range = ByteRange::new(start, start + PAGE);
        disk.wrote(2, ID, range, Mode::DONTCACHE);
    }
    disk.written_until(2, ID, pages * PAGE);
    let mut now = 3;
    let under_way = loop {
        match disk.next(now) {
            Next::Do(Action::StartWriteback { range, bytes, .. }) if bytes < range.len() => {
                break range;
            }
            Next::Do(Action::Inspect { .. }) => {
                disk.inspected(now, ID, Inspected { unlinked: false });
            }
            Next::Do(Action::Count { range, .. }) => {
                let under_way = Counted {
                    cached_bytes: range.len(),
                    dirty_bytes: 0,
                    writeback_bytes: range.len(),
                };
                disk.counted(now, ID, range, under_way);
            }
            Next::At(due) => now = due,
            next => panic!("{next:?}"),
        }
    };
    let between = ByteRange::new(under_way.start + PAGE, under_way.start + 2 * PAGE);
    disk.read(now, ID, between);
    settle_all(&mut disk, now + 1);
    let counters = disk.stream(ID).expect("open").counters();
    assert_eq!(counters.brought_bytes, (pages + 1) * PAGE);
    assert_eq!(counters.dropped_bytes, (pages + 1) * PAGE);
}
