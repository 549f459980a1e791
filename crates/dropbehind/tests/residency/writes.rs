//! Files that are written leave nothing behind.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use dropbehind::flusher::Flusher;
use dropbehind::strategy::Strategy;
use dropbehind::trace::{ByteRange, Deed, trace_to};
use dropbehind::{Mode, OpenOptions};
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::{self, Sampler};
use dropbehind_testbed::{Fs, need, pattern, skip};

use crate::accounts::{all_cached, assert_balanced, create, open_to_overwrite, settle};
use crate::common::{
    Dice, KIB, Kind, MIB, PATIENCE, Place, cached_bytes, check_on_disk, write_pattern,
};
use crate::reads::QueueSetting;

everywhere! {
    a_file_written_leaves_nothing_and_stays_below_64_mib: 256;
    a_file_overwritten_leaves_nothing: 64;
    a_closed_file_leaves_nothing_once_drained: 48;
    appends_leave_nothing: 24;
    appends_to_a_file_that_others_truncate_leave_nothing: 24;
    settling_beside_a_long_append_leaves_nothing_of_a_short_one: 64;
    appends_before_the_program_takes_the_file_back_leave_nothing: 16;
    appends_to_a_cached_file_that_is_truncated_leave_nothing: 16;
    scattered_writes_that_others_truncate_leave_nothing: 24;
    native_writes_of_a_new_file_leave_nothing: 24;
    random_writes_leave_nothing: 64;
    threads_at_one_position_leave_nothing: 64;
    first_writes_of_short_threads_leave_nothing: 16;
    another_program_may_move_the_position: 16;
    threads_that_append_leave_nothing: 24;
    appends_while_another_thread_seeks_leave_nothing: 16;
    appends_while_another_thread_sets_the_size_leave_nothing: 64;
    writes_after_a_read_leave_nothing: 16;
}

fn a_file_written_leaves_nothing_and_stays_below_64_mib(place: &Place) {
    let path = place.path();
    let mut file = create(place, Mode::DONTCACHE);
    let sampler = Sampler::start(&path, Duration::from_millis(2)).unwrap();
    write_pattern(&mut file, 1, 0, place.size_bytes(), MIB);
    let peaks = sampler.stop().unwrap();
    file.sync_all().unwrap();
    settle(&file);
    assert_eq!(cached_bytes(&path), 0);
    assert!(peaks.samples > 10, "{peaks:?}");
    let peak_bytes = peaks.cached_pages * residency::page_bytes();
    assert!(peak_bytes > 0 && peak_bytes < 64 * MIB, "{peaks:?}");
    let stats = file.stats();
    assert_balanced(&stats);
    assert_eq!(stats.bytes_written, place.size_bytes());
    assert_eq!(stats.brought_bytes, place.size_bytes());
    assert_eq!((stats.kept_bytes, stats.left_bytes), (0, 0), "{stats:?}");
    assert!(stats.peak_cached_bytes < 64 * MIB, "{stats:?}");
    drop(file);
    check_on_disk(&path, 1, place.size_bytes());
}

fn a_file_overwritten_leaves_nothing(place: &Place) {
    let path = place.cold_file(1);
    let mut file = open_to_overwrite(&path);
    write_pattern(&mut file, 2, 0, place.size_bytes(), 64 * KIB);
    file.sync_all().unwrap();
    settle(&file);
    assert_eq!(cached_bytes(&path), 0);
    assert_balanced(&file.stats());
    drop(file);
    check_on_disk(&path, 2, place.size_bytes());
}

fn a_closed_file_leaves_nothing_once_drained(place: &Place) {
    let path = place.path();
    let flusher = Flusher::builder().build().unwrap();
    let mut file = OpenOptions::new()
        .write(true)
        .create(!place.is_raw())
        .flusher(&flusher)
        .open(&path)
        .unwrap();
    // Not a multiple of anything, so the last page is partial.
    let length = place.size_bytes() - 12_345;
    write_pattern(&mut file, 3, 0, length, 100_000);
    file.close().unwrap();
    assert!(flusher.drain(PATIENCE), "{:?}", flusher.stats());
    assert_eq!(cached_bytes(&path), 0);
    let stats = flusher.stats();
    assert_balanced(&stats);
    assert_eq!(stats.bytes_written, length);
    assert_eq!(
        stats.brought_bytes,
        length.next_multiple_of(residency::page_bytes())
    );
    if !place.is_raw() {
        check_on_disk(&path, 3, length);
    }
}

/// Only the kernel knows where an append goes.
fn appends_leave_nothing(place: &Place) {
    if place.is_raw() {
        // At the end of a device there is no room to append.
        return;
    }
    let path = place.path();
    fs::write(&path, pattern::filled(1, 0, 5000)).unwrap();
    residency::evict(&path);
    let open = || OpenOptions::new().append(true).create(true).open(&path);
    let mut end = 5000;
    let mut alone = open().unwrap();
    for length in [1, 3000, 70_000, MIB, 100] {
        write_pattern(&mut alone, 1, end, length, 700);
        end += length;
    }
    settle(&alone);
    assert_eq!(cached_bytes(&path), 0);
    drop(alone);
    let (mut one, mut other) = (open().unwrap(), open().unwrap());
    let mut dice = Dice::new(3);
    while end < place.size_bytes() {
        let length = dice.below(200 * KIB) + 1;
        let to = if dice.once_in(2) {
            &mut one
        } else {
            &mut other
        };
        write_pattern(to, 1, end, length, 30_000);
        end += length;
    }
    for file in [&one, &other] {
        file.sync_all().unwrap();
        settle(file);
    }
    drop((one, other));
    assert!(Flusher::shared().unwrap().drain(PATIENCE));
    // Each appends up to 16 KiB before it looks where they went, and finds the other's among them.
    assert!(cached_bytes(&path) <= 2 * 20 * KIB);
    check_on_disk(&path, 1, end);
}

#[test]
fn a_file_that_others_make_huge_holds_no_appender_up() {
    let kind = Kind::Mounted(Fs::Ext4);
    need!(all kind.needs());
    let place = Place::new(kind, 16 * MIB);
    let path = place.path();
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)
        .unwrap();
    write_pattern(&mut file, 1, 0, 8 * MIB, MIB);
    settle(&file);
    let other = fs::File::options().write(true).open(&path).unwrap();
    other.set_len(3 << 40).unwrap();
    write_pattern(&mut file, 1, 8 * MIB, 8 * MIB, MIB);
    settle(&file);
    assert_eq!(cached_bytes(&path), 0);
}

/// As a log is rotated by copying and truncating it.
fn appends_to_a_file_that_others_truncate_leave_nothing(place: &Place) {
    if place.is_raw() {
        return;
    }
    let path = place.path();
    let other = fs::File::create(&path).unwrap();
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    // Each time, the file grows again to less or to more than what it was.
    for length in [6 * MIB, 4 * MIB, 64 * KIB, 3 * MIB, 16 * KIB, 64 * KIB] {
        other.set_len(0).unwrap();
        write_pattern(&mut file, 1, 0, length, MIB);
        settle(&file);
        let stats = file.stats();
        assert_eq!((cached_bytes(&path), stats.left_bytes), (0, 0), "{stats:?}");
        assert_balanced(&stats);
        check_on_disk(&path, 1, length);
    }
    other.set_len(0).unwrap();
    let mut dice = Dice::new(4);
    for _ in 0..500 {
        write_pattern(&mut file, 1, 0, dice.below(200 * KIB) + 1, 30_000);
        if dice.once_in(10) {
            // If it cut a page, that page would be theirs.
            let pages = other.metadata().unwrap().len().min(MIB) / residency::page_bytes();
            let kept = dice.below(pages + 1) * residency::page_bytes();
            other.set_len(kept).unwrap();
        }
    }
    settle(&file);
    assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
}

/// While a thread appends, nobody can look where the appends before went.
fn settling_beside_a_long_append_leaves_nothing_of_a_short_one(place: &Place) {
    if place.is_raw() {
        return;
    }
    let path = place.path();
    let (page, mut options) = (residency::page_bytes(), OpenOptions::new());
    let mut file = options.append(true).create(true).open(&path).unwrap();
    write_pattern(&mut file, 1, 0, page, page);
    settle(&file);
    write_pattern(&mut file, 1, page, page, page);
    let mut clone = file.try_clone().unwrap();
    std::thread::scope(|scope| {
        let block = vec![7; place.size_bytes() as usize];
        scope.spawn(move || clone.write_all(&block).unwrap());
        // It is on its way as soon as the file grows.
        while fs::metadata(&path).unwrap().len() == 2 * page {
            std::thread::yield_now();
        }
        settle(&file);
        // A process of its own would look too late.
        assert_eq!(file.residency(page..2 * page).unwrap().cached_bytes, 0);
    });
    settle(&file);
    assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
}

/// It may append by itself before the flusher looks where the last appends went.
fn appends_before_the_program_takes_the_file_back_leave_nothing(place: &Place) {
    if place.is_raw() {
        return;
    }
    let path = place.path();
    let (page, mut options) = (residency::page_bytes(), OpenOptions::new());
    let mut file = options.append(true).create(true).open(&path).unwrap();
    write_pattern(&mut file, 1, 0, 3 * page, page);
    let mut taken = file.into_std();
    write_pattern(&mut taken, 1, 3 * page, 4 * page, page);
    taken.sync_all().unwrap();
    assert!(Flusher::shared().unwrap().drain(PATIENCE));
    assert!(cached_bytes(&path) <= 4 * page);
    check_on_disk(&path, 1, 7 * page);
}

/// What others had cached is gone then.
fn appends_to_a_cached_file_that_is_truncated_leave_nothing(place: &Place) {
    if place.is_raw() {
        return;
    }
    let path = place.path();
    for by_others in [true, false] {
        fs::write(&path, pattern::filled(1, 0, MIB as usize)).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        write_pattern(&mut file, 1, MIB, 64 * KIB, MIB);
        settle(&file);
        if by_others {
            let other = fs::File::options().write(true).open(&path).unwrap();
            other.set_len(0).unwrap();
        } else {
            file.set_len(0).unwrap();
        }
        write_pattern(&mut file, 1, 0, 512 * KIB, MIB);
        settle(&file);
        let stats = file.stats();
        assert_eq!((cached_bytes(&path), stats.left_bytes), (0, 0), "{stats:?}");
        assert_balanced(&stats);
        check_on_disk(&path, 1, 512 * KIB);
    }
}

/// Nothing of them is cached any more, so nothing is left either.
fn scattered_writes_that_others_truncate_leave_nothing(place: &Place) {
    if place.is_raw() {
        return;
    }
    let path = place.path();
    let file = create(place, Mode::DONTCACHE);
    for number in 0..100 {
        file.write_at(&[1; 4096], number * 64 * KIB).unwrap();
    }
    let other = fs::OpenOptions::new().write(true).open(&path).unwrap();
    other.set_len(0).unwrap();
    settle(&file);
    let stats = file.stats();
    assert_eq!((cached_bytes(&path), stats.left_bytes), (0, 0), "{stats:?}");
    assert_balanced(&stats);
}

/// An archive is read at its start, of which more is cached ahead, or at its end. Then it is written
/// anew and made longer.
fn writes_after_a_read_leave_nothing(place: &Place) {
    for from_start in [true, false] {
        let path = place.cold_file(1);
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).open(&path).unwrap();
        let mut block = vec![0; (64 * KIB) as usize];
        if from_start {
            file.read_exact_at(&mut block, 0).unwrap();
        } else {
            let end = place.size_bytes() - 64 * KIB;
            file.read_exact_at(&mut block, end).unwrap();
            // The flusher knows the file before it is written.
            settle(&file);
        }
        let length = match place.is_raw() {
            true => place.size_bytes(),
            false => 2 * place.size_bytes(),
        };
        write_pattern(&mut file, 2, 0, length, MIB);
        file.sync_all().unwrap();
        settle(&file);
        assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
        assert_balanced(&file.stats());
        assert_eq!(file.stats().kept_bytes, 0);
        drop(file);
        check_on_disk(&path, 2, length);
    }
}

fn native_writes_of_a_new_file_leave_nothing(place: &Place) {
    let path = place.path();
    let mut file = OpenOptions::new()
        .write(true)
        .create(!place.is_raw())
        .strategy(Strategy::Native)
        .open(&path)
        .unwrap();
    write_pattern(&mut file, 1, 0, place.size_bytes(), MIB);
    file.sync_all().unwrap();
    settle(&file);
    // If the file system doesn't support the flag, the flusher does the work.
    assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
    assert_eq!(file.stats().bytes_written, place.size_bytes());
    drop(file);
    check_on_disk(&path, 1, place.size_bytes());
}

/// Only what the file system refuses turns the flag off.
#[test]
fn a_wrong_offset_does_not_end_native_writes() {
    let kind = Kind::Mounted(Fs::Ext4);
    need!(all kind.needs());
    let place = Place::new(kind, MIB);
    let is_native = |is_wrong_first: bool| {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let mut file = options
            .strategy(Strategy::Native)
            .open(place.path())
            .unwrap();
        if is_wrong_first {
            let error = file.write_at(b"a", u64::MAX).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        }
        file.write_all(&[1; 64 << 10]).unwrap();
        settle(&file);
        // The flusher counts what it has to drop.
        file.stats().brought_bytes == 0
    };
    if !is_native(false) {
        skip!("the kernel has no RWF_DONTCACHE here");
    }
    assert!(is_native(true));
    assert!(is_native(false));
}

fn random_writes_leave_nothing(place: &Place) {
    let path = place.cold_file(1);
    let file = open_to_overwrite(&path);
    let mut dice = Dice::new(12);
    let mut touched = 0;
    for _ in 0..1500 {
        let length = dice.below(64 * KIB) + 1;
        let offset = dice.below(place.size_bytes() - length);
        // Writes the same pattern again, so that the whole file can be checked at the end.
        let data = pattern::filled(1, offset, length as usize);
        assert_eq!(file.write_at(&data, offset).unwrap(), data.len());
        touched += length;
    }
    settle(&file);
    assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
    assert_balanced(&file.stats());
    assert_eq!(file.stats().bytes_written, touched);
    drop(file);
    check_on_disk(&path, 1, place.size_bytes());
}

fn threads_at_one_position_leave_nothing(place: &Place) {
    if place.is_raw() {
        // Here the kernel itself loses count: it locks the position of regular files only.
        return;
    }
    let path = place.path();
    let file = create(place, Mode::DONTCACHE);
    let block = vec![7; 16 << 10];
    let blocks = place.size_bytes() / block.len() as u64;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut clone = file.try_clone().unwrap();
                for _ in 0..blocks / 4 {
                    clone.write_all(&block).unwrap();
                }
            });
        }
    });
    file.sync_all().unwrap();
    settle(&file);
    assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
    assert_balanced(&file.stats());
    assert_eq!(
        (&file).stream_position().unwrap(),
        place.size_bytes(),
        "the threads share one position"
    );
}

/// Each thread writes once, at the same time as the others, and then closes its clone and ends.
fn first_writes_of_short_threads_leave_nothing(place: &Place) {
    const THREADS: u64 = 8;
    let path = place.path();
    for round in 0..200 {
        let file = create(place, Mode::DONTCACHE);
        let ready = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (clone, ready) = (file.try_clone().unwrap(), &ready);
                scope.spawn(move || {
                    ready.fetch_add(1, Ordering::Relaxed);
                    // A thread that sleeps wakes up too late.
                    while ready.load(Ordering::Relaxed) < THREADS {
                        std::thread::yield_now();
                    }
                    let offset = (round % 2 * THREADS + thread) * 8 * MIB / THREADS;
                    clone.write_all_at(&[7; 4 << 10], offset).unwrap();
                });
            }
        });
        settle(&file);
        assert_eq!(file.stats().bytes_written, THREADS * 4 * KIB);
        assert_eq!(cached_bytes(&path), 0, "{round}: {:?}", file.stats());
        assert_balanced(&file.stats());
    }
}

/// The kernel zeroes the rest of the page in which the file ended, and has to read it for that.
fn another_program_may_move_the_position(place: &Place) {
    let (path, block) = (place.path(), vec![7; MIB as usize]);
    in_some_attempt(|reclaim| {
        let mut file = create(place, Mode::DONTCACHE);
        residency::evict(&path);
        file.write_all(&block).unwrap();
        let shared = file.as_fd().try_clone_to_owned().unwrap();
        let mut head = Command::new("head");
        head.args(["-c", "5M", "/dev/zero"]).stdout(shared);
        assert!(head.status().unwrap().success());
        file.write_all(&block).unwrap();
        file.sync_all().unwrap();
        settle(&file);
        for ours in [0..MIB, 6 * MIB..7 * MIB] {
            let cached = residency::cached_range(&path, ours).unwrap();
            assert_eq!(cached.cached_pages, 0, "{:?}", file.stats());
        }
        assert_eq!(file.stats().brought_bytes, 2 * MIB);
        assert_balanced(&file.stats());
        all_cached(reclaim, &path, 5 * MIB)
    });
}

fn threads_that_append_leave_nothing(place: &Place) {
    if place.is_raw() {
        return;
    }
    let path = place.path();
    let mut options = OpenOptions::new();
    let file = options.append(true).create(true).open(&path).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (mut clone, size_bytes) = (file.try_clone().unwrap(), place.size_bytes());
            scope.spawn(move || {
                let mut dice = Dice::new(thread);
                let mut written = 0;
                while written < size_bytes / 4 {
                    let block = vec![7; dice.below(9000) as usize + 1];
                    // Linux appends at an offset, too.
                    match dice.once_in(10) {
                        true => clone.write_all_at(&block, 0).unwrap(),
                        false => clone.write_all(&block).unwrap(),
                    }
                    written += block.len() as u64;
                }
            });
        }
    });
    file.sync_all().unwrap();
    settle(&file);
    let stats = file.stats();
    assert_eq!(cached_bytes(&path), 0, "{stats:?}");
    assert_balanced(&stats);
    let size_bytes = fs::metadata(&path).unwrap().len();
    assert_eq!(stats.bytes_written, size_bytes);
}

/// The position is then anywhere after an append, also beyond the end.
fn appends_while_another_thread_seeks_leave_nothing(place: &Place) {
    if place.is_raw() {
        return;
    }
    let path = place.path();
    let mut options = OpenOptions::new();
    let mut file = options.append(true).create(true).open(&path).unwrap();
    let mut dice = Dice::new(1);
    let mut end = 0;
    let mut clone = file.try_clone().unwrap();
    let mut dice_of_seeks = Dice::new(2);
    let seek = || {
        let to = dice_of_seeks.below(1 << 30);
        clone.seek(SeekFrom::Start(to)).unwrap();
    };
    beside(seek, || {
        while end < place.size_bytes() {
            let length = dice.below(100 * KIB) + 1;
            write_pattern(&mut file, 1, end, length, MIB);
            end += length;
        }
    });
    settle(&file);
    let stats = file.stats();
    assert_eq!(cached_bytes(&path), 0, "{stats:?}");
    assert_balanced(&stats);
    assert_eq!(stats.bytes_written, end);
    check_on_disk(&path, 1, end);
}

fn appends_while_another_thread_sets_the_size_leave_nothing(place: &Place) {
    if place.is_raw() {
        return;
    }
    let path = place.path();
    let mut options = OpenOptions::new();
    let mut file = options.append(true).create(true).open(&path).unwrap();
    let clone = file.try_clone().unwrap();
    let mut dice_of_sizes = Dice::new(1);
    let set_size = || {
        let pages = clone.metadata().unwrap().len() / residency::page_bytes();
        let kept = dice_of_sizes.below(pages + 1) * residency::page_bytes();
        clone.set_len(kept).unwrap();
        std::thread::sleep(Duration::from_micros(dice_of_sizes.below(3000)));
    };
    let mut dice = Dice::new(2);
    let mut written = 0;
    beside(set_size, || {
        while written < place.size_bytes() {
            let block = vec![7; dice.below(100 * KIB) as usize + 1];
            file.write_all(&block).unwrap();
            written += block.len() as u64;
        }
    });
    settle(&file);
    let stats = file.stats();
    assert_eq!(cached_bytes(&path), 0, "{stats:?}");
    assert_balanced(&stats);
    assert_eq!(stats.bytes_written, written);
}

/// Does `disturb` again and again while `work` is done.
fn beside(mut disturb: impl FnMut() + Send, work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                disturb();
            }
        });
        work();
        done.store(true, Ordering::Relaxed);
    });
}

/// The kernel would cut what is longer.
#[test]
fn requests_are_as_long_as_the_disks() {
    const LONGEST: u64 = 64 * KIB;
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let (sender, records) = mpsc::channel();
    assert!(trace_to(move |record| drop(sender.send(record))));
    let place = Place::new(Kind::Mounted(Fs::Ext4), 24 * MIB);
    let _sectors = QueueSetting::set(&place, "max_sectors_kb", "64");
    // A flusher learns a disk's largest request with its first file there.
    let flusher = Flusher::builder().build().unwrap();
    for mode in [Mode::DONTCACHE, Mode::WRITE_BEHIND] {
        let path = place.path().with_extension(mode.to_string());
        let mut options = OpenOptions::new();
        options.write(true).create(true).cache_mode(mode);
        let mut file = options.flusher(&flusher).open(&path).unwrap();
        write_pattern(&mut file, 1, 0, place.size_bytes(), 4 * KIB);
        settle(&file);
        let inode = fs::metadata(&path).unwrap().ino();
        let requests: Vec<_> = records
            .try_iter()
            .filter(|record| record.file.id.inode == inode)
            .filter(|record| matches!(record.deed, Deed::Writeback(_)))
            .map(|record| record.range)
            .collect();
        let longest = requests.iter().map(|range| range.len()).max();
        assert_eq!(longest, Some(LONGEST), "{mode}: {requests:?}");
        // None goes past a boundary of those that the disk takes.
        let within = |range: &ByteRange| range.start / LONGEST == (range.end - 1) / LONGEST;
        assert!(requests.iter().all(within), "{mode}: {requests:?}");
    }
}

/// The flusher hears of no page beyond 4 PiB, but of every byte.
#[test]
fn bytes_far_out_are_counted() {
    let kind = Kind::Mounted(Fs::Xfs);
    need!(all kind.needs());
    let place = Place::new(kind, 16 * MIB);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).open(place.path()).unwrap();
    file.write_all_at(&[1; 5000], 5 << 50).unwrap();
    assert_eq!(file.stats().bytes_written, 5000);
    file.write_all_at(&[1; 5000], 0).unwrap();
    settle(&file);
    let stats = file.stats();
    assert_balanced(&stats);
    assert_eq!(stats.bytes_written, 10_000);
}
