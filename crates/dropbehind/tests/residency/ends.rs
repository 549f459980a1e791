//! A program that ends, or closes its file, leaves nothing dirty behind.

use std::fs;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use dropbehind::flusher::Flusher;
use dropbehind::{File, Mode, OpenOptions};
use dropbehind_testbed::{Fs, SlowDisk, SlowDiskOptions, need, residency};

use crate::accounts::{assert_balanced, settle};
use crate::common::{FILE_VARIABLE, Kind, MIB, PATIENCE, Place, cached_bytes, part, write_pattern};

const SIZE: u64 = 40 * MIB;

fn log(mode: Mode, flusher: Option<&Flusher>, path: &std::path::Path) -> File {
    let mut options = OpenOptions::new();
    options.append(true).create(true).cache_mode(mode);
    if let Some(flusher) = flusher {
        options.flusher(flusher);
    }
    options.open(path).unwrap()
}

#[test]
fn the_tail_of_a_stream_is_requested_at_its_close() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = Place::new(Kind::Mounted(Fs::Ext4), SIZE);
    let flusher = Flusher::builder().build().unwrap();
    let mut file = log(Mode::WRITE_BEHIND, Some(&flusher), &place.path());
    write_pattern(&mut file, 1, 0, SIZE, MIB);
    drop(file);
    // The kernel would write it after half a minute, but then nobody requests it.
    let started = Instant::now();
    while flusher.stats().writeback_bytes.total() < SIZE {
        assert!(started.elapsed() < PATIENCE, "{:?}", flusher.stats());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The kernel does not free its pages at the first close.
#[test]
fn of_a_nameless_file_that_is_open_twice_nothing_stays_either() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = Place::new(Kind::Mounted(Fs::Ext4), SIZE);
    let flusher = Flusher::builder().build().unwrap();
    let mut file = log(Mode::DONTCACHE, Some(&flusher), &place.path());
    let mut other = log(Mode::DONTCACHE, Some(&flusher), &place.path());
    fs::remove_file(place.path()).unwrap();
    let page = residency::page_bytes();
    write_pattern(&mut other, 1, 0, page, page);
    settle(&other);
    write_pattern(&mut file, 1, page, SIZE, MIB);
    drop(file);
    assert!(flusher.drain(PATIENCE), "{:?}", flusher.stats());
    let opened = format!("/proc/{}/fd/{}", std::process::id(), other.as_raw_fd());
    assert_eq!(cached_bytes(opened.as_ref()), 0, "{:?}", flusher.stats());
    assert_balanced(&flusher.stats());
}

#[test]
fn what_a_program_wrote_is_on_its_way_when_it_ends() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    need!(all SlowDisk::needs());
    for mode in [
        Mode::WRITE_BEHIND,
        Mode::WRITE_BEHIND_ANY,
        Mode::WRITE_THROUGH,
        Mode::DONTCACHE,
    ] {
        for part_name in ["ends::ends_with_a_closed_log", "ends::ends_with_open_files"] {
            let disk = SlowDisk::new(SlowDiskOptions {
                size_bytes: 512 * MIB,
                ..SlowDiskOptions::default()
            })
            .unwrap();
            let mounted = disk.mount(Fs::Ext4).unwrap();
            let path = mounted.file("file");
            fs::write(&path, b"").unwrap();
            fs::File::open(&path).unwrap().sync_all().unwrap();
            // It ends before the disk has the rest.
            disk.set_write_speed(Some(20 << 20)).unwrap();
            let status = part(part_name)
                .env(FILE_VARIABLE, &path)
                .env("MODE", mode.to_string())
                .status()
                .unwrap();
            assert!(status.success(), "{status}");
            let left = residency::cached(&path).unwrap();
            disk.set_write_speed(None).unwrap();
            assert_eq!(left.dirty_pages, 0, "{mode}, {part_name}: {left:?}");
            assert!(left.writeback_pages > 0, "{mode}, {part_name}: {left:?}");
        }
    }
}

fn given() -> (Mode, std::path::PathBuf) {
    let mode = std::env::var("MODE").unwrap().parse().unwrap();
    (mode, std::env::var_os(FILE_VARIABLE).unwrap().into())
}

#[test]
#[ignore = "a part"]
fn ends_with_a_closed_log() {
    let (mode, path) = given();
    let mut file = log(mode, None, &path);
    write_pattern(&mut file, 1, 0, SIZE, MIB);
    drop(file);
    std::process::exit(0);
}

#[test]
#[ignore = "a part"]
fn ends_with_open_files() {
    let (mode, path) = given();
    let own = Flusher::builder().build().unwrap();
    for flusher in [None, Some(&own)] {
        let mut file = log(mode, flusher, &path);
        write_pattern(&mut file, 1, 0, SIZE / 2, MIB);
        std::mem::forget(file);
    }
    std::process::exit(0);
}

#[test]
#[ignore = "a part"]
fn has_no_threads() {
    let (mode, path) = given();
    let file = log(mode, None, &path);
    let nobody = 65534;
    let limit = libc::rlimit {
        rlim_cur: 1,
        rlim_max: 1,
    };
    // SAFETY: the pointer is valid during the call.
    unsafe {
        assert_eq!(libc::setuid(nobody), 0);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit), 0);
    }
    let plain = fs::File::open(&path).unwrap();
    let attached = OpenOptions::new().cache_mode(mode).attach(plain).unwrap();
    assert!(attached.without_effect().is_some());
    assert!(!attached.settle(PATIENCE));
    write_pattern(&mut &file, 1, 0, MIB, MIB);
    assert!(file.without_effect().is_some());
    assert!(!file.settle(PATIENCE).unwrap());
    let stats = file.stats();
    assert_eq!((stats.brought_bytes, stats.left_bytes), (MIB, MIB));
    assert_eq!(stats.bytes_written, MIB);
}

#[test]
fn what_a_program_without_threads_writes_counts_as_left() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = Place::new(Kind::Mounted(Fs::Ext4), SIZE);
    let status = part("ends::has_no_threads")
        .env(FILE_VARIABLE, place.path())
        .env("MODE", Mode::DONTCACHE.to_string())
        .status();
    assert!(status.unwrap().success());
}
