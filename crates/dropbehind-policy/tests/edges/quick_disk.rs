//! A disk that answers at once, and time that passes when told to.

use dropbehind_policy::residency::ResidencyMap;
use dropbehind_policy::{
    Action, ByteRange, Counted, Disk, DiskConfig, Dropped, Inspected, Next, Reason, StreamConfig,
    StreamId,
};

pub(crate) const PAGE: u64 = 4096;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const ID: StreamId = StreamId(7);

pub(crate) fn absent() -> ResidencyMap {
    let mut map = ResidencyMap::unknown();
    map.observed(ByteRange::WHOLE, []);
    map
}

pub(crate) fn disk_with(config: StreamConfig) -> Disk {
    let mut disk = Disk::new(DiskConfig::default());
    disk.opened(ID, config, absent());
    disk
}

/// Answers every action as if the disk were infinitely fast, for as long as
/// something is due at `now`; answers the actions.
pub(crate) fn settle(disk: &mut Disk, now: u64, unlinked: bool) -> Vec<Action> {
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
            Action::StartWriteback { .. } | Action::Forget { .. } => {}
        }
    }
    actions
}

/// All of these ranges went.
pub(crate) fn gone(ranges: &[ByteRange]) -> impl Iterator<Item = (ByteRange, Dropped)> + '_ {
    ranges.iter().map(|range| {
        let gone = Dropped::Tried {
            before_bytes: Some(range.len()),
            after_bytes: 0,
        };
        (*range, gone)
    })
}

/// Lets time pass until nothing is left to do.
pub(crate) fn settle_all(disk: &mut Disk, mut now: u64) -> Vec<Action> {
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

pub(crate) fn requests(actions: &[Action]) -> Vec<(ByteRange, Reason)> {
    let request = |action: &Action| match *action {
        Action::StartWriteback { range, reason, .. } => Some((range, reason)),
        _ => None,
    };
    actions.iter().filter_map(request).collect()
}
