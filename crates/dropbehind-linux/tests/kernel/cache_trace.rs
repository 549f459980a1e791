//! What the kernel reports of pages that enter the cache. It reports the whole
//! machine, so each test looks for its own files.

use crate::setup::{Loop, MIB, as_nobody, directory, drop_all, pages, uncached_file};
use dropbehind_linux::{
    CacheTrace, CacheTraceError, Interest, KernelDevices, KernelInode, PollEntry, TraceRecord,
    block_device_number, kernel_device, monotonic_ns, mounts_of, page_size, poll,
};
use dropbehind_testbed::{Fs, MountedFs, Need, need};
use rustix::fs::{major, minor};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Room for what the rest of the machine does meanwhile.
const RING_BYTES: usize = 4 << 20;

fn own() -> i32 {
    std::process::id().try_into().unwrap()
}

fn all_of(trace: &mut CacheTrace) -> Vec<TraceRecord> {
    until(trace, u64::MAX)
}

fn until(trace: &mut CacheTrace, time_ns: u64) -> Vec<TraceRecord> {
    let mut records = Vec::new();
    trace.gather(|_, _| {});
    trace.read(time_ns, |record| records.push(record));
    records
}

/// How often each page of an inode was told, and by whose doing.
fn told(records: &[TraceRecord], of: KernelInode) -> BTreeMap<u64, Vec<i32>> {
    let mut told: BTreeMap<u64, Vec<i32>> = BTreeMap::new();
    for record in records {
        assert!(!matches!(record, TraceRecord::Lost { .. }), "{record:?}");
        if let &TraceRecord::Added {
            process,
            inode,
            first_page,
            pages,
        } = record
            && inode == of
        {
            for page in first_page..first_page + pages {
                told.entry(page).or_default().push(process);
            }
        }
    }
    told
}

/// Pages 0 to `count` once each, by one process.
fn once(count: u64, process: i32) -> BTreeMap<u64, Vec<i32>> {
    (0..count).map(|page| (page, vec![process])).collect()
}

fn inode_of(file: &File) -> KernelInode {
    KernelDevices::new().inode_of(file.as_fd()).unwrap()
}

fn run(program: &str, path: &Path) -> i32 {
    let mut child = Command::new(program)
        .arg(path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let process = child.id().try_into().unwrap();
    assert!(child.wait().unwrap().success());
    process
}

/// Writes a file and reads it cold; each page is to be told once, both times.
fn writes_and_reads_are_told(directory: &Path) {
    let mut trace = CacheTrace::open(RING_BYTES).unwrap();
    let path = directory.join("data");
    let mut file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    let inode = inode_of(&file);
    file.write_all(&vec![7; MIB as usize]).unwrap();
    assert_eq!(
        told(&all_of(&mut trace), inode),
        once(pages(MIB), own()),
        "written"
    );

    file.sync_all().unwrap();
    drop_all(file.as_fd());
    assert!(told(&all_of(&mut trace), inode).is_empty());
    let mut data = Vec::new();
    File::open(&path).unwrap().read_to_end(&mut data).unwrap();
    assert_eq!(
        told(&all_of(&mut trace), inode),
        once(pages(MIB), own()),
        "read"
    );
    // What is cached is not told.
    std::fs::read(&path).unwrap();
    assert!(told(&all_of(&mut trace), inode).is_empty());
    std::fs::remove_file(path).unwrap();
}

#[test]
fn each_page_is_told_once() {
    need!(Need::Cachestat);
    need!(Need::Root);
    writes_and_reads_are_told(directory().path());
}

#[test]
fn each_page_is_told_once_on_ext4() {
    need!(Need::Cachestat);
    need!(all MountedFs::needs(Fs::Ext4));
    writes_and_reads_are_told(MountedFs::new(Fs::Ext4, 64 * MIB).unwrap().path());
}

#[test]
fn each_page_is_told_once_on_xfs() {
    need!(Need::Cachestat);
    need!(all MountedFs::needs(Fs::Xfs));
    writes_and_reads_are_told(MountedFs::new(Fs::Xfs, 0).unwrap().path());
}

#[test]
fn each_page_is_told_once_in_a_subvolume_of_btrfs() {
    need!(all MountedFs::needs(Fs::Btrfs));
    let disk = MountedFs::new(Fs::Btrfs, 0).unwrap();
    let subvolume = disk.file("subvolume");
    let made = Command::new("btrfs")
        .args(["-q", "subvolume", "create"])
        .arg(&subvolume)
        .status();
    assert!(made.unwrap().success());
    // Its device is one that stat does not know.
    let numbers = [disk.path(), &subvolume].map(|path| std::fs::metadata(path).unwrap().dev());
    assert_ne!(numbers[0], numbers[1]);
    writes_and_reads_are_told(&subvolume);

    let mut devices = KernelDevices::new();
    let roots = [disk.path(), &subvolume].map(|path| File::open(path).unwrap());
    let [top, below] = roots.each_ref().map(|root| {
        // Twice: what was learned is the same.
        devices.inode_of(root.as_fd()).unwrap();
        devices.inode_of(root.as_fd()).unwrap()
    });
    assert_eq!(top.device, below.device);
}

#[test]
fn mounts_of_another_namespace_are_looked_through_when_given() {
    need!(all MountedFs::needs(Fs::Btrfs));
    need!(Need::Tool("unshare"));
    let disk = MountedFs::new(Fs::Btrfs, 0).unwrap();
    // A namespace where it is mounted once more, which nobody else has seen.
    // It ends with its standard input, and so with this test.
    let script = "mount --bind \"$0\" \"$0\" && echo && exec cat";
    let mut elsewhere = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(disk.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let ready = elsewhere.stdout.as_mut().unwrap().read(&mut [0]);
    assert_eq!(ready.unwrap(), 1);
    let process = elsewhere.id();
    let through = Path::new("/proc")
        .join(process.to_string())
        .join("root")
        .join(disk.path().strip_prefix("/").unwrap());
    let file = File::open(through).unwrap();

    let missing = KernelDevices::new().inode_of(file.as_fd()).unwrap_err();
    let mounts = mounts_of(process.try_into().unwrap()).unwrap();
    let mut devices = KernelDevices::new();
    devices.set_mounts(&mounts);
    let given = devices.inode_of(file.as_fd());
    drop(file);
    // Closes its standard input first.
    assert!(elsewhere.wait().unwrap().success());
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert_eq!(given.unwrap(), inode_of(&File::open(disk.path()).unwrap()));
}

#[test]
fn other_processes_are_named_and_their_forks_told_first() {
    need!(Need::Cachestat);
    need!(Need::Root);
    let directory = directory();
    let (path, file) = uncached_file(directory.path(), MIB);
    let inode = inode_of(&file);
    let mut trace = CacheTrace::open(RING_BYTES).unwrap();
    // A thread is no process.
    std::thread::spawn(|| ()).join().unwrap();
    let child = run("cat", &path);
    let records = all_of(&mut trace);
    assert_eq!(told(&records, inode), once(pages(MIB), child));

    let forked = TraceRecord::Forked {
        child,
        parent: own(),
    };
    let fork = records.iter().position(|record| *record == forked);
    let fork = fork.expect("the fork is told");
    assert!(told(&records[..fork], inode).is_empty());
    assert!(
        !records.iter().any(
            |record| matches!(record, TraceRecord::Forked { child, parent } if child == parent)
        )
    );
}

#[test]
fn a_grandchild_is_told_with_its_parent() {
    need!(Need::Root);
    let mut trace = CacheTrace::open(RING_BYTES).unwrap();
    let mut child = Command::new("sh")
        .args(["-c", "(true; exec true) & echo $!; wait"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    let parent = child.id().try_into().unwrap();
    child.wait().unwrap();
    let forked = TraceRecord::Forked {
        child: said.trim().parse().unwrap(),
        parent,
    };
    assert!(all_of(&mut trace).contains(&forked));
}

#[test]
fn a_fault_in_a_mapping_is_told() {
    need!(Need::Cachestat);
    need!(Need::Root);
    let directory = directory();
    let (_, file) = uncached_file(directory.path(), MIB);
    let inode = inode_of(&file);
    let mut trace = CacheTrace::open(RING_BYTES).unwrap();
    let len = MIB as usize;
    // SAFETY: a new mapping of a file that nobody else changes, unmapped once; the
    // byte that is read lies within it.
    unsafe {
        let map = rustix::mm::mmap(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ,
            MapFlags::SHARED,
            &file,
            0,
        );
        let map = map.unwrap();
        rustix::mm::madvise(map, len, Advice::Random).unwrap();
        let byte = map.cast::<u8>().add(100 * page_size() as usize);
        assert_eq!(byte.read_volatile(), 0xA5);
        rustix::mm::munmap(map, len).unwrap();
    }
    let one_page = BTreeMap::from([(100, vec![own()])]);
    assert_eq!(told(&all_of(&mut trace), inode), one_page);
}

#[test]
fn later_records_are_kept() {
    need!(Need::Root);
    let directory = directory();
    let mut trace = CacheTrace::open(RING_BYTES).unwrap();
    let write = |name| {
        let path = directory.path().join(name);
        std::fs::write(&path, [1; 100]).unwrap();
        inode_of(&File::open(path).unwrap())
    };
    let before = monotonic_ns();
    let first = write("first");
    let between = monotonic_ns();
    let second = write("second");
    let one = once(1, own());
    assert!(told(&until(&mut trace, before), first).is_empty());
    let records = until(&mut trace, between);
    assert_eq!(told(&records, first), one);
    assert!(told(&records, second).is_empty());
    let third = write("third");
    let records = until(&mut trace, monotonic_ns());
    assert!(told(&records, first).is_empty());
    assert_eq!(told(&records, second), one);
    assert_eq!(told(&records, third), one);
}

#[test]
fn a_filling_ring_wakes() {
    need!(Need::Root);
    let directory = directory();
    let trace = CacheTrace::open(RING_BYTES).unwrap();
    let file = File::create(directory.path().join("data")).unwrap();
    let _processor = pinned();
    for page in 0..200 {
        file.write_all_at(&[1], page * page_size()).unwrap();
    }
    let mut entry = [PollEntry::new(trace.as_fd(), Interest::Readable)];
    let ready = poll(&mut entry, Some(Duration::from_secs(30))).unwrap();
    assert_eq!(ready, 1);
}

/// Keeps this thread on the processor that it is on, until the value goes.
fn pinned() -> impl Drop {
    struct Pinned(rustix::thread::CpuSet);
    impl Drop for Pinned {
        fn drop(&mut self) {
            rustix::thread::sched_setaffinity(None, &self.0).unwrap();
        }
    }
    let before = rustix::thread::sched_getaffinity(None).unwrap();
    let mut one = rustix::thread::CpuSet::new();
    one.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &one).unwrap();
    Pinned(before)
}

#[test]
fn what_did_not_fit_is_counted() {
    need!(Need::Root);
    const PAGES: u64 = 4096;
    let directory = directory();
    let file = File::create(directory.path().join("data")).unwrap();
    let inode = inode_of(&file);
    let _processor = pinned();
    let mut trace = CacheTrace::open(1).unwrap();
    // No page follows another.
    let write = |page| file.write_all_at(&[1], 2 * page * page_size()).unwrap();
    (0..PAGES).for_each(write);
    let mut records = all_of(&mut trace);
    // The kernel says so when there is room again.
    write(PAGES);
    records.extend(all_of(&mut trace));
    let mut kept = 0;
    let mut lost = 0;
    for record in records {
        match record {
            TraceRecord::Added {
                inode: of, pages, ..
            } if of == inode => kept += pages,
            TraceRecord::Lost { records } => lost += records,
            _ => {}
        }
    }
    assert!((1..200).contains(&kept), "{kept}");
    assert!(lost + kept > PAGES, "{lost} and {kept}");
}

#[test]
fn pages_one_after_the_other_are_one_run() {
    need!(Need::Root);
    let mut trace = CacheTrace::open(RING_BYTES).unwrap();
    let directory = directory();
    let file = File::create(directory.path().join("data")).unwrap();
    let inode = inode_of(&file);
    let _processor = pinned();
    let mut runs_of = |pages: &mut dyn Iterator<Item = u64>| {
        for page in pages {
            file.write_all_at(&[1], page * page_size()).unwrap();
        }
        let is_ours = |record: &&TraceRecord| matches!(record, TraceRecord::Added { inode: of, .. } if *of == inode);
        let records = all_of(&mut trace);
        let runs = records.iter().filter(is_ours).count();
        (runs, told(&records, inode))
    };
    let (runs, pages) = runs_of(&mut (0..4096));
    assert_eq!(pages, once(4096, own()));
    assert!(runs < 1024, "{runs}");
    // What was taken is not told again when the run goes on.
    let (_, pages) = runs_of(&mut (4096..4100));
    assert_eq!(
        pages.keys().copied().collect::<Vec<_>>(),
        [4096, 4097, 4098, 4099]
    );
    let (runs, pages) = runs_of(&mut (5000..5200).rev());
    assert_eq!((runs, pages.len()), (200, 200));
}

/// While one processor's ring is read again and again, and others write to files of their
/// own, no page is missing and none is told twice.
#[test]
fn a_run_that_grows_is_told_once() {
    need!(Need::Root);
    const PAGES: u64 = 8192;
    let directory = directory();
    let paths = [0, 1, 2].map(|number| directory.path().join(number.to_string()));
    let files = paths.map(|path| File::create(path).unwrap());
    let inodes = files.each_ref().map(inode_of);
    let mut trace = CacheTrace::open(RING_BYTES).unwrap();
    let mut records = Vec::new();
    std::thread::scope(|scope| {
        let writers = files.each_ref().map(|file| {
            scope.spawn(move || {
                for page in 0..PAGES {
                    file.write_all_at(&[1], page * page_size()).unwrap();
                }
            })
        });
        while writers.iter().any(|writer| !writer.is_finished()) {
            records.extend(until(&mut trace, monotonic_ns()));
        }
    });
    records.extend(all_of(&mut trace));
    for inode in inodes {
        assert_eq!(told(&records, inode), once(PAGES, own()));
    }
}

#[test]
fn a_raw_device_is_told_with_its_number() {
    need!(Need::Cachestat);
    need!(Need::Loop);
    let Some(disk) = Loop::new("a_raw_device_is_told_with_its_number", 4 * MIB) else {
        return;
    };
    let device = disk.open();
    let number = block_device_number(device.as_fd()).unwrap();
    let stat = device.metadata().unwrap();
    let (driver, unit) = (major(stat.rdev()), minor(stat.rdev()));
    assert_eq!(number, u64::from(driver) << 20 | u64::from(unit));

    drop_all(device.as_fd());
    let mut trace = CacheTrace::open(RING_BYTES).unwrap();
    device.write_all_at(&vec![1; MIB as usize], 0).unwrap();
    let records = all_of(&mut trace);
    let mut inodes = records.iter().filter_map(|record| match record {
        TraceRecord::Added { inode, .. } if inode.number == number => Some(*inode),
        _ => None,
    });
    let mounts = mounts_of(own()).unwrap();
    let mounted = |inode: &KernelInode| {
        let mut devices = mounts.iter().map(|mount| kernel_device(mount.device));
        devices.any(|device| device == inode.device)
    };
    let inode = inodes.find(|inode| !mounted(inode)).unwrap();
    assert_eq!(told(&records, inode), once(pages(MIB), own()));
}

#[test]
fn what_is_no_device_has_no_device_number() {
    let file = File::open("/proc/self/exe").unwrap();
    let error = block_device_number(file.as_fd()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTBLK));
}

#[test]
fn nobody_may_not_trace() {
    need!(Need::Root);
    let error = as_nobody(move || CacheTrace::open(RING_BYTES).map(drop)).unwrap_err();
    assert!(matches!(error, CacheTraceError::NotPermitted), "{error:?}");
    assert_eq!(error.to_string(), "tracing all processes is not permitted");
}

#[test]
fn a_trace_can_be_sent_and_ends_with_its_value() {
    need!(Need::Root);
    fn maps() -> usize {
        let maps = std::fs::read_to_string("/proc/thread-self/maps").unwrap();
        maps.lines()
            .filter(|line| line.contains("perf_event") || line.contains("bpf-map"))
            .count()
    }
    let trace = CacheTrace::open(RING_BYTES).unwrap();
    assert!(maps() > 0);
    std::thread::spawn(move || drop(trace)).join().unwrap();
    // Other tests have traces of their own, and end some time.
    crate::setup::wait_for("unmapped", || maps() == 0);
}
