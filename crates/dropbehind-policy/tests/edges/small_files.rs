//! Small files that wait together.

use crate::quick_disk::{PAGE, absent, requests, settle, settle_all};
use dropbehind_policy::grace::{SMALL_FILES_BYTES, SMALL_FILES_COUNT};
use dropbehind_policy::{
    Action, ByteRange, Disk, DiskConfig, Mode, Reason, StreamConfig, StreamId,
};

#[test]
fn beyond_the_budget_the_oldest_small_files_are_written_and_no_others_looked_at() {
    const OVER: u64 = 44;
    let count = SMALL_FILES_COUNT as u64 + OVER;
    let mut disk = Disk::new(DiskConfig::default());
    let mut actions = Vec::new();
    for number in 0..count {
        // Identifiers that fall, so that age is not told by them.
        let id = StreamId(count - number);
        disk.opened(id, StreamConfig::default(), absent());
        disk.wrote(1, id, ByteRange::new(0, PAGE), Mode::DONTCACHE);
        disk.written_until(1, id, PAGE);
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
    disk.opened(newcomer, StreamConfig::default(), absent());
    disk.wrote(2, newcomer, ByteRange::new(0, PAGE), Mode::DONTCACHE);
    disk.closed(2, newcomer);
    assert_eq!(requests(&settle(&mut disk, 2, false)), []);
    let rest = requests(&settle_all(&mut disk, 3));
    assert_eq!(rest.len(), SMALL_FILES_COUNT + 1);
    assert!(rest.iter().all(|(_, reason)| *reason != Reason::Budget));
}

#[test]
fn what_small_files_have_together_is_bounded_as_well() {
    const EACH_BYTES: u64 = 128 * PAGE;
    let budget = SMALL_FILES_BYTES / EACH_BYTES;
    let mut disk = Disk::new(DiskConfig::default());
    let mut close = |number: u64| {
        let id = StreamId(number);
        disk.opened(id, StreamConfig::default(), absent());
        disk.wrote(1, id, ByteRange::new(0, EACH_BYTES), Mode::DONTCACHE);
        disk.closed(1, id);
        requests(&settle(&mut disk, 1, false)).len()
    };
    assert!((0..budget).all(|number| close(number) == 0));
    assert_eq!(close(budget), 1);
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
        disk.opened(id, StreamConfig::default(), absent());
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
