//! Files that are flushed, closed, deleted and looked at.

use crate::quick_disk::{ID, MIB, PAGE, disk_with, gone, requests, settle, settle_all};
use dropbehind_policy::grace::GRACE_NS;
use dropbehind_policy::{
    Action, ByteRange, Counted, Disk, Dropped, Found, Inspected, Mode, Next, Reason, StreamConfig,
    Write, Writeback,
};

#[test]
fn a_flush_of_a_nameless_file_ends() {
    let mut disk = disk_with(StreamConfig::default());
    disk.wrote(2, ID, ByteRange::new(0, 2 * MIB), Mode::DONTCACHE);
    disk.written_until(2, ID, 2 * MIB);
    let asked = requests(&settle(&mut disk, 3, true));
    assert_eq!(asked, [], "a nameless file is not written for us");
    disk.flush(4, ID);
    let mut now = 4;
    for _ in 0..100 {
        settle(&mut disk, now, true);
        now += 1_000_000;
    }
    assert!(disk.stream(ID).expect("open").is_settled());
}

/// The window holds it until more is written, and an observer that waits for that to
/// be decided would not flush.
#[test]
fn what_writes_left_out_of_a_window_is_looked_for() {
    let config = StreamConfig {
        window_bytes: Some(64 * MIB),
        ..StreamConfig::default()
    };
    let behind_and_drop = Mode {
        writeback: Writeback::Behind,
        ..Mode::DONTCACHE
    };
    let left_out = ByteRange::new(MIB, 2 * MIB);
    let all = ByteRange::new(0, 3 * MIB);
    for mode in [behind_and_drop, Mode::WRITE_BEHIND_ANY] {
        let mut disk = disk_with(config);
        disk.wrote(2, ID, ByteRange::new(0, MIB), mode);
        disk.wrote(2, ID, ByteRange::new(2 * MIB, 3 * MIB), mode);
        let stream = disk.stream(ID).expect("open");
        assert_eq!(stream.undecided(all), [], "{mode}");
        assert_eq!(stream.idle_parts(all), [left_out], "{mode}");
    }
}

#[test]
fn a_flush_lasts_until_the_drop_is_answered() {
    let mut disk = disk_with(StreamConfig::default());
    disk.read(2, ID, ByteRange::new(0, MIB));
    disk.flush(2, ID);
    let Next::Do(Action::Drop { ranges, .. }) = disk.next(3) else {
        panic!("a drop is due");
    };
    assert_eq!(ranges, [ByteRange::new(0, MIB)]);
    assert!(!disk.stream(ID).expect("open").is_settled());
    let some = Dropped::Tried {
        before_bytes: Some(MIB),
        after_bytes: PAGE,
    };
    disk.dropped(3, ID, [(ranges[0], some)]);
    settle_all(&mut disk, 4);
    let stream = disk.stream(ID).expect("open");
    assert!(stream.is_settled());
    assert_eq!(stream.counters().dropped_bytes, MIB);
}

#[test]
fn a_closed_file_that_is_written_again_is_open() {
    let mut disk = disk_with(StreamConfig::default());
    disk.wrote(2, ID, ByteRange::new(0, PAGE), Mode::DONTCACHE);
    disk.closed(2, ID);
    disk.wrote(3, ID, ByteRange::new(0, 8 * MIB), Mode::DONTCACHE);
    disk.written_until(3, ID, 8 * MIB + PAGE);
    let asked = requests(&settle(&mut disk, 4, false));
    assert!(asked.len() >= 5, "a batch is a batch again: {asked:?}");
    settle_all(&mut disk, 5);
    assert!(disk.stream(ID).is_some());
}

/// A deleted file's blocks are free when its last descriptor is closed, and
/// that may be ours, which waits for the kernel to write what nobody will read.
#[test]
fn a_lazily_written_file_deleted_after_closing_is_forgotten() {
    let mut disk = disk_with(StreamConfig::default());
    disk.wrote(2, ID, ByteRange::new(0, PAGE), Mode::NOREUSE);
    disk.closed(2, ID);
    let dirty = Counted {
        cached_bytes: PAGE,
        dirty_bytes: PAGE,
        writeback_bytes: 0,
    };
    let mut now = 3;
    while now < 5_000_000_000 {
        match disk.next(now) {
            Next::Do(Action::Count { range, .. }) => disk.counted(now, ID, range, dirty),
            Next::Do(Action::Inspect { .. }) => {
                let unlinked = now > 2_000_000_000;
                disk.inspected(now, ID, Inspected { unlinked });
            }
            Next::Do(Action::Forget { .. }) => return,
            Next::Do(action) => panic!("{action:?}"),
            Next::At(due) => now = due,
            Next::Idle => break,
        }
    }
    panic!("still held");
}

#[test]
fn a_flush_asks_for_lazily_written_pages_at_once() {
    let mut disk = disk_with(StreamConfig::default());
    disk.wrote(2, ID, ByteRange::new(0, PAGE), Mode::NOREUSE);
    assert_eq!(requests(&settle(&mut disk, 3, false)), []);
    disk.flush(4, ID);
    let asked = requests(&settle(&mut disk, 4, false));
    assert_eq!(asked, [(ByteRange::new(0, PAGE), Reason::Sync)]);
}

/// The kernel would take half a minute, and a caller waits.
#[test]
fn a_flush_asks_again_for_what_others_dirtied_meanwhile() {
    let mut disk = disk_with(StreamConfig::default());
    let range = ByteRange::new(0, MIB);
    disk.wrote(2, ID, range, Mode::NOREUSE);
    disk.flush(3, ID);
    let mut is_dirty = false;
    let (mut now, mut asked) = (3, Vec::new());
    while !disk.stream(ID).expect("open").is_settled() && now < 5_000_000_000 {
        match disk.next(now) {
            Next::Do(Action::StartWriteback { range, .. }) => {
                asked.push(range);
                is_dirty = false;
            }
            Next::Do(Action::Count { range, .. }) => {
                let dirty_bytes = u64::from(is_dirty) * range.len();
                let counted = Counted {
                    cached_bytes: range.len(),
                    dirty_bytes,
                    ..Counted::default()
                };
                disk.counted(now, ID, range, counted);
            }
            Next::Do(Action::Drop { ranges, .. }) if asked.len() == 1 => {
                is_dirty = true;
                let dropped = ranges.iter().map(|range| (*range, Dropped::NotClean));
                disk.dropped(now, ID, dropped);
            }
            Next::Do(Action::Drop { ranges, .. }) => disk.dropped(now, ID, gone(&ranges)),
            Next::Do(_) => {}
            Next::At(due) => now = due,
            Next::Idle => break,
        }
    }
    assert_eq!(asked, [range, range]);
    assert!(disk.stream(ID).expect("open").is_settled(), "{now}");
}

/// At its end a program does not wait for the disk, so nothing waits for what is in flight.
#[test]
fn at_the_end_all_is_asked_for_at_once() {
    let scattered = (0..1000).map(|page| ByteRange::new(2 * page * PAGE, (2 * page + 1) * PAGE));
    let cases = [
        (Mode::WRITE_BEHIND, vec![ByteRange::new(0, 40 * MIB)]),
        (Mode::DONTCACHE, vec![ByteRange::new(0, 40 * MIB)]),
        (Mode::DONTCACHE, vec![ByteRange::new(0, PAGE)]),
        (Mode::DONTCACHE, scattered.collect()),
    ];
    for (mode, writes) in cases {
        for closed in [false, true] {
            let mut disk = disk_with(StreamConfig::default());
            let written_bytes = writes.iter().map(|write| write.len()).sum::<u64>();
            disk.wrote_all(2, ID, writes.iter().map(|range| Write::new(*range, mode)));
            if closed {
                disk.closed(2, ID);
            }
            disk.submit(3, ID);
            let mut now = 3;
            while disk.stream(ID).is_some_and(|stream| stream.has_to_submit()) {
                match disk.next(now) {
                    Next::Do(Action::StartWriteback { .. }) => {}
                    Next::Do(Action::Inspect { .. }) => {
                        disk.inspected(now, ID, Inspected { unlinked: false });
                    }
                    // The disk writes nothing.
                    Next::Do(Action::Count { range, .. }) => {
                        let all = Counted {
                            writeback_bytes: range.len(),
                            ..Counted::default()
                        };
                        disk.counted(now, ID, range, all);
                    }
                    other => panic!("{mode}, closed {closed}: {other:?}"),
                }
                now += 1;
            }
            let asked = disk.stream(ID).expect("not clean").counters();
            let asked_bytes = asked.writeback_bytes.total();
            assert_eq!(asked_bytes, written_bytes, "{mode}, closed {closed}");
        }
    }
}

/// A program may end while its threads write as fast as they can.
#[test]
fn the_end_waits_for_nothing_that_is_written_later() {
    let mut disk = disk_with(StreamConfig::default());
    disk.wrote(2, ID, ByteRange::new(0, 4 * MIB), Mode::DONTCACHE);
    disk.submit(3, ID);
    let mut end = 4 * MIB;
    for now in 4..100 {
        if !disk.stream(ID).expect("open").has_to_submit() {
            return;
        }
        disk.wrote(now, ID, ByteRange::new(end, end + 8 * MIB), Mode::DONTCACHE);
        end += 8 * MIB;
        match disk.next(now) {
            Next::Do(Action::StartWriteback { .. }) => {}
            Next::Do(Action::Inspect { .. }) => {
                disk.inspected(now, ID, Inspected { unlinked: false });
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("it never ends");
}

#[test]
fn at_the_end_files_without_a_name_are_not_written() {
    let mut disk = disk_with(StreamConfig::default());
    disk.wrote(2, ID, ByteRange::new(0, MIB), Mode::DONTCACHE);
    disk.submit(3, ID);
    let asked = requests(&settle(&mut disk, 3, true));
    assert_eq!(asked, []);
    assert!(!disk.stream(ID).expect("open").has_to_submit());
}

#[test]
fn what_was_cached_before_a_write_stays_unless_it_is_ours() {
    let mut disk = disk_with(StreamConfig::default());
    disk.wrote(2, ID, ByteRange::new(0, MIB), Mode::DONTCACHE);
    let all = ByteRange::new(0, 2 * MIB);
    let write = Write {
        range: all,
        mode: Mode::DONTCACHE,
        found: Found::Cached,
    };
    disk.wrote_all(4, ID, [write]);
    disk.closed(5, ID);
    settle_all(&mut disk, 6);
    let counters = disk.forgotten(ID).expect("forgotten");
    assert_eq!(counters.dropped_bytes, MIB);
    assert_eq!(counters.kept_bytes, MIB);
}

/// What a deleted file has in the cache stays there for as long as it is held, by
/// us at least, and a look may come before it is forgotten.
#[test]
fn a_deleted_and_closed_file_is_forgotten_whatever_is_found_of_it() {
    let all = ByteRange::new(0, 2 * MIB);
    let finds: [fn(&mut Disk, ByteRange); 2] = [
        |disk, found| disk.wrote(4, ID, found, Mode::DONTCACHE),
        |disk, found| disk.read(4, ID, found),
    ];
    for find in finds {
        let mut disk = disk_with(StreamConfig::default());
        disk.wrote(2, ID, all, Mode::DONTCACHE);
        disk.written_until(2, ID, all.len());
        disk.closed(2, ID);
        assert_eq!(disk.next(3), Next::Do(Action::Inspect { stream: ID }));
        disk.inspected(3, ID, Inspected { unlinked: true });
        find(&mut disk, all);
        let actions = settle(&mut disk, 5, true);
        assert_eq!(actions, [Action::Forget { stream: ID }]);
        let counters = disk.forgotten(ID).expect("forgotten");
        assert_eq!(counters.brought_bytes, all.len(), "nothing counts twice");
    }
}

/// Whoever observes files from outside may find out more than once that nobody
/// uses one any more.
#[test]
fn a_file_closed_twice_waits_for_its_grace_once() {
    let mut disk = disk_with(StreamConfig::default());
    let all = ByteRange::new(0, MIB / 2);
    disk.wrote(2, ID, all, Mode::DONTCACHE);
    disk.written_until(2, ID, all.len());
    disk.closed(3, ID);
    assert_eq!(requests(&settle(&mut disk, GRACE_NS / 2, false)), []);
    disk.closed(GRACE_NS / 2, ID);
    assert_eq!(requests(&settle(&mut disk, 2 + GRACE_NS, false)), []);
    let asked = requests(&settle(&mut disk, 3 + GRACE_NS, false));
    assert_eq!(asked, [(all, Reason::Close)]);
}

/// Little of it is still to be written, and waits for more: but all of its blocks
/// wait, too.
#[test]
fn a_file_deleted_while_its_rest_waits_is_forgotten_soon() {
    let mut disk = disk_with(StreamConfig::default());
    let rest = ByteRange::new(30 * MIB, 30 * MIB + PAGE);
    disk.wrote(2, ID, rest, Mode::DONTCACHE);
    disk.written_until(2, ID, rest.len());
    disk.closed(3, ID);
    let deleted_ns = GRACE_NS / 4;
    let mut now = 3;
    while now < GRACE_NS {
        match disk.next(now) {
            Next::Do(Action::Inspect { .. }) => {
                let unlinked = now >= deleted_ns;
                disk.inspected(now, ID, Inspected { unlinked });
            }
            Next::Do(Action::Forget { .. }) => {
                assert!(now <= 2 * deleted_ns, "{now}");
                return;
            }
            Next::Do(action) => panic!("{action:?}"),
            Next::At(due) => now = due,
            Next::Idle => break,
        }
    }
    panic!("still held");
}
