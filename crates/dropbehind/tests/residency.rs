//! What is in the page cache while a file is used, and afterwards: what this
//! I/O brought goes, what others had stays. On every file system and on a raw
//! block device, by the testimony of a process that knows nothing of us.

mod common;

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use common::{
    Dice, KIB, MIB, PATIENCE, Place, cached_bytes, check_on_disk, read_pattern, write_pattern,
};
use dropbehind::{File, Flusher, Mode, OpenOptions, Stats, Strategy};
use dropbehind_testbed::attempts::{Gone, in_some_attempt};
use dropbehind_testbed::residency::{self, Sampler};
use dropbehind_testbed::{disk_io, pattern};

/// Runs each test on each kind of place, on a disk of its own.
macro_rules! everywhere {
    ($($name:ident: $size:expr;)*) => {
        everywhere!(@on ext4, Kind::Mounted(Fs::Ext4), $($name: $size;)*);
        everywhere!(@on xfs, Kind::Mounted(Fs::Xfs), $($name: $size;)*);
        everywhere!(@on btrfs, Kind::Mounted(Fs::Btrfs), $($name: $size;)*);
        everywhere!(@on raw_device, Kind::RawDevice, $($name: $size;)*);
    };
    (@on $place:ident, $kind:expr, $($name:ident: $size:expr;)*) => {
        mod $place {
            use crate::common::{Kind, MIB, Place};
            #[allow(unused_imports, reason = "a raw device has no file system")]
            use dropbehind_testbed::{Fs, need};

            $(
                #[test]
                fn $name() {
                    need!(all $kind.needs());
                    super::$name(&Place::new($kind, $size * MIB));
                }
            )*
        }
    };
}

everywhere! {
    a_file_written_leaves_nothing_and_stays_below_64_mib: 256;
    a_file_overwritten_leaves_nothing: 64;
    a_closed_file_leaves_nothing_once_drained: 48;
    appends_leave_nothing: 24;
    native_writes_of_a_new_file_leave_nothing: 24;
    a_read_keeps_exactly_what_others_had: 32;
    an_overwrite_keeps_exactly_what_others_had: 32;
    an_overwrite_without_read_permission_keeps_exactly_what_others_had: 32;
    sequential_reads_cost_one_read_and_little_memory: 96;
    random_reads_leave_nothing: 64;
    random_reads_keep_exactly_what_others_had: 32;
    random_writes_leave_nothing: 64;
    a_file_read_again_and_again_leaves_nothing: 8;
    reads_on_a_disk_with_little_readahead_leave_nothing: 48;
    threads_at_one_position_leave_nothing: 64;
    noreuse_leaves_nothing_once_synced: 32;
    modes_that_keep_keep_everything: 16;
    one_write_can_keep_its_pages: 32;
    one_read_can_drop_its_pages: 16;
    what_others_cache_ahead_of_a_stream_stays: 64;
    mapped_pages_stay_and_are_counted_as_left: 32;
}

/// Every byte brought in is either gone or known to be left.
fn assert_balanced(stats: &Stats) {
    assert_eq!(
        stats.brought_bytes,
        stats.dropped_bytes + stats.left_bytes,
        "{stats:?}"
    );
}

fn settle(file: &File) {
    assert!(file.settle(PATIENCE).unwrap(), "{:?}", file.stats());
}

/// Says so when less is cached than should be; more than that is a failure.
fn all_cached(path: &Path, wanted_bytes: u64) -> Result<(), Gone> {
    let cached = cached_bytes(path);
    assert!(cached <= wanted_bytes, "{cached} of {wanted_bytes}");
    if cached == wanted_bytes {
        return Ok(());
    }
    Err(format!("{cached} of {wanted_bytes} bytes are cached"))
}

/// A writer that does not empty what is there.
fn open_to_overwrite(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

/// A new file, or the device.
fn create(place: &Place, mode: Mode) -> File {
    OpenOptions::new()
        .write(true)
        .create(!place.is_raw())
        .mode(mode)
        .open(place.path())
        .unwrap()
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
    // Not a multiple of anything: the last page is partial.
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

/// Where an append goes only the kernel knows.
fn appends_leave_nothing(place: &Place) {
    if place.is_raw() {
        // A device's end is where there is no room.
        return;
    }
    let path = place.path();
    fs::write(&path, pattern::filled(1, 0, 5000)).unwrap();
    residency::evict(&path);
    let open = || OpenOptions::new().append(true).create(true).open(&path);
    let (mut one, mut other) = (open().unwrap(), open().unwrap());
    let mut end = 5000;
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
    assert_eq!(cached_bytes(&path), 0);
    check_on_disk(&path, 1, end);
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
    // Where the file system does not know the flag, the flusher does it.
    assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
    assert_eq!(file.stats().bytes_written, place.size_bytes());
    drop(file);
    check_on_disk(&path, 1, place.size_bytes());
}

/// Half of the file's pages, in stretches long and short, single pages too.
fn warm_half(path: &Path, size_bytes: u64) -> Vec<bool> {
    residency::warm(path, 3 * MIB..size_bytes / 2 + MIB);
    let mut dice = Dice::new(7);
    let page = residency::page_bytes();
    for _ in 0..100 {
        let start = dice.below(size_bytes / page) * page;
        residency::warm(path, start..start + page);
    }
    residency::warm(path, size_bytes - page..size_bytes);
    let map = residency::resident_map(path).unwrap();
    let warm = map.iter().filter(|page| **page).count();
    assert!((map.len() / 3..map.len() * 2 / 3).contains(&warm));
    map
}

/// Where two maps differ, for a message that can be read.
fn compare(wanted: &[bool], found: &[bool], file: &File) -> Result<(), Gone> {
    assert_eq!(wanted.len(), found.len());
    let pages = |wanted_there: bool| {
        let differs =
            move |page: &usize| wanted[*page] == wanted_there && found[*page] != wanted_there;
        (0..wanted.len()).filter(differs)
    };
    if let Some(first) = pages(false).next() {
        let count = pages(false).count();
        panic!(
            "{count} pages too many, from {first} on; {:?}",
            file.stats()
        );
    }
    match pages(true).next() {
        None => Ok(()),
        Some(first) => Err(format!(
            "{} pages gone, from {first} on",
            pages(true).count()
        )),
    }
}

fn all_kept(path: &Path, before: &[bool], file: &File) -> Result<(), Gone> {
    let after = residency::resident_map(path).unwrap();
    compare(before, &after, file)?;
    let warm_bytes = before.iter().filter(|page| **page).count() as u64 * residency::page_bytes();
    all_cached(path, warm_bytes)
}

fn a_read_keeps_exactly_what_others_had(place: &Place) {
    let path = place.cold_file(1);
    in_some_attempt(|| {
        residency::evict(&path);
        let before = warm_half(&path, place.size_bytes());
        let mut file = File::open(&path).unwrap();
        for block_bytes in [64 * KIB, 4 * KIB, 5 * MIB] {
            file.seek(SeekFrom::Start(0)).unwrap();
            let length = read_pattern(&mut file, 1, block_bytes);
            assert_eq!(length, place.size_bytes());
            settle(&file);
            assert_balanced(&file.stats());
            all_kept(&path, &before, &file)?;
        }
        Ok(())
    });
}

fn an_overwrite_keeps_exactly_what_others_had(place: &Place) {
    overwrite_keeps(place, true);
}

/// `cp` and `dd` open what they write to for writing only, and mincore wants a
/// mapping, which wants a readable descriptor.
fn an_overwrite_without_read_permission_keeps_exactly_what_others_had(place: &Place) {
    overwrite_keeps(place, false);
}

fn overwrite_keeps(place: &Place, readable: bool) {
    let path = place.cold_file(1);
    in_some_attempt(|| {
        residency::evict(&path);
        let before = warm_half(&path, place.size_bytes());
        let mut file = OpenOptions::new()
            .read(readable)
            .write(true)
            .open(&path)
            .unwrap();
        write_pattern(&mut file, 2, 0, place.size_bytes(), MIB);
        file.sync_all().unwrap();
        settle(&file);
        let stats = file.stats();
        assert_balanced(&stats);
        assert_eq!(
            stats.kept_bytes + stats.brought_bytes,
            place.size_bytes(),
            "{stats:?}"
        );
        all_kept(&path, &before, &file)?;
        assert_eq!(stats.kept_bytes, cached_bytes(&path), "{stats:?}");
        Ok(())
    });
    check_on_disk(&path, 2, place.size_bytes());
}

fn sequential_reads_cost_one_read_and_little_memory(place: &Place) {
    let path = place.cold_file(1);
    for block_bytes in [4 * KIB, 64 * KIB, MIB] {
        residency::evict(&path);
        let mut file = File::open(&path).unwrap();
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
        assert!(
            read_bytes >= place.size_bytes() && read_bytes * 100 <= place.size_bytes() * 102,
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
    let file = random_reads(place, &path);
    assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
}

fn random_reads_keep_exactly_what_others_had(place: &Place) {
    let path = place.cold_file(1);
    in_some_attempt(|| {
        residency::evict(&path);
        let before = warm_half(&path, place.size_bytes());
        let file = random_reads(place, &path);
        all_kept(&path, &before, &file)
    });
}

fn random_reads(place: &Place, path: &Path) -> File {
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

/// Pages of an earlier pass that still wait to be dropped are not somebody
/// else's.
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

/// What we ask to be read ahead is cut to what the disk's queue is set to.
fn reads_on_a_disk_with_little_readahead_leave_nothing(place: &Place) {
    let device = place.device().file_name().unwrap().to_str().unwrap();
    let queue = format!("/sys/block/{device}/queue");
    fs::write(format!("{queue}/read_ahead_kb"), "64").unwrap();
    fs::write(format!("{queue}/max_sectors_kb"), "128").unwrap();
    // What is known of a disk is known to its flusher from its first file on.
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

fn random_writes_leave_nothing(place: &Place) {
    let path = place.cold_file(1);
    let file = open_to_overwrite(&path);
    let mut dice = Dice::new(12);
    let mut touched = 0;
    for _ in 0..1500 {
        let length = dice.below(64 * KIB) + 1;
        let offset = dice.below(place.size_bytes() - length);
        // The same pattern again: the whole file can be checked at the end.
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
        // The kernel itself loses count there: it locks the position of
        // regular files only.
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

fn noreuse_leaves_nothing_once_synced(place: &Place) {
    let path = place.path();
    let mut file = create(place, Mode::NOREUSE);
    write_pattern(&mut file, 1, 0, place.size_bytes(), MIB);
    // The kernel decides when to write, and nothing is dropped before.
    assert_eq!(file.stats().writeback_bytes.total(), 0);
    file.sync_all().unwrap();
    settle(&file);
    assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
    assert_balanced(&file.stats());
    drop(file);
    check_on_disk(&path, 1, place.size_bytes());
}

fn modes_that_keep_keep_everything(place: &Place) {
    let path = place.path();
    for mode in Mode::ALL.into_iter().filter(|mode| !mode.drops()) {
        in_some_attempt(|| {
            if path.exists() {
                residency::evict(&path);
            }
            let mut file = create(place, mode);
            write_pattern(&mut file, 1, 0, place.size_bytes(), MIB);
            file.sync_all().unwrap();
            settle(&file);
            all_cached(&path, place.size_bytes())?;
            assert_eq!(file.stats().dropped_bytes, 0, "{mode}");
            drop(file);
            residency::evict(&path);
            let mut file = OpenOptions::new()
                .read(true)
                .mode(mode)
                .open(&path)
                .unwrap();
            assert_eq!(read_pattern(&mut file, 1, MIB), place.size_bytes());
            settle(&file);
            assert_eq!(file.stats().dropped_bytes, 0, "{mode}");
            all_cached(&path, place.size_bytes())
        });
    }
}

const BLOCK: u64 = 256 * KIB;

/// The blocks that are written or read in a mode that keeps, in one that drops.
fn is_kept(block: u64) -> bool {
    block % 5 == 2
}

fn mode_of(block: u64) -> Mode {
    if is_kept(block) {
        Mode::BUFFERED
    } else {
        Mode::DONTCACHE
    }
}

fn one_write_can_keep_its_pages(place: &Place) {
    let path = place.path();
    in_some_attempt(|| {
        if path.exists() {
            residency::evict(&path);
        }
        let file = create(place, Mode::DONTCACHE);
        for block in 0..place.size_bytes() / BLOCK {
            let offset = block * BLOCK;
            let data = pattern::filled(1, offset, BLOCK as usize);
            // Also what was brought in to be dropped is kept from then on.
            for mode in [Mode::DONTCACHE, mode_of(block)] {
                let count = file.write_at_with(&data, offset, mode).unwrap();
                assert_eq!(count, data.len());
            }
        }
        file.sync_all().unwrap();
        settle(&file);
        assert_balanced(&file.stats());
        all_kept(&path, &kept_blocks(place), &file)
    });
    check_on_disk(&path, 1, place.size_bytes());
}

fn one_read_can_drop_its_pages(place: &Place) {
    let path = place.cold_file(1);
    in_some_attempt(|| {
        residency::evict(&path);
        let file = OpenOptions::new()
            .read(true)
            // No readahead of the kernel's: it would bring in more than asked.
            .random(true)
            .mode(Mode::BUFFERED)
            .open(&path)
            .unwrap();
        let mut buffer = vec![0; BLOCK as usize];
        // Backwards: what a sequential reader has read ahead is its own, also
        // when a call that keeps comes to read it.
        for block in (0..place.size_bytes() / BLOCK).rev() {
            let offset = block * BLOCK;
            let count = file
                .read_at_with(&mut buffer, offset, mode_of(block))
                .unwrap();
            pattern::check(1, offset, &buffer[..count]).unwrap();
        }
        settle(&file);
        assert_balanced(&file.stats());
        all_kept(&path, &kept_blocks(place), &file)
    });
}

fn kept_blocks(place: &Place) -> Vec<bool> {
    let page_count = place.size_bytes() / residency::page_bytes();
    let pages_a_block = BLOCK / residency::page_bytes();
    (0..page_count)
        .map(|page| is_kept(page / pages_a_block))
        .collect()
}

fn what_others_cache_ahead_of_a_stream_stays(place: &Place) {
    let path = place.cold_file(1);
    in_some_attempt(|| {
        residency::evict(&path);
        let others = 40 * MIB..44 * MIB;
        let mut file = OpenOptions::new()
            .write(true)
            .window_bytes(MIB)
            .open(&path)
            .unwrap();
        write_pattern(&mut file, 1, 0, 4 * MIB, 256 * KIB);
        // The flusher looks ahead once a second, beyond what the writer may
        // have touched in the meantime.
        std::thread::sleep(Duration::from_millis(1200));
        residency::warm(&path, others.clone());
        for step in 4..place.size_bytes() / MIB {
            write_pattern(&mut file, 1, step * MIB, MIB, 256 * KIB);
            std::thread::sleep(Duration::from_millis(10));
        }
        file.sync_all().unwrap();
        settle(&file);
        let stats = file.stats();
        assert_balanced(&stats);
        let mut wanted = vec![false; (place.size_bytes() / residency::page_bytes()) as usize];
        let page = |offset: u64| (offset / residency::page_bytes()) as usize;
        wanted[page(others.start)..page(others.end)].fill(true);
        all_kept(&path, &wanted, &file)?;
        assert_eq!(stats.kept_bytes, others.end - others.start, "{stats:?}");
        Ok(())
    });
}

const MAPPED: std::ops::Range<u64> = 8 * MIB..12 * MIB;

fn mapped_pages_stay_and_are_counted_as_left(place: &Place) {
    let path = place.cold_file(1);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        // Lazy: nothing is dropped before the sync, so that the pages can be
        // mapped while they are there for sure.
        .mode(Mode::NOREUSE)
        .open(&path)
        .unwrap();
    write_pattern(&mut file, 2, 0, place.size_bytes(), MIB);
    let mapping = Mapping::new(&file, MAPPED);
    mapping.touch();
    file.sync_all().unwrap();
    settle(&file);
    let stats = file.stats();
    assert_balanced(&stats);
    // The kernel may reclaim a few of them meanwhile, but we do not.
    let mapped_bytes = MAPPED.end - MAPPED.start;
    let most = mapped_bytes / 10 * 9;
    assert!(stats.left_bytes >= most, "{stats:?}");
    assert!(cached_bytes(&path) <= stats.left_bytes, "{stats:?}");
    let there = residency::cached_range(&path, MAPPED).unwrap();
    assert!(there.cached_pages * residency::page_bytes() >= most);
    drop(mapping);
}

/// A shared, readable mapping of part of a file.
struct Mapping {
    address: *mut std::ffi::c_void,
    length: usize,
}

impl Mapping {
    fn new(file: impl AsFd, range: std::ops::Range<u64>) -> Mapping {
        let length = usize::try_from(range.end - range.start).unwrap();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                rustix::mm::ProtFlags::READ,
                rustix::mm::MapFlags::SHARED,
                file,
                range.start,
            )
        }
        .unwrap();
        Mapping { address, length }
    }

    fn touch(&self) {
        for offset in (0..self.length).step_by(4096) {
            // SAFETY: inside the mapping, which is readable; nobody truncates
            // the file meanwhile.
            unsafe { self.address.cast::<u8>().add(offset).read_volatile() };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made in `new`, and nothing refers to it any more.
        unsafe { rustix::mm::munmap(self.address, self.length) }.unwrap();
    }
}
