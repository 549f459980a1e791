//! When observed files are looked at.

use std::cell::Cell;

use crate::quick_disk::{MIB, PAGE, absent};
use dropbehind_policy::observed_stream::{LOOK_MIN_NS, ProvenanceKind};
use dropbehind_policy::{
    ByteRange, Counted, Disk, DiskConfig, Mode, Next, ObservedStream, ObservedStreamConfig, Pages,
    StreamConfig, StreamId,
};

const MS: u64 = 1_000_000;

/// A file that grows with each look.
struct Growing {
    now_ns: u64,
    looks: Cell<u64>,
}

impl Pages for Growing {
    fn size_bytes(&self) -> Option<u64> {
        self.looks.set(self.looks.get() + 1);
        Some(self.looks.get() * MIB)
    }

    fn count(&self, _: ByteRange) -> Option<Counted> {
        Some(Counted::default())
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn processor_ns(&self) -> u64 {
        0
    }
}

/// A disk that so many streams wait for, and the first of them, as observed.
fn waited_for(streams: u64) -> (Disk, ObservedStream) {
    let mut disk = Disk::new(DiskConfig::default());
    for number in 0..streams {
        let id = StreamId(number);
        let config = StreamConfig {
            traced: true,
            ..StreamConfig::default()
        };
        disk.opened(1, id, config, absent());
        disk.wrote(1, id, ByteRange::new(0, 4 * MIB), Mode::DONTCACHE);
        disk.told(1, id, 4 * MIB);
    }
    while let Next::Do(_) = disk.next(1) {}
    let stream = ObservedStream::new(ObservedStreamConfig {
        id: StreamId(0),
        mode: Mode::DONTCACHE,
        reads: true,
        provenance: ProvenanceKind::Traced,
        size_bytes: 0,
        block_device: false,
        lag_bytes: 16 * MIB,
        page_bytes: PAGE,
    });
    (disk, stream)
}

/// When the file is next looked at, after a look and a use one millisecond later.
fn next_look_ns(streams: u64, closed: bool) -> u64 {
    let (mut disk, mut stream) = waited_for(streams);
    let pages = Growing {
        now_ns: 1,
        looks: Cell::new(0),
    };
    stream.look(&mut disk, &pages);
    assert!(stream.next_look_ns() > LOOK_MIN_NS);
    if closed {
        stream.closed(false);
    }
    stream.touched(MS);
    stream.next_look_ns()
}

#[test]
fn many_files_that_wait_for_a_disk_are_looked_at_in_turn() {
    assert!(next_look_ns(1, false) <= LOOK_MIN_NS);
    assert!(next_look_ns(32, false) >= 32 * MS / 2);
    assert!(next_look_ns(10_000, false) <= 200 * MS + 1);
}

#[test]
fn a_closed_file_does_not_wait_for_its_turn() {
    assert!(next_look_ns(32, true) <= LOOK_MIN_NS);
}
