//! Edges that chance seldom finds: extreme numbers, scale, and fairness.

use dropbehind_policy::grace::{AGE_NS, GRACE_NS, SMALL_FILES_COUNT};
use dropbehind_policy::residency::ResidencyMap;
use dropbehind_policy::{
    Action, ByteRange, Counted, Disk, DiskConfig, Dropped, Inspected, Mode, Next, Reason,
    Residency, StreamConfig, StreamId, Writeback,
};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
const ID: StreamId = StreamId(7);

fn absent() -> ResidencyMap {
    let mut map = ResidencyMap::unknown();
    map.observed(ByteRange::WHOLE, []);
    map
}

fn disk_with(config: StreamConfig) -> Disk {
    let mut disk = Disk::new(DiskConfig::default());
    disk.opened(1, ID, config, absent());
    disk
}

/// Answers every action as if the disk were infinitely fast, for as long as
/// something is due at `now`; answers the actions.
fn settle(disk: &mut Disk, now: u64, unlinked: bool) -> Vec<Action> {
    let mut actions = Vec::new();
    while let Next::Do(action) = disk.next(now) {
        actions.push(action.clone());
        assert!(actions.len() < 1_000_000, "it never ends");
        match action {
            Action::Count { stream, range } => {
                disk.counted(now, stream, range, Counted::default());
            }
            Action::Drop { stream, ranges } => disk.dropped(now, stream, gone(&ranges)),
            Action::Inspect { stream } => disk.inspected(now, stream, Inspected { unlinked }),
            Action::Look { stream, range } => disk.looked(now, stream, range, []),
            Action::StartWriteback { .. } | Action::Forget { .. } => {}
        }
    }
    actions
}

/// All of these ranges went.
fn gone(ranges: &[ByteRange]) -> impl Iterator<Item = (ByteRange, Dropped)> + '_ {
    ranges.iter().map(|range| {
        let gone = Dropped::Tried {
            before_bytes: Some(range.len()),
            after_bytes: 0,
        };
        (*range, gone)
    })
}

/// Lets time pass until nothing is left to do.
fn settle_all(disk: &mut Disk, mut now: u64) -> Vec<Action> {
    let mut actions = Vec::new();
    for _ in 0..1_000_000 {
        actions.extend(settle(disk, now, false));
        match disk.next(now) {
            Next::At(due) => now = due,
            Next::Idle => return actions,
            Next::Do(_) => unreachable!("settled"),
        }
    }
    panic!("it never ends");
}

fn requests(actions: &[Action]) -> Vec<(ByteRange, Reason)> {
    let request = |action: &Action| match *action {
        Action::StartWriteback { range, reason, .. } => Some((range, reason)),
        _ => None,
    };
    actions.iter().filter_map(request).collect()
}

#[test]
fn a_thousand_idle_streams_cost_nothing() {
    let mut disk = Disk::new(DiskConfig::default());
    for number in 0..1000 {
        let id = StreamId(number);
        disk.opened(1, id, StreamConfig::default(), absent());
        disk.wrote(1, id, ByteRange::new(0, PAGE), Mode::DONTCACHE);
        disk.told(1, id, PAGE);
    }
    settle_all(&mut disk, 2);
    // What is below a drop's worth waits for more, or for the close.
    assert!(disk.is_idle());
    assert_eq!(disk.next(u64::MAX), Next::Idle);
    disk.wrote(3, ID, ByteRange::new(0, 4 * MIB), Mode::DONTCACHE);
    for action in settle_all(&mut disk, 4) {
        let (Action::StartWriteback { stream, .. }
        | Action::Count { stream, .. }
        | Action::Drop { stream, .. }
        | Action::Inspect { stream }
        | Action::Look { stream, .. }
        | Action::Forget { stream }) = action;
        assert_eq!(stream, ID);
    }
}

#[test]
fn a_hundred_thousand_scattered_pages_are_no_problem() {
    for (mode, count) in [(Mode::DONTCACHE, 100_000), (Mode::NOREUSE, 20_000)] {
        let mut disk = disk_with(StreamConfig::default());
        for number in 0..count {
            // Backwards, and far apart.
            let start = (count - number) * 16 * MIB;
            disk.wrote(2, ID, ByteRange::new(start, start + 100), mode);
        }
        disk.told(2, ID, count * 100);
        disk.closed(2, ID);
        let actions = settle_all(&mut disk, 3);
        assert!(
            actions.len() as u64 <= 3 * count + 1000,
            "{}",
            actions.len()
        );
        let asked = requests(&actions);
        assert!(
            asked.is_sorted_by_key(|(range, _)| range.start),
            "offset order"
        );
        let counters = disk.forgotten(ID).expect("forgotten");
        assert_eq!(counters.dropped_bytes, count * PAGE);
    }
}

#[test]
fn the_largest_numbers_overflow_nothing() {
    for bits in 0..8 {
        for window_bytes in [None, Some(0), Some(1), Some(u64::MAX)] {
            for request_bytes in [None, Some(0), Some(4097), Some(u64::MAX)] {
                let mut disk = disk_with(StreamConfig {
                    window_bytes,
                    request_bytes,
                    size_bytes: u64::MAX,
                    ..StreamConfig::default()
                });
                let mode = Mode::from_bits(bits);
                let last = u64::MAX - 20 * MIB;
                for range in [
                    ByteRange::new(u64::MAX - 1, u64::MAX),
                    ByteRange::new(last, u64::MAX),
                    ByteRange::new(5, 5),
                ] {
                    disk.wrote(2, ID, range, mode);
                    disk.read(2, ID, range);
                    disk.told(2, ID, 20 * MIB);
                    disk.resized(2, ID, u64::MAX);
                    disk.synced(2, ID);
                }
                let _ = (disk.limit_bytes(ID), disk.batch_bytes(ID));
                disk.flush(2, ID);
                disk.closed(2, ID);
                settle_all(&mut disk, 3);
                assert!(disk.forgotten(ID).is_some(), "{mode} {window_bytes:?}");
            }
        }
    }
}

#[test]
fn an_empty_write_is_nothing() {
    let mut disk = disk_with(StreamConfig::default());
    disk.wrote(2, ID, ByteRange::new(100, 100), Mode::DONTCACHE);
    assert!(disk.is_idle());
}

#[test]
fn a_page_written_a_million_times_holds_nobody_up() {
    let mut disk = disk_with(StreamConfig::default());
    let mut written = 0;
    for round in 0..1000_u64 {
        let now = 2 + round * 1000;
        written += 1000 * PAGE;
        disk.wrote(now, ID, ByteRange::new(0, PAGE), Mode::DONTCACHE);
        disk.told(now, ID, written);
        let done = disk.stream(ID).expect("open").done_bytes();
        assert!(written - done <= 2 * PAGE, "{} outstanding", written - done);
    }
    let mut counted = disk.clone();
    let asked = requests(&settle_all(&mut counted, AGE_NS));
    assert_eq!(asked, [(ByteRange::new(0, PAGE), Reason::Age)]);
}

#[test]
fn a_byte_in_each_page_counts_as_the_page() {
    let mut disk = disk_with(StreamConfig::default());
    let window = DiskConfig::default().window_bytes;
    let pages = 3 * window / PAGE;
    for page in 0..pages {
        let start = page * 2 * PAGE;
        disk.wrote(2, ID, ByteRange::new(start, start + 1), Mode::DONTCACHE);
    }
    disk.told(2, ID, pages);
    let done = disk.stream(ID).expect("open").done_bytes();
    assert!(
        pages - done > disk.limit_bytes(ID),
        "three windows are dirty, and the writer has to wait"
    );
    settle_all(&mut disk, 3);
    let done = disk.stream(ID).expect("open").done_bytes();
    assert!(pages - done <= disk.limit_bytes(ID), "and then no more");
}

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
        disk.told(now, ID, end);
        asked.extend(requests(&settle(&mut disk, now, false)));
        at = end;
        now += 20_000_000;
    }
    let old = asked.iter().find(|(_, reason)| *reason == Reason::Age);
    assert_eq!(old, None);
    let whole = asked.iter().filter(|(range, _)| range.len() == request);
    assert!(whole.count() * 10 >= asked.len() * 9, "{asked:?}");
}

/// The lowest offsets first, always, would leave the last page dirty for as
/// long as the first ones are written.
#[test]
fn a_busy_start_of_a_file_does_not_starve_its_end() {
    let mut disk = disk_with(StreamConfig::default());
    let far = ByteRange::new(1000 * MIB, 1000 * MIB + PAGE);
    disk.wrote(2, ID, far, Mode::DONTCACHE);
    let mut written = PAGE;
    for round in 0..400_u64 {
        let now = 3 + round * 10_000_000;
        // 4 MiB in scattered pages, each time the same.
        for page in 0..1024 {
            let start = page * 2 * MIB / 8;
            disk.wrote(
                now,
                ID,
                ByteRange::new(start, start + PAGE),
                Mode::DONTCACHE,
            );
            written += PAGE;
        }
        disk.told(now, ID, written);
        for (range, _) in requests(&settle(&mut disk, now, false)) {
            if range.overlaps(far) {
                return;
            }
        }
    }
    panic!("it was not asked for in four seconds");
}

#[test]
fn streams_of_one_disk_take_turns() {
    let mut disk = Disk::new(DiskConfig::default());
    let (busy, other) = (StreamId(1), StreamId(2));
    for id in [busy, other] {
        disk.opened(1, id, StreamConfig::default(), absent());
        let bytes = if id == busy { 64 * MIB } else { 8 * MIB };
        // Two in three pages, so that there are many ranges to drop.
        for page in (0..bytes / PAGE).filter(|page| page % 3 != 0) {
            let start = page * PAGE;
            disk.read(2, id, ByteRange::new(start, start + PAGE));
        }
        disk.closed(2, id);
    }
    let mut now = 3;
    let mut order = Vec::new();
    while let Next::Do(action) = disk.next(now) {
        now += 1;
        match action {
            Action::Drop { stream, ranges } => {
                order.push(stream);
                disk.dropped(now, stream, gone(&ranges));
            }
            Action::Forget { stream } => order.push(stream),
            _ => {}
        }
    }
    let last = order.iter().rposition(|id| *id == other).expect("dropped");
    let before = order[..last].iter().filter(|id| **id == busy).count();
    let others = order[..last].len() - before;
    assert!(
        before <= others + 2,
        "{before} of one before {others} of the other"
    );
}

#[test]
fn a_flush_of_a_nameless_file_ends() {
    let mut disk = disk_with(StreamConfig::default());
    disk.wrote(2, ID, ByteRange::new(0, 2 * MIB), Mode::DONTCACHE);
    disk.told(2, ID, 2 * MIB);
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
    disk.told(3, ID, 8 * MIB + PAGE);
    let asked = requests(&settle(&mut disk, 4, false));
    assert!(asked.len() >= 7, "a batch is a batch again: {asked:?}");
    settle_all(&mut disk, 5);
    assert!(disk.stream(ID).is_some());
}

/// A deleted file's blocks are free when its last descriptor is closed, and
/// that may be ours, which waits for the kernel to write what nobody will read.
#[test]
fn a_lazily_written_file_deleted_after_closing_is_let_go() {
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

/// The window shrinks under a writer that waits: only the policy can go on.
#[test]
fn a_window_that_shrinks_sends_what_it_no_longer_holds() {
    let mut disk = disk_with(StreamConfig::default());
    let mode = Mode::new(Writeback::Behind, Residency::Drop);
    disk.wrote(2, ID, ByteRange::new(0, 31 * MIB), mode);
    disk.told(2, ID, 31 * MIB);
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
fn a_flush_asks_for_lazily_written_pages_at_once() {
    let mut disk = disk_with(StreamConfig::default());
    disk.wrote(2, ID, ByteRange::new(0, PAGE), Mode::NOREUSE);
    assert_eq!(requests(&settle(&mut disk, 3, false)), []);
    disk.flush(4, ID);
    let asked = requests(&settle(&mut disk, 4, false));
    assert_eq!(asked, [(ByteRange::new(0, PAGE), Reason::Sync)]);
}

#[test]
fn one_long_write_is_asked_for_in_requests() {
    let request = DiskConfig::default().request_bytes;
    for mode in [Mode::DONTCACHE, Mode::WRITE_BEHIND] {
        let mut disk = disk_with(StreamConfig::default());
        disk.wrote(2, ID, ByteRange::new(PAGE, 100 * MIB), mode);
        disk.told(2, ID, 100 * MIB - PAGE);
        let asked = requests(&settle_all(&mut disk, 3));
        assert!(asked.len() > 80);
        for (range, _) in asked {
            assert!(range.len() <= request, "{mode}: {range:?}");
            let at_end = range.end == 100 * MIB;
            assert!(at_end || range.end % request == 0, "{mode}: {range:?}");
        }
    }
}

/// Another program writes and syncs the same pages all the time: at each look
/// some are under writeback, but never for long the same ones.
#[test]
fn another_programs_writeback_holds_nobody_up_for_ever() {
    let mut disk = disk_with(StreamConfig::default());
    disk.wrote(2, ID, ByteRange::new(0, MIB), Mode::WRITE_THROUGH);
    disk.told(2, ID, MIB);
    let mut now = 3;
    let mut count = 0;
    for _ in 0..1000 {
        match disk.next(now) {
            Next::Do(Action::Count { range, .. }) => {
                count += 1;
                let counted = Counted {
                    cached_bytes: MIB,
                    dirty_bytes: MIB / 2,
                    writeback_bytes: MIB / 2 / (1 + count % 2 * 3),
                };
                disk.counted(now, ID, range, counted);
            }
            Next::Do(Action::Inspect { .. }) => {
                disk.inspected(now, ID, Inspected { unlinked: false });
            }
            Next::Do(_) => {}
            Next::At(due) => now = due,
            Next::Idle => break,
        }
    }
    assert_eq!(disk.stream(ID).expect("open").done_bytes(), MIB);
}

#[test]
fn a_look_does_not_take_our_own_pages_for_somebody_elses() {
    let mut disk = disk_with(StreamConfig::default());
    disk.wrote(2, ID, ByteRange::new(0, MIB), Mode::DONTCACHE);
    let all = ByteRange::new(0, 2 * MIB);
    disk.looked(3, ID, all, [all]);
    disk.wrote(4, ID, all, Mode::DONTCACHE);
    disk.closed(5, ID);
    settle_all(&mut disk, 6);
    let counters = disk.forgotten(ID).expect("forgotten");
    assert_eq!(counters.dropped_bytes, MIB);
    assert_eq!(counters.kept_bytes, MIB);
}

#[test]
fn beyond_the_budget_the_oldest_small_files_are_written_and_no_others_looked_at() {
    const OVER: u64 = 44;
    let count = SMALL_FILES_COUNT as u64 + OVER;
    let mut disk = Disk::new(DiskConfig::default());
    let mut actions = Vec::new();
    for number in 0..count {
        // Identifiers that fall, so that age is not told by them.
        let id = StreamId(count - number);
        disk.opened(1, id, StreamConfig::default(), absent());
        disk.wrote(1, id, ByteRange::new(0, PAGE), Mode::DONTCACHE);
        disk.told(1, id, PAGE);
        disk.closed(1, id);
        actions.extend(settle(&mut disk, 1, false));
    }
    let of = |wanted: fn(&Action) -> Option<StreamId>| -> Vec<u64> {
        let ids = actions.iter().filter_map(wanted);
        ids.map(|StreamId(id)| id).collect()
    };
    let oldest: Vec<u64> = (0..OVER).map(|number| count - number).collect();
    let written = of(|action| match *action {
        Action::StartWriteback {
            stream,
            reason: Reason::Budget,
            ..
        } => Some(stream),
        Action::StartWriteback { .. } => Some(StreamId(0)),
        _ => None,
    });
    assert_eq!(written, oldest);
    let looked_at = of(|action| match *action {
        Action::Inspect { stream } => Some(stream),
        _ => None,
    });
    assert_eq!(looked_at, oldest);
    // Who is written to again is small no more, and makes room for another.
    disk.wrote(
        2,
        StreamId(1),
        ByteRange::new(PAGE, 2 * PAGE),
        Mode::DONTCACHE,
    );
    let newcomer = StreamId(count + 1);
    disk.opened(2, newcomer, StreamConfig::default(), absent());
    disk.wrote(2, newcomer, ByteRange::new(0, PAGE), Mode::DONTCACHE);
    disk.closed(2, newcomer);
    assert_eq!(requests(&settle(&mut disk, 2, false)), []);
    let rest = requests(&settle_all(&mut disk, 3));
    assert_eq!(rest.len(), SMALL_FILES_COUNT + 1);
    assert!(rest.iter().all(|(_, reason)| *reason != Reason::Budget));
}

#[test]
fn who_is_written_to_again_waits_among_the_youngest() {
    let small = |disk: &mut Disk, number: u64| {
        let id = StreamId(number);
        disk.wrote(1, id, ByteRange::new(0, PAGE), Mode::DONTCACHE);
        disk.closed(1, id);
    };
    let budget = SMALL_FILES_COUNT as u64;
    let mut disk = Disk::new(DiskConfig::default());
    for number in 0..=budget {
        let id = StreamId(number);
        disk.opened(1, id, StreamConfig::default(), absent());
        small(&mut disk, number);
    }
    // The oldest was due, and is so no more; the second takes its place, until
    // it is written to as well.
    small(&mut disk, 0);
    disk.wrote(1, StreamId(1), ByteRange::new(0, PAGE), Mode::DONTCACHE);
    // The third leaves before its turn, and comes back after two others.
    disk.wrote(1, StreamId(2), ByteRange::new(0, PAGE), Mode::DONTCACHE);
    small(&mut disk, 1);
    small(&mut disk, 2);
    let written: Vec<u64> = settle(&mut disk, 1, false)
        .iter()
        .filter_map(|action| match *action {
            Action::StartWriteback { stream, .. } => Some(stream.0),
            _ => None,
        })
        .collect();
    assert_eq!(written, [3]);
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
        disk.told(2, ID, all.len());
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

/// Whoever looks after files from outside may find out more than once that nobody
/// uses one any more.
#[test]
fn a_file_closed_twice_waits_for_its_grace_once() {
    let mut disk = disk_with(StreamConfig::default());
    let all = ByteRange::new(0, MIB / 2);
    disk.wrote(2, ID, all, Mode::DONTCACHE);
    disk.told(2, ID, all.len());
    disk.closed(3, ID);
    assert_eq!(disk.next(GRACE_NS / 2), Next::At(3 + GRACE_NS));
    disk.closed(GRACE_NS / 2, ID);
    assert_eq!(disk.next(GRACE_NS / 2), Next::At(3 + GRACE_NS));
    let asked = requests(&settle(&mut disk, 3 + GRACE_NS, false));
    assert_eq!(asked, [(all, Reason::Close)]);
}

/// Others write what nobody tells: a page that is dirty when it is to be dropped is
/// asked for once more, and not left to the kernel for half a minute.
#[test]
fn what_is_dirty_again_when_it_is_dropped_is_written_again() {
    for (mode, again) in [(Mode::DONTCACHE, true), (Mode::NOREUSE, false)] {
        let range = ByteRange::new(0, 4 * MIB);
        let mut disk = disk_with(StreamConfig::default());
        disk.wrote(1, ID, range, mode);
        disk.told(1, ID, range.len());
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
                Action::Look { stream, range } => disk.looked(now, stream, range, []),
                Action::Forget { .. } => {}
            }
        }
        assert_eq!(redirtied, 2);
        assert_eq!(asked >= 3, again, "{mode:?}: {asked} requests");
        assert_eq!(now < 10_000_000_000, again, "{mode:?}: {now} ns");
    }
}
