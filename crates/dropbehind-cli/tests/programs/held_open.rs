//! Files that a process outside of the run holds open, and does nothing with. Its
//! descriptor does not make the program's pages its own.

use crate::bed::Bed;
use crate::figures::Figures;
use crate::kept::still_cached;
use crate::mounts::Mounted;
use crate::readers::{self, READERS};
use crate::shell::{RUN, Running, observer_of, wait_for};
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::{evict, page_bytes, resident_map, warm};
use dropbehind_testbed::{Fs, LoopDisk, Need, need};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;
const HELD_BYTES: u64 = 64 * MIB;

/// A process that sleeps with a file open.
pub(crate) fn held(path: &Path) -> Running {
    let mut command = Command::new("sleep");
    command.arg("infinity").stdin(File::open(path).unwrap());
    Running::start(command)
}

/// A program reads a held file by this path. Its pages belong to a file by another
/// one. What was cached before stays, and nothing else does.
fn reads_leave_what_was_there(bed: &Bed, path: &Path, pages_of: &Path) {
    let name = path.display();
    readers::prepare(bed);
    for reader in READERS {
        for hot_bytes in [0, HELD_BYTES / 2] {
            in_some_attempt(|reclaim| {
                evict(pages_of);
                warm(pages_of, 0..hot_bytes);
                let script = reader.replace("PATH", &name.to_string());
                let figures = Figures::of(bed, &format!("--only {name}"), "observed", &script);
                let map = resident_map(pages_of).unwrap();
                let cold = &map[(hot_bytes / page_bytes()) as usize..];
                let stays = cold.iter().filter(|&&page| page).count();
                let of = format!("{script}, {hot_bytes} bytes were hot: {figures:?}");
                assert_eq!(stays, 0, "{of}");
                assert!(
                    figures.bytes("bytes_read") >= HELD_BYTES - hot_bytes,
                    "{of}"
                );
                reclaim.stays(pages_of, figures.bytes("kept_bytes"), hot_bytes)?;
                still_cached(reclaim, pages_of, hot_bytes)
            });
        }
    }
}

#[test]
fn a_file_that_a_sleeping_process_holds_open() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &readers::TOOLS));
        let bed = Bed::on(filesystem);
        bed.input(&format!("head -c {HELD_BYTES} /dev/urandom >data"));
        let data = bed.file("input/data");
        let _held = held(&data);
        reads_leave_what_was_there(&bed, &data, &data);
    }
}

#[test]
fn a_file_below_an_overlay_that_a_sleeping_process_holds_open() {
    need!(Need::Filesystem("overlay"));
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &readers::TOOLS));
        let bed = Bed::on(filesystem);
        let data = format!("head -c {HELD_BYTES} /dev/urandom >data; mkdir ../upper ../work");
        bed.runs("", "lower", &data);
        let _mounted = Mounted::overlay(&bed);
        let [above, below] = ["merged/data", "lower/data"].map(|name| bed.file(name));
        let _held = [held(&above), held(&below)];
        reads_leave_what_was_there(&bed, &above, &below);
    }
}

/// The kernel reports a device's pages as it does a file's. While it is held
/// open, they do not go with the program's close.
#[test]
fn a_raw_device_that_a_sleeping_process_holds_open() {
    need!(all LoopDisk::needs());
    need!(all Bed::needs(Fs::Ext4, &readers::TOOLS));
    let bed = Bed::on(Fs::Ext4);
    let disk = LoopDisk::new(HELD_BYTES).unwrap();
    let _held = held(disk.path());
    reads_leave_what_was_there(&bed, disk.path(), disk.path());
}

/// That a file was empty says nothing about who else uses it, and that somebody has it open
/// says nothing about whose its pages are.
#[test]
fn what_is_written_to_a_small_file_that_a_sleeping_process_holds_open() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["dd"]));
        let bed = Bed::on(filesystem);
        for before_bytes in [0, MIB] {
            bed.input(&format!(
                "head -c {before_bytes} /dev/urandom >data; sync data"
            ));
            let path = bed.file("input/data");
            let _held = held(&path);
            in_some_attempt(|reclaim| {
                File::options()
                    .write(true)
                    .open(&path)
                    .unwrap()
                    .set_len(before_bytes)
                    .unwrap();
                evict(&path);
                warm(&path, 0..before_bytes);
                let name = path.display();
                let script = format!(
                    "exec $RUN dd if=/dev/zero of={name} bs=1M seek={} count={} conv=notrunc \
                     status=none",
                    before_bytes / MIB,
                    HELD_BYTES / MIB
                );
                let figures = Figures::of(&bed, &format!("--only {name}"), "observed", &script);
                let of = format!("{filesystem:?}, {before_bytes} bytes before: {figures:?}");
                let map = resident_map(&path).unwrap();
                let written = &map[(before_bytes / page_bytes()) as usize..];
                assert_eq!(written.iter().filter(|&&page| page).count(), 0, "{of}");
                assert!(figures.bytes("bytes_written") >= HELD_BYTES, "{of}");
                still_cached(reclaim, &path, before_bytes)
            });
        }
    }
}

/// What a program writes goes, too, when it is on the disk.
#[test]
fn what_is_written_to_what_a_sleeping_process_holds_open() {
    need!(all LoopDisk::needs());
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["dd"]));
        let bed = Bed::on(filesystem);
        bed.input(&format!("truncate -s {HELD_BYTES} data"));
        let disk = LoopDisk::new(HELD_BYTES).unwrap();
        for path in [&bed.file("input/data"), disk.path()] {
            let _held = held(path);
            in_some_attempt(|reclaim| {
                evict(path);
                warm(path, 0..HELD_BYTES / 2);
                let name = path.display();
                let script = format!(
                    "exec $RUN dd if=/dev/zero of={name} bs=1M count={} conv=notrunc status=none",
                    HELD_BYTES / MIB
                );
                let figures = Figures::of(&bed, &format!("--only {name}"), "observed", &script);
                let map = resident_map(path).unwrap();
                let cold = &map[(HELD_BYTES / 2 / page_bytes()) as usize..];
                let stays = cold.iter().filter(|&&page| page).count();
                assert_eq!(stays, 0, "{name}: {figures:?}");
                assert!(
                    figures.bytes("bytes_written") >= HELD_BYTES / 2,
                    "{figures:?}"
                );
                still_cached(reclaim, path, HELD_BYTES / 2)
            });
        }
    }
}

/// A busy machine may keep the observer from a processor until the writer has ended: then
/// `/proc` does not show what it had open.
#[test]
fn a_raw_device_whose_writer_has_ended() {
    need!(all LoopDisk::needs());
    need!(all Bed::needs(Fs::Ext4, &["dd"]));
    let bed = Bed::on(Fs::Ext4);
    let disk = LoopDisk::new(HELD_BYTES).unwrap();
    let _held = held(disk.path());
    evict(disk.path());
    let name = disk.path().display();
    let [started, go, written] =
        ["started", "go", "written"].map(|name| bed.file("observed").join(name));
    let script = format!(
        "exec $RUN --only {name} sh -c 'touch started; until [ -e go ]; do sleep 0.01; done; \
         dd if=/dev/zero of={name} bs=1M count={} conv=notrunc status=none; \
         touch written; while [ -e go ]; do sleep 0.01; done'",
        HELD_BYTES / MIB
    );
    let mut running = Running::start(bed.bash(RUN, "observed", &script));
    wait_for("the program", || started.exists());
    let observer = observer_of(running.id()).and_then(|process| process.try_into().ok());
    let observer = observer.and_then(Pid::from_raw).expect("an observer");
    kill_process(observer, Signal::STOP).unwrap();
    std::fs::write(&go, "").unwrap();
    wait_for("all to be written", || written.exists());
    kill_process(observer, Signal::CONT).unwrap();
    std::fs::remove_file(&go).unwrap();
    assert!(running.ends().success());
    let map = resident_map(disk.path()).unwrap();
    assert_eq!(map.iter().filter(|&&page| page).count(), 0);
}

/// With thousands of descriptors, a process takes long to search. But a run knows who made it.
#[test]
fn what_a_process_with_thousands_of_descriptors_reads() {
    for filesystem in [Fs::Ext4, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["python3"]));
        let bed = Bed::on(filesystem);
        bed.input(&format!("head -c {HELD_BYTES} /dev/urandom >data"));
        let data = bed.file("input/data");
        // No event tells that the child has the file, too.
        let script = "import os, resource\n\
             most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
             resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))\n\
             null = os.open('/dev/null', os.O_RDONLY)\n\
             for _ in range(min(most - 100, 18000)): os.dup(null)\n\
             data = os.open('../input/data', os.O_RDONLY)\n\
             if os.fork() == 0:\n\
             \x20   while os.read(data, 1 << 20): pass\n\
             \x20   os._exit(0)\n\
             os.wait()";
        std::fs::write(bed.file("reads.py"), script).unwrap();
        evict(&data);
        let options = format!("--only {}", data.display());
        let figures = Figures::of(&bed, &options, "observed", "exec $RUN python3 ../reads.py");
        let map = resident_map(&data).unwrap();
        let stays = map.iter().filter(|&&page| page).count();
        assert_eq!(stays, 0, "{filesystem:?}: {figures:?}");
        assert!(figures.bytes("bytes_read") >= HELD_BYTES, "{figures:?}");
    }
}
