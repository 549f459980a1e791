//! The slow disk is as slow, as broken and as talkative as it was told.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dropbehind_testbed::slow_disk::{Failing, RequestKind};
use dropbehind_testbed::{Fs, MountedFs, Need, SlowDisk, SlowDiskOptions, need, now_ns, pattern};
use dropbehind_testbed::{residency, skip};

const MIB: u64 = 1 << 20;

fn disk() -> SlowDisk {
    SlowDisk::new(SlowDiskOptions {
        size_bytes: 64 * MIB,
        ..SlowDiskOptions::default()
    })
    .unwrap()
}

fn open(disk: &SlowDisk) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(disk.device())
        .unwrap()
}

fn open_direct(disk: &SlowDisk) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(disk.device())
        .unwrap()
}

/// A block aligned as O_DIRECT wants it.
#[repr(align(4096))]
struct Aligned([u8; 4096]);

fn is_eio<T: std::fmt::Debug>(result: io::Result<T>) -> bool {
    result.unwrap_err().raw_os_error() == Some(libc::EIO)
}

#[test]
fn what_was_written_can_be_read_and_is_recorded() {
    need!(all SlowDisk::needs());
    let disk = disk();
    let file = open(&disk);
    let before = now_ns();
    file.write_all_at(&pattern::filled(5, 8 * MIB, 4 << 20), 8 * MIB)
        .unwrap();
    file.sync_all().unwrap();
    let after = now_ns();
    let requests = disk.requests().unwrap();
    let writes: Vec<_> = requests
        .iter()
        .filter(|one| one.kind == RequestKind::Write)
        .collect();
    assert_eq!(writes.iter().map(|one| one.length).sum::<u64>(), 4 * MIB);
    assert_eq!(disk.written_bytes().unwrap(), 4 * MIB);
    for write in &writes {
        assert!((8 * MIB..12 * MIB).contains(&write.offset), "{write:?}");
        assert!(write.arrived_ns >= before, "{write:?}");
        assert!(write.answered_ns.is_some_and(|ns| ns <= after), "{write:?}");
        assert!(write.succeeded());
    }
    assert!(
        requests.iter().any(|one| one.kind == RequestKind::Flush),
        "{requests:?}"
    );

    disk.forget_requests().unwrap();
    residency::evict(disk.device());
    let mut data = vec![0; 4 << 20];
    file.read_exact_at(&mut data, 8 * MIB).unwrap();
    pattern::check(5, 8 * MIB, &data).unwrap();
    let read: u64 = disk
        .requests()
        .unwrap()
        .iter()
        .filter(|one| one.kind == RequestKind::Read)
        .map(|one| one.length)
        .sum();
    assert!(
        read >= 4 * MIB,
        "nothing was cached below the device: {read}"
    );
}

#[test]
fn writes_take_their_time_and_speed_can_change() {
    need!(all SlowDisk::needs());
    let disk = disk();
    disk.set_write_speed(Some(4 * MIB)).unwrap();
    let file = open(&disk);
    file.write_all_at(&vec![1; 2 << 20], 0).unwrap();
    let start = Instant::now();
    file.sync_all().unwrap();
    let took = start.elapsed();
    assert!((450..1500).contains(&took.as_millis()), "{took:?}");

    disk.set_write_speed(None).unwrap();
    file.write_all_at(&vec![2; 2 << 20], 0).unwrap();
    let start = Instant::now();
    file.sync_all().unwrap();
    let took = start.elapsed();
    assert!(took < Duration::from_millis(400), "{took:?}");
}

#[test]
fn reads_take_their_time() {
    need!(all SlowDisk::needs());
    let disk = disk();
    disk.set_read_speed(Some(4 * MIB)).unwrap();
    let file = open_direct(&disk);
    let start = Instant::now();
    let mut block = Box::new(Aligned([1; 4096]));
    for index in 0..256 {
        file.read_exact_at(&mut block.0, index * 4096).unwrap();
    }
    let took = start.elapsed();
    assert!(block.0.iter().all(|&byte| byte == 0));
    assert!((240..1000).contains(&took.as_millis()), "{took:?}");
}

#[test]
fn every_request_waits_for_the_latency() {
    need!(all SlowDisk::needs());
    let disk = disk();
    disk.set_latency(Duration::from_millis(100)).unwrap();
    let file = open_direct(&disk);
    let start = Instant::now();
    file.write_all_at(&Aligned([1; 4096]).0, 0).unwrap();
    let one = start.elapsed();
    assert!((100..300).contains(&one.as_millis()), "{one:?}");
    // Side by side: ten take as long as one.
    std::thread::scope(|scope| {
        for index in 0..10 {
            let file = &file;
            scope.spawn(move || {
                file.write_all_at(&Aligned([1; 4096]).0, index * 4096)
                    .unwrap()
            });
        }
    });
    let ten = start.elapsed() - one;
    assert!((100..600).contains(&ten.as_millis()), "{ten:?}");
}

#[test]
fn a_failing_disk_fails_and_recovers() {
    need!(all SlowDisk::needs());
    let disk = disk();
    let file = open(&disk);
    file.write_all_at(&[1; 4096], 0).unwrap();
    disk.set_failing(true).unwrap();
    assert!(is_eio(file.sync_all()));
    disk.set_failing(false).unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    file.sync_all().unwrap();

    let direct = open_direct(&disk);
    disk.fail(Failing::Reads).unwrap();
    assert!(is_eio(
        direct.read_at(&mut Box::new(Aligned([0; 4096])).0, 0)
    ));
    direct.write_all_at(&Aligned([2; 4096]).0, 0).unwrap();
    let failed = |kind| {
        disk.requests()
            .unwrap()
            .iter()
            .filter(|one| one.kind == kind && one.failed)
            .count()
    };
    assert!(failed(RequestKind::Read) > 0);
    assert!(failed(RequestKind::Write) > 0);
}

#[test]
fn bad_ranges_fail_and_their_neighbours_do_not() {
    need!(all SlowDisk::needs());
    let disk = disk();
    let file = open_direct(&disk);
    disk.add_bad_range(MIB + 512..MIB + 1024).unwrap();
    let data = Aligned([3; 4096]);
    file.write_all_at(&data.0, MIB - 4096).unwrap();
    assert!(is_eio(file.write_all_at(&data.0, MIB)));
    file.write_all_at(&data.0, MIB + 4096).unwrap();
    disk.clear_bad_ranges().unwrap();
    file.write_all_at(&data.0, MIB).unwrap();
}

#[test]
fn an_error_rate_hits_some() {
    need!(all SlowDisk::needs());
    let disk = disk();
    disk.set_error_rate(200_000).unwrap();
    let file = open_direct(&disk);
    let data = Aligned([3; 4096]);
    let failures = (0..200)
        .filter(|&i| file.write_all_at(&data.0, i * 4096).is_err())
        .count();
    assert!((10..100).contains(&failures), "{failures}");
}

#[test]
fn a_vanished_disk_releases_those_who_wait() {
    need!(all SlowDisk::needs());
    let disk = disk();
    disk.set_write_speed(Some(0)).unwrap();
    let file = open(&disk);
    file.write_all_at(&[1; 8192], 0).unwrap();
    let waiting = std::thread::spawn(move || file.sync_all());
    std::thread::sleep(Duration::from_millis(100));
    assert!(!waiting.is_finished());
    let stuck = disk.requests().unwrap();
    assert!(
        stuck.iter().any(|one| one.answered_ns.is_none()),
        "{stuck:?}"
    );
    disk.vanish().unwrap();
    assert!(is_eio(waiting.join().unwrap()));
    assert!(is_eio(
        open_direct(&disk).read_at(&mut Box::new(Aligned([0; 4096])).0, 0)
    ));
}

#[test]
fn file_systems_live_on_it() {
    for filesystem in Fs::ALL {
        lives_on_it(filesystem);
    }
}

fn lives_on_it(filesystem: Fs) {
    need!(all SlowDisk::needs());
    need!(all filesystem.needs());
    let disk = SlowDisk::new(SlowDiskOptions {
        size_bytes: 512 * MIB,
        write_bytes_per_second: Some(8 * MIB),
        latency: Duration::from_millis(1),
        ..SlowDiskOptions::default()
    })
    .unwrap();
    let mounted: MountedFs = disk.mount(filesystem).unwrap();
    assert_eq!(disk.requests().unwrap(), [], "the making is not recorded");
    let path = mounted.file("data");
    let mut file = File::create_new(&path).unwrap();
    let contents = pattern::filled(9, 0, 2 << 20);
    // The kernel may begin before it is asked to.
    let start = Instant::now();
    file.write_all(&contents).unwrap();
    file.sync_all().unwrap();
    assert!(
        start.elapsed() > Duration::from_millis(200),
        "{:?}",
        start.elapsed()
    );
    assert!(disk.written_bytes().unwrap() >= 2 * MIB);
    residency::evict(&path);
    pattern::check(9, 0, &fs::read(&path).unwrap()).unwrap();
    // Dirty data and a disk that hangs must not stop the unmount.
    file.write_all(&[1; 100_000]).unwrap();
    drop(file);
    disk.set_write_speed(Some(0)).unwrap();
    drop(mounted);
    // After it, the disk hangs as before.
    let raw = open(&disk);
    raw.write_all_at(&[1; 4096], 0).unwrap();
    let waiting = std::thread::spawn(move || raw.sync_all());
    std::thread::sleep(Duration::from_millis(50));
    assert!(!waiting.is_finished());
    drop(disk);
    // Whoever still uses it may see it vanish, but does not wait.
    let _ = waiting.join().unwrap();
}

#[test]
fn a_copy_of_the_mount_elsewhere_does_not_hang_the_tear_down() {
    need!(all SlowDisk::needs());
    need!(all Fs::Ext4NoJournal.needs());
    need!(Need::Tool("unshare"));
    let disk = disk();
    let mounted = disk.mount(Fs::Ext4NoJournal).unwrap();
    let mut elsewhere = Command::new("unshare")
        .args(["--mount", "sh", "-c", "echo there; sleep 60"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut there = [0];
    let mut output = elsewhere.stdout.take().unwrap();
    output.read_exact(&mut there).unwrap();
    fs::write(mounted.file("data"), [1; 100_000]).unwrap();
    disk.set_write_speed(Some(0)).unwrap();
    drop(mounted);
    drop(disk);
    elsewhere.kill().unwrap();
    elsewhere.wait().unwrap();
}

/// Run by the next test in a process of its own: waits for a hanging disk.
#[test]
#[ignore = "a part of another test"]
fn hangs() {
    let disk = disk();
    disk.set_write_speed(Some(0)).unwrap();
    let file = open(&disk);
    file.write_all_at(&[1; 1 << 20], 0).unwrap();
    println!("{}", disk.device().display());
    io::stdout().flush().unwrap();
    file.sync_all().unwrap();
}

#[test]
fn a_killed_user_does_not_hang() {
    need!(all SlowDisk::needs());
    // With one test at a time, the process's first thread is the one that
    // waits; with two, it is another.
    for threads in ["1", "2"] {
        a_killed_user_ends(threads);
    }
}

fn a_killed_user_ends(threads: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hangs", "--include-ignored", "-q", "--nocapture"])
        .arg(format!("--test-threads={threads}"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut output = child.stdout.take().unwrap();
    let mut byte = [0];
    while !said.ends_with("/dev/loop") {
        output.read_exact(&mut byte).unwrap();
        said.push(byte[0].into());
    }
    std::thread::sleep(Duration::from_millis(300));
    child.kill().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "it waits for its own disk"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn nothing_below_the_device_is_cached() {
    need!(all SlowDisk::needs());
    need!(Need::Cachestat);
    let disk = disk();
    let file = open(&disk);
    file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let name = disk
        .device()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let Ok(direct) = fs::read_to_string(format!("/sys/block/{name}/loop/dio")) else {
        skip!("no loop attributes in sysfs");
    };
    assert_eq!(direct.trim(), "1");
}
