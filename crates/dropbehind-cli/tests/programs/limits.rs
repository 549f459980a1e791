//! Programs that write faster than the disk.

use crate::shell::{Left, RUN, bash, lives};
use crate::user::User;
use crate::user::running_watch::RunningWatch;
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

/// Who observes the programs.
#[derive(Clone, Copy)]
enum Observer<'a> {
    /// `run`, with these options.
    Run(&'a str),
    /// A watch whose rule for all files of the disk says this.
    Watch(&'a str),
}

/// Most that was dirty or on its way at once of what programs write side by
/// side, a file each.
fn peak_dirty(disk: &MountedFs, observer: Observer<'_>, programs: u64, mib_each: u64) -> u64 {
    let user = User::new();
    let (run, watch) = match observer {
        Observer::Run(options) => (format!("{RUN} {options} --settle 60"), None),
        Observer::Watch(rule) => {
            let path = disk.path().display();
            let rules = format!("[[rule]]\npath = \"{path}/**\"\n{rule}\n");
            std::fs::write(user.file("rules"), rules).unwrap();
            let mut watch = RunningWatch::start(&user, &mut user.watch("--config rules"));
            watch.says("READY=1");
            (String::new(), Some(watch))
        }
    };
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
    if let Some(mut watch) = watch {
        assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    }
    for (file, path) in files.iter().zip(&paths) {
        assert_eq!(file.metadata().unwrap().len(), mib_each * MIB);
        std::fs::remove_file(path).unwrap();
    }
    peak
}

const UNBOUNDED: Observer<'static> = Observer::Run("--max-dirty 1TiB");

/// Held, less than `most_mib` is unwritten at any time, and much more otherwise.
fn writers_wait(
    on: &[Fs],
    (programs, mib_each): (u64, u64),
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
            write_bytes_per_second: Some(DISK_BYTES_PER_SECOND),
            ..SlowDiskOptions::default()
        })
        .unwrap();
        let disk = disk.mount(filesystem).unwrap();
        // On a busy machine a look may come too late.
        in_some_attempt(|_| {
            let bounded = peak_dirty(&disk, bounded, programs, mib_each) / MIB;
            let unbounded = peak_dirty(&disk, unbounded, programs, mib_each) / MIB;
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
    let bounded = Observer::Run("--max-dirty 32MiB");
    writers_wait(&[Fs::Ext4, Fs::Xfs], (1, 400), bounded, UNBOUNDED, 150);
}

/// None of these files alone has as much as may be dirty. On xfs the bound for
/// several is too loose to be told from none.
#[test]
fn writers_of_several_files_wait_together() {
    let bounded = Observer::Run("--max-dirty 256MiB");
    writers_wait(&[Fs::Ext4], (4, 200), bounded, UNBOUNDED, 380);
}

/// As the kernel proposal has it: who is written behind waits beyond two windows, unless more
/// is allowed.
#[test]
fn writers_wait_for_what_is_written_behind_them() {
    let unbounded = Observer::Run("-m write-behind --max-dirty 1TiB");
    let bounded = Observer::Run("-m write-behind");
    writers_wait(&[Fs::Ext4], (1, 400), bounded, unbounded, 90);
}

#[test]
fn writers_wait_for_what_a_watch_writes_behind_them() {
    let unbounded = Observer::Watch("mode = \"write-behind\"\nmax_dirty = \"1TiB\"");
    let bounded = Observer::Watch("mode = \"write-behind\"");
    writers_wait(&[Fs::Ext4, Fs::Xfs], (1, 400), bounded, unbounded, 150);
}
