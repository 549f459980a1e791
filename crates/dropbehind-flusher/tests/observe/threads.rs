//! The threads of a flusher that observes.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dropbehind_flusher::{Flusher, ObserveOptions, Observed, WriterLimit};
use dropbehind_linux::{
    Description, FileSystem, IoPriority, MountPoint, mount_number, set_thread_io_priority,
};
use dropbehind_policy::Mode;
use dropbehind_testbed::{Fs, Need, SlowDisk, SlowDiskOptions, need};

use crate::common::{Kind, MIB, PATIENCE, Place, cached_bytes, write_pattern};
use crate::observing::Observing;
use crate::writer;

/// The I/O priorities of the threads with a disk's name, as ionice(1) shows them. Loop devices share
/// what fits into a thread's name.
fn io_priorities_of_threads(disk: &str) -> Vec<String> {
    let name: String = format!("dropbehind/{disk}").chars().take(15).collect();
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let threads = threads.filter(|thread| {
        fs::read_to_string(thread.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    });
    let shown = threads.map(|thread| {
        let mut ionice = Command::new("ionice");
        let shown = ionice.arg("-p").arg(thread.file_name()).output().unwrap();
        String::from_utf8(shown.stdout).unwrap().trim_end().into()
    });
    shown.collect()
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
                let shows = io_priorities_of_threads(disk.to_str().unwrap());
                if shows.iter().any(|one| one == shown) || began.elapsed() > PATIENCE {
                    return shows;
                }
            }
        });
        let shows = shows.join().unwrap();
        assert!(
            shows.iter().any(|one| one == shown),
            "{priority}: {shows:?}"
        );
    }
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

/// A file system that is mounted there.
fn filesystem_at(folder: &Path) -> Arc<FileSystem> {
    let root: Arc<OwnedFd> = Arc::new(fs::File::open("/").unwrap().into());
    let below_root = folder.strip_prefix("/").unwrap().to_owned();
    let number = mount_number(root.as_fd(), &below_root).unwrap().unwrap();
    let filesystem = Arc::new(FileSystem::default());
    filesystem.mounted_at(vec![MountPoint::new(root, below_root, number)]);
    filesystem
}

/// What stands in for it is on no disk.
#[test]
fn a_file_that_is_gone_is_not_observed() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = Place::new(Kind::Mounted(Fs::Ext4), 64 * MIB);
    let folder = place.path().parent().unwrap().to_owned();
    let filesystem = filesystem_at(&folder);
    let observing = Observing::new(Mode::DONTCACHE);
    let path = folder.join("gone");
    fs::write(&path, "all that it has").unwrap();
    let file = fs::File::open(&path).unwrap();
    let description = Arc::new(Description::on(&filesystem, file.into()));
    description.release();
    fs::remove_file(&path).unwrap();
    // A watch of the whole machine may have it open for a moment.
    let is_gone = |_| {
        std::thread::sleep(Duration::from_millis(10));
        description.find().unwrap().is_none()
    };
    assert!((0..3000).any(is_gone));
    let options = observing.options.clone();
    let observed = observing.flusher.observe(description, options);
    assert_eq!(observed.unwrap_err().kind(), ErrorKind::NotFound);
}

/// A user may hold leases on his own files for as long as he likes.
#[test]
fn files_that_cannot_be_opened_stop_no_others() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    need!(Need::Tool("python3"));
    const LEASED: usize = 800;
    let place = Place::new(Kind::Mounted(Fs::Ext4), 64 * MIB);
    let folder = place.path().parent().unwrap().to_owned();
    let filesystem = filesystem_at(&folder);
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
    observed.iter().for_each(Observed::reopened);

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
        observing
            .observe(path)
            .hold_writers(WriterLimit::OfDisk(MIB), Vec::new());
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
    // Tests beside this one may hold a few.
    assert!((MOST..MOST + 20).contains(&held), "{held}");
}
