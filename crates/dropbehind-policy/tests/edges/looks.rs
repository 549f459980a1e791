//! When observed files are looked at.

use std::cell::{Cell, RefCell};

use crate::quick_disk::{MIB, PAGE, absent, requests, settle};
use dropbehind_policy::observed_stream::{LOOK_MIN_NS, ProvenanceKind};
use dropbehind_policy::range_set::RangeSet;
use dropbehind_policy::{
    Action, Brought, ByteRange, Counted, Disk, DiskConfig, Mode, Next, ObservedStream,
    ObservedStreamConfig, Pages, StreamConfig, StreamId,
};

const MS: u64 = 1_000_000;

/// The stream of an observed file, with the number 0.
fn observed(mode: Mode, provenance: ProvenanceKind, size_bytes: u64) -> ObservedStream {
    ObservedStream::new(ObservedStreamConfig {
        id: StreamId(0),
        mode,
        reads: true,
        provenance,
        size_bytes,
        block_device: false,
        only_written: false,
        written_from: u64::MAX,
        lag_bytes: 16 * MIB,
        page_bytes: PAGE,
    })
}

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

    fn is_deleted(&self) -> bool {
        false
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
            observed: true,
            ..StreamConfig::default()
        };
        disk.opened(id, config, absent());
        disk.wrote(1, id, ByteRange::new(0, 4 * MIB), Mode::DONTCACHE);
        disk.written_until(1, id, 4 * MIB);
    }
    while let Next::Do(_) = disk.next(1) {}
    let stream = observed(Mode::DONTCACHE, ProvenanceKind::Traced, 0);
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

/// A file whose first bytes are cached, of which these are dirty.
struct Dirty {
    now_ns: u64,
    dirty: ByteRange,
    is_deleted: bool,
}

impl Pages for Dirty {
    fn size_bytes(&self) -> Option<u64> {
        Some(8 * MIB)
    }

    fn count(&self, range: ByteRange) -> Option<Counted> {
        Some(Counted {
            cached_bytes: range.intersection(ByteRange::new(0, 8 * MIB)).len(),
            dirty_bytes: range.intersection(self.dirty).len(),
            ..Counted::default()
        })
    }

    fn is_deleted(&self) -> bool {
        self.is_deleted
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn processor_ns(&self) -> u64 {
        0
    }
}

const fn mib(start: u64, end: u64) -> ByteRange {
    ByteRange::new(start * MIB, end * MIB)
}

/// A file of 8 MiB that is overwritten, so that the kernel writes it. Looks at it from this second
/// on, while a range is dirty, and returns what is counted as written then.
fn overwritten(provenance: ProvenanceKind) -> impl FnMut(u64, ByteRange) -> u64 {
    let mut disk = Disk::new(DiskConfig::default());
    let id = StreamId(0);
    let config = StreamConfig {
        traced: provenance == ProvenanceKind::Traced,
        observed: true,
        size_bytes: 8 * MIB,
        ..StreamConfig::default()
    };
    disk.opened(id, config, absent());
    let mut stream = observed(Mode::WRITE_BEHIND, provenance, 8 * MIB);
    move |now_s, dirty| {
        for now_ms in [0, 300, 600] {
            let now_ns = (now_s * 1000 + now_ms) * MS;
            let pages = Dirty {
                now_ns,
                dirty,
                is_deleted: false,
            };
            stream.look(&mut disk, &pages);
        }
        stream.counts().written_bytes
    }
}

/// The stream forgets what it leaves to the kernel, if that is to stay.
#[test]
fn what_stays_dirty_is_counted_as_written_once() {
    for provenance in [
        ProvenanceKind::Traced,
        ProvenanceKind::ResidentAtOpen {
            cached_bytes: 8 * MIB,
            unwritten_bytes: 0,
        },
    ] {
        let mut written_bytes = overwritten(provenance);
        assert_eq!(written_bytes(1, mib(0, 2)), 2 * MIB, "{provenance:?}");
        assert_eq!(written_bytes(2, mib(0, 4)), 4 * MIB, "{provenance:?}");
        // The kernel has written some of it.
        assert_eq!(written_bytes(3, mib(3, 4)), 4 * MIB, "{provenance:?}");
        assert_eq!(written_bytes(4, mib(0, 4)), 7 * MIB, "{provenance:?}");
    }
}

/// What others wrote before the open counts as theirs only until the kernel has written it.
#[test]
fn what_is_written_where_others_wrote_before_is_counted() {
    let mut written_bytes = overwritten(ProvenanceKind::ResidentAtOpen {
        cached_bytes: 8 * MIB,
        unwritten_bytes: 4 * MIB,
    });
    // The kernel has written all of it before the first look.
    assert_eq!(written_bytes(1, mib(0, 0)), 0);
    assert_eq!(written_bytes(2, mib(0, 3)), 3 * MIB);
    assert_eq!(written_bytes(3, mib(0, 0)), 3 * MIB);
    assert_eq!(written_bytes(4, mib(0, 4)), 7 * MIB);
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

/// A file of 8 MiB that was closed while a range of it waits for a decision.
fn closed_while_some_waits(range: ByteRange) -> (Disk, ObservedStream) {
    let mut disk = Disk::new(DiskConfig::default());
    let config = StreamConfig {
        traced: true,
        observed: true,
        ..StreamConfig::default()
    };
    disk.opened(StreamId(0), config, absent());
    let mut stream = observed(Mode::AUTO, ProvenanceKind::Traced, 8 * MIB);
    let held = Brought {
        held: true,
        ..Brought::new(range, true)
    };
    stream.brought(1, &mut disk, [held]);
    stream.closed(false);
    (disk, stream)
}

/// Something of it still waits for a decision. Its next reader has all that is read ahead for it
/// dropped otherwise, again and again.
#[test]
fn what_is_read_ahead_after_another_open_is_not_dropped_before_it_is_read() {
    let (mut disk, mut stream) = closed_while_some_waits(mib(0, 4));
    let mut pages = Dirty {
        now_ns: 10_000 * MS,
        dirty: mib(0, 0),
        is_deleted: false,
    };
    stream.look(&mut disk, &pages);
    stream.reopened(pages.now_ns, &mut disk);
    stream.brought(pages.now_ns, &mut disk, [Brought::new(mib(4, 8), true)]);
    for _ in 0..10 {
        pages.now_ns += MS;
        stream.look(&mut disk, &pages);
        let actions = settle(&mut disk, pages.now_ns, false);
        let drops = actions
            .iter()
            .find(|action| matches!(action, Action::Drop { .. }));
        assert_eq!(drops, None);
    }
    stream.closed(false);
    pages.now_ns += MS;
    stream.look(&mut disk, &pages);
    pages.now_ns += 100 * MS;
    let actions = settle(&mut disk, pages.now_ns, false);
    let dropped_bytes = actions.iter().map(|action| match action {
        Action::Drop { ranges, .. } => ranges.iter().map(|range| range.len()).sum(),
        _ => 0,
    });
    assert_eq!(dropped_bytes.sum::<u64>(), 4 * MIB);
}

/// Nothing is done with it that would show that, and its pages are gone.
#[test]
fn what_waits_for_a_decision_does_so_until_it_is_deleted() {
    let id = StreamId(0);
    let (mut disk, mut stream) = closed_while_some_waits(mib(0, 8));
    let mut pages = Dirty {
        now_ns: MS,
        dirty: mib(0, 0),
        is_deleted: false,
    };
    for (is_deleted, bytes) in [(false, 8 * MIB), (true, 0)] {
        pages.now_ns += 10_000 * MS;
        pages.is_deleted = is_deleted;
        stream.look(&mut disk, &pages);
        let brought_bytes = disk.stream(id).map(|stream| stream.brought_bytes());
        assert_eq!(brought_bytes, Some(bytes));
    }
    while !matches!(disk.next(pages.now_ns), Next::Idle) {}
    assert!(disk.stream(id).is_none(), "it is done with");
}

/// Its pages stay dirty for as long as we hold it.
#[test]
fn what_was_written_before_a_deletion_is_counted_once() {
    let mut disk = Disk::new(DiskConfig::default());
    let id = StreamId(0);
    let config = StreamConfig {
        traced: true,
        observed: true,
        ..StreamConfig::default()
    };
    disk.opened(id, config, absent());
    let mut stream = observed(Mode::DONTCACHE, ProvenanceKind::Traced, 8 * MIB);
    stream.brought(1, &mut disk, [Brought::new(mib(0, 8), true)]);
    stream.closed(true);
    let mut pages = Dirty {
        now_ns: MS,
        dirty: mib(0, 8),
        is_deleted: true,
    };
    for _ in 0..3 {
        pages.now_ns += 10_000 * MS;
        stream.look(&mut disk, &pages);
        stream.flush();
        assert_eq!(stream.counts().written_bytes, 8 * MIB);
    }
}

/// A cached file of 96 MiB that a program writes.
struct Written {
    now_ns: Cell<u64>,
    dirty: RefCell<RangeSet>,
}

impl Pages for Written {
    fn size_bytes(&self) -> Option<u64> {
        Some(96 * MIB)
    }

    fn count(&self, range: ByteRange) -> Option<Counted> {
        Some(Counted {
            cached_bytes: range.len(),
            dirty_bytes: self.dirty.borrow().bytes_of(range),
            ..Counted::default()
        })
    }

    fn is_deleted(&self) -> bool {
        false
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn processor_ns(&self) -> u64 {
        0
    }
}

/// What is dirty of a file that is written behind its writer once it has been looked at ten times,
/// of so many bytes every so many.
fn left_dirty(bytes: u64, every_bytes: u64) -> u64 {
    let mut disk = Disk::new(DiskConfig::default());
    let id = StreamId(0);
    let config = StreamConfig {
        traced: true,
        observed: true,
        size_bytes: 96 * MIB,
        ..StreamConfig::default()
    };
    disk.opened(id, config, absent());
    let mut stream = observed(Mode::WRITE_BEHIND_ANY, ProvenanceKind::Traced, 96 * MIB);
    let mut dirty = RangeSet::new();
    for start in (0..96 * MIB).step_by(usize::try_from(every_bytes).unwrap()) {
        dirty.insert(ByteRange::new(start, start + bytes));
    }
    let pages = Written {
        now_ns: Cell::new(1),
        dirty: RefCell::new(dirty),
    };
    for _ in 0..10 {
        pages.now_ns.set(pages.now_ns() + 300 * MS);
        stream.look(&mut disk, &pages);
        let actions = settle(&mut disk, pages.now_ns(), false);
        for (range, _) in requests(&actions) {
            pages.dirty.borrow_mut().remove(range);
        }
    }
    pages.dirty.borrow().bytes()
}

/// What lies between was found and sent before. Each piece is less than a window.
#[test]
fn long_pieces_that_looks_find_apart_are_sent() {
    assert!(left_dirty(14 * MIB, 32 * MIB) <= 14 * MIB);
    assert!(left_dirty(8 * MIB, 20 * MIB) <= 8 * MIB);
}

#[test]
fn random_writes_that_looks_find_are_left_to_the_kernel() {
    assert_eq!(left_dirty(MIB / 2, 32 * MIB), 3 * MIB / 2);
    assert_eq!(left_dirty(MIB / 8, MIB / 2), 24 * MIB);
    // A search finds pieces of 128 KiB.
    assert_eq!(left_dirty(PAGE, MIB / 8), 96 * 8 * PAGE);
}
