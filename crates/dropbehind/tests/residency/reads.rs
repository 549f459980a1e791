//! Files that are read leave nothing behind.

use std::fs;
use std::io::{IoSliceMut, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use dropbehind::flusher::Flusher;
use dropbehind::{File, OpenOptions};
use dropbehind_testbed::reclaim::{Reclaim, in_some_attempt};
use dropbehind_testbed::residency::{self, Sampler};
use dropbehind_testbed::{Fs, SlowDisk, SlowDiskOptions, disk_io, need, pattern};

use crate::accounts::{assert_balanced, settle};
use crate::common::{Dice, KIB, Kind, MIB, PATIENCE, Place, cached_bytes, read_pattern};

everywhere! {
    random_access_reads_nothing_ahead: 8;
    sequential_reads_cost_one_read_and_little_memory: 96;
    random_reads_leave_nothing: 64;
    a_file_read_again_and_again_leaves_nothing: 8;
    reads_on_a_disk_with_little_readahead_leave_nothing: 48;
    reads_on_a_disk_with_much_readahead_leave_what_was_cached: 64;
    reads_after_more_readahead_was_set_leave_nothing: 96;
    long_reads_after_a_jump_leave_nothing: 32;
    threads_that_read_a_file_together_leave_nothing: 96;
    a_read_beside_a_settling_thread_leaves_nothing: 32;
    a_settled_read_leaves_nothing_beside_another_settling_thread: 32;
    reads_beside_a_thread_that_drops_leave_nothing: 8;
    long_reads_at_one_position_are_whole_and_leave_nothing: 96;
    a_long_read_caches_little_more_than_it_returns: 96;
    a_long_read_at_an_offset_caches_little: 64;
}

/// A setting of a disk's queue, until this is dropped. A loop device keeps it for whoever has
/// its number next.
pub(crate) struct QueueSetting {
    path: PathBuf,
    before: String,
}

impl QueueSetting {
    pub(crate) fn set(place: &Place, name: &str, value: &str) -> QueueSetting {
        let device = place.device().file_name().unwrap();
        let queue = Path::new("/sys/block").join(device).join("queue");
        let path = queue.join(name);
        let before = fs::read_to_string(&path).unwrap();
        fs::write(&path, value).unwrap();
        QueueSetting { path, before }
    }
}

impl Drop for QueueSetting {
    fn drop(&mut self) {
        fs::write(&self.path, self.before.trim()).unwrap();
    }
}

/// They take blocks in turn, and may finish in another order.
fn threads_that_read_a_file_together_leave_nothing(place: &Place) {
    let path = place.cold_file(1);
    let file = File::open(&path).unwrap();
    for _ in 0..3 {
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut block = vec![0; MIB as usize];
                    loop {
                        let offset = next.fetch_add(MIB, Relaxed);
                        if offset >= place.size_bytes() {
                            return;
                        }
                        file.read_exact_at(&mut block, offset).unwrap();
                        pattern::check(1, offset, &block).unwrap();
                    }
                });
            }
        });
        settle(&file);
        assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
    }
}

/// It hands over what was read ahead, also what a read has yet to reach.
fn a_read_beside_a_settling_thread_leaves_nothing(place: &Place) {
    let path = place.cold_file(1);
    for block_bytes in [4 * KIB, 64 * KIB, 256 * KIB, MIB] {
        let file = File::open(&path).unwrap();
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !has_ended.load(Relaxed) {
                    file.settle(Duration::from_millis(1)).unwrap();
                }
            });
            read_pattern(&mut &file, 1, block_bytes);
            has_ended.store(true, Relaxed);
        });
        settle(&file);
        // On a busy machine, what is being read in resists for longer than it is tried.
        let stats = file.stats();
        assert_eq!(cached_bytes(&path), stats.left_bytes, "{stats:?}");
        assert_balanced(&file.stats());
    }
}

/// The end of the other thread's wait says nothing about this one's reads.
fn a_settled_read_leaves_nothing_beside_another_settling_thread(place: &Place) {
    let path = place.cold_file(1);
    let file = File::open(&path).unwrap();
    let has_ended = AtomicBool::new(false);
    let rounds_with_pages = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Relaxed) {
                file.settle(PATIENCE).unwrap();
            }
        });
        let mut dice = Dice::new(5);
        let mut block = vec![0; 256 << 10];
        let mut rounds_with_pages = 0;
        for _ in 0..1000 {
            let offset = dice.below(place.size_bytes() - 256 * KIB);
            file.read_at(&mut block, offset).unwrap();
            settle(&file);
            let cached_pages = residency::sample(&file).unwrap().cached_pages;
            rounds_with_pages += u32::from(cached_pages > 0);
        }
        has_ended.store(true, Relaxed);
        rounds_with_pages
    });
    assert_eq!(rounds_with_pages, 0);
}

/// A page that goes between a read's look and the read itself comes back with those behind it.
fn reads_beside_a_thread_that_drops_leave_nothing(place: &Place) {
    let path = place.cold_file(1);
    let file = File::open(&path).unwrap();
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Relaxed) {
                file.drop_behind(0..u64::MAX).unwrap();
            }
        });
        let mut dice = Dice::new(5);
        let mut block = vec![0; 16 << 10];
        for _ in 0..10_000 {
            let offset = dice.below(MIB) / 4096 * 4096;
            file.read_at(&mut block, 2 * offset).unwrap();
        }
        has_ended.store(true, Relaxed);
    });
    settle(&file);
    assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
    assert_balanced(&file.stats());
}

/// What it has read ahead is claimed, and with it what another thread wrote there.
#[test]
fn settling_does_not_wait_for_a_reader_that_reads_no_further() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    need!(all SlowDisk::needs());
    let disk = SlowDisk::new(SlowDiskOptions {
        size_bytes: 256 * MIB,
        ..SlowDiskOptions::default()
    })
    .unwrap();
    let mounted = disk.mount(Fs::Ext4).unwrap();
    let path = mounted.file("file");
    fs::write(&path, pattern::filled(1, 0, 8 << 20)).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    residency::evict(&path);
    let options = OpenOptions::new().read(true).write(true).clone();
    let file = options.open(&path).unwrap();
    disk.set_write_speed(Some(4 << 20)).unwrap();
    std::thread::scope(|scope| {
        let length = file.write_at(&[1; 2 << 20], 100 * KIB).unwrap();
        assert_eq!(length, 2 << 20);
        scope.spawn(|| settle(&file));
        std::thread::sleep(Duration::from_millis(100));
        (&file).read_exact(&mut [0; 4096]).unwrap();
    });
    // The read may have outlasted the first.
    settle(&file);
    assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
}

const LONG_BYTES: u64 = 12 * MIB;

/// Threads share one position. Each read gets bytes that follow each other, and all reads
/// together get the whole file.
pub(crate) fn long_reads(place: &Place, path: &Path) -> File {
    let file = File::open(path).unwrap();
    let seen = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (file, seen) = (&file, &seen);
            scope.spawn(move || {
                let mut from = file;
                let mut long = vec![0; LONG_BYTES as usize];
                loop {
                    let count = match thread {
                        0 => {
                            let (one, other) = long.split_at_mut(100_000);
                            let bufs = &mut [IoSliceMut::new(one), IoSliceMut::new(other)];
                            from.read_vectored(bufs).unwrap()
                        }
                        _ => from.read(&mut long).unwrap(),
                    };
                    if count == 0 {
                        return;
                    }
                    assert_eq!(count as u64, LONG_BYTES);
                    let begins = |offset: &u64| pattern::check(1, *offset, &long[..4096]).is_ok();
                    let mut offsets = (0..place.size_bytes()).step_by(LONG_BYTES as usize);
                    let offset = offsets.find(begins).expect("a read begins elsewhere");
                    pattern::check(1, offset, &long).unwrap();
                    seen.lock().unwrap().push(offset);
                }
            });
        }
    });
    let mut seen = seen.into_inner().unwrap();
    seen.sort_unstable();
    assert!(
        seen.into_iter()
            .eq((0..place.size_bytes()).step_by(LONG_BYTES as usize))
    );
    settle(&file);
    assert_balanced(&file.stats());
    file
}

fn long_reads_at_one_position_are_whole_and_leave_nothing(place: &Place) {
    let path = place.cold_file(1);
    for _ in 0..3 {
        let file = long_reads(place, &path);
        assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
        assert_eq!(file.stats().left_bytes, 0);
    }
}

/// It is a single call, so all that it returns is cached at once.
fn a_long_read_caches_little_more_than_it_returns(place: &Place) {
    let path = place.cold_file(1);
    let mut file = File::open(&path).unwrap();
    let sampler = Sampler::start(&path, Duration::from_millis(1)).unwrap();
    assert_eq!(read_pattern(&mut file, 1, LONG_BYTES), place.size_bytes());
    let peak_bytes = sampler.stop().unwrap().cached_pages * residency::page_bytes();
    assert!(
        peak_bytes > 0 && peak_bytes <= LONG_BYTES + 16 * MIB,
        "{} KiB at once",
        peak_bytes >> 10
    );
    settle(&file);
    assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
}

fn a_long_read_at_an_offset_caches_little(place: &Place) {
    let path = place.cold_file(1);
    let size = place.size_bytes() as usize;
    let start = 12_345;
    // One buffer, few long ones, many short ones, and all sorts.
    for lengths in [
        vec![size],
        vec![size / 4; 4],
        vec![80_000; 900],
        vec![0, 5 << 20, 100, 0, 2 << 20, 1, (2 << 20) - 1, size],
    ] {
        residency::evict(&path);
        let mut memory: Vec<_> = lengths.iter().map(|length| vec![0; *length]).collect();
        let mut bufs: Vec<_> = memory.iter_mut().map(|one| IoSliceMut::new(one)).collect();
        let file = File::open(&path).unwrap();
        let sampler = Sampler::start(&path, Duration::from_millis(1)).unwrap();
        let count = file.read_vectored_at(&mut bufs, start).unwrap();
        let peak_bytes = sampler.stop().unwrap().cached_pages * residency::page_bytes();
        assert_eq!(count, size - start as usize);
        pattern::check(1, start, &memory.concat()[..count]).unwrap();
        let buffers = lengths.len();
        assert!(
            peak_bytes > 0 && peak_bytes <= 16 * MIB,
            "{buffers} buffers: {} KiB at once",
            peak_bytes >> 10
        );
        settle(&file);
        assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
        assert_balanced(&file.stats());
    }
}

fn sequential_reads_cost_one_read_and_little_memory(place: &Place) {
    let path = place.cold_file(1);
    for block_bytes in [4 * KIB, 64 * KIB, MIB] {
        residency::evict(&path);
        let mut file = File::open(&path).unwrap();
        let reclaim = Reclaim::watch();
        let before = disk_io::disk_io(place.device()).unwrap();
        let sampler = Sampler::start(&path, Duration::from_millis(1)).unwrap();
        assert_eq!(read_pattern(&mut file, 1, block_bytes), place.size_bytes());
        let peaks = sampler.stop().unwrap();
        let read_bytes = disk_io::disk_io(place.device())
            .unwrap()
            .since(before)
            .read_bytes;
        settle(&file);
        assert_eq!(cached_bytes(&path), 0);
        assert!(peaks.samples > 10, "{peaks:?}");
        let peak_bytes = peaks.cached_pages * residency::page_bytes();
        assert!(
            peak_bytes > 0 && peak_bytes <= 16 * MIB,
            "blocks of {block_bytes}: {} KiB at once",
            peak_bytes >> 10
        );
        // Pages that the kernel reclaimed between readahead and read are read twice.
        let once_bytes = read_bytes - reclaim.bytes_of(&path).unwrap();
        assert!(
            read_bytes >= place.size_bytes() && once_bytes * 100 <= place.size_bytes() * 102,
            "blocks of {block_bytes}: {read_bytes} bytes read"
        );
        let stats = file.stats();
        assert_balanced(&stats);
        assert_eq!(stats.bytes_read, place.size_bytes());
        assert_eq!(stats.brought_bytes, place.size_bytes());
        assert_eq!(stats.left_bytes, 0);
    }
}

fn random_reads_leave_nothing(place: &Place) {
    let path = place.cold_file(1);
    in_some_attempt(|reclaim| {
        let file = random_reads(place, &path);
        let left = format!("{} bytes left: {:?}", cached_bytes(&path), file.stats());
        if cached_bytes(&path) == 0 {
            return Ok(());
        }
        // If a page is gone before it is read, the kernel starts its own readahead.
        assert_ne!(reclaim.bytes_of(&path).unwrap(), 0, "{left}");
        residency::evict(&path);
        Err(left)
    });
}

pub(crate) fn random_reads(place: &Place, path: &Path) -> File {
    let file = File::open(path).unwrap();
    let mut dice = Dice::new(11);
    let mut buffer = vec![0; 64 << 10];
    for _ in 0..1500 {
        let length = dice.below(buffer.len() as u64) as usize + 1;
        let offset = dice.below(place.size_bytes());
        let count = file.read_at(&mut buffer[..length], offset).unwrap();
        assert_eq!(
            count as u64,
            (place.size_bytes() - offset).min(length as u64)
        );
        pattern::check(1, offset, &buffer[..count]).unwrap();
    }
    settle(&file);
    assert_balanced(&file.stats());
    file
}

/// The reads follow each other, which else starts readahead.
fn random_access_reads_nothing_ahead(place: &Place) {
    let path = place.cold_file(1);
    for block_bytes in [4 * KIB, 64 * KIB] {
        residency::evict(&path);
        let mut options = OpenOptions::new();
        let mut file = options.read(true).random(true).open(&path).unwrap();
        let before = disk_io::disk_io(place.device()).unwrap();
        let mut buffer = vec![0; usize::try_from(block_bytes).unwrap()];
        for _ in 0..8 {
            file.read_exact(&mut buffer).unwrap();
        }
        let read_bytes = disk_io::disk_io(place.device()).unwrap();
        let read_bytes = read_bytes.since(before).read_bytes;
        assert_eq!(read_bytes, 8 * block_bytes);
        settle(&file);
        assert_eq!(cached_bytes(&path), 0);
    }
}

/// Pages of an earlier pass that still wait to be dropped don't count as others'.
fn a_file_read_again_and_again_leaves_nothing(place: &Place) {
    let path = place.cold_file(1);
    let mut file = File::open(&path).unwrap();
    for _ in 0..30 {
        file.seek(SeekFrom::Start(0)).unwrap();
        assert_eq!(read_pattern(&mut file, 1, 64 * KIB), place.size_bytes());
    }
    settle(&file);
    assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
    assert_balanced(&file.stats());
}

/// The kernel cuts our readahead requests to the limit of the disk's queue.
fn reads_on_a_disk_with_little_readahead_leave_nothing(place: &Place) {
    let _read_ahead = QueueSetting::set(place, "read_ahead_kb", "64");
    let _sectors = QueueSetting::set(place, "max_sectors_kb", "128");
    // A flusher learns a disk's largest request with its first file there.
    let flusher = Flusher::builder().build().unwrap();
    let path = place.cold_file(1);
    for block_bytes in [4 * KIB, MIB] {
        let mut file = OpenOptions::new()
            .read(true)
            .flusher(&flusher)
            .open(&path)
            .unwrap();
        assert_eq!(read_pattern(&mut file, 1, block_bytes), place.size_bytes());
        settle(&file);
        assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
        assert_eq!(file.stats().brought_bytes, place.size_bytes());
    }
}

/// Reading a page that others have read ahead may start the kernel's readahead, which goes
/// further than ours.
fn reads_on_a_disk_with_much_readahead_leave_what_was_cached(place: &Place) {
    let _read_ahead = QueueSetting::set(place, "read_ahead_kb", "8192");
    let flusher = Flusher::builder().build().unwrap();
    let path = place.cold_file(1);
    for (block_bytes, read_mib) in [(64 * KIB, 20), (MIB, 20), (MIB, 32)] {
        residency::evict(&path);
        let mut reader = fs::File::open(&path).unwrap();
        let mut buffer = vec![0; MIB as usize];
        for _ in 0..read_mib {
            reader.read_exact(&mut buffer).unwrap();
        }
        let reclaim = Reclaim::watch();
        let before_bytes = cached_bytes(&path);
        assert!(before_bytes >= read_mib * MIB && before_bytes < place.size_bytes());
        let mut file = OpenOptions::new()
            .read(true)
            .flusher(&flusher)
            .open(&path)
            .unwrap();
        assert_eq!(read_pattern(&mut file, 1, block_bytes), place.size_bytes());
        settle(&file);
        let after_bytes = cached_bytes(&path);
        let taken_bytes = reclaim.bytes_of(&path).unwrap();
        assert!(
            after_bytes <= before_bytes && after_bytes + taken_bytes >= before_bytes,
            "{before_bytes} bytes were cached, and then {after_bytes}: {:?}",
            file.stats()
        );
    }
}

/// The kernel takes the disk's setting at each open.
fn reads_after_more_readahead_was_set_leave_nothing(place: &Place) {
    let path = place.cold_file(1);
    for kib in ["128", "8192", "16384"] {
        let _read_ahead = QueueSetting::set(place, "read_ahead_kb", kib);
        for block_bytes in [64 * KIB, MIB] {
            let mut file = File::open(&path).unwrap();
            assert_eq!(read_pattern(&mut file, 1, block_bytes), place.size_bytes());
            settle(&file);
            let stats = file.stats();
            assert_eq!(cached_bytes(&path), 0, "{kib} KiB, {stats:?}");
            assert_eq!(stats.brought_bytes, place.size_bytes(), "{kib} KiB");
        }
    }
}

/// Such a read reaches the first large folio in the call that brings it in.
fn long_reads_after_a_jump_leave_nothing(place: &Place) {
    let _read_ahead = QueueSetting::set(place, "read_ahead_kb", "8192");
    let path = place.cold_file(1);
    let mut buffer = vec![0; (14 * MIB) as usize];
    for jumps in [
        vec![256 * KIB],
        vec![0, 31 * MIB, 0, 256 * KIB],
        vec![5 * MIB],
    ] {
        let mut file = File::open(&path).unwrap();
        let (last, before) = jumps.split_last().unwrap();
        for jump in before {
            file.seek(SeekFrom::Start(*jump)).unwrap();
            file.read_exact(&mut buffer[..256 << 10]).unwrap();
        }
        file.seek(SeekFrom::Start(*last)).unwrap();
        file.read_exact(&mut buffer).unwrap();
        pattern::check(1, *last, &buffer).unwrap();
        settle(&file);
        assert_eq!(cached_bytes(&path), 0, "{jumps:?}, {:?}", file.stats());
        assert_balanced(&file.stats());
    }
}
