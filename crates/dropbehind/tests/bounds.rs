//! Bounds on unwritten data: dirty data stays bounded however slow the disk is, files that
//! are soon deleted are never written, and nothing is forgotten.

mod common;

use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::{FILE_VARIABLE, KIB, Kind, MIB, PATIENCE, Place, cached_bytes, part, write_pattern};
use dropbehind::flusher::Flusher;
use dropbehind::stats::Reason;
use dropbehind::{File, Mode, OpenOptions};
use dropbehind_linux::{Access, DiskInfo, Presence, advise_access, drop_clean};
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::{self, Peaks, Sampler};
use dropbehind_testbed::slow_disk::RequestKind;
use dropbehind_testbed::{Fs, MountedFs, Need, SlowDisk, SlowDiskOptions, need, pattern};
use rustix::process::{Resource, Rlimit, setrlimit};

struct Slow {
    disk: SlowDisk,
    mounted: Option<MountedFs>,
}

impl Slow {
    fn needs(filesystem: Option<Fs>) -> Vec<Need> {
        let mut needs = SlowDisk::needs();
        needs.extend(filesystem.into_iter().flat_map(Fs::needs));
        needs.push(Need::Cachestat);
        needs
    }

    fn new(filesystem: Option<Fs>, bytes_per_second: u64) -> Slow {
        let disk = SlowDisk::new(SlowDiskOptions {
            size_bytes: 512 * MIB,
            ..SlowDiskOptions::default()
        })
        .unwrap();
        let mounted = filesystem.map(|filesystem| disk.mount(filesystem).unwrap());
        disk.set_write_speed(Some(bytes_per_second)).unwrap();
        Slow { disk, mounted }
    }

    fn path(&self, name: &str) -> PathBuf {
        match &self.mounted {
            Some(mounted) => mounted.file(name),
            None => self.disk.device().to_owned(),
        }
    }

    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.write(true).create(self.mounted.is_some());
        options
    }
}

/// The kernel marks a folio as under writeback before it clears its dirty mark, and cachestat
/// takes no lock. So a folio may be counted as both. A folio is at most as long as a write,
/// so allow for one of those.
fn counted_twice(block_bytes: u64) -> u64 {
    block_bytes
}

fn unwritten_bytes(peaks: &Peaks) -> u64 {
    peaks.unwritten_pages * residency::page_bytes()
}

fn watch(path: &Path) -> Sampler {
    Sampler::start(path, Duration::from_millis(1)).unwrap()
}

/// Writes a file, and returns the most bytes that were in flight once the flusher has seen what
/// else happens on the disk.
fn most_in_flight(slow: &Slow) -> u64 {
    let path = slow.path("written");
    let mut file = slow
        .options()
        .cache_mode(Mode::DONTCACHE)
        .open(&path)
        .unwrap();
    write_pattern(&mut file, 1, 0, 96 * MIB, MIB);
    let sampler = watch(&path);
    write_pattern(&mut file, 1, 96 * MIB, 64 * MIB, MIB);
    let peaks = sampler.stop().unwrap();
    file.sync_all().unwrap();
    fs::remove_file(&path).unwrap();
    peaks.writeback_pages * residency::page_bytes()
}

#[test]
fn little_is_in_flight_beside_readers() {
    need!(all Slow::needs(Some(Fs::Ext4)));
    let slow = Slow::new(Some(Fs::Ext4), 150 * MIB);
    let read = slow.path("read");
    fs::write(&read, pattern::filled(2, 0, MIB as usize)).unwrap();
    let reader = fs::File::open(&read).unwrap();
    reader.sync_all().unwrap();
    advise_access(reader.as_fd(), Access::Random).unwrap();
    // On a busy machine, the flusher or the sampler may get no processor in time.
    let much_alone = (0..4).any(|_| most_in_flight(&slow) >= 8 * MIB);
    let stopped = AtomicBool::new(false);
    let beside = thread::scope(|scope| {
        scope.spawn(|| {
            let mut page = [0; 4096];
            while !stopped.load(Ordering::Relaxed) {
                drop_clean(reader.as_fd(), 0, 0).unwrap();
                reader.read_exact_at(&mut page, 0).unwrap();
            }
        });
        let beside = most_in_flight(&slow);
        stopped.store(true, Ordering::Relaxed);
        beside
    });
    assert!(much_alone, "less than 8 MiB alone");
    assert!(beside <= 3 * MIB, "{} MiB beside a reader", beside / MIB);
}

/// Writes much faster than a disk of 50 MB/s. Returns the most bytes that were not on the
/// disk at any time, and those when the closing sync began.
fn stream_to(slow: &Slow, mode: Mode, window_bytes: u64, block_bytes: u64) -> (u64, u64) {
    const LENGTH: u64 = 24 * MIB;
    let path = slow.path("data");
    let mut file = slow
        .options()
        .cache_mode(mode)
        .window_bytes(window_bytes)
        .open(&path)
        .unwrap();
    let sampler = watch(&path);
    let started = Instant::now();
    write_pattern(&mut file, 1, 0, LENGTH, block_bytes);
    let written = started.elapsed();
    let peaks = sampler.stop().unwrap();
    let left = residency::sample(fs::File::open(&path).unwrap()).unwrap();
    file.sync_all().unwrap();
    let share = 1.0 - written.as_secs_f64() / started.elapsed().as_secs_f64();
    println!(
        "{mode}, window {} KiB, blocks {} KiB: at most {} KiB not written, {} KiB at the sync, \
         which took {:.1} % of the time",
        window_bytes >> 10,
        block_bytes >> 10,
        unwritten_bytes(&peaks) >> 10,
        (left.unwritten_pages() * residency::page_bytes()) >> 10,
        share * 100.0
    );
    assert!(peaks.samples > 20, "{peaks:?}");
    let stats = file.stats();
    assert!(stats.waits > 0, "the disk was not slow: {stats:?}");
    assert!(file.settle(PATIENCE).unwrap());
    (
        unwritten_bytes(&peaks),
        left.unwritten_pages() * residency::page_bytes(),
    )
}

fn dirty_data_stay_below_two_windows_and_a_write(filesystem: Option<Fs>) {
    need!(all Slow::needs(filesystem));
    for (mode, window_bytes, block_bytes) in [
        (Mode::WRITE_BEHIND_ANY, 2 * MIB, 64 * KIB),
        (Mode::WRITE_BEHIND_ANY, MIB, MIB),
        (Mode::DONTCACHE, 2 * MIB, 256 * KIB),
        (Mode::WRITE_THROUGH, MIB, 4 * KIB),
    ] {
        let slow = Slow::new(filesystem, 50_000_000);
        let (peak, at_sync) = stream_to(&slow, mode, window_bytes, block_bytes);
        // The kernel counts a page twice if it is written again while under writeback, and
        // each write shares one page with the next.
        let bound = 2 * window_bytes + block_bytes + counted_twice(block_bytes);
        assert!(peak <= bound, "{mode}: {peak} of {bound}");
        assert!(at_sync <= bound, "{mode}: {at_sync} of {bound}");
    }
}

#[test]
fn dirty_data_on_ext4_stay_below_two_windows_and_a_write() {
    dirty_data_stay_below_two_windows_and_a_write(Some(Fs::Ext4));
}

#[test]
fn dirty_data_of_a_raw_device_stay_below_two_windows_and_a_write() {
    dirty_data_stay_below_two_windows_and_a_write(None);
}

/// Writes to a disk of 50 MB/s. Returns the most bytes that were not on the disk at any time,
/// and how many flushers shared the disk in the end.
fn peak_of_a_writer(slow: &Slow, number: usize) -> (u64, u64) {
    const LENGTH: u64 = 48 * MIB;
    let flusher = Flusher::builder().build().unwrap();
    let path = slow.path(&format!("data-{number}"));
    let mut options = slow.options();
    let options = options.cache_mode(Mode::DONTCACHE).flusher(&flusher);
    let mut file = options.open(&path).unwrap();
    let sampler = watch(&path);
    write_pattern(&mut file, 1, 0, LENGTH, 64 * KIB);
    let flushers = flusher.disks_stats()[0].flushers;
    let peak = unwritten_bytes(&sampler.stop().unwrap());
    assert!(file.settle(PATIENCE).unwrap());
    println!(
        "one of {flushers} flushers: at most {} KiB not written",
        peak >> 10
    );
    (peak, flushers)
}

/// Several programs that use the library don't multiply the dirty data.
#[test]
fn flushers_share_the_window_of_a_disk() {
    need!(all Slow::needs(Some(Fs::Ext4)));
    // On a busy machine they notice each other late, and begin with a full window each.
    in_some_attempt(|_| {
        let slow = Slow::new(Some(Fs::Ext4), 50_000_000);
        // The disk writes 12 MB in a quarter of a second, and two such windows are allowed.
        let (alone, _) = peak_of_a_writer(&slow, 0);
        assert!(alone > 12 * MIB, "{alone}");
        let slow = &slow;
        let shared: u64 = thread::scope(|scope| {
            let writers: Vec<_> = (1..=7)
                .map(|number| scope.spawn(move || peak_of_a_writer(slow, number).0))
                .collect();
            writers
                .into_iter()
                .map(|writer| writer.join().unwrap())
                .sum()
        });
        match shared < 7 * 8 * MIB {
            true => Ok(()),
            false => Err(format!("{} KiB", shared >> 10)),
        }
    });
}

/// Any process can hold locks that look like a flusher's.
#[test]
fn who_does_not_write_has_no_large_share_of_a_disk() {
    need!(all Slow::needs(Some(Fs::Ext4)));
    let slow = Slow::new(Some(Fs::Ext4), 50_000_000);
    let device = fs::metadata(slow.disk.device()).unwrap().rdev();
    let device = DiskInfo::from_device(device).unwrap();
    let (entered, has_entered) = mpsc::channel();
    let ends: Vec<mpsc::Sender<()>> = (0..100)
        .map(|_| {
            let (device, entered) = (device.clone(), entered.clone());
            let (end, ended) = mpsc::channel();
            thread::spawn(move || {
                let mut presence = Presence::new(&device).unwrap();
                presence.enter().unwrap();
                entered.send(()).unwrap();
                let _ = ended.recv();
            });
            has_entered.recv().unwrap();
            end
        })
        .collect();
    let (_, flushers) = peak_of_a_writer(&slow, 0);
    assert!(flushers <= 8, "{flushers}");
    drop(ends);
}

/// Mode 1 writes behind what is appended, and leaves overwrites to the kernel.
#[test]
fn write_behind_is_for_appending_writes_only() {
    need!(all Slow::needs(Some(Fs::Ext4)));
    let slow = Slow::new(Some(Fs::Ext4), 50_000_000);
    let (peak, _) = stream_to(&slow, Mode::WRITE_BEHIND, MIB, 64 * KIB);
    let bound = 2 * MIB + 64 * KIB + counted_twice(64 * KIB);
    assert!(peak <= bound, "{peak}");
    // The file is complete now: writing it again appends nothing.
    slow.disk.set_write_speed(None).unwrap();
    let path = slow.path("data");
    residency::evict(&path);
    let mut file = slow
        .options()
        .cache_mode(Mode::WRITE_BEHIND)
        .window_bytes(MIB)
        .open(&path)
        .unwrap();
    write_pattern(&mut file, 2, 0, 16 * MIB, 64 * KIB);
    let now = residency::sample(fs::File::open(&path).unwrap()).unwrap();
    assert_eq!(now.dirty_pages * residency::page_bytes(), 16 * MIB);
    assert_eq!(file.stats().writeback_bytes.total(), 0);
}

/// Mode 2 writes behind overwrites in order, too. What is random is left to the kernel, and what is
/// synchronous or direct is on the disk already.
#[test]
fn write_behind_any_is_for_all_sequential_writes() {
    const LENGTH: u64 = 16 * MIB;
    const WINDOW: u64 = MIB;
    need!(all Slow::needs(Some(Fs::Ext4)));
    let slow = Slow::new(Some(Fs::Ext4), 1 << 40);
    let path = slow.path("data");
    // Direct writes need aligned memory.
    let memory = vec![1; (64 * KIB + 4096) as usize];
    let start = memory.as_ptr().align_offset(4096);
    let block = &memory[start..start + (64 * KIB) as usize];
    let unwritten_bytes = || {
        let counts = residency::sample(fs::File::open(&path).unwrap()).unwrap();
        counts.unwritten_pages() * residency::page_bytes()
    };
    for (flags, random, most_sent, most_unwritten) in [
        (
            0,
            false,
            LENGTH,
            2 * WINDOW + 64 * KIB + counted_twice(64 * KIB),
        ),
        (0, true, 0, LENGTH),
        (libc::O_DSYNC, false, 0, 0),
        (libc::O_SYNC, false, 0, 0),
        (libc::O_DIRECT, false, 0, 0),
    ] {
        fs::write(&path, pattern::filled(2, 0, LENGTH as usize)).unwrap();
        fs::File::open(&path).unwrap().sync_all().unwrap();
        residency::evict(&path);
        let mut options = slow.options();
        options.custom_flags(flags).random(random);
        options
            .cache_mode(Mode::WRITE_BEHIND_ANY)
            .window_bytes(WINDOW);
        let mut file = options.open(&path).unwrap();
        for _ in 0..LENGTH / (64 * KIB) {
            file.write_all(block).unwrap();
        }
        let what = format!("flags {flags:#o}, random: {random}");
        let (sent, unwritten) = (file.stats().writeback_bytes.total(), unwritten_bytes());
        println!(
            "{what}: sent {} KiB, {} KiB not written",
            sent >> 10,
            unwritten >> 10
        );
        assert!(
            sent <= most_sent && unwritten <= most_unwritten,
            "{what}: {sent}, {unwritten}"
        );
        // Whatever was not sent is there.
        let least_sent = most_sent.saturating_sub(most_unwritten);
        assert!(sent >= least_sent, "{what}: {sent}");
    }
}

/// The kernel's flusher writes the oldest dirty files, whoever dirtied them.
#[test]
fn what_others_have_dirty_is_left_to_the_kernel() {
    need!(all Slow::needs(Some(Fs::Ext4)));
    let slow = Slow::new(Some(Fs::Ext4), 1 << 40);
    let (others, ours) = (slow.path("others"), slow.path("ours"));
    let data = pattern::filled(1, 0, (16 * MIB) as usize);
    in_some_attempt(|_| {
        fs::write(&others, &data).unwrap();
        let mut options = slow.options();
        let mut file = options.cache_mode(Mode::DONTCACHE).open(&ours).unwrap();
        write_pattern(&mut file, 2, 0, 64 * MIB, 64 * KIB);
        assert!(file.settle(PATIENCE).unwrap());
        assert_eq!(cached_bytes(&ours), 0, "{:?}", file.stats());
        let counts = residency::sample(fs::File::open(&others).unwrap()).unwrap();
        // The kernel may write it by itself after half a minute.
        match counts.dirty_pages * residency::page_bytes() {
            dirty if dirty == 16 * MIB => Ok(()),
            _ => Err(format!("{counts:?}")),
        }
    });
}

#[test]
fn streams_side_by_side_are_bounded_each() {
    const STREAMS: u64 = 8;
    const WINDOW: u64 = 512 * KIB;
    need!(all Slow::needs(Some(Fs::Ext4)));
    let slow = Slow::new(Some(Fs::Ext4), 50_000_000);
    let flusher = Flusher::builder().build().unwrap();
    std::thread::scope(|scope| {
        for stream in 0..STREAMS {
            let (slow, flusher) = (&slow, &flusher);
            scope.spawn(move || {
                let path = slow.path(&format!("stream-{stream}"));
                let mut file = slow
                    .options()
                    .window_bytes(WINDOW)
                    .flusher(flusher)
                    .open(&path)
                    .unwrap();
                let sampler = watch(&path);
                write_pattern(&mut file, stream, 0, 5 * MIB, 64 * KIB);
                let peak = unwritten_bytes(&sampler.stop().unwrap());
                let bound = 2 * WINDOW + 64 * KIB + counted_twice(64 * KIB);
                assert!(peak <= bound, "stream {stream}: {peak}");
                let waits = file.stats().waits;
                assert!(waits > 0, "stream {stream} did not wait");
            });
        }
    });
    slow.disk.set_write_speed(None).unwrap();
    assert!(flusher.drain(PATIENCE), "{:?}", flusher.stats());
    for stream in 0..STREAMS {
        let path = slow.path(&format!("stream-{stream}"));
        assert_eq!(cached_bytes(&path), 0);
        let data = fs::read(&path).unwrap();
        assert_eq!(data.len() as u64, 5 * MIB);
        pattern::check(stream, 0, &data).unwrap();
    }
}

#[test]
fn a_temporary_file_deleted_soon_is_not_written() {
    need!(all Slow::needs(Some(Fs::Ext4NoJournal)));
    let slow = Slow::new(Some(Fs::Ext4NoJournal), 1 << 40);
    let flusher = Flusher::builder().build().unwrap();
    slow.disk.forget_requests().unwrap();
    for round in 0..10 {
        let path = slow.path(&format!("temporary-{round}"));
        let mut file = slow.options().flusher(&flusher).open(&path).unwrap();
        write_pattern(&mut file, round, 0, 600 * KIB, 64 * KIB);
        // Some are deleted while open, some after they are closed.
        match round % 3 {
            0 => {
                fs::remove_file(&path).unwrap();
                drop(file);
            }
            1 => {
                fs::remove_file(&path).unwrap();
                file.close().unwrap();
            }
            _ => {
                drop(file);
                fs::remove_file(&path).unwrap();
            }
        }
    }
    // Longer than the grace of a small file.
    std::thread::sleep(Duration::from_millis(3500));
    assert_eq!(flusher.stats().writeback_bytes.total(), 0);
    assert!(flusher.drain(PATIENCE));
    let written: u64 = slow
        .disk
        .requests()
        .unwrap()
        .iter()
        .filter(|one| one.kind == RequestKind::Write)
        .map(|one| one.length)
        .sum();
    // The directory's own blocks may be written by then, those of the files must not.
    assert!(written < 600 * KIB, "{written} bytes");
    assert_eq!(flusher.stats().left_bytes, 0);
}

/// The files below a folder that the flusher's threads have open in their own descriptor
/// table.
fn held_by_our_threads(folder: &Path) -> Vec<PathBuf> {
    let mut held = Vec::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        if !name.starts_with("dropbehind") {
            continue;
        }
        held.extend(links_below(&task.join("fd"), folder));
    }
    held
}

/// Where the links in a folder of /proc lead, if that is below `folder`.
fn links_below(links: &Path, folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(links).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .collect();
    paths.retain(|path| path.starts_with(folder));
    paths
}

#[test]
fn small_files_are_batched_and_none_is_forgotten() {
    const FILES: u64 = 2000;
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = Place::new(Kind::Mounted(Fs::Ext4), 64 * MIB);
    let folder = place.path().with_file_name("small");
    fs::create_dir(&folder).unwrap();
    let flusher = Flusher::builder().build().unwrap();
    let length = |number: u64| (number * 37 % 9000 + 1) as usize;
    let path = |number: u64| folder.join(format!("{number}"));
    for number in 0..FILES {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .flusher(&flusher)
            .open(path(number))
            .unwrap();
        file.write_all(&pattern::filled(number, 0, length(number)))
            .unwrap();
    }
    let open = links_below(Path::new("/proc/self/fd"), &folder);
    assert!(open.is_empty(), "descriptors are left open: {open:?}");
    let early = flusher.stats();
    // Sent one by one, they would all be on their way by now. In batches the budget decides,
    // and the rest waits for its grace.
    assert_eq!(early.writeback_bytes[Reason::Dontcache], 0, "{early:?}");
    assert!(flusher.drain(PATIENCE), "{:?}", flusher.stats());
    let held = held_by_our_threads(&folder);
    assert!(held.is_empty(), "after it is done: {held:?}");
    let stats = flusher.stats();
    assert_eq!(stats.brought_bytes, stats.dropped_bytes, "{stats:?}");
    assert_eq!(stats.left_bytes, 0, "{stats:?}");
    for number in 0..FILES {
        let file = fs::File::open(path(number)).unwrap();
        let counts = residency::sample(&file).unwrap();
        assert_eq!(counts.cached_pages, 0, "file {number}; {stats:?}");
        drop(file);
        let data = fs::read(path(number)).unwrap();
        assert_eq!(data.len(), length(number));
        pattern::check(number, 0, &data).unwrap();
    }
}

/// Waiting files would take the descriptors that the next ones need. On a slow disk, so do those
/// that are being written.
#[test]
fn fewer_small_files_wait_where_descriptors_are_few() {
    need!(all Slow::needs(Some(Fs::Ext4)));
    let slow = Slow::new(Some(Fs::Ext4), 50_000_000);
    let status = part("makes_small_files_with_few_descriptors")
        .env(FILE_VARIABLE, slow.path("small"))
        .status();
    assert!(status.unwrap().success());
}

#[test]
#[ignore = "a part"]
fn makes_small_files_with_few_descriptors() {
    const DESCRIPTORS: u64 = 160;
    const FILES: u64 = 4 * DESCRIPTORS;
    const BYTES: u64 = 128 * KIB;
    let limit = Rlimit {
        current: Some(DESCRIPTORS),
        maximum: Some(DESCRIPTORS),
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let path = PathBuf::from(std::env::var_os(FILE_VARIABLE).unwrap());
    let flusher = Flusher::builder().build().unwrap();
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).flusher(&flusher);
    let data = vec![1; BYTES as usize];
    for number in 0..FILES {
        let mut file = options.open(path.with_extension(number.to_string()));
        file.as_mut().unwrap().write_all(&data).unwrap();
    }
    assert!(flusher.drain(PATIENCE), "{:?}", flusher.stats());
    let stats = flusher.stats();
    assert!(stats.writeback_bytes[Reason::Budget] > 0, "{stats:?}");
    assert!(flusher.degraded().is_empty(), "{:?}", flusher.degraded());
    assert_eq!(stats.dropped_bytes, FILES * BYTES, "{stats:?}");
}

/// Whatever else has the descriptors: open files, or closed ones that the kernel is to write.
#[test]
fn closed_files_are_finished_once_no_descriptor_is_left() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = Place::new(Kind::Mounted(Fs::Ext4), 128 * MIB);
    let status = part("closes_files_beside_open_ones")
        .env(FILE_VARIABLE, place.path())
        .status();
    assert!(status.unwrap().success());
}

#[test]
#[ignore = "a part"]
fn closes_files_beside_open_ones() {
    const DESCRIPTORS: u64 = 160;
    const OPEN: u64 = DESCRIPTORS * 7 / 8;
    let limit = Rlimit {
        current: Some(DESCRIPTORS),
        maximum: Some(DESCRIPTORS),
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let path = PathBuf::from(std::env::var_os(FILE_VARIABLE).unwrap());
    for (mode, open, closed) in [
        (Mode::DONTCACHE, OPEN, DESCRIPTORS),
        (Mode::NOREUSE, 1, 2 * DESCRIPTORS),
    ] {
        let flusher = Flusher::builder().build().unwrap();
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create(true)
            .flusher(&flusher)
            .cache_mode(mode);
        let make = |number: u64| {
            let mut file = options
                .open(path.with_extension(number.to_string()))
                .unwrap();
            file.write_all(&[1; 16 << 10]).unwrap();
            file
        };
        let kept: Vec<File> = (0..open).map(make).collect();
        for file in &kept {
            assert!(file.settle(PATIENCE).unwrap());
        }
        (open..open + closed).for_each(|number| drop(make(number)));
        assert!(flusher.degraded().is_empty(), "{:?}", flusher.degraded());
        drop(kept);
        assert!(flusher.drain(PATIENCE), "{:?}", flusher.stats());
        let stats = flusher.stats();
        assert_eq!(
            stats.dropped_bytes,
            (open + closed) * (16 << 10),
            "{stats:?}"
        );
    }
}

#[test]
fn what_finds_no_descriptor_is_reported_as_left() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = Place::new(Kind::Mounted(Fs::Ext4), 16 * MIB);
    let status = part("writes_without_descriptors")
        .env(FILE_VARIABLE, place.path())
        .status();
    assert!(status.unwrap().success());
    assert_eq!(cached_bytes(&place.path()), MIB);
}

#[test]
#[ignore = "a part"]
fn writes_without_descriptors() {
    let path = PathBuf::from(std::env::var_os(FILE_VARIABLE).unwrap());
    let flusher = Flusher::builder().build().unwrap();
    let mut options = OpenOptions::new();
    options.write(true).create(true).flusher(&flusher);
    let mut file = options.open(&path).unwrap();
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Nofile, none).unwrap();
    write_pattern(&mut file, 1, 0, MIB, MIB);
    assert!(!file.settle(PATIENCE).unwrap());
    let open = flusher.stats();
    drop(file);
    for stats in [open, flusher.stats()] {
        assert_eq!(stats.left_bytes, MIB, "{stats:?}");
        assert_eq!(stats.brought_bytes, MIB, "{stats:?}");
    }
    assert!(!flusher.degraded().is_empty());
}

#[test]
fn a_drain_waits_for_open_files_too_and_ends_when_there_are_none() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = Place::new(Kind::Mounted(Fs::Ext4), 16 * MIB);
    let flusher = Flusher::builder().build().unwrap();
    assert!(flusher.drain(PATIENCE), "there is nothing at all");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .flusher(&flusher)
        .open(place.path())
        .unwrap();
    for length in [100, 3 * MIB] {
        write_pattern(&mut file, 1, 0, length, MIB);
        assert!(flusher.drain(PATIENCE), "{:?}", flusher.stats());
        assert_eq!(cached_bytes(&place.path()), 0);
    }
    drop(file);
    assert!(flusher.drain(PATIENCE));
    // A disk's thread ends after some idle seconds.
    std::thread::sleep(Duration::from_secs(6));
    assert!(flusher.drain(PATIENCE), "there is no thread to answer");
    // It is started again when there is work.
    let mut file = OpenOptions::new()
        .write(true)
        .flusher(&flusher)
        .open(place.path())
        .unwrap();
    write_pattern(&mut file, 1, 0, 3 * MIB, MIB);
    assert!(file.settle(PATIENCE).unwrap());
    assert_eq!(cached_bytes(&place.path()), 0);
}

/// A flusher of one's own finishes its files when it is dropped first.
#[test]
fn a_dropped_flusher_finishes_its_files() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = Place::new(Kind::Mounted(Fs::Ext4), 32 * MIB);
    let flusher = Flusher::builder().build().unwrap();
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .flusher(&flusher)
        .open(place.path())
        .unwrap();
    drop(flusher);
    write_pattern(&mut file, 1, 0, 24 * MIB, MIB);
    drop(file);
    let started = Instant::now();
    while cached_bytes(&place.path()) > 0 {
        assert!(started.elapsed() < PATIENCE, "it has closed the file, too");
        std::thread::sleep(Duration::from_millis(20));
    }
    let again = File::open(place.path()).unwrap();
    assert_eq!(common::read_pattern(&mut &again, 1, MIB), 24 * MIB);
}
