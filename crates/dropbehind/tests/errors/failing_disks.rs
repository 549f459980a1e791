//! Disks that vanish, cannot read a place, or write nothing.

use std::fs;

use dropbehind::Mode;
use dropbehind::flusher::Flusher;
use dropbehind_testbed::slow_disk::Failing;
use dropbehind_testbed::{Fs, Need, SlowDisk, SlowDiskOptions, need, pattern, residency};

use crate::common::{KIB, MIB, PATIENCE, write_pattern};
use crate::twins::{Log, Side, open_plain};

fn slow_disk() -> SlowDisk {
    SlowDisk::new(SlowDiskOptions {
        size_bytes: 128 * MIB,
        ..SlowDiskOptions::default()
    })
    .unwrap()
}

fn vanishing(side: Side, filesystem: Option<Fs>) -> Log {
    let disk = slow_disk();
    let mounted = filesystem.map(|filesystem| disk.mount(filesystem).unwrap());
    let path = mounted
        .as_ref()
        .map_or(disk.device().to_owned(), |mounted| mounted.file("data"));
    if mounted.is_some() {
        fs::File::create(&path).unwrap();
    }
    let mut log = Log::default();
    let mut file = side.open(&path);
    let block = vec![4; MIB as usize];
    for _ in 0..4 {
        log.note("write", file.write(&block));
    }
    log.note_done("sync while it is there", file.sync_all());
    for step in 0..8 {
        log.note("write", file.write(&block));
        if step == 3 {
            disk.vanish().unwrap();
        }
    }
    log.note_done("sync when it is gone", file.sync_all());
    file.settle();
    log.note_done("second sync", file.sync_all());
    let flusher = Flusher::shared().unwrap();
    drop(file);
    assert!(flusher.drain(PATIENCE));
    log
}

fn a_vanished_disk_is_noticed_by_the_same_calls(filesystem: Option<Fs>) {
    need!(all SlowDisk::needs());
    need!(Need::Cachestat);
    need!(all filesystem.into_iter().flat_map(Fs::needs));
    let plain = vanishing(Side::Plain, filesystem);
    assert!(plain.errors() >= 1, "{plain:?}");
    for mode in [Mode::DONTCACHE, Mode::WRITE_BEHIND_ANY, Mode::NOREUSE] {
        assert_eq!(vanishing(Side::Ours(mode), filesystem), plain, "{mode}");
    }
}

#[test]
fn a_vanished_raw_device_is_noticed_by_the_same_calls() {
    a_vanished_disk_is_noticed_by_the_same_calls(None);
}

#[test]
fn a_vanished_disk_below_ext4_is_noticed_by_the_same_calls() {
    a_vanished_disk_is_noticed_by_the_same_calls(Some(Fs::Ext4NoJournal));
}

#[test]
fn a_bad_spot_on_the_disk_fails_the_read_and_nothing_else() {
    need!(all SlowDisk::needs());
    let disk = slow_disk();
    let mut file = open_plain(disk.device());
    write_pattern(&mut file, 1, 0, 16 * MIB, MIB);
    file.sync_all().unwrap();
    let bad = 9 * MIB..9 * MIB + 4 * KIB;
    disk.add_bad_range(bad.clone()).unwrap();
    for block_bytes in [4 * KIB, 64 * KIB, 3 * MIB] {
        let read_up = |side: Side| {
            residency::evict(disk.device());
            let file = side.open(disk.device());
            let mut block = vec![0; block_bytes as usize];
            let mut offset = 0;
            let error = loop {
                match file.read_at(&mut block, offset) {
                    Ok(0) => panic!("the end, past the bad spot"),
                    Ok(count) => {
                        pattern::check(1, offset, &block[..count]).unwrap();
                        offset += count as u64;
                    }
                    Err(error) => break error,
                }
            };
            let count = file.read_at(&mut block, 12 * MIB).unwrap();
            pattern::check(1, 12 * MIB, &block[..count]).unwrap();
            file.settle();
            (error.raw_os_error(), offset)
        };
        let (error, plain_offset) = read_up(Side::Plain);
        assert_eq!(error, Some(libc::EIO));
        let (error, offset) = read_up(Side::Ours(Mode::DONTCACHE));
        assert_eq!(error, Some(libc::EIO));
        // A page fails together with its folio, and ours may be smaller.
        assert!((plain_offset..=bad.start).contains(&offset), "{offset}");
    }
}

#[test]
fn a_disk_that_fails_all_writes_holds_nobody_up() {
    need!(all SlowDisk::needs());
    need!(Need::Cachestat);
    let write = |side: Side| {
        let disk = slow_disk();
        let mut file = side.open(disk.device());
        disk.fail(Failing::Writes).unwrap();
        let mut log = Log::default();
        for _ in 0..48 {
            log.note("write", file.write(&vec![1; MIB as usize]));
        }
        log.note_done("sync", file.sync_all());
        file.settle();
        disk.fail(Failing::Nothing).unwrap();
        log.note("write", file.write(&[2; 5000]));
        log.note_done("sync", file.sync_all());
        log
    };
    let plain = write(Side::Plain);
    assert!(plain.errors() >= 1, "{plain:?}");
    for side in Side::ours() {
        assert_eq!(write(side), plain, "{side:?}");
    }
}

/// Writes so little that nothing is counted before the sync, which consumes the error.
#[test]
fn what_a_sync_could_not_write_is_read_back() {
    need!(all SlowDisk::needs());
    let disk = slow_disk();
    let _second_opener = open_plain(disk.device());
    disk.fail(Failing::Writes).unwrap();
    for side in [Side::Plain, Side::Ours(Mode::DONTCACHE)] {
        let mut file = side.open(disk.device());
        let mut data = pattern::filled(3, 0, 64 * KIB as usize);
        file.write_all(&data).unwrap();
        file.sync_all().unwrap_err();
        file.settle();
        file.read_at(&mut data, 0).unwrap();
        pattern::check(3, 0, &data).unwrap_or_else(|wrong| panic!("{side:?}: {wrong:?}"));
        // The next file must find the disk as it was.
        disk.fail(Failing::Nothing).unwrap();
        residency::evict(disk.device());
        disk.fail(Failing::Writes).unwrap();
    }
}
