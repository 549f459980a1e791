//! Disks that fill up: a file system without room, and one whose disk has less room than it
//! promised.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;

use dropbehind::flusher::Flusher;
use dropbehind::{File, Mode};
use dropbehind_testbed::reclaim::{Reclaim, in_some_attempt};
use dropbehind_testbed::slow_disk::Failing;
use dropbehind_testbed::{
    FailingDisk, Fs, MountedFs, Need, SlowDisk, SlowDiskOptions, need, pattern, residency,
};

use crate::common::{MIB, PATIENCE, read_pattern};
use crate::twins::{Log, Side, Twin, open_plain, open_to_ask};

/// More than a failing disk can hold.
const TOO_MUCH_BYTES: u64 = FailingDisk::REAL_BYTES + 24 * MIB;

fn write_too_much(file: &mut Twin) {
    let block = vec![7; MIB as usize];
    for _ in 0..TOO_MUCH_BYTES / MIB {
        // btrfs goes read-only as soon as it notices.
        if file.write_all(&block).is_err() {
            return;
        }
    }
}

/// Logs whether the writer's first sync failed, and that of a program that had the file open.
/// How many later syncs fail depends on metadata, which such a disk doesn't take either.
fn errors_of_a_full_disk(side: Side, filesystem: Option<Fs>) -> Log {
    let disk = match filesystem {
        Some(filesystem) => FailingDisk::formatted(filesystem).unwrap(),
        None => FailingDisk::raw().unwrap(),
    };
    let path = disk.file("data");
    if filesystem.is_some() {
        fs::File::create(&path).unwrap();
    }
    let mut log = Log::default();
    let earlier = open_to_ask(&path);
    let mut writer = side.open(&path);
    write_too_much(&mut writer);
    writer.settle();
    log.note_done("first sync", writer.sync_all());
    log.note_done("sync of one opened earlier", earlier.sync_all());
    log
}

fn a_full_disk_is_noticed_by_the_same_syncs(filesystem: Option<Fs>, modes: &[Mode]) {
    need!(all FailingDisk::needs(filesystem));
    need!(Need::Cachestat);
    let plain = errors_of_a_full_disk(Side::Plain, filesystem);
    assert_eq!(plain.errors(), 2, "{plain:?}");
    for &mode in modes {
        let ours = errors_of_a_full_disk(Side::Ours(mode), filesystem);
        assert_eq!(ours, plain, "{mode}");
    }
}

#[test]
fn a_full_disk_below_ext4_is_noticed_by_the_same_syncs_in_every_mode() {
    a_full_disk_is_noticed_by_the_same_syncs(Some(Fs::Ext4NoJournal), &Mode::ALL);
}

#[test]
fn a_full_disk_below_xfs_is_noticed_by_the_same_syncs() {
    a_full_disk_is_noticed_by_the_same_syncs(Some(Fs::Xfs), &[Mode::DONTCACHE]);
}

#[test]
fn a_full_disk_below_btrfs_is_noticed_by_the_same_syncs() {
    a_full_disk_is_noticed_by_the_same_syncs(Some(Fs::Btrfs), &[Mode::DONTCACHE]);
}

#[test]
fn a_full_disk_below_a_raw_device_is_noticed_by_the_same_syncs() {
    a_full_disk_is_noticed_by_the_same_syncs(None, &[Mode::DONTCACHE]);
}

/// Counts the blocks of old and new data that don't read back, while the program runs and
/// after it has ended, both together. Also returns whether a file opened later reports the
/// error, if the program itself never asks.
fn left_on_a_full_disk(
    side: Side,
    filesystem: Option<Fs>,
    reclaim: &Reclaim,
) -> (usize, u64, bool) {
    let disk = match filesystem {
        Some(filesystem) => FailingDisk::formatted(filesystem).unwrap(),
        None => FailingDisk::raw().unwrap(),
    };
    let path = disk.file("data");
    if filesystem.is_some() {
        fs::File::create(&path).unwrap();
    }
    // Part of the file was written before: btrfs has no room to overwrite that.
    let mut before = open_plain(&path);
    before
        .write_all(&vec![5; FailingDisk::REAL_BYTES as usize / 2])
        .unwrap();
    before.sync_all().unwrap();
    residency::evict(&path);
    let flusher = Flusher::builder().build().unwrap();
    // A raw device loses its cache and errors at its last close.
    let witness = open_to_ask(&path);
    let mut writer = side.open_with(&path, &flusher);
    write_too_much(&mut writer);
    writer.settle();
    // By now nothing is left to fail, and nobody has asked for an error.
    let buffered = File::from_std(open_plain(&path), Mode::BUFFERED).unwrap();
    buffered.wait_clean(0..u64::MAX).unwrap();
    drop(buffered);
    let wrong_blocks = || {
        let mut data = vec![0; MIB as usize];
        let wrong = (0..TOO_MUCH_BYTES).step_by(MIB as usize).filter(|&at| {
            let read = witness.read_exact_at(&mut data, at);
            read.is_err() || data.iter().any(|&byte| byte != 7)
        });
        wrong.count()
    };
    let mut wrong = wrong_blocks();
    drop(writer);
    assert!(flusher.drain(PATIENCE));
    let notes = flusher.degraded();
    let failed = notes.iter().any(|note| note.contains("writing back"));
    assert_eq!(failed, side != Side::Plain, "{notes:?}");
    wrong += wrong_blocks();
    let later = open_to_ask(&path);
    // ENOSPC of the data or EIO of the metadata, whichever came last.
    let taken_bytes = reclaim.bytes_of(&path).unwrap();
    (wrong, taken_bytes, later.sync_all().is_err())
}

fn what_a_full_disk_never_got_is_read_back(filesystem: Option<Fs>) {
    need!(all FailingDisk::needs(filesystem));
    need!(Need::Cachestat);
    in_some_attempt(|reclaim| {
        let (plain_wrong, _, told) = left_on_a_full_disk(Side::Plain, filesystem, reclaim);
        assert!(told);
        let ours = Side::Ours(Mode::DONTCACHE);
        let (wrong, taken_bytes, told) = left_on_a_full_disk(ours, filesystem, reclaim);
        println!("{filesystem:?}: {plain_wrong} blocks not read back without us, {wrong} with us");
        assert!(told);
        // Btrfs gives up a whole extent when part of it fails, including parts that it has
        // reported as written. Those may have been dropped by then.
        if wrong <= plain_wrong || filesystem == Some(Fs::Btrfs) {
            return Ok(());
        }
        // The kernel takes pages that only look clean, too.
        assert!(taken_bytes > 0, "{plain_wrong} without us, {wrong} with us");
        Err(format!(
            "{wrong} blocks are wrong, and the kernel took {taken_bytes} bytes"
        ))
    });
}

#[test]
fn what_a_full_disk_below_ext4_never_got_is_read_back() {
    what_a_full_disk_never_got_is_read_back(Some(Fs::Ext4NoJournal));
}

#[test]
fn what_a_full_disk_below_xfs_never_got_is_read_back() {
    what_a_full_disk_never_got_is_read_back(Some(Fs::Xfs));
}

#[test]
fn what_a_full_disk_below_btrfs_never_got_is_read_back() {
    what_a_full_disk_never_got_is_read_back(Some(Fs::Btrfs));
}

#[test]
fn what_a_full_raw_device_never_got_is_read_back() {
    what_a_full_disk_never_got_is_read_back(None);
}

#[test]
fn a_full_disk_says_so_in_the_same_write() {
    need!(all MountedFs::needs(Fs::Ext4));
    let fill = |side: Side| {
        let disk = MountedFs::new(Fs::Ext4, 24 * MIB).unwrap();
        let path = disk.file("data");
        fs::File::create(&path).unwrap();
        let mut file = side.open(&path);
        let mut accepted = 0;
        let error = loop {
            let block = pattern::filled(1, accepted, 100_000);
            match file.write(&block) {
                Ok(count) => accepted += count as u64,
                Err(error) => break error,
            }
            assert!(accepted < 24 * MIB);
        };
        let synced = file.sync_all().map_err(|error| error.raw_os_error());
        file.settle();
        residency::evict(&path);
        let held = read_pattern(&mut fs::File::open(&path).unwrap(), 1, MIB);
        assert_eq!(held, accepted, "{side:?}");
        (error.raw_os_error(), synced, accepted)
    };
    let (error, synced, accepted) = fill(Side::Plain);
    assert_eq!(error, Some(libc::ENOSPC));
    for side in Side::ours() {
        let ours = fill(side);
        assert_eq!((ours.0, ours.1), (error, synced), "{side:?}");
        // The number of blocks that go to metadata depends on when blocks are allocated.
        assert!(ours.2.abs_diff(accepted) <= MIB, "{side:?}: {}", ours.2);
    }
}

#[test]
fn a_drop_that_is_asked_for_keeps_what_the_disk_never_got() {
    need!(all FailingDisk::needs(Some(Fs::Ext4NoJournal)));
    need!(Need::Cachestat);
    in_some_attempt(|reclaim| {
        let disk = FailingDisk::new().unwrap();
        let path = disk.file("data");
        let block = vec![7; TOO_MUCH_BYTES as usize];
        fs::write(&path, block).unwrap();
        let file = File::from_std(fs::File::open(&path).unwrap(), Mode::BUFFERED).unwrap();
        file.wait_clean(0..u64::MAX).unwrap();
        let error = file.drop_behind(0..u64::MAX).unwrap_err();
        assert!(
            matches!(error.raw_os_error(), Some(libc::EIO | libc::ENOSPC)),
            "{error}"
        );
        reclaim.stays(
            &path,
            residency::cached(&path).unwrap().cached_pages * residency::page_bytes(),
            TOO_MUCH_BYTES,
        )
    });
}

/// Another program writes to the page of the end that `set_len` zeroed, which the disk then refuses.
#[test]
fn the_page_of_an_end_that_the_disk_never_got_stays() {
    need!(all SlowDisk::needs());
    need!(Need::Cachestat);
    for size_bytes in [5000, 100_000] {
        let disk = SlowDisk::new(SlowDiskOptions::default()).unwrap();
        let mounted = disk.mount(Fs::Ext4NoJournal).unwrap();
        let path = mounted.file("data");
        let other = fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        other.write_all_at(&[7; 10_000], 0).unwrap();
        other.sync_all().unwrap();
        residency::evict(&path);
        let file = File::options().write(true).open(&path).unwrap();
        disk.fail(Failing::Writes).unwrap();
        disk.set_latency(std::time::Duration::from_millis(200))
            .unwrap();
        file.set_len(size_bytes).unwrap();
        let at = size_bytes.min(10_000) - 10;
        other.write_all_at(b"precious", at).unwrap();
        disk.set_latency(std::time::Duration::ZERO).unwrap();
        assert!(file.settle(PATIENCE).unwrap());
        let mut found = [0; 8];
        other.read_exact_at(&mut found, at).unwrap();
        disk.set_failing(false).unwrap();
        assert_eq!(&found, b"precious", "{size_bytes}");
        assert_eq!(file.stats().left_bytes, residency::page_bytes());
    }
}

fn what_a_failed_write_brought_in_is_dropped(filesystem: Fs) {
    need!(all MountedFs::needs(filesystem));
    need!(Need::Cachestat);
    let disk = MountedFs::new(filesystem, 300 * MIB).unwrap();
    let path = disk.file("data");
    let sparse = fs::File::create(&path).unwrap();
    sparse.write_all_at(&[1; 5000], 0).unwrap();
    sparse.set_len(64 * MIB).unwrap();
    sparse.sync_all().unwrap();
    let mut filler = fs::File::create(disk.file("filler")).unwrap();
    for block in [1 << 20, 4096, 1] {
        while filler.write_all(&vec![3; block]).is_ok() {}
    }
    let _ = filler.sync_all();
    residency::evict(&path);
    let write = |file: &File| {
        let block = [7; 256 << 10];
        let results = (1..40).map(|at| file.write_at(&block, at * MIB + 100));
        let kinds = results.map(|result| result.map_err(|error| error.kind()));
        kinds.collect::<Vec<_>>()
    };
    let options = || File::options().write(true).open(&path).unwrap();
    let file = options();
    let results = write(&file);
    assert!(
        results.contains(&Err(std::io::ErrorKind::StorageFull)),
        "{results:?}"
    );
    assert!(file.settle(PATIENCE).unwrap());
    let cached = residency::cached(&path).unwrap();
    assert_eq!(cached.cached_pages, 0, "{:?}", file.stats());
    // There is room now, and what it brings in is no other's.
    drop(filler);
    fs::remove_file(disk.file("filler")).unwrap();
    sparse.sync_all().unwrap();
    let again = options();
    assert!(write(&again).iter().all(|result| result.is_ok()));
    again.sync_all().unwrap();
    assert!(again.settle(PATIENCE).unwrap());
    let cached = residency::cached(&path).unwrap();
    assert_eq!(cached.cached_pages, 0, "{:?}", again.stats());
    assert_eq!(again.stats().kept_bytes, 0);
}

#[test]
fn what_a_failed_write_brought_in_is_dropped_on_ext4() {
    what_a_failed_write_brought_in_is_dropped(Fs::Ext4);
}

#[test]
fn what_a_failed_write_brought_in_is_dropped_on_xfs() {
    what_a_failed_write_brought_in_is_dropped(Fs::Xfs);
}

#[test]
fn what_a_failed_write_brought_in_is_dropped_on_btrfs() {
    what_a_failed_write_brought_in_is_dropped(Fs::Btrfs);
}

/// Once a sync has returned the error, the kernel tells nobody else.
#[test]
fn no_drop_takes_what_a_failed_sync_left() {
    need!(all FailingDisk::needs(Some(Fs::Ext4NoJournal)));
    need!(Need::Cachestat);
    for mode in [Mode::BUFFERED, Mode::WRITE_BEHIND, Mode::DONTCACHE] {
        let disk = FailingDisk::new().unwrap();
        let path = disk.file("data");
        let mut file = File::from_std(fs::File::create(&path).unwrap(), mode).unwrap();
        let block = vec![7; MIB as usize];
        (0..TOO_MUCH_BYTES / MIB).for_each(|_| file.write_all(&block).unwrap());
        file.settle(PATIENCE).unwrap();
        file.sync_all().unwrap_err();
        let cached = || residency::cached(&path).unwrap().cached_pages;
        let before = cached();
        let other = || File::from_std(fs::File::open(&path).unwrap(), Mode::BUFFERED).unwrap();
        for file in [&file, &other()] {
            let error = file.drop_behind(0..u64::MAX).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{mode}");
        }
        assert_eq!(cached(), before, "{mode}");
    }
}
