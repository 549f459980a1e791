//! Extreme numbers, and very many of something.

use crate::quick_disk::{ID, MIB, PAGE, absent, disk_with, requests, settle_all};
use dropbehind_policy::grace::AGE_NS;
use dropbehind_policy::{ByteRange, Disk, DiskConfig, Mode, Next, Reason, StreamConfig, StreamId};

#[test]
fn a_thousand_idle_streams_cost_nothing() {
    let mut disk = Disk::new(DiskConfig::default());
    for number in 0..1000 {
        let id = StreamId(number);
        disk.opened(id, StreamConfig::default(), absent());
        disk.wrote(1, id, ByteRange::new(0, PAGE), Mode::DONTCACHE);
        disk.written_until(1, id, PAGE);
    }
    settle_all(&mut disk, 2);
    // What is below a drop's worth waits for more, or for the close.
    assert_eq!(disk.next(u64::MAX), Next::Idle);
    disk.wrote(3, ID, ByteRange::new(0, 4 * MIB), Mode::DONTCACHE);
    for action in settle_all(&mut disk, 4) {
        assert_eq!(action.stream(), ID);
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
        disk.written_until(2, ID, count * 100);
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
    for bits in 0..12 {
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
                    disk.written_until(2, ID, 20 * MIB);
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
    assert_eq!(disk.next(u64::MAX), Next::Idle);
}

#[test]
fn a_page_written_a_million_times_holds_nobody_up() {
    let mut disk = disk_with(StreamConfig::default());
    let mut written = 0;
    for round in 0..1000_u64 {
        let now = 2 + round * 1000;
        written += 1000 * PAGE;
        disk.wrote(now, ID, ByteRange::new(0, PAGE), Mode::DONTCACHE);
        disk.written_until(now, ID, written);
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
    disk.written_until(2, ID, pages);
    let done = disk.stream(ID).expect("open").done_bytes();
    assert!(
        pages - done > disk.limit_bytes(ID),
        "three windows are dirty, and the writer has to wait"
    );
    settle_all(&mut disk, 3);
    let done = disk.stream(ID).expect("open").done_bytes();
    assert!(pages - done <= disk.limit_bytes(ID), "and then no more");
}
