//! What others have in the cache stays.

use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use dropbehind::flusher::Flusher;
use dropbehind::{File, Mode, OpenOptions, Stats};
use dropbehind_testbed::reclaim::{Gone, Reclaim, in_some_attempt};
use dropbehind_testbed::{pattern, residency};

use crate::accounts::{all_kept, assert_balanced, open_to_overwrite, settle};
use crate::common::{
    Dice, KIB, MIB, PATIENCE, Place, cached_bytes, check_on_disk, read_pattern, write_pattern,
};
use crate::reads::{long_reads, random_reads};

everywhere! {
    a_read_keeps_exactly_what_others_had: 32;
    a_read_counts_what_it_found_at_the_close: 32;
    a_read_of_what_is_cached_counts_it_as_kept: 16;
    an_overwrite_keeps_exactly_what_others_had: 32;
    an_overwrite_without_read_permission_keeps_exactly_what_others_had: 32;
    an_overwrite_after_a_read_keeps_exactly_what_others_had: 32;
    an_overwrite_long_after_a_read_keeps_what_others_read: 32;
    an_overwrite_after_a_mode_that_keeps_keeps_exactly_what_was_there: 32;
    an_overwrite_keeps_what_others_appended_since_the_open: 16;
    an_overwrite_keeps_what_others_read_since_an_earlier_one: 32;
    an_overwrite_keeps_what_others_wrote_beyond_the_end: 16;
    a_stream_keeps_what_others_wrote_ahead_of_it: 16;
    appends_keep_exactly_what_others_append_meanwhile: 16;
    appends_after_a_cut_keep_the_page_that_others_began: 16;
    writes_at_one_position_keep_exactly_what_others_had: 32;
    writes_at_one_position_keep_what_others_read_since_an_earlier_one: 32;
    writes_keep_what_others_had_while_the_position_moves: 32;
    random_reads_keep_exactly_what_others_had: 32;
    long_reads_at_one_position_keep_exactly_what_others_had: 96;
    what_others_cache_ahead_of_a_stream_stays: 64;
    mapped_pages_stay_and_are_counted_as_left: 32;
}

/// Caches half of the file's pages, in long and short stretches and as single pages.
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

fn a_read_keeps_exactly_what_others_had(place: &Place) {
    let path = place.cold_file(1);
    in_some_attempt(|reclaim| {
        residency::evict(&path);
        let before = warm_half(&path, place.size_bytes());
        let warm = before.iter().filter(|page| **page).count() as u64;
        let warm_bytes = warm * residency::page_bytes();
        let mut file = File::open(&path).unwrap();
        for block_bytes in [64 * KIB, 4 * KIB, 5 * MIB] {
            file.seek(SeekFrom::Start(0)).unwrap();
            let length = read_pattern(&mut file, 1, block_bytes);
            assert_eq!(length, place.size_bytes());
            settle(&file);
            assert_balanced(&file.stats());
            all_kept(reclaim, &path, &before, &file)?;
            kept_is(reclaim, &path, &file.stats(), warm_bytes)?;
        }
        Ok(())
    });
}

/// Fails if the file counts more as kept. Returns an error if it counts less, beyond what the kernel
/// took.
fn kept_is(reclaim: &Reclaim, path: &Path, stats: &Stats, warm_bytes: u64) -> Result<(), Gone> {
    assert!(stats.kept_bytes <= warm_bytes, "{warm_bytes}: {stats:?}");
    reclaim.stays(path, stats.kept_bytes, warm_bytes)
}

fn a_read_counts_what_it_found_at_the_close(place: &Place) {
    let path = place.cold_file(1);
    in_some_attempt(|reclaim| {
        residency::evict(&path);
        let before = warm_half(&path, place.size_bytes());
        let warm = before.iter().filter(|page| **page).count() as u64;
        let flusher = Flusher::builder().build().unwrap();
        let mut options = OpenOptions::new();
        let mut file = options.read(true).flusher(&flusher).open(&path).unwrap();
        read_pattern(&mut file, 1, 64 * KIB);
        // A device's last close empties its cache.
        let _witness = std::fs::File::open(&path).unwrap();
        drop(file);
        assert!(flusher.drain(PATIENCE));
        kept_is(
            reclaim,
            &path,
            &flusher.stats(),
            warm * residency::page_bytes(),
        )
    });
}

/// Nothing of it is ours, so the flusher never hears of the file.
fn a_read_of_what_is_cached_counts_it_as_kept(place: &Place) {
    let path = place.cold_file(1);
    in_some_attempt(|reclaim| {
        residency::warm(&path, 0..place.size_bytes());
        let mut file = File::open(&path).unwrap();
        read_pattern(&mut file, 1, 64 * KIB);
        kept_is(reclaim, &path, &file.stats(), place.size_bytes())
    });
}

fn a_stream_keeps_what_others_wrote_ahead_of_it(place: &Place) {
    if place.is_raw() {
        return;
    }
    let path = place.path();
    in_some_attempt(|reclaim| {
        let mut file = File::create(&path).unwrap();
        write_pattern(&mut file, 1, 0, MIB, 64 * KIB);
        others_write_ahead(&path);
        write_pattern(&mut file, 1, MIB, MIB, 64 * KIB);
        settle(&file);
        assert_balanced(&file.stats());
        let cached_bytes = cached_bytes(&path);
        assert_eq!(cached_bytes.max(8 * MIB), 8 * MIB, "{:?}", file.stats());
        reclaim.stays(&path, cached_bytes, 8 * MIB)
    });
}

/// Others write at 1 MiB.
fn others_write_ahead(path: &Path) {
    let other = std::fs::File::options().write(true).open(path).unwrap();
    other.write_all_at(&[9; 8 << 20], MIB).unwrap();
}

fn an_overwrite_keeps_exactly_what_others_had(place: &Place) {
    overwrite_keeps(place, true);
}

/// `cp` and `dd` open their output for writing only, but mincore needs a mapping, and that
/// needs a readable descriptor.
fn an_overwrite_without_read_permission_keeps_exactly_what_others_had(place: &Place) {
    overwrite_keeps(place, false);
}

fn overwrite_keeps(place: &Place, readable: bool) {
    let path = place.cold_file(1);
    in_some_attempt(|reclaim| {
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
        all_kept(reclaim, &path, &before, &file)?;
        let cached_bytes = cached_bytes(&path);
        assert!(cached_bytes <= stats.kept_bytes, "{stats:?}");
        reclaim.stays(&path, cached_bytes, stats.kept_bytes)
    });
    check_on_disk(&path, 2, place.size_bytes());
}

/// A writer looks where the position is, and another may write there first.
fn writes_at_one_position_keep_exactly_what_others_had(place: &Place) {
    writers_at_one_position(place, 0);
}

fn writes_at_one_position_keep_what_others_read_since_an_earlier_one(place: &Place) {
    writers_at_one_position(place, 4 * KIB);
}

/// Writes `first_bytes`, and then from several threads what others have half of by then.
fn writers_at_one_position(place: &Place, first_bytes: u64) {
    const WRITERS: u64 = 3;
    let path = place.cold_file(1);
    in_some_attempt(|reclaim| {
        residency::evict(&path);
        let file = open_to_overwrite(&path);
        write_pattern(&mut &file, 1, 0, first_bytes, 4 * KIB);
        (&file).rewind().unwrap();
        file.sync_all().unwrap();
        settle(&file);
        let before = warm_half(&path, place.size_bytes());
        let writes = place.size_bytes() / WRITERS / (8 * KIB);
        std::thread::scope(|scope| {
            for _ in 0..WRITERS {
                let mut file = &file;
                scope.spawn(move || {
                    for _ in 0..writes {
                        file.write_all(&[7; 8 * KIB as usize]).unwrap();
                    }
                });
            }
        });
        file.sync_all().unwrap();
        settle(&file);
        let stats = file.stats();
        assert_balanced(&stats);
        let written_bytes = first_bytes + WRITERS * writes * 8 * KIB;
        assert_eq!(stats.bytes_written, written_bytes);
        all_kept(reclaim, &path, &before, &file)
    });
}

/// A write is not where its writer has looked if another thread seeks in between.
fn writes_keep_what_others_had_while_the_position_moves(place: &Place) {
    let path = place.cold_file(1);
    in_some_attempt(|reclaim| {
        residency::evict(&path);
        let before = warm_half(&path, place.size_bytes());
        let warm = before.iter().filter(|page| **page).count();
        let file = open_to_overwrite(&path);
        let mut written_bytes = 0;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (mut seeker, done) = (&file, &done);
            scope.spawn(move || {
                let mut dice = Dice::new(3);
                while !done.load(Ordering::Relaxed) {
                    let to = dice.below(place.size_bytes() - MIB);
                    seeker.seek(SeekFrom::Start(to)).unwrap();
                }
            });
            let mut dice = Dice::new(5);
            for _ in 0..1000 {
                let block = vec![7; dice.below(10 * KIB) as usize + 1];
                (&file).write_all(&block).unwrap();
                written_bytes += block.len() as u64;
            }
            done.store(true, Ordering::Relaxed);
        });
        file.sync_all().unwrap();
        settle(&file);
        let stats = file.stats();
        assert_balanced(&stats);
        assert_eq!(stats.bytes_written, written_bytes);
        let after = residency::resident_map(&path).unwrap();
        let kept = (0..after.len()).filter(|page| before[*page] && after[*page]);
        let [kept_bytes, warm_bytes] =
            [kept.count(), warm].map(|pages| pages as u64 * residency::page_bytes());
        reclaim.stays(&path, kept_bytes, warm_bytes)
    });
}

fn an_overwrite_after_a_read_keeps_exactly_what_others_had(place: &Place) {
    overwrite_after(place, 0, |file| {
        let mut block = vec![0; MIB as usize];
        file.read_exact_at(&mut block, 0).unwrap();
    });
}

/// What others read between a first read and the first write is theirs.
fn an_overwrite_long_after_a_read_keeps_what_others_read(place: &Place) {
    let path = place.cold_file(1);
    in_some_attempt(|reclaim| {
        residency::evict(&path);
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).open(&path).unwrap();
        let mut block = vec![0; 4096];
        file.read_exact_at(&mut block, place.size_bytes() - 4096)
            .unwrap();
        settle(&file);
        std::thread::sleep(std::time::Duration::from_millis(1200));
        let before = warm_half(&path, place.size_bytes());
        write_pattern(&mut file, 2, 0, place.size_bytes(), MIB);
        file.sync_all().unwrap();
        settle(&file);
        assert_balanced(&file.stats());
        all_kept(reclaim, &path, &before, &file)
    });
    check_on_disk(&path, 2, place.size_bytes());
}

/// What the first mode has written is there, too.
fn an_overwrite_after_a_mode_that_keeps_keeps_exactly_what_was_there(place: &Place) {
    overwrite_after(place, 2 * MIB, |file| {
        file.set_mode(Mode::WRITE_THROUGH);
        write_pattern(&mut &*file, 2, 0, 2 * MIB, MIB);
        (&*file).rewind().unwrap();
    });
}

/// Writes the whole file in a mode that drops, once the flusher knows it by what happened `first`,
/// which leaves `kept_bytes` at the start.
fn overwrite_after(place: &Place, kept_bytes: u64, first: impl Fn(&File)) {
    let path = place.cold_file(1);
    in_some_attempt(|reclaim| {
        residency::evict(&path);
        let mut before = warm_half(&path, place.size_bytes());
        before[..(kept_bytes / residency::page_bytes()) as usize].fill(true);
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).open(&path).unwrap();
        first(&file);
        settle(&file);
        file.set_mode(Mode::DONTCACHE);
        write_pattern(&mut file, 2, 0, place.size_bytes(), MIB);
        file.sync_all().unwrap();
        settle(&file);
        assert_balanced(&file.stats());
        all_kept(reclaim, &path, &before, &file)
    });
    check_on_disk(&path, 2, place.size_bytes());
}

fn an_overwrite_keeps_what_others_appended_since_the_open(place: &Place) {
    if place.is_raw() {
        // A device does not grow.
        return;
    }
    let path = place.path();
    let end = place.size_bytes();
    in_some_attempt(|reclaim| {
        // Opened empty, and with something in it.
        for open_bytes in [0, MIB + 1] {
            let mut others = std::fs::File::create(&path).unwrap();
            write_pattern(&mut others, 1, 0, open_bytes, MIB);
            others.sync_all().unwrap();
            residency::evict(&path);
            let mut file = OpenOptions::new().write(true).open(&path).unwrap();
            write_pattern(&mut others, 1, open_bytes, end - open_bytes, MIB);
            others.sync_all().unwrap();
            let before = residency::resident_map(&path).unwrap();
            assert!(cached_bytes(&path) > end / 2);
            write_pattern(&mut file, 2, 0, end, MIB);
            file.sync_all().unwrap();
            settle(&file);
            assert_balanced(&file.stats());
            all_kept(reclaim, &path, &before, &file)?;
            check_on_disk(&path, 2, end);
        }
        Ok(())
    });
}

fn an_overwrite_keeps_what_others_read_since_an_earlier_one(place: &Place) {
    let path = place.cold_file(1);
    let page = residency::page_bytes();
    in_some_attempt(|reclaim| {
        residency::evict(&path);
        let file = open_to_overwrite(&path);
        // A part of these pages is still dirty, or cached, when the next ones are written.
        let mut dice = Dice::new(5);
        let pages = place.size_bytes() / page;
        for _ in 0..2000 {
            let offset = dice.below(pages) * page;
            let data = pattern::filled(1, offset, page as usize);
            file.write_all_at(&data, offset).unwrap();
        }
        settle(&file);
        assert_eq!(cached_bytes(&path), 0);
        for _ in 0..100 {
            let start = dice.below(pages) * page;
            residency::warm(&path, start..start + page);
        }
        let before = residency::resident_map(&path).unwrap();
        for _ in 0..2000 {
            let offset = dice.below(pages - 40) * page;
            let length = (dice.below(4) * 13 + 1) * page;
            let data = pattern::filled(1, offset, length as usize);
            file.write_all_at(&data, offset).unwrap();
        }
        file.sync_all().unwrap();
        settle(&file);
        assert_balanced(&file.stats());
        all_kept(reclaim, &path, &before, &file)
    });
    check_on_disk(&path, 1, place.size_bytes());
}

fn an_overwrite_keeps_what_others_wrote_beyond_the_end(place: &Place) {
    if place.is_raw() {
        // A device does not grow.
        return;
    }
    let path = place.path();
    in_some_attempt(|reclaim| {
        let others = std::fs::File::create(&path).unwrap();
        let mut file = OpenOptions::new().write(true).open(&path).unwrap();
        write_pattern(&mut file, 1, 0, MIB, MIB);
        settle(&file);
        let theirs = pattern::filled(1, 4 * MIB, MIB as usize);
        others.write_all_at(&theirs, 4 * MIB).unwrap();
        others.sync_all().unwrap();
        let before = residency::resident_map(&path).unwrap();
        file.seek(SeekFrom::Start(2 * MIB)).unwrap();
        write_pattern(&mut file, 1, 2 * MIB, 3 * MIB, 3 * MIB);
        file.seek(SeekFrom::Start(MIB)).unwrap();
        write_pattern(&mut file, 1, MIB, MIB, 64 * KIB);
        file.sync_all().unwrap();
        settle(&file);
        assert_balanced(&file.stats());
        all_kept(reclaim, &path, &before, &file)?;
        check_on_disk(&path, 1, 5 * MIB);
        Ok(())
    });
}

/// A page is theirs if they appended its first byte.
fn appends_keep_exactly_what_others_append_meanwhile(place: &Place) {
    if place.is_raw() {
        // At the end of a device there is no room to append.
        return;
    }
    let path = place.path();
    let page = residency::page_bytes();
    in_some_attempt(|reclaim| {
        let _ = std::fs::remove_file(&path);
        let mut others = std::fs::File::create(&path).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        let mut dice = Dice::new(9);
        let (mut end, mut theirs) = (0, Vec::new());
        let mut turn = 0;
        while end < place.size_bytes() {
            // The library looks where the first two of its appends went, and has learned then that
            // it is not alone.
            let is_theirs = turn == 1 || turn > 2 && dice.once_in(2);
            let length = match (turn, dice.once_in(2)) {
                (0..3, _) => 16 * KIB,
                (_, true) => dice.below(300) + 1,
                (_, false) => dice.below(30 * KIB) + 1,
            };
            turn += 1;
            if is_theirs {
                others.seek(SeekFrom::End(0)).unwrap();
                write_pattern(&mut others, 1, end, length, MIB);
            } else {
                write_pattern(&mut file, 1, end, length, MIB);
            }
            end += length;
            theirs.resize(end.div_ceil(page) as usize, is_theirs);
        }
        file.sync_all().unwrap();
        settle(&file);
        assert_balanced(&file.stats());
        all_kept(reclaim, &path, &theirs, &file)?;
        check_on_disk(&path, 1, end);
        Ok(())
    });
}

fn appends_after_a_cut_keep_the_page_that_others_began(place: &Place) {
    if place.is_raw() {
        return;
    }
    let path = place.path();
    let page = residency::page_bytes();
    // Short enough that each page is a folio of its own.
    let block = page / 2;
    in_some_attempt(|reclaim| {
        let _ = std::fs::remove_file(&path);
        let mut others = std::fs::File::create(&path).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        write_pattern(&mut file, 1, 0, 8 * page, block);
        // Of what is appended last before others append, the library may not know the place.
        settle(&file);
        others.seek(SeekFrom::End(0)).unwrap();
        write_pattern(&mut others, 1, 8 * page, 8 * page, block);
        // So that the library learns of the others.
        write_pattern(&mut file, 1, 16 * page, 8 * page, block);
        let cut = 12 * page + 100;
        file.set_len(cut).unwrap();
        write_pattern(&mut file, 1, cut, 8 * page, block);
        file.sync_all().unwrap();
        settle(&file);
        assert_balanced(&file.stats());
        let theirs: Vec<bool> = (0..21).map(|number| (8..13).contains(&number)).collect();
        all_kept(reclaim, &path, &theirs, &file)?;
        check_on_disk(&path, 1, cut + 8 * page);
        Ok(())
    });
}

fn random_reads_keep_exactly_what_others_had(place: &Place) {
    let path = place.cold_file(1);
    in_some_attempt(|reclaim| {
        residency::evict(&path);
        let before = warm_half(&path, place.size_bytes());
        let file = random_reads(place, &path);
        all_kept(reclaim, &path, &before, &file)
    });
}

fn long_reads_at_one_position_keep_exactly_what_others_had(place: &Place) {
    let path = place.cold_file(1);
    in_some_attempt(|reclaim| {
        residency::evict(&path);
        let before = warm_half(&path, place.size_bytes());
        let file = long_reads(place, &path);
        all_kept(reclaim, &path, &before, &file)
    });
}

fn what_others_cache_ahead_of_a_stream_stays(place: &Place) {
    let path = place.cold_file(1);
    in_some_attempt(|reclaim| {
        residency::evict(&path);
        let others = 40 * MIB..44 * MIB;
        let mut file = OpenOptions::new()
            .write(true)
            .window_bytes(MIB)
            .open(&path)
            .unwrap();
        write_pattern(&mut file, 1, 0, 4 * MIB, 256 * KIB);
        residency::warm(&path, others.clone());
        for step in 4..place.size_bytes() / MIB {
            write_pattern(&mut file, 1, step * MIB, MIB, 256 * KIB);
        }
        file.sync_all().unwrap();
        settle(&file);
        let stats = file.stats();
        assert_balanced(&stats);
        let mut wanted = vec![false; (place.size_bytes() / residency::page_bytes()) as usize];
        let page = |offset: u64| (offset / residency::page_bytes()) as usize;
        wanted[page(others.start)..page(others.end)].fill(true);
        all_kept(reclaim, &path, &wanted, &file)?;
        let others_bytes = others.end - others.start;
        assert!(stats.kept_bytes <= others_bytes, "{stats:?}");
        reclaim.stays(&path, stats.kept_bytes, others_bytes)
    });
}

const MAPPED: std::ops::Range<u64> = 8 * MIB..12 * MIB;

fn mapped_pages_stay_and_are_counted_as_left(place: &Place) {
    let path = place.cold_file(1);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        // Lazy: nothing is dropped before the sync, so the pages are certainly there to be
        // mapped.
        .cache_mode(Mode::NOREUSE)
        .open(&path)
        .unwrap();
    write_pattern(&mut file, 2, 0, place.size_bytes(), MIB);
    let mapping = Mapping::new(&file, MAPPED);
    mapping.touch();
    file.sync_all().unwrap();
    settle(&file);
    let stats = file.stats();
    assert_balanced(&stats);
    // The kernel may reclaim a few of them meanwhile, but we must not.
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
