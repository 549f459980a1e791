//! The witnesses of the page cache agree with each other and with what was
//! done.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dropbehind_testbed::reclaim::{Reclaim, in_some_attempt};
use dropbehind_testbed::residency::{self, Counts, Sampler};
use dropbehind_testbed::{Fs, LoopDisk, MountedFs, Need, Scratch, need, pattern};

const MIB: u64 = 1 << 20;

fn written_file(scratch: &Scratch, bytes: u64) -> std::path::PathBuf {
    let path = scratch.file("data");
    fs::write(&path, pattern::filled(1, 0, bytes as usize)).unwrap();
    path
}

#[test]
fn three_witnesses_agree_on_a_warmed_part() {
    need!(Need::Cachestat, Need::Tool("fincore"));
    let scratch = Scratch::new().unwrap();
    let path = written_file(&scratch, 8 * MIB);
    residency::evict(&path);
    assert_eq!(residency::cached(&path).unwrap(), Counts::default());
    assert_eq!(residency::fincore(&path).unwrap(), 0);

    let page = residency::page_bytes();
    residency::warm(&path, 2 * MIB..3 * MIB);
    let pages = MIB / page;
    assert_eq!(residency::cached(&path).unwrap().cached_pages, pages);
    assert_eq!(
        residency::sample(File::open(&path).unwrap())
            .unwrap()
            .cached_pages,
        pages
    );
    assert_eq!(residency::fincore(&path).unwrap(), pages);
    let map = residency::resident_map(&path).unwrap();
    assert_eq!(map.len() as u64, 8 * MIB / page);
    for (index, &resident) in map.iter().enumerate() {
        let warmed = (2 * MIB..3 * MIB).contains(&(index as u64 * page));
        assert_eq!(resident, warmed, "page {index}");
    }
}

#[test]
fn ranges_are_counted_by_themselves() {
    need!(Need::Cachestat);
    let scratch = Scratch::new().unwrap();
    let path = written_file(&scratch, MIB);
    residency::evict(&path);
    let page = residency::page_bytes();
    residency::warm(&path, 4 * page..6 * page);
    let count = |range| residency::cached_range(&path, range).unwrap().cached_pages;
    assert_eq!(count(0..4 * page), 0);
    assert_eq!(count(0..5 * page), 1);
    assert_eq!(count(5 * page..u64::MAX), 1);
    assert_eq!(count(0..0), 0);
    let map = residency::resident_map_of(&path, 3 * page..7 * page).unwrap();
    assert_eq!(map, [false, true, true, false]);
}

#[test]
fn dirty_pages_are_seen_until_they_are_written() {
    need!(Need::Cachestat);
    let scratch = Scratch::new().unwrap();
    let path = written_file(&scratch, MIB);
    let before = residency::cached(&path).unwrap();
    assert_eq!(before.unwritten_pages(), MIB / residency::page_bytes());
    File::open(&path).unwrap().sync_all().unwrap();
    let after = residency::cached(&path).unwrap();
    assert_eq!(after.unwritten_pages(), 0);
    assert_eq!(after.cached_pages, before.cached_pages);
}

#[test]
fn the_witness_program_prints_counts() {
    need!(Need::Cachestat);
    let scratch = Scratch::new().unwrap();
    let path = written_file(&scratch, MIB);
    File::open(&path).unwrap().sync_all().unwrap();
    let mut witness = Command::new(env!("CARGO_BIN_EXE_cachestat-witness"));
    let output = witness.arg(&path).args(["0", "8192"]).output().unwrap();
    let pages = 8192 / residency::page_bytes();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("{pages} 0 0 0\n")
    );
    let output = witness.arg("surplus").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_sampler_sees_peaks_that_are_gone() {
    need!(Need::Cachestat);
    let scratch = Scratch::new().unwrap();
    let path = written_file(&scratch, MIB);
    residency::evict(&path);
    let sampler = Sampler::start(&path, Duration::from_millis(1)).unwrap();
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(&pattern::filled(1, MIB, MIB as usize))
        .unwrap();
    std::thread::sleep(Duration::from_millis(50));
    residency::evict(&path);
    let peaks = sampler.stop().unwrap();
    let pages = MIB / residency::page_bytes();
    assert_eq!(peaks.cached_pages, pages);
    assert_eq!(peaks.unwritten_pages, pages);
    assert!(peaks.dirty_pages <= pages);
    assert!(peaks.samples >= 3);
    assert_eq!(residency::cached(&path).unwrap(), Counts::default());
}

#[test]
#[should_panic(expected = "stay of")]
fn evict_does_not_lie() {
    // A locked page cannot be dropped.
    let scratch = Scratch::new().unwrap();
    let path = written_file(&scratch, 4096);
    let file = File::open(&path).unwrap();
    // SAFETY: a new private mapping of an open file, never touched from here.
    let address = unsafe {
        let locked = libc::MAP_SHARED | libc::MAP_LOCKED;
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ,
            locked,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(address, libc::MAP_FAILED);
    residency::evict(&path);
}

#[test]
fn a_loop_disk_keeps_its_cache_while_it_lives() {
    need!(all LoopDisk::needs());
    need!(Need::Cachestat);
    let disk = LoopDisk::new(16 * MIB).unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(disk.path())
        .unwrap()
        .write_all(&vec![1; MIB as usize])
        .unwrap();
    let counts = residency::cached(disk.path()).unwrap();
    assert!(
        counts.cached_pages >= MIB / residency::page_bytes(),
        "{counts:?}"
    );
    residency::evict(disk.path());
    assert_eq!(residency::cached(disk.path()).unwrap().cached_pages, 0);
    residency::warm(disk.path(), 0..4096);
    assert!(residency::resident_map(disk.path()).unwrap()[0]);
}

#[test]
fn warming_is_exact_on_every_file_system() {
    for filesystem in Fs::ALL {
        warming_is_exact_on(filesystem);
    }
}

fn warming_is_exact_on(filesystem: Fs) {
    need!(all MountedFs::needs(filesystem));
    need!(Need::Cachestat);
    let disk = MountedFs::new(filesystem, 64 * MIB).unwrap();
    let path = disk.file("data");
    fs::write(&path, vec![1; 4 << 20]).unwrap();
    let pages = MIB / residency::page_bytes();
    in_some_attempt(|reclaim| {
        residency::evict(&path);
        residency::warm(&path, MIB..2 * MIB);
        let all = residency::cached(&path).unwrap().cached_pages;
        let inside = residency::cached_range(&path, MIB..2 * MIB).unwrap();
        let found = format!(
            "{filesystem:?}: {all} pages, then {} inside",
            inside.cached_pages
        );
        assert!(all <= pages && inside.cached_pages <= pages, "{found}");
        let least = all.min(inside.cached_pages) * residency::page_bytes();
        reclaim.stays(&path, least, MIB)
    });
}

#[test]
fn what_the_kernels_threads_take_is_told_from_what_others_drop() {
    need!(Need::Trace);
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all MountedFs::needs(filesystem));
        let disk = MountedFs::new(filesystem, 64 * MIB).unwrap();
        let paths = ["data", "other"].map(|name| disk.file(name));
        for path in &paths {
            fs::write(path, vec![1; 2 << 20]).unwrap();
            fs::File::open(path).unwrap().sync_all().unwrap();
        }
        told_apart(&paths[0], &paths[1]);
    }
    need!(all LoopDisk::needs());
    let disks = [(); 2].map(|()| LoopDisk::new(2 * MIB).unwrap());
    // A device keeps its pages only while it is open.
    let _open = [0, 1].map(|disk| fs::File::open(disks[disk].path()).unwrap());
    told_apart(disks[0].path(), disks[1].path());
}

/// No other attempt can explain it.
#[test]
fn what_only_we_can_have_dropped_fails_at_once() {
    need!(Need::Trace);
    need!(all MountedFs::needs(Fs::Ext4));
    let disk = MountedFs::new(Fs::Ext4, 64 * MIB).unwrap();
    let path = disk.file("data");
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    let attempts = AtomicU32::new(0);
    let fails = || {
        in_some_attempt(|reclaim| {
            attempts.fetch_add(1, Ordering::Relaxed);
            residency::warm(&path, 0..MIB);
            drops_as("nobody", &path);
            reclaim.stays(&path, 0, MIB)
        });
    };
    assert!(panic::catch_unwind(AssertUnwindSafe(fails)).is_err());
    // Others may have made room for theirs in some.
    assert!(attempts.into_inner() < 4);
}

fn told_apart(path: &Path, other: &Path) {
    for path in [path, other] {
        residency::evict(path);
        residency::warm(path, 0..2 * MIB);
    }
    let reclaim = Reclaim::watch();
    drops_as("nobody", path);
    drops_as("kdamond-test", other);
    let before = reclaim.bytes_of(path).unwrap();
    assert!(reclaim.stays(path, before, 2 * MIB).is_err());
    residency::warm(path, 0..MIB);
    drops_as("kdamond-test", path);
    // What the machine's own reclaim took first is not taken again.
    let taken = reclaim.bytes_of(path).unwrap();
    assert!((MIB..2 * MIB).contains(&taken), "{taken}, {before} before");
    assert_eq!(reclaim.stays(path, MIB, 2 * MIB), Ok(()));
    assert_eq!(Reclaim::watch().bytes_of(path).unwrap(), 0);
}

/// Drops a file's pages in a thread of that name.
fn drops_as(name: &str, path: &Path) {
    let path = path.to_owned();
    let thread = std::thread::Builder::new().name(name.to_owned());
    let thread = thread.spawn(move || residency::evict(&path)).unwrap();
    thread.join().unwrap();
}
