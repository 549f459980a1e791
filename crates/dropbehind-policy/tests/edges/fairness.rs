//! Nobody waits for ever for somebody else.

use crate::quick_disk::{ID, MIB, PAGE, absent, disk_with, gone, requests, settle};
use dropbehind_policy::{
    Action, ByteRange, Counted, Disk, DiskConfig, Inspected, Mode, Next, StreamConfig, StreamId,
};

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
        disk.written_until(now, ID, written);
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
        disk.opened(id, StreamConfig::default(), absent());
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

/// Another program writes and syncs the same pages all the time: at each look
/// some are under writeback, but never for long the same ones.
#[test]
fn another_programs_writeback_holds_nobody_up_for_ever() {
    let mut disk = disk_with(StreamConfig::default());
    disk.wrote(2, ID, ByteRange::new(0, MIB), Mode::WRITE_THROUGH);
    disk.written_until(2, ID, MIB);
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

/// Whoever writes a folder of files would else have all of it unwritten: nobody waits for a
/// closed file.
#[test]
fn what_closed_files_have_on_the_way_leaves_less_room() {
    let mut disk = Disk::new(DiskConfig::default());
    let write = |disk: &mut Disk, id, bytes| {
        disk.opened(id, StreamConfig::default(), absent());
        disk.wrote(2, id, ByteRange::new(0, bytes), Mode::WRITE_BEHIND);
        disk.written_until(2, id, bytes);
    };
    let window = DiskConfig::default().window_bytes;
    for number in 1..=10 {
        write(&mut disk, StreamId(number), 30 * MIB);
        disk.closed(2, StreamId(number));
    }
    while let Next::Do(action) = disk.next(3) {
        match action {
            Action::Count { stream, range } => {
                let counted = Counted {
                    cached_bytes: range.len(),
                    dirty_bytes: 0,
                    writeback_bytes: range.len(),
                };
                disk.counted(3, stream, range, counted);
            }
            Action::Inspect { stream } => {
                disk.inspected(3, stream, Inspected { unlinked: false });
            }
            _ => {}
        }
    }
    write(&mut disk, StreamId(11), MIB);
    let room = disk.limit_bytes(StreamId(11));
    assert!(room < window / 2, "{room}");
}
