//! Files that others write and read, observed from outside: the programs here
//! use `std::fs` alone.

#[path = "../../dropbehind/tests/common/mod.rs"]
mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use common::{Dice, KIB, Kind, MIB, PATIENCE, Place, cached_bytes, check_on_disk, write_pattern};
use dropbehind_flusher::{
    CacheMap, Flusher, Notice, NoticeSink, ObserveOptions, Observed, ObservedState, Provenance,
    ReportedTrace,
};
use dropbehind_linux::{
    CacheTrace, Description, FileSystem, IoPriority, KernelDevices, KernelInode, MountPoint,
    block_device_number, drop_clean, mount_number, set_thread_io_priority,
};
use dropbehind_policy::{Brought, ByteRange, Mode};
use dropbehind_testbed::reclaim::{Gone, Reclaim, in_some_attempt};
use dropbehind_testbed::residency::{self, Sampler};
use dropbehind_testbed::{Fs, Need, Scratch, SlowDisk, SlowDiskOptions, disk_io, need, pattern};

/// A flusher that observes, and what it says.
struct Observing {
    flusher: Flusher,
    notices: mpsc::Receiver<Notice>,
    options: ObserveOptions,
}

impl Observing {
    fn new(mode: Mode) -> Observing {
        let (sender, notices) = mpsc::channel();
        Observing {
            flusher: Flusher::builder().observing().build().unwrap(),
            notices,
            options: ObserveOptions {
                mode,
                window_bytes: None,
                request_bytes: None,
                reads: true,
                opened_size_bytes: u64::MAX,
                provenance: Provenance::ResidentAtOpen(CacheMap::empty()),
                writeback_sign: None,
                key: 7,
                notices: NoticeSink::new(move |notice| drop(sender.send(notice))),
            },
        }
    }

    fn observe(&self, path: &Path) -> Observed {
        let description = fs::File::open(path).unwrap();
        let options = ObserveOptions {
            provenance: Provenance::ResidentAtOpen(CacheMap::now(description.as_fd())),
            ..self.options.clone()
        };
        self.flusher
            .observe(Description::held(description.into()).into(), options)
            .unwrap()
    }

    /// The same, where somebody tells who brought in what.
    fn observe_told(&self, path: &Path, trace: &ReportedTrace) -> Observed {
        let description = fs::File::open(path).unwrap();
        let inode = KernelDevices::new().inode_of(description.as_fd());
        let inode = inode.unwrap_or_else(|_| device_inode(&description));
        let options = ObserveOptions {
            provenance: Provenance::Traced(trace.clone(), inode),
            ..self.options.clone()
        };
        let description = Description::held(description.into()).into();
        self.flusher.observe(description, options).unwrap()
    }

    /// Waits until the file is finished.
    fn finished(&self) -> ObservedState {
        loop {
            match self.notices.recv_timeout(PATIENCE).unwrap() {
                Notice::Finished { key, state, .. } => {
                    assert_eq!(key, 7);
                    return *state;
                }
                Notice::Idle { .. } => {}
            }
        }
    }
}

/// The inode of a block device. The trace names its superblock by a number that nobody needs
/// here, since no test has others use a device.
fn device_inode(device: &fs::File) -> KernelInode {
    KernelInode {
        device: 0,
        number: block_device_number(device.as_fd()).unwrap(),
    }
}

/// A trace, and a thread that empties its rings: full ones would lose records.
struct Tracing {
    reported: ReportedTrace,
    _stop: mpsc::Sender<()>,
}

impl Tracing {
    /// Nothing is reported by itself.
    fn new() -> Tracing {
        let trace = CacheTrace::open(4 * MIB as usize).unwrap();
        let reported = ReportedTrace::new(trace.view());
        Tracing::empty(trace, reported, |_| {})
    }

    /// All counts as reported soon after it happened.
    fn reported() -> Tracing {
        let trace = CacheTrace::open(4 * MIB as usize).unwrap();
        let reported = ReportedTrace::new(trace.view());
        Tracing::empty(trace, reported, |reported| {
            reported.reported_until(reported.mark());
        })
    }

    fn empty(
        mut trace: CacheTrace,
        reported: ReportedTrace,
        report: impl Fn(&ReportedTrace) + Send + 'static,
    ) -> Tracing {
        let (stop, stopped) = mpsc::channel::<()>();
        let ours = reported.clone();
        std::thread::spawn(move || {
            let pause = || stopped.recv_timeout(Duration::from_millis(1));
            while pause() == Err(mpsc::RecvTimeoutError::Timeout) {
                report(&ours);
                trace.gather(|_, _| {});
                trace.read(u64::MAX, drop);
            }
        });
        Tracing {
            reported,
            _stop: stop,
        }
    }
}

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
            use super::*;

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
    a_file_written_leaves_nothing: 256;
    a_file_overwritten_leaves_nothing: 64;
    what_others_had_stays_when_it_is_overwritten: 32;
    what_others_had_stays_when_it_is_read: 32;
    what_others_had_here_and_there_stays: 64;
    a_read_costs_one_read_and_leaves_nothing: 128;
    random_writes_leave_nothing: 64;
    what_others_brought_in_stays: 32;
    modes_that_keep_write_and_keep: 32;
}

/// The I/O priority of the newest thread of a disk, as ionice(1) shows it.
fn io_priority_of_thread(disk: &str) -> Option<String> {
    let name: String = format!("dropbehind/{disk}").chars().take(15).collect();
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let threads = threads.filter(|thread| {
        fs::read_to_string(thread.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    });
    let thread = threads.last()?;
    let shown = Command::new("ionice")
        .arg("-p")
        .arg(thread.file_name())
        .output()
        .unwrap();
    Some(String::from_utf8(shown.stdout).unwrap().trim_end().into())
}

#[test]
fn a_disks_thread_has_the_io_priority_that_was_asked_for() {
    need!(all Kind::RawDevice.needs());
    need!(Need::Tool("ionice"));
    for (priority, shown) in [
        (IoPriority::Idle, "idle"),
        (IoPriority::BestEffort(6), "best-effort: prio 6"),
        (IoPriority::Inherit, "best-effort: prio 1"),
    ] {
        let place = Place::new(Kind::RawDevice, 32 * MIB);
        let disk = place.path().file_name().unwrap().to_owned();
        let shows = std::thread::spawn(move || {
            set_thread_io_priority(IoPriority::BestEffort(1)).unwrap();
            let mut observing = Observing::new(Mode::DONTCACHE);
            let builder = Flusher::builder().observing().io_priority(priority);
            observing.flusher = builder.build().unwrap();
            let _observed = observing.observe(&place.path());
            // The thread gives itself a name, and then the priority.
            let began = Instant::now();
            loop {
                let shows = io_priority_of_thread(disk.to_str().unwrap());
                if shows.as_deref() == Some(shown) || began.elapsed() > PATIENCE {
                    return shows;
                }
            }
        });
        assert_eq!(shows.join().unwrap().as_deref(), Some(shown), "{priority}");
    }
}

fn writer(place: &Place) -> fs::File {
    fs::OpenOptions::new()
        .write(true)
        .create(!place.is_raw())
        .truncate(!place.is_raw())
        .open(place.path())
        .unwrap()
}

fn a_file_written_leaves_nothing(place: &Place) {
    let observing = Observing::new(Mode::DONTCACHE);
    let path = place.path();
    let mut file = writer(place);
    let observed = observing.observe(&path);
    let sampler = Sampler::start(&path, Duration::from_millis(2)).unwrap();
    write_pattern(&mut file, 1, 0, place.size_bytes(), MIB);
    drop(file);
    observed.closed();
    let state = observing.finished();
    let peaks = sampler.stop().unwrap();
    assert_eq!(cached_bytes(&path), 0, "{state:?}");
    assert!(peaks.samples > 10, "{peaks:?}");
    assert_eq!(state.counters.left_bytes, 0, "{state:?}");
    // Pages that the kernel wrote before a look count as read.
    let moved = state.counts.written_bytes + state.counts.read_bytes;
    assert!(moved >= place.size_bytes(), "{state:?}");
    check_on_disk(&path, 1, place.size_bytes());
}

fn a_file_overwritten_leaves_nothing(place: &Place) {
    let observing = Observing::new(Mode::DONTCACHE);
    let path = place.cold_file(1);
    let observed = observing.observe(&path);
    let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    write_pattern(&mut file, 2, 0, place.size_bytes(), 64 * KIB);
    drop(file);
    observed.closed();
    let state = observing.finished();
    assert_eq!(cached_bytes(&path), 0, "{state:?}");
    check_on_disk(&path, 2, place.size_bytes());
}

/// Has half of a file cached, as another process would, and says how much that
/// is.
fn half_cached(path: &Path, size_bytes: u64) -> u64 {
    let mut file = fs::File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    let mut half = vec![0; usize::try_from(size_bytes / 2).unwrap()];
    file.read_exact(&mut half).unwrap();
    cached_bytes(path)
}

fn what_others_had_stays_when_it_is_overwritten(place: &Place) {
    in_some_attempt(|reclaim| {
        let observing = Observing::new(Mode::DONTCACHE);
        let path = place.cold_file(1);
        let had_bytes = half_cached(&path, place.size_bytes());
        let observed = observing.observe(&path);
        let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        write_pattern(&mut file, 2, 0, place.size_bytes(), 64 * KIB);
        drop(file);
        observed.closed();
        let state = observing.finished();
        assert!(state.counters.kept_bytes > 0, "{state:?}");
        as_much_cached(reclaim, &path, had_bytes, &state)
    });
}

fn what_others_had_stays_when_it_is_read(place: &Place) {
    in_some_attempt(|reclaim| {
        let observing = Observing::new(Mode::DONTCACHE);
        let path = place.cold_file(1);
        let had_bytes = half_cached(&path, place.size_bytes());
        let observed = observing.observe(&path);
        let file = fs::read(&path).unwrap();
        assert_eq!(file.len() as u64, place.size_bytes());
        observed.closed();
        as_much_cached(reclaim, &path, had_bytes, &observing.finished())
    });
}

/// Has two of three pages of a file cached, as memory that is short leaves them.
fn cached_here_and_there(path: &Path, size_bytes: u64) -> u64 {
    use rustix::fs::{Advice, fadvise};
    let file = fs::File::open(path).unwrap();
    let length = std::num::NonZeroU64::new;
    for offset in (0..size_bytes).step_by(128 << 10) {
        // In single pages: readahead of the kernel's own would make large folios.
        fadvise(&file, offset, length(128 << 10), Advice::WillNeed).unwrap();
    }
    fs::read(path).unwrap();
    for page in (0..size_bytes / 4096).step_by(3) {
        fadvise(&file, page * 4096, length(4096), Advice::DontNeed).unwrap();
    }
    cached_bytes(path)
}

fn what_others_had_here_and_there_stays(place: &Place) {
    in_some_attempt(|reclaim| {
        let observing = Observing::new(Mode::DONTCACHE);
        let path = place.cold_file(1);
        let had_bytes = cached_here_and_there(&path, place.size_bytes());
        assert!(had_bytes < place.size_bytes() / 4 * 3, "{had_bytes}");
        let observed = observing.observe(&path);
        fs::read(&path).unwrap();
        observed.closed();
        as_much_cached(reclaim, &path, had_bytes, &observing.finished())
    });
}

/// Says so when less is cached than before, but for what the kernel took; more
/// than that is a failure.
fn as_much_cached(
    reclaim: &Reclaim,
    path: &Path,
    had_bytes: u64,
    state: &ObservedState,
) -> Result<(), Gone> {
    let bytes = cached_bytes(path);
    assert!(bytes <= had_bytes, "{bytes}: {state:?}");
    reclaim
        .stays(path, bytes, had_bytes)
        .map_err(|gone| format!("{gone}: {state:?}"))
}

fn a_read_costs_one_read_and_leaves_nothing(place: &Place) {
    let path = place.cold_file(1);
    let plain_bytes = read_from_disk(place);
    residency::evict(&path);
    let reclaim = Reclaim::watch();
    let observing = Observing::new(Mode::DONTCACHE);
    let observed = observing.observe(&path);
    let observed_bytes = read_from_disk(place);
    observed.closed();
    let state = observing.finished();
    assert_eq!(cached_bytes(&path), 0, "{state:?}");
    // What was read ahead and taken by the kernel before its turn is read twice.
    let taken_bytes = reclaim.bytes_of(&path).unwrap();
    // btrfs reads more than the file either way.
    assert!(
        (observed_bytes - taken_bytes) * 100 <= plain_bytes * 102,
        "{observed_bytes} bytes were read from the disk, and {plain_bytes} unobserved"
    );
}

/// Reads all of the place's file; the bytes that the disk read for it.
fn read_from_disk(place: &Place) -> u64 {
    let before = disk_io::disk_io(place.device()).unwrap();
    let mut file = fs::File::open(place.path()).unwrap();
    let length = common::read_pattern(&mut file, 1, 64 * KIB);
    assert_eq!(length, place.size_bytes());
    let after = disk_io::disk_io(place.device()).unwrap();
    after.since(before).read_bytes
}

fn random_writes_leave_nothing(place: &Place) {
    let observing = Observing::new(Mode::DONTCACHE);
    let path = place.cold_file(1);
    let observed = observing.observe(&path);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let mut dice = Dice::new(5);
    for _ in 0..4000 {
        let at = dice.below(place.size_bytes() / 4096) * 4096;
        file.write_all_at(&pattern::filled(1, at, 4096), at)
            .unwrap();
    }
    drop(file);
    observed.closed();
    let state = observing.finished();
    // Writes of whole pages bring in nothing else, except where a folio is
    // larger than a page.
    assert_eq!(cached_bytes(&path), 0, "{state:?}");
    check_on_disk(&path, 1, place.size_bytes());
}

fn what_others_brought_in_stays(place: &Place) {
    in_some_attempt(|reclaim| {
        let observing = Observing::new(Mode::DONTCACHE);
        let path = place.cold_file(1);
        let trace = Tracing::reported();
        let observed = observing.observe_told(&path, &trace.reported);
        let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(&pattern::filled(3, 0, 24 << 20)).unwrap();
        drop(file);
        let told = |start, end, ours| Brought {
            range: ByteRange::new(start * MIB, end * MIB),
            ours,
        };
        // Ours, then others'; what nobody tells of is not dropped either.
        observed.brought([told(0, 16, true), told(8, 12, false)]);
        observed.closed();
        let state = observing.finished();
        let counters = &state.counters;
        assert_eq!((counters.brought_bytes, counters.left_bytes), (16 * MIB, 0));
        assert_eq!(counters.dropped_bytes, 16 * MIB, "{state:?}");
        // Pages that the kernel wrote before a look count as read; of those that nobody told
        // of, it is not known then that anything was done.
        let moved = state.counts.written_bytes + state.counts.read_bytes;
        assert!(moved >= 16 * MIB, "{state:?}");
        let pages = residency::cached(&path).unwrap();
        assert_eq!(pages.dirty_pages + pages.writeback_pages, 0, "{pages:?}");
        assert!(cached_bytes(&path) <= 12 * MIB, "{state:?}");
        as_much_cached(reclaim, &path, 12 * MIB, &state)
    });
}

/// Pages may be evicted and come back for others, which nobody has reported yet.
#[test]
fn what_has_come_back_before_the_drop_stays() {
    need!(Need::Root, Need::Cachestat);
    let Tracing { reported, _stop } = Tracing::new();
    in_some_attempt(|reclaim| {
        let scratch = Scratch::new().unwrap();
        let path = scratch.file("theirs");
        let mut file = fs::File::create(&path).unwrap();
        write_pattern(&mut file, 1, 0, 16 * MIB, MIB);
        file.sync_all().unwrap();
        reported.reported_until(reported.mark());
        let observing = Observing::new(Mode::DONTCACHE);
        let observed = observing.observe_told(&path, &reported);
        let told = |start, end, ours| Brought {
            range: ByteRange::new(start * MIB, end * MIB),
            ours,
        };
        let come_back = |start| {
            drop_clean(file.as_fd(), start * MIB, 4 * MIB).unwrap();
            let gone = cached_bytes(&path) <= 12 * MIB;
            let reader = fs::File::open(&path).unwrap();
            let mut bytes = vec![0; 4 * MIB as usize];
            reader.read_exact_at(&mut bytes, start * MIB).unwrap();
            gone
        };
        let mut evicted = come_back(4);
        let mark = reported.mark();
        evicted &= come_back(8);
        observed.brought([told(0, 16, true), told(4, 8, false)]);
        reported.reported_until(mark);
        observed.closed();
        // The rest goes, and what came after the mark is not given up however often it is tried.
        assert!(!observing.flusher.drain(Duration::from_secs(3)));
        assert!(evicted && cached_bytes(&path) <= 8 * MIB);
        let mark = reported.mark();
        observed.brought([told(8, 12, false)]);
        reported.reported_until(mark);
        let state = observing.finished();
        assert!(cached_bytes(&path) <= 8 * MIB, "{state:?}");
        assert_eq!(state.counters.left_bytes, 0, "{state:?}");
        as_much_cached(reclaim, &path, 8 * MIB, &state)
    });
}

/// What the program has brought in again is not given up before that is reported.
#[test]
fn what_is_reported_late_is_dropped() {
    need!(Need::Root, Need::Cachestat);
    let Tracing { reported, _stop } = Tracing::new();
    let scratch = Scratch::new().unwrap();
    let path = scratch.file("ours");
    let file = fs::File::create(&path).unwrap();
    reported.reported_until(reported.mark());
    let observing = Observing::new(Mode::DONTCACHE);
    let observed = observing.observe_told(&path, &reported);
    write_pattern(&mut &file, 1, 0, 4 * MIB, MIB);
    file.sync_all().unwrap();
    let all = Brought {
        range: ByteRange::new(0, 4 * MIB),
        ours: true,
    };
    observed.brought([all]);
    observed.closed();
    assert!(!observing.flusher.drain(Duration::from_secs(3)));
    assert!(cached_bytes(&path) > 0);
    reported.reported_until(reported.mark());
    let state = observing.finished();
    assert_eq!(cached_bytes(&path), 0, "{state:?}");
    assert_eq!(state.counters.left_bytes, 0, "{state:?}");
}

/// A program can read every second page of a sparse file as often as it likes, and lets them
/// go by itself.
#[test]
fn of_pages_far_from_each_other_so_many_are_remembered() {
    need!(Need::Root, Need::Cachestat);
    const MOST: u64 = 1 << 17;
    const PAGES: u64 = 200_000;
    let trace = Tracing::reported();
    let scratch = Scratch::new().unwrap();
    let path = scratch.file("sparse");
    let file = fs::File::create(&path).unwrap();
    file.set_len(PAGES * 8 * KIB).unwrap();
    for mode in [Mode::DONTCACHE, Mode::WRITE_THROUGH] {
        let observing = Observing::new(mode);
        let observed = observing.observe_told(&path, &trace.reported);
        observed.brought((0..PAGES).map(|page| Brought {
            range: ByteRange::new(page * 8 * KIB, (page * 8 + 4) * KIB),
            ours: true,
        }));
        observed.closed();
        let state = observing.finished();
        let pages = match mode.drops() {
            true => state.counters.brought_bytes,
            false => state.counts.written_bytes + state.counts.read_bytes,
        } / (4 * KIB);
        // They are counted now and then.
        assert!((MOST - 8192..MOST + 8192).contains(&pages), "{state:?}");
        let notes = observing.flusher.degraded();
        assert!(
            notes
                .iter()
                .any(|note| note.contains("far from each other"))
        );
    }
}

fn modes_that_keep_write_and_keep(place: &Place) {
    let reclaim = Reclaim::watch();
    let observing = Observing::new(Mode::WRITE_THROUGH);
    let path = place.path();
    let mut file = writer(place);
    let observed = observing.observe(&path);
    write_pattern(&mut file, 1, 0, place.size_bytes(), MIB);
    drop(file);
    observed.closed();
    let state = observing.finished();
    as_much_cached(&reclaim, &path, place.size_bytes(), &state).unwrap();
    let pages = residency::cached(&path).unwrap();
    assert_eq!(pages.dirty_pages + pages.writeback_pages, 0, "{pages:?}");
}

/// Takes write leases on files, and takes them again once the kernel has broken them.
const LEASES: &str = "import fcntl, os, select, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
files = [os.open(path, os.O_RDWR) for path in sys.argv[1:]]
while True:
    for lease in (fcntl.F_UNLCK, fcntl.F_WRLCK):
        for file in files:
            try: fcntl.fcntl(file, fcntl.F_SETLEASE, lease)
            except OSError: pass  # There is none, or somebody has the file open just now.
    print('leased', flush=True)
    if select.select([sys.stdin], [], [], 10)[0]: break
";

/// A user may hold leases on his own files for as long as he likes.
#[test]
fn files_that_cannot_be_opened_stop_no_others() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    need!(Need::Tool("python3"));
    const LEASED: usize = 800;
    let place = Place::new(Kind::Mounted(Fs::Ext4), 64 * MIB);
    let folder = place.path().parent().unwrap().to_owned();
    let root: Arc<OwnedFd> = Arc::new(fs::File::open("/").unwrap().into());
    let below_root = folder.strip_prefix("/").unwrap().to_owned();
    let number = mount_number(root.as_fd(), &below_root).unwrap().unwrap();
    let filesystem = Arc::new(FileSystem::default());
    filesystem.mounted_at(vec![MountPoint::new(root, below_root, number)]);
    let observing = Observing::new(Mode::DONTCACHE);
    let paths: Vec<_> = (0..LEASED)
        .map(|file| folder.join(format!("leased{file}")))
        .collect();
    let observed: Vec<_> = paths
        .iter()
        .map(|path| {
            let file = fs::File::create_new(path).unwrap();
            file.set_len(MIB).unwrap();
            let file = fs::File::open(path).unwrap();
            let description = Arc::new(Description::on(&filesystem, file.into()));
            let options = ObserveOptions {
                key: 0,
                ..observing.options.clone()
            };
            let observed = observing.flusher.observe(Arc::clone(&description), options);
            description.release();
            observed.unwrap()
        })
        .collect();
    let mut holder = Command::new("python3")
        .args(["-c", LEASES])
        .args(&paths)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut leased = BufReader::new(holder.stdout.take().unwrap());
    leased.read_line(&mut String::new()).unwrap();
    observed.iter().for_each(Observed::touched);

    let mut file = writer(&place);
    let other = observing.observe(&place.path());
    write_pattern(&mut file, 1, 0, place.size_bytes(), MIB);
    drop(file);
    other.closed();
    let state = observing.finished();
    assert_eq!(cached_bytes(&place.path()), 0, "{state:?}");
    drop(holder.stdin.take());
    holder.wait().unwrap();
}

/// How many threads of this process have this name.
fn threads(name: &str) -> usize {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    names.filter(|found| found.trim_end() == name).count()
}

/// Each takes threads, and may do so for ever.
#[test]
fn so_many_files_at_once_have_their_writers_held() {
    need!(all SlowDisk::needs());
    need!(all Fs::Ext4NoJournal.needs());
    need!(Need::Cachestat);
    const MOST: usize = 256;
    let disk = SlowDisk::new(SlowDiskOptions::default()).unwrap();
    let mounted = disk.mount(Fs::Ext4NoJournal).unwrap();
    let data = vec![1; 2 << 20];
    let files: Vec<_> = (0..MOST + 44)
        .map(|file| {
            let path = mounted.file(&file.to_string());
            fs::write(&path, &data).unwrap();
            path
        })
        .collect();
    rustix::fs::syncfs(fs::File::open(mounted.path()).unwrap()).unwrap();
    disk.set_write_speed(Some(0)).unwrap();
    for path in &files {
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&data, 0).unwrap();
    }
    let observing = Observing::new(Mode::NOREUSE);
    for path in &files {
        observing.observe(path).hold_writers(MIB);
    }
    let notes = || observing.flusher.degraded();
    let is_told = |note: &String| note.contains("as many writers are held as may be");
    let began = Instant::now();
    while threads("dropbehind-hold") < MOST || !notes().iter().any(is_told) {
        assert!(began.elapsed() < PATIENCE, "{:?}", notes());
        std::thread::sleep(Duration::from_millis(100));
    }
    // All that is beyond is found in one look.
    let held = threads("dropbehind-hold");
    disk.set_write_speed(None).unwrap();
    assert_eq!(held, MOST);
}
