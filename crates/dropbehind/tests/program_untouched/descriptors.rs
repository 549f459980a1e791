//! The program's descriptors: their numbers, their flags, their limit.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;

use dropbehind::flusher::Flusher;
use dropbehind::{File, Mode};
use dropbehind_testbed::{Fs, need, pattern, residency};

use crate::common::{KIB, Kind, MIB, PATIENCE, cached_bytes, read_pattern, write_pattern};
use crate::parts::{ext4, path_of_part, run_part};

fn descriptors() -> BTreeMap<u32, PathBuf> {
    fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| {
            let path = entry.unwrap().path();
            let number = path.file_name()?.to_str()?.parse().ok()?;
            // The descriptor of the listing itself is gone by now.
            Some((number, fs::read_link(path).ok()?))
        })
        .collect()
}

#[test]
#[ignore = "a part of another test"]
fn descriptors_stay_as_they_are() {
    let path = path_of_part();
    // Another file, to learn the number that ours will get.
    let plain = fs::File::create(&path).unwrap();
    let (number, with_plain) = (plain.as_raw_fd(), descriptors());
    drop(plain);
    let mut file = File::create(&path).unwrap();
    assert_eq!(descriptors(), with_plain);
    for part in 0..4 {
        write_pattern(&mut file, 1, part * 8 * MIB, 8 * MIB, 64 * KIB);
        assert_eq!(descriptors(), with_plain, "while it is written");
    }
    file.sync_all().unwrap();
    assert!(file.settle(PATIENCE).unwrap());
    assert_eq!(descriptors(), with_plain, "when it is written");
    assert_eq!(file.as_raw_fd(), number);
    drop(file);
    let mut file = File::open(&path).unwrap();
    let reading = descriptors();
    read_pattern(&mut &file, 1, 4 * MIB);
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut buffer = vec![0; 5 << 20];
    file.read_exact(&mut buffer).unwrap();
    assert_eq!(descriptors(), reading);
    assert_eq!(reading.len(), with_plain.len());
}

#[test]
fn the_descriptor_table_is_that_of_the_plain_program() {
    run_part("descriptors::descriptors_stay_as_they_are");
}

/// Closes everything but the standard descriptors, whoever it belongs to, as programs do
/// before they start others.
#[test]
#[ignore = "a part of another test"]
fn closes_everything() {
    let path = path_of_part();
    let mut file = File::create(&path).unwrap();
    write_pattern(&mut file, 1, 0, 24 * MIB, MIB);
    let raw = file.as_raw_fd();
    // SAFETY: this closes descriptors that others own, which is what it tests. None of them
    // is used afterwards except `file`'s, whose calls must fail as the plain program's do.
    assert_eq!(unsafe { libc::close_range(3, u32::MAX, 0) }, 0);
    assert!(fs::metadata(format!("/proc/self/fd/{raw}")).is_err());
    let error = file.write(b"more").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    let error = file.sync_all().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    // The descriptor must not be closed a second time.
    let stats = file.stats();
    std::mem::forget(file);
    // The flusher has its own descriptor, and goes on.
    assert!(Flusher::shared().unwrap().drain(PATIENCE), "{stats:?}");
    let next = path.with_extension("next");
    let mut file = File::create(&next).unwrap();
    write_pattern(&mut file, 2, 0, 24 * MIB, MIB);
    file.sync_all().unwrap();
    assert!(file.settle(PATIENCE).unwrap());
    assert_eq!(cached_bytes(&next), 0);
    assert_eq!(cached_bytes(&path), 0);
    assert_eq!(
        read_pattern(&mut fs::File::open(&path).unwrap(), 1, MIB),
        24 * MIB
    );
}

#[test]
fn a_program_that_closes_all_descriptors_goes_on() {
    run_part("descriptors::closes_everything");
}

#[test]
fn from_std_and_into_std_change_nothing_of_the_file() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = ext4(32 * MIB);
    let path = place.cold_file(1);
    let mut std = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    std.seek(SeekFrom::Start(5 * MIB)).unwrap();
    let (number, flags) = (std.as_raw_fd(), status_flags(&std));
    let mut ours = File::from_std(std, Mode::DONTCACHE).unwrap();
    assert_eq!(ours.stream_position().unwrap(), 5 * MIB);
    write_pattern(&mut ours, 2, 5 * MIB, 10 * MIB, MIB);
    let mut std = ours.into_std();
    assert_eq!(std.as_raw_fd(), number);
    assert_eq!(status_flags(&std), flags);
    assert_eq!(std.stream_position().unwrap(), 15 * MIB);
    std.sync_all().unwrap();
    assert!(Flusher::shared().unwrap().drain(PATIENCE));
    assert_eq!(cached_bytes(&path), 0);
    let mut data = vec![0; 10 << 20];
    std.read_exact_at(&mut data, 5 * MIB).unwrap();
    pattern::check(2, 5 * MIB, &data).unwrap();
    // Because of the clone, the file remains ours.
    let ours = File::from_std(std, Mode::DONTCACHE).unwrap();
    let clone = ours.try_clone().unwrap();
    drop(ours.into_std());
    clone.write_at(&data, 0).unwrap();
    assert!(clone.settle(PATIENCE).unwrap());
}

/// Of two clones that are dropped at the same moment, exactly one is the last.
#[test]
fn clones_that_end_at_once_leave_nothing_open() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = ext4(MIB);
    let path = place.path();
    for round in 0..3000 {
        let file = File::create(&path).unwrap();
        file.write_at(&[1; 4096], 0).unwrap();
        let clone = file.try_clone().unwrap();
        let together = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                together.wait();
                drop(clone);
            });
            together.wait();
            drop(file);
        });
        if round % 100 == 99 {
            assert!(Flusher::shared().unwrap().drain(PATIENCE));
            assert_eq!(open_in_any_thread(&path), 0, "after {round} rounds");
        }
    }
}

/// Descriptors of the file in the tables of all threads, since the flusher has its own table.
fn open_in_any_thread(path: &Path) -> usize {
    let of_thread = |thread: fs::DirEntry| {
        let descriptors = fs::read_dir(thread.path().join("fd")).into_iter().flatten();
        let links = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| link == path).count()
    };
    let threads = fs::read_dir("/proc/self/task").unwrap();
    threads.map(|thread| of_thread(thread.unwrap())).sum()
}

fn status_flags(file: impl AsFd) -> rustix::fs::OFlags {
    rustix::fs::fcntl_getfl(file).unwrap()
}

/// At its descriptor limit, the program still gets the last one it is entitled to, and we
/// still work.
#[test]
#[ignore = "a part of another test"]
fn few_descriptors() {
    let path = path_of_part();
    let mut file = File::create(&path).unwrap();
    let mut held = vec![fs::File::open("/dev/null").unwrap()];
    let limit = libc::rlimit {
        rlim_cur: 64,
        rlim_max: 64,
    };
    // SAFETY: the limit is a valid structure.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(set, 0);
    while let Ok(another) = fs::File::open("/dev/null") {
        held.push(another);
    }
    write_pattern(&mut file, 1, 0, 24 * MIB, MIB);
    file.sync_all().unwrap();
    assert!(file.settle(PATIENCE).unwrap());
    assert_eq!(residency::sample(&file).unwrap().cached_pages, 0);
    held.pop();
    assert_eq!(fs::File::open("/dev/null").unwrap().into_raw_fd(), 63);
}

#[test]
fn a_program_at_its_limit_of_descriptors_keeps_them_all() {
    run_part("descriptors::few_descriptors");
}
