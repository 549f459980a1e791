//! Programs that write faster than the disk.

use crate::shell::{Left, RUN, bash, lives};
use crate::user::User;
use crate::user::running_watch::RunningWatch;
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::{page_bytes, sample};
use dropbehind_testbed::slow_disk::{SlowDisk, SlowDiskOptions};
use dropbehind_testbed::{Fs, MountedFs, Need, need};
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

const MIB: u64 = 1 << 20;

const DISK_BYTES_PER_SECOND: u64 = 100 * MIB;
/// An observer that has little of a processor finds a file some tenths of a second late.
const SLOW_BYTES_PER_SECOND: u64 = 25 * MIB;
/// Programs are so much faster than the disk.
const FASTER: u64 = 4;

/// Writes so many files of this size, one after the other.
const PROGRAM: &str = "\
import sys, time
path, files, kib, rate = sys.argv[1], *map(int, sys.argv[2:])
begun, written = time.monotonic(), 0
for number in range(files):
    with open(f'{path}-{number}', 'wb', buffering=0) as file:
        for start in range(0, kib << 10, 1 << 20):
            written += file.write(bytes(min(1 << 20, (kib << 10) - start)))
            time.sleep(max(0, begun + written / rate - time.monotonic()))
";

/// What programs write side by side.
#[derive(Clone, Copy)]
struct Load {
    programs: u64,
    /// Each program writes so many, one after the other.
    files: u64,
    kib: u64,
    /// To a disk as fast as this.
    disk_bytes_per_second: u64,
}

/// Who observes the programs.
#[derive(Clone, Copy)]
enum Observer<'a> {
    /// `run`, with these options.
    Run(&'a str),
    /// A watch whose rule for all files of the disk says this.
    Watch(&'a str),
}

/// Most that was dirty or on its way at once of what programs write.
fn peak_dirty(disk: &MountedFs, observer: Observer<'_>, load: Load) -> u64 {
    let user = User::new();
    let (run, watch) = match observer {
        Observer::Run(options) => (format!("{RUN} {options} --settle 60"), None),
        Observer::Watch(rule) => {
            let path = disk.path().display();
            let rules = format!("[[rule]]\npath = \"{path}/**\"\n{rule}\n");
            std::fs::write(user.file("rules"), rules).unwrap();
            let watch = RunningWatch::by_rules(&user);
            (String::new(), Some(watch))
        }
    };
    let folder = disk.file("data");
    std::fs::create_dir(&folder).unwrap();
    let Load {
        programs,
        files,
        kib,
        disk_bytes_per_second,
    } = load;
    let program = user.file("program.py");
    std::fs::write(&program, PROGRAM).unwrap();
    let script = format!(
        "exec $RUN bash -c 'for program in $(seq {programs}); do \
         python3 {} $program {files} {kib} {} & done; wait'",
        program.display(),
        FASTER * disk_bytes_per_second / programs,
    );
    let mut command = bash(&user, &run, &script);
    command.current_dir(&folder).stderr(Stdio::piped());
    let running = command.spawn().expect("the command");
    let mut peak = 0;
    let mut sampled: HashMap<PathBuf, File> = HashMap::new();
    while lives(running.id()) {
        // Each open and close is an event for a watch.
        for path in paths_in(&folder) {
            let open = || File::open(&path).unwrap();
            sampled.entry(path.clone()).or_insert_with(open);
        }
        let unwritten = |file| {
            let counts = sample(file).unwrap();
            (counts.dirty_pages + counts.writeback_pages) * page_bytes()
        };
        peak = peak.max(sampled.values().map(unwritten).sum());
    }
    let left = Left::from(running.wait_with_output().expect("its end"));
    assert_eq!((left.code, left.stderr.as_str()), (Some(0), ""));
    if let Some(mut watch) = watch {
        assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    }
    let sizes = paths_in(&folder).map(|path| path.metadata().unwrap().len());
    let sizes: Vec<u64> = sizes.collect();
    assert_eq!(sizes.len() as u64, programs * files);
    assert!(sizes.iter().all(|&bytes| bytes == kib << 10));
    std::fs::remove_dir_all(&folder).unwrap();
    peak
}

fn paths_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path())
}

const UNBOUNDED: Observer<'static> = Observer::Run("--max-dirty 1TiB");

/// Held, less than `most_mib` is unwritten at any time, and much more otherwise.
fn writers_wait(
    on: &[Fs],
    load: Load,
    bounded: Observer<'_>,
    unbounded: Observer<'_>,
    most_mib: u64,
) {
    need!(all SlowDisk::needs());
    need!(Need::Cachestat, Need::Tool("python3"));
    for &filesystem in on {
        need!(all filesystem.needs());
        let disk = SlowDisk::new(SlowDiskOptions {
            size_bytes: 1024 * MIB,
            write_bytes_per_second: Some(load.disk_bytes_per_second),
            ..SlowDiskOptions::default()
        })
        .unwrap();
        let disk = disk.mount(filesystem).unwrap();
        // On a busy machine a look may come too late.
        in_some_attempt(|_| {
            let bounded = peak_dirty(&disk, bounded, load) / MIB;
            let unbounded = peak_dirty(&disk, unbounded, load) / MIB;
            let found = format!("{filesystem:?}: {bounded} MiB, {unbounded} MiB unbounded");
            println!("{found}");
            if bounded < most_mib && unbounded > most_mib + 50 {
                return Ok(());
            }
            Err(found)
        });
    }
}

const ONE_FILE: Load = Load {
    programs: 1,
    files: 1,
    kib: 400 << 10,
    disk_bytes_per_second: DISK_BYTES_PER_SECOND,
};

/// Nothing but the disk bounds what a program dirties, unless it is held.
#[test]
fn writers_wait_for_a_slow_disk() {
    let bounded = Observer::Run("--max-dirty 32MiB");
    writers_wait(&[Fs::Ext4, Fs::Xfs], ONE_FILE, bounded, UNBOUNDED, 150);
}

/// None of these files alone has as much as may be dirty. On xfs the bound for
/// several is too loose to be told from none.
#[test]
fn writers_of_several_files_wait_together() {
    let bounded = Observer::Run("--max-dirty 256MiB");
    let load = Load {
        programs: 4,
        files: 1,
        kib: 200 << 10,
        disk_bytes_per_second: DISK_BYTES_PER_SECOND,
    };
    writers_wait(&[Fs::Ext4], load, bounded, UNBOUNDED, 380);
}

/// Each file is closed before the next one is opened.
fn one_file_after_the_other(options: &str, files: u64, kib: u64) {
    let load = Load {
        programs: 1,
        files,
        kib,
        disk_bytes_per_second: SLOW_BYTES_PER_SECOND,
    };
    let bounded = format!("{options} --max-dirty 32MiB");
    let unbounded = format!("{options} --max-dirty 1TiB");
    let (bounded, unbounded) = (Observer::Run(&bounded), Observer::Run(&unbounded));
    writers_wait(&[Fs::Ext4, Fs::Xfs], load, bounded, unbounded, 90);
}

/// None of these files has as much as may be dirty.
#[test]
fn who_writes_one_file_after_the_other_waits_at_the_next_open() {
    one_file_after_the_other("--source seccomp", 50, 4 << 10);
}

/// These have no stream of their own.
#[test]
fn who_writes_one_small_file_after_the_other_waits_at_the_next_open() {
    one_file_after_the_other("--source seccomp", 400, 512);
}

/// What was written to closed files leaves less room for the next one.
#[test]
fn who_writes_one_large_file_after_the_other_waits_within_them() {
    one_file_after_the_other("--source fanotify", 10, 20 << 10);
}

/// As the kernel proposal has it: who is written behind waits beyond two windows, unless more
/// is allowed.
#[test]
fn writers_wait_for_what_is_written_behind_them() {
    let unbounded = Observer::Run("-m write-behind --max-dirty 1TiB");
    let bounded = Observer::Run("-m write-behind");
    writers_wait(&[Fs::Ext4], ONE_FILE, bounded, unbounded, 90);
}

#[test]
fn writers_wait_for_what_a_watch_writes_behind_them() {
    let unbounded = Observer::Watch("mode = \"write-behind\"\nmax_dirty = \"1TiB\"");
    let bounded = Observer::Watch("mode = \"write-behind\"");
    writers_wait(&[Fs::Ext4, Fs::Xfs], ONE_FILE, bounded, unbounded, 150);
}
