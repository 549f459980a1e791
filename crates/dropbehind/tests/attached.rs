//! Files that a program drives with a ring of its own, and reports.

mod common;

use common::{Kind, MIB, PATIENCE, Place, cached_bytes, check_on_disk};
use dropbehind::{Attached, Mode, OpenOptions};
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::{Fs, need, pattern, residency};
use io_uring::{IoUring, opcode, squeue, types};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

const BLOCK: u64 = 64 << 10;
const BLOCKS: u64 = 512;
const SIZE: u64 = BLOCK * BLOCKS;
const DEPTH: usize = 16;

/// Every block once, far from the last one.
fn scattered() -> impl Iterator<Item = u64> {
    (0..BLOCKS).map(|number| number * 389 % BLOCKS * BLOCK)
}

/// Submits what `entry` makes of each offset and its buffer, some at a time, and tells `done` of
/// each result.
fn drive(
    offsets: impl Iterator<Item = u64>,
    mut entry: impl FnMut(u64, &mut Vec<u8>) -> squeue::Entry,
    mut done: impl FnMut(u64, i32, &[u8]),
) {
    let mut ring = IoUring::new(DEPTH as u32).unwrap();
    let mut buffers = vec![vec![0; BLOCK as usize]; DEPTH];
    let mut in_flight = vec![None; DEPTH];
    let mut offsets = offsets.peekable();
    loop {
        while let Some(free) = in_flight.iter().position(Option::is_none)
            && let Some(offset) = offsets.next()
        {
            let entry = entry(offset, &mut buffers[free]).user_data(free as u64);
            in_flight[free] = Some(offset);
            // SAFETY: the buffer is neither moved nor touched before the completion.
            unsafe { ring.submission().push(&entry) }.unwrap();
        }
        if in_flight.iter().all(Option::is_none) {
            return;
        }
        ring.submit_and_wait(1).unwrap();
        for completion in ring.completion() {
            let number = completion.user_data() as usize;
            let offset = in_flight[number].take().unwrap();
            done(offset, completion.result(), &buffers[number]);
        }
    }
}

fn write_all(file: &Attached<&File>) {
    let fd = types::Fd(file.get_ref().as_raw_fd());
    drive(
        scattered(),
        |offset, buffer| {
            pattern::fill(1, offset, buffer);
            let write = opcode::Write::new(fd, buffer.as_ptr(), BLOCK as u32);
            write.offset(offset).build()
        },
        |offset, result, _| {
            assert_eq!(result, BLOCK as i32);
            if file.wrote(offset, BLOCK) {
                file.wait_for_room();
            }
        },
    );
}

fn read_all(file: &Attached<&File>) {
    let fd = types::Fd(file.get_ref().as_raw_fd());
    let readings = std::cell::RefCell::new(std::collections::HashMap::new());
    drive(
        scattered(),
        |offset, buffer| {
            let reading = file.will_read(offset, BLOCK);
            readings.borrow_mut().insert(offset, reading);
            let read = opcode::Read::new(fd, buffer.as_mut_ptr(), BLOCK as u32);
            read.offset(offset).build()
        },
        |offset, result, buffer| {
            assert_eq!(result, BLOCK as i32);
            pattern::check(1, offset, buffer).unwrap();
            let reading = readings.borrow_mut().remove(&offset).unwrap();
            file.read_done(reading);
        },
    );
}

fn kinds() -> [Kind; 4] {
    let [ext4, xfs, btrfs] = [Fs::Ext4, Fs::Xfs, Fs::Btrfs].map(Kind::Mounted);
    [ext4, xfs, btrfs, Kind::RawDevice]
}

fn open(place: &Place) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(!place.is_raw());
    options.open(place.path()).unwrap()
}

fn dontcache() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.cache_mode(Mode::DONTCACHE).random(true);
    options
}

#[test]
fn what_a_ring_writes_is_written_and_goes() {
    for kind in kinds() {
        need!(all kind.needs());
        let place = Place::new(kind, SIZE);
        let file = open(&place);
        let attached = dontcache().attach(&file).unwrap();
        write_all(&attached);
        attached.synced(file.sync_all()).unwrap();
        assert!(attached.settle(PATIENCE));
        assert_eq!(
            cached_bytes(&place.path()),
            0,
            "{kind:?}: {:?}",
            attached.stats()
        );
        let stats = attached.stats();
        assert_eq!(stats.bytes_written, SIZE);
        assert!(stats.writeback_bytes.total() > 0, "{stats:?}");
        attached.detach();
        check_on_disk(&place.path(), 1, SIZE);
    }
}

/// Only the kernel knows where each went, and it finishes them in any order.
#[test]
fn what_a_ring_appends_is_written_and_goes() {
    for kind in [Fs::Ext4, Fs::Xfs, Fs::Btrfs].map(Kind::Mounted) {
        need!(all kind.needs());
        let place = Place::new(kind, SIZE);
        let mut options = File::options();
        let file = options.append(true).create(true).open(place.path());
        let file = file.unwrap();
        let attached = dontcache().attach(&file).unwrap();
        write_all(&attached);
        attached.synced(file.sync_all()).unwrap();
        assert!(attached.settle(PATIENCE));
        let stats = attached.stats();
        assert_eq!(cached_bytes(&place.path()), 0, "{kind:?}: {stats:?}");
        assert_eq!((stats.bytes_written, stats.brought_bytes), (SIZE, SIZE));
        assert_eq!(file.metadata().unwrap().len(), SIZE);
    }
}

#[test]
fn what_a_ring_reads_goes_and_what_was_cached_stays() {
    for kind in kinds() {
        need!(all kind.needs());
        let place = Place::new(kind, SIZE);
        let path = place.cold_file(1);
        let file = open(&place);
        in_some_attempt(|reclaim| {
            residency::evict(&path);
            residency::warm(&path, 0..SIZE / 4);
            let attached = dontcache().attach(&file).unwrap();
            read_all(&attached);
            assert!(attached.settle(PATIENCE));
            drop(attached);
            let map = residency::resident_map(&path).unwrap();
            let hot = (SIZE / 4 / residency::page_bytes()) as usize;
            let stays = map[hot..].iter().filter(|&&page| page).count();
            assert_eq!(stays, 0, "{kind:?}");
            let found = map[..hot].iter().filter(|&&page| page).count() as u64;
            reclaim.stays(&path, found * residency::page_bytes(), SIZE / 4)
        });
    }
}

/// Far more reads end at once than the ring of reports holds.
#[test]
fn many_reads_of_a_written_file_that_end_at_once_leave_nothing() {
    const PIECE: u64 = 4 << 10;
    let kind = Kind::Mounted(Fs::Ext4);
    need!(all kind.needs());
    let place = Place::new(kind, SIZE);
    let file = open(&place);
    let attached = dontcache().attach(&file).unwrap();
    let offsets = || (0..SIZE / PIECE).map(|number| number * 4099 % (SIZE / PIECE) * PIECE);
    for offset in offsets() {
        let data = pattern::filled(1, offset, PIECE as usize);
        file.write_all_at(&data, offset).unwrap();
        if attached.wrote(offset, PIECE) {
            attached.wait_for_room();
        }
    }
    attached.synced(file.sync_all()).unwrap();
    // Two threads report at once.
    std::thread::scope(|scope| {
        for parity in [0, 1] {
            let (attached, file) = (&attached, &file);
            scope.spawn(move || {
                let mut data = vec![0; PIECE as usize];
                let mine: Vec<u64> = offsets()
                    .filter(|offset| offset / PIECE % 2 == parity)
                    .collect();
                for some in mine.chunks(2048) {
                    let mut readings = Vec::new();
                    for offset in some {
                        readings.push(attached.will_read(*offset, PIECE));
                        file.read_exact_at(&mut data, *offset).unwrap();
                        pattern::check(1, *offset, &data).unwrap();
                    }
                    for reading in readings {
                        attached.read_done(reading);
                    }
                }
            });
        }
    });
    assert!(attached.settle(PATIENCE));
    assert_eq!(cached_bytes(&place.path()), 0, "{:?}", attached.stats());
}

/// The program goes on with its own descriptor, and the flusher with what was reported.
#[test]
fn what_was_reported_is_finished_after_the_end() {
    let kind = Kind::Mounted(Fs::Ext4);
    need!(all kind.needs());
    let place = Place::new(kind, SIZE);
    let flusher = dropbehind::flusher::Flusher::builder().build().unwrap();
    let file = open(&place);
    let attached = dontcache().flusher(&flusher).attach(&file).unwrap();
    write_all(&attached);
    drop(attached);
    assert!(flusher.drain(PATIENCE));
    assert_eq!(cached_bytes(&place.path()), 0);
    assert_eq!(flusher.stats().dropped_bytes, SIZE);
    assert_eq!(file.metadata().unwrap().len(), SIZE, "it is still open");
}

/// Its pages are in use until the program closes it, too.
#[test]
fn of_a_nameless_file_that_is_given_back_nothing_stays_either() {
    let kind = Kind::Mounted(Fs::Ext4);
    need!(all kind.needs());
    let place = Place::new(kind, SIZE);
    let flusher = dropbehind::flusher::Flusher::builder().build().unwrap();
    let file = open(&place);
    std::fs::remove_file(place.path()).unwrap();
    let attached = dontcache().flusher(&flusher).attach(&file).unwrap();
    write_all(&attached);
    attached.detach();
    assert!(flusher.drain(PATIENCE));
    let opened = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    assert_eq!(cached_bytes(opened.as_ref()), 0);
    assert_eq!(flusher.stats().dropped_bytes, SIZE);
}

/// Nobody can report the end of the read any more.
#[test]
fn a_read_that_was_only_announced_ends_with_the_file() {
    let kind = Kind::Mounted(Fs::Ext4);
    need!(all kind.needs());
    let place = Place::new(kind, SIZE);
    let flusher = dropbehind::flusher::Flusher::builder().build().unwrap();
    let file = open(&place);
    let attached = dontcache().flusher(&flusher).attach(&file).unwrap();
    let reading = attached.will_read(0, BLOCK);
    write_all(&attached);
    drop(reading);
    drop(attached);
    assert!(flusher.drain(PATIENCE), "{:?}", flusher.disks_stats());
    assert_eq!(cached_bytes(&place.path()), 0);
    assert_eq!(flusher.disks_stats()[0].files, 0);
}

/// A program reads with a buffer that is longer than the file.
#[test]
fn what_lies_behind_the_end_is_not_counted() {
    let kind = Kind::Mounted(Fs::Ext4);
    need!(all kind.needs());
    let place = Place::new(kind, BLOCK);
    let path = place.cold_file(1);
    let file = File::open(&path).unwrap();
    let attached = dontcache().attach(&file).unwrap();
    let mut data = vec![0; MIB as usize];
    let reading = attached.will_read(0, MIB);
    assert_eq!(file.read_at(&mut data, 0).unwrap() as u64, BLOCK);
    attached.read_done(reading);
    assert!(attached.settle(PATIENCE));
    assert_eq!(attached.stats().dropped_bytes, BLOCK);
    assert_eq!(cached_bytes(&path), 0);
}

#[test]
fn who_has_brought_nothing_in_drops_nothing() {
    let kind = Kind::Mounted(Fs::Ext4);
    need!(all kind.needs());
    let place = Place::new(kind, MIB);
    let path = place.cold_file(1);
    in_some_attempt(|reclaim| {
        residency::warm(&path, 0..MIB);
        let file = File::open(&path).unwrap();
        let attached = dontcache().attach(&file).unwrap();
        let ours = dontcache().read(true).open(&path).unwrap();
        for dropped in [
            attached.drop_behind(0..u64::MAX),
            ours.drop_behind(0..u64::MAX),
        ] {
            let dropped = dropped.unwrap();
            assert_eq!((dropped.dropped_bytes, dropped.left_bytes), (0, 0));
        }
        reclaim.stays(&path, cached_bytes(&path), MIB)
    });
}

/// Threads that share a position make such a report, too, if one of them seeks far away while another
/// one writes.
#[test]
fn a_report_of_far_more_than_was_written_holds_nobody_up() {
    for kind in [Kind::Mounted(Fs::Ext4), Kind::RawDevice] {
        need!(all kind.needs());
        let place = Place::new(kind, 16 * MIB);
        let mut file = open(&place);
        let attached = dontcache().attach(file.try_clone().unwrap()).unwrap();
        common::write_pattern(&mut file, 1, 0, 16 * MIB, MIB);
        attached.wrote(0, 1 << 43);
        assert!(attached.settle(PATIENCE));
        assert_eq!(cached_bytes(&place.path()), 0, "{kind:?}");
    }
}

#[test]
fn nothing_unreported_is_touched() {
    let kind = Kind::Mounted(Fs::Ext4);
    need!(all kind.needs());
    let place = Place::new(kind, 16 * MIB);
    let mut file = open(&place);
    let attached = dontcache().attach(file.try_clone().unwrap()).unwrap();
    common::write_pattern(&mut file, 1, 0, 16 * MIB, MIB);
    file.sync_all().unwrap();
    assert!(attached.settle(PATIENCE));
    assert_eq!(cached_bytes(&place.path()), 16 * MIB);
}
