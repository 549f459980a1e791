//! Programs that write faster than the disk.

use crate::shell::{Left, RUN, bash, lives};
use crate::user::User;
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::{page_bytes, sample};
use dropbehind_testbed::slow_disk::{SlowDisk, SlowDiskOptions};
use dropbehind_testbed::{Fs, MountedFs, Need, need};
use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;

const MIB: u64 = 1 << 20;

const DISK_BYTES_PER_SECOND: u64 = 100 * MIB;
/// Faster than the disk, and slow enough to be found out in time by an observer
/// that has little of a processor.
const PROGRAMS_BYTES_PER_SECOND: u64 = 400 * MIB;

const PROGRAM: &str = "\
import sys, time
path, mib, rate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
begun = time.monotonic()
with open(path, 'r+b', buffering=0) as file:
    for written in range(mib):
        file.write(bytes(1 << 20))
        time.sleep(max(0, begun + (written << 20) / rate - time.monotonic()))
";

/// Most that was dirty or on its way at once of what programs write side by
/// side, a file each.
fn peak_dirty(disk: &MountedFs, max_dirty: &str, programs: u64, mib_each: u64) -> u64 {
    let user = User::new();
    let run = format!("{RUN} --max-dirty {max_dirty} --settle 60");
    let folder = disk.file("");
    let paths: Vec<PathBuf> = (0..programs)
        .map(|number| disk.file(&format!("data-{number}")))
        .collect();
    let files: Vec<File> = paths
        .iter()
        .map(|path| {
            File::create(path).unwrap();
            File::open(path).unwrap()
        })
        .collect();
    let program = user.file("program.py");
    std::fs::write(&program, PROGRAM).unwrap();
    let script = format!(
        "exec $RUN bash -c 'for path in data-*; do \
         python3 {} $path {mib_each} {} & done; wait'",
        program.display(),
        PROGRAMS_BYTES_PER_SECOND / programs,
    );
    let mut command = bash(&user, &run, &script);
    command.current_dir(folder).stderr(Stdio::piped());
    let running = command.spawn().expect("the command");
    let mut peak = 0;
    while lives(running.id()) {
        let unwritten = |file| {
            let counts = sample(file).unwrap();
            (counts.dirty_pages + counts.writeback_pages) * page_bytes()
        };
        peak = peak.max(files.iter().map(unwritten).sum());
    }
    let left = Left::from(running.wait_with_output().expect("its end"));
    assert_eq!((left.code, left.stderr.as_str()), (Some(0), ""));
    for (file, path) in files.iter().zip(&paths) {
        assert_eq!(file.metadata().unwrap().len(), mib_each * MIB);
        std::fs::remove_file(path).unwrap();
    }
    peak
}

/// Held, less than `most_mib` is unwritten at any time, and much more otherwise.
fn writers_wait(on: &[Fs], programs: u64, mib_each: u64, max_dirty: &str, most_mib: u64) {
    need!(all SlowDisk::needs());
    need!(Need::Cachestat, Need::Tool("python3"));
    for &filesystem in on {
        need!(all filesystem.needs());
        let disk = SlowDisk::new(SlowDiskOptions {
            size_bytes: 1024 * MIB,
            write_bytes_per_second: Some(DISK_BYTES_PER_SECOND),
            ..SlowDiskOptions::default()
        })
        .unwrap();
        let disk = disk.mount(filesystem).unwrap();
        // On a busy machine a look may come too late.
        in_some_attempt(|_| {
            let bounded = peak_dirty(&disk, max_dirty, programs, mib_each) / MIB;
            let unbounded = peak_dirty(&disk, "1TiB", programs, mib_each) / MIB;
            let found = format!("{filesystem:?}: {bounded} MiB, {unbounded} MiB unbounded");
            println!("{found}");
            if bounded < most_mib && unbounded > most_mib + 50 {
                return Ok(());
            }
            Err(found)
        });
    }
}

/// Nothing but the disk bounds what a program dirties, unless it is held.
#[test]
fn writers_wait_for_a_slow_disk() {
    writers_wait(&[Fs::Ext4, Fs::Xfs], 1, 400, "32MiB", 150);
}

/// None of these files alone has as much as may be dirty. On xfs the bound for
/// several is too loose to be told from none.
#[test]
fn writers_of_several_files_wait_together() {
    writers_wait(&[Fs::Ext4], 4, 200, "256MiB", 380);
}
