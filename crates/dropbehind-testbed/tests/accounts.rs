//! Disk traffic, extents and memory limits.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::Command;

use dropbehind_testbed::{Fs, MemoryCgroup, MountedFs, Need, need, residency};
use dropbehind_testbed::{disk_io, extents};

const MIB: u64 = 1 << 20;

#[test]
fn a_disk_counts_what_was_written_and_read() {
    need!(all MountedFs::needs(Fs::Ext4NoJournal));
    let disk = MountedFs::new(Fs::Ext4NoJournal, 64 * MIB).unwrap();
    let path = disk.file("data");
    let before = disk_io::disk_io(disk.device()).unwrap();
    fs::write(&path, vec![1; 4 << 20]).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let after_write = disk_io::disk_io(&path).unwrap();
    let written = after_write.since(before);
    assert!(
        (4 * MIB..6 * MIB).contains(&written.written_bytes),
        "{written:?}"
    );
    assert!(written.writes > 0);
    residency::evict(&path);
    fs::read(&path).unwrap();
    let read = disk_io::disk_io(disk.device()).unwrap().since(after_write);
    assert!((4 * MIB..6 * MIB).contains(&read.read_bytes), "{read:?}");
    assert!(read.reads > 0);
}

#[test]
fn a_process_counts_what_it_caused() {
    need!(all MountedFs::needs(Fs::Ext4NoJournal));
    let disk = MountedFs::new(Fs::Ext4NoJournal, 64 * MIB).unwrap();
    let before = disk_io::process_io(std::process::id()).unwrap();
    fs::write(disk.file("data"), vec![1; 4 << 20]).unwrap();
    let after = disk_io::process_io(std::process::id()).unwrap();
    assert!(after.written_bytes >= before.written_bytes + 4 * MIB);
    assert!(disk_io::process_io(0).is_err());
}

#[test]
fn extents_are_counted() {
    need!(Need::Tool("filefrag"));
    need!(all MountedFs::needs(Fs::Ext4NoJournal));
    let disk = MountedFs::new(Fs::Ext4NoJournal, 64 * MIB).unwrap();
    let whole = disk.file("whole");
    fs::write(&whole, vec![1; 1 << 20]).unwrap();
    assert_eq!(extents::extents(&whole).unwrap(), 1);
    // Cutting blocks out of the middle leaves gaps on the disk.
    let file = OpenOptions::new().write(true).open(&whole).unwrap();
    for index in 1..5 {
        // SAFETY: takes numbers only.
        let cut = unsafe {
            libc::fallocate(
                file.as_raw_fd(),
                libc::FALLOC_FL_COLLAPSE_RANGE,
                index * 65536,
                8192,
            )
        };
        assert_eq!(cut, 0);
    }
    assert_eq!(extents::extents(&whole).unwrap(), 5);
    assert!(extents::extents(&disk.file("missing")).is_err());
}

#[test]
fn a_memory_limit_kills_and_spares() {
    need!(all MemoryCgroup::needs());
    let group = MemoryCgroup::new(32 * MIB).unwrap();
    let allocate = |mib: u32| {
        let mut command = Command::new("dd");
        command.args(["if=/dev/zero", "of=/dev/null", "count=1", "status=none"]);
        command.arg(format!("bs={mib}M"));
        command
    };
    assert!(group.run(allocate(8)).unwrap().status.success());
    assert!(!group.run(allocate(64)).unwrap().status.success());
    assert!(group.usage_bytes().unwrap() <= 32 * MIB);
    let path = group.path().to_owned();
    assert!(path.exists());
    let mut sleeper = group.spawn(Command::new("sleep").arg("60")).unwrap();
    drop(group);
    assert!(!path.exists());
    assert!(!sleeper.wait().unwrap().success());
}

#[test]
fn page_cache_counts_towards_a_memory_limit() {
    need!(all MemoryCgroup::needs());
    need!(all MountedFs::needs(Fs::Ext4NoJournal));
    let disk = MountedFs::new(Fs::Ext4NoJournal, 256 * MIB).unwrap();
    let group = MemoryCgroup::new(32 * MIB).unwrap();
    let mut dd = Command::new("dd");
    dd.args(["if=/dev/zero", "bs=1M", "count=128", "status=none"]);
    dd.arg(format!("of={}", disk.file("data").display()));
    assert!(group.run(dd).unwrap().status.success());
    let cached = residency::cached(&disk.file("data")).unwrap();
    assert!(
        cached.cached_pages * residency::page_bytes() <= 40 * MIB,
        "{cached:?}"
    );
}

#[test]
fn unwritten_output_is_not_lost_in_a_group() {
    need!(all MemoryCgroup::needs());
    let group = MemoryCgroup::new(64 * MIB).unwrap();
    let mut echo = Command::new("echo");
    echo.arg("hello");
    let output = group.run(echo).unwrap();
    std::io::stderr().write_all(&output.stderr).unwrap();
    assert_eq!(output.stdout, b"hello\n");
}
