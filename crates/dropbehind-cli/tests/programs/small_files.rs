//! Many small files.

use crate::bed::Bed;
use crate::figures::Figures;
use crate::mounts::Mounted;
use crate::shell::{Left, RUN, Running, lives, observer_of, wait_for};
use dropbehind_testbed::disk_io::disk_io;
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::{cached, page_bytes, sample};
use dropbehind_testbed::slow_disk::{SlowDisk, SlowDiskOptions};
use dropbehind_testbed::{Fs, Need, need};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// What may be left of small files while more come, and what comes while a
/// batch of them is on its way to the disk.
const BUDGET_BYTES: u64 = 64 * MIB;

/// 5,000 files of some 160 MiB.
pub(crate) const TREE: &str = "mkdir tree; cd tree; for d in $(seq 50); do mkdir $d; done; \
                    head -c 80000 /dev/urandom >block; for i in $(seq 5000); do \
                    head -c $((i * 13 % 65536)) block >$((i % 50 + 1))/$i; done";

/// All that is cached of a folder's files.
fn cached_below(folder: &Path) -> u64 {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            bytes += cached_below(&path);
        } else if let Ok(file) = File::open(&path) {
            bytes += sample(&file).map_or(0, |counts| counts.cached_pages * page_bytes());
        }
    }
    bytes
}

#[test]
fn unpacking_an_archive() {
    for filesystem in [Fs::Ext4, Fs::Xfs] {
        need!(all Bed::needs(filesystem, &["tar"]));
        let bed = Bed::on(filesystem);
        bed.input(TREE);
        bed.input("tar -cf archive tree");
        bed.cools("input");
        let plain = bed.runs("", "plain", "tar -xf ../input/archive; echo $?");
        assert_eq!(plain.stdout, "0\n", "{plain:?}");
        let whole = cached_below(&bed.file("plain"));
        assert!(whole > 2 * BUDGET_BYTES, "{whole}");
        // A disk that is busy for others lets pages gather that are on their way.
        in_some_attempt(|_| {
            bed.cools("input");
            bed.runs("", ".", "rm -rf observed");
            // No faster than a slow disk: nobody holds the writers of small files.
            let script = "exec $RUN --stats ../figures tar -xf ../input/archive \
                          --checkpoint=100 --checkpoint-action=exec='sleep 0.05'";
            let mut command = bed.bash(RUN, "observed", script);
            command.stderr(Stdio::piped());
            let running = command.spawn().expect("the command");
            let mut peak = 0;
            while lives(running.id()) {
                peak = peak.max(cached_below(&bed.file("observed")));
                // The witness is not to take a processor from those that it watches.
                std::thread::sleep(Duration::from_millis(20));
            }
            let left = Left::from(running.wait_with_output().expect("its end"));
            assert_eq!((left.code, left.stderr.as_str()), (Some(0), ""));
            let figures = std::fs::read_to_string(bed.file("figures")).unwrap_or_default();
            // Of what is looked at too late, now and then a file is kept.
            let stays = bed.cached("observed");
            assert!(stays.len() < 5, "{filesystem:?}: {stays:?}, {figures}");
            assert_eq!(bed.cached("input"), []);
            bed.are_alike("plain", "observed");
            let of = format!("{} of {} MiB cached", peak / MIB, whole / MIB);
            println!("{filesystem:?}: at most {of}");
            if peak > 2 * BUDGET_BYTES || !stays.is_empty() {
                return Err(format!("{of}, {stays:?} stays, {figures}"));
            }
            Ok(())
        });
    }
}

/// Small when they are opened, cached or not, they are large long before they are
/// closed.
#[test]
fn small_files_that_grow_are_dropped_while_they_are_open() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["fincore"]));
        let bed = Bed::on(filesystem);
        bed.input("head -c 5000 /dev/urandom >cold; cp cold warm");
        bed.cools("input");
        // Two pages are the reader's, and stay.
        let script = "cat ../input/warm >/dev/null; for name in cold warm; do \
                      file=../input/$name; exec 3>>$file; \
                      dd if=/dev/zero bs=1M count=97 status=none >&3; \
                      for look in $(seq 100); do sleep 0.1; \
                      [ $(fincore -bno RES $file) -le 8192 ] && echo dropped $name && break; \
                      done; exec 3>&-; done";
        let script = format!("exec $RUN --stats ../figures bash -c '{script}'");
        let left = bed.runs(RUN, "observed", &script);
        let figures = std::fs::read_to_string(bed.file("figures")).unwrap_or_default();
        let dropped = left.stdout == "dropped cold\ndropped warm\n";
        assert!(dropped, "{filesystem:?}: {left:?}, {figures}");
    }
}

/// Whether the kernel tells a process of each read of this file.
fn is_told_of_reads(process: u32, path: &Path) -> bool {
    const ACCESS: u64 = 1;
    let inode = format!(" ino:{:x} ", std::fs::metadata(path).unwrap().ino());
    let entries = std::fs::read_dir(format!("/proc/{process}/fdinfo"));
    let infos = entries.into_iter().flatten().flatten();
    let infos = infos.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let marks = infos.flat_map(|info| info.lines().map(str::to_owned).collect::<Vec<_>>());
    marks.filter(|mark| mark.contains(&inode)).any(|mark| {
        let mask = mark.split(' ').find_map(|word| word.strip_prefix("mask:"));
        let mask = mask.and_then(|hex| u64::from_str_radix(hex, 16).ok());
        mask.is_some_and(|mask| mask & ACCESS != 0)
    })
}

/// A program that reads a file over and over would be slowed down by each event, and
/// the observer be kept busy.
#[test]
fn reads_of_an_open_file_are_not_told_each_time() {
    need!(all Bed::needs(Fs::Ext4, &["python3"]));
    let bed = Bed::on(Fs::Ext4);
    bed.input("for name in one two small; do head -c 50000 /dev/urandom >$name; done");
    bed.cools("input");
    std::fs::write(
        bed.file("program.py"),
        "import os\n\
         small = open('small', 'rb', 0)\n\
         with open('made', 'wb') as f: f.write(bytes(1000000))\n\
         made = open('made', 'rb', 0)\n\
         for name in 'one', 'two': open(name, 'rb', 0).read()\n\
         while not os.path.exists('go'):\n\
         \x20   for file in small, made: os.pread(file.fileno(), 100, 0)\n",
    )
    .unwrap();
    let script = "exec $RUN python3 ../program.py";
    let mut running = Running::start(bed.bash(RUN, "input", script));
    let made = bed.file("input/made");
    wait_for("it reads", || {
        made.metadata().is_ok_and(|made| made.len() == 1_000_000)
    });
    // By then the directory has been looked at.
    std::thread::sleep(Duration::from_millis(300));
    let observer = observer_of(running.id()).expect("an observer");
    for name in ["small", "made"] {
        let path = bed.file("input").join(name);
        wait_for("its reads are not told", || {
            !is_told_of_reads(observer, &path)
        });
    }
    std::fs::write(bed.file("input/go"), "").unwrap();
    assert!(running.ends().success());
}

/// Somebody else reads it, whose opens are of no interest.
#[test]
fn reads_of_a_file_that_is_done_with_are_told_once() {
    need!(all Bed::needs(Fs::Ext4, &["sh"]));
    let bed = Bed::on(Fs::Ext4);
    bed.input("true");
    let script = "exec $RUN -m dontcache sh -c \
                  'head -c 4000000 /dev/zero >large; until [ -e go ]; do sleep 0.1; done'";
    let mut running = Running::start(bed.bash(RUN, "input", script));
    let large = bed.file("input/large");
    wait_for("it is dropped", || {
        let is_written = large.metadata().is_ok_and(|large| large.len() == 4_000_000);
        is_written && cached(&large).unwrap().cached_pages == 0
    });
    std::thread::sleep(Duration::from_millis(300));
    let observer = observer_of(running.id()).expect("an observer");
    assert!(is_told_of_reads(observer, &large));
    assert_eq!(std::fs::read(&large).unwrap().len(), 4_000_000);
    let is_told = (0..100).all(|_| {
        std::thread::sleep(Duration::from_millis(50));
        is_told_of_reads(observer, &large)
    });
    std::fs::write(bed.file("input/go"), "").unwrap();
    assert!(running.ends().success());
    assert!(!is_told, "its reads are reported for good");
}

/// What is gone within a second or so was never to be written.
#[test]
fn files_that_are_soon_deleted_are_not_written() {
    need!(all Bed::needs(Fs::Ext4, &["python3"]));
    let bed = Bed::on(Fs::Ext4);
    std::fs::write(
        bed.file("program.py"),
        "import os\n\
         block = os.urandom(100_000)\n\
         for i in range(400):\n\
         \x20   with open(f'{i}', 'wb') as f: f.write(block)\n\
         \x20   if i >= 20: os.unlink(f'{i - 20}')\n\
         for i in range(380, 400): os.rename(f'{i}', '399')\n\
         os.unlink('399')\n\
         for i in range(40):\n\
         \x20   with open('same', 'wb') as f: f.write(block)\n\
         os.unlink('same')\n",
    )
    .unwrap();
    let written = |run: &str, folder: &str| {
        let before = disk_io(bed.device()).unwrap();
        let left = bed.runs(run, folder, "$RUN python3 ../program.py");
        assert_eq!(left.code, Some(0), "{left:?}");
        disk_io(bed.device()).unwrap().since(before).written_bytes
    };
    // Somebody may sync all of the machine at the wrong moment.
    in_some_attempt(|_| {
        let plain = written("", "plain");
        let observed = written("dropbehind run --stats ../figures", "observed");
        let figures = std::fs::read_to_string(bed.file("figures")).unwrap();
        let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
        let ours: u64 = figures["writeback_bytes"]
            .as_object()
            .unwrap()
            .values()
            .map(|bytes| bytes.as_u64().unwrap())
            .sum();
        assert_eq!(ours, 0, "{figures}");
        // A journal is written in either way.
        if observed > plain + 4 * MIB {
            return Err(format!("{observed} and {plain}"));
        }
        Ok(())
    });
}

/// Here they keep their descriptors while they wait. All of them together are within the budget.
#[test]
fn what_is_deleted_while_it_waits_makes_room_on_the_disk() {
    need!(all Bed::needs(Fs::Ext4, &["truncate"]));
    let bed = Bed::sized(Fs::Ext4, 256 * MIB);
    bed.input("head -c 1G /dev/zero >full 2>/dev/null || truncate -s -40MB full; sync -f full");
    let script = "$RUN bash -c 'fill() { for i in $(seq 62); do \
                  head -c 500000 /dev/zero >$i || exit 1; done; }; \
                  fill; sleep 1.5; rm *; sleep 2; fill'; echo $?";
    let left = bed.runs(&format!("{RUN} --source seccomp"), "observed", script);
    assert_eq!(left.stdout, "0\n", "{left:?}");
}

/// Opens a file twice, at times that no queue of events merges, and closes it twice in
/// one moment.
const TWICE: &str = r#"
import os, time
files = []
for name in "ab":
    files.append(os.open("../input/data", os.O_RDONLY))
    time.sleep(0.3)
os.pread(files[0], 40000, 0)
for file in files: os.close(file)
open("closed", "w").close()
while not os.path.exists("go"): time.sleep(0.005)
"#;

/// fanotify tells two closes of one process as one.
#[test]
fn what_is_closed_twice_at_once_is_dropped_before_the_program_ends() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["python3"]));
        let bed = Bed::on(filesystem);
        bed.input("head -c 40000 /dev/urandom >data");
        bed.cools("input");
        std::fs::write(bed.file("twice.py"), TWICE).unwrap();
        let data = bed.file("input/data");
        in_some_attempt(|reclaim| {
            bed.runs("", "observed", "rm -f closed go");
            let script = "exec $RUN --only 'input/data' python3 ../twice.py";
            let mut running = Running::start(bed.bash(RUN, "observed", script));
            wait_for("two closes", || bed.file("observed/closed").exists());
            wait_for("a drop", || cached(&data).unwrap().cached_pages == 0);
            std::fs::write(bed.file("observed/go"), "").unwrap();
            assert!(running.ends().success());
            match reclaim.bytes_of(&data).unwrap() {
                0 => Ok(()),
                _ => Err("the kernel took it".to_owned()),
            }
        });
    }
}

/// Makes files with a hole before 1,000 bytes that do not end with a page.
const IN_PART: &str = r#"
import os
for i in range(20):
    file = os.open(f"{i}", os.O_CREAT | os.O_WRONLY)
    os.ftruncate(file, 40000)
    os.pwrite(file, b"x" * 1000, 5000)
    os.close(file)
"#;

/// Where blocks are smaller than pages, a page is not up to date until all of its
/// blocks are, and mincore(2) does not show it.
#[test]
fn pages_that_are_written_in_part_are_dropped() {
    need!(all Bed::needs(Fs::Ext4, &["python3"]));
    // mke2fs gives small file systems blocks of 1 KiB.
    let bed = Bed::sized(Fs::Ext4, 256 * MIB);
    let blocks = bed.runs("", ".", "stat -f -c %S .").stdout;
    assert_eq!(blocks, "1024\n");
    std::fs::write(bed.file("program.py"), IN_PART).unwrap();
    let left = bed.runs("", "plain", "python3 ../program.py");
    assert_eq!(left.code, Some(0), "{left:?}");
    assert_eq!(cached_below(&bed.file("plain")), 20 * page_bytes());
    let left = bed.runs(RUN, "observed", "exec $RUN python3 ../program.py");
    assert_eq!((left.code, left.stderr.as_str()), (Some(0), ""));
    assert_eq!(cached_below(&bed.file("observed")), 0);
    bed.are_alike("plain", "observed");
}

/// A file waits for its writeback with a descriptor. The events of those that come meanwhile
/// wait with the kernel.
#[test]
fn more_files_than_there_are_descriptors() {
    need!(all Bed::needs(Fs::Ext4, &["tar", "setpriv"]));
    let bed = Bed::on(Fs::Ext4);
    bed.input(TREE);
    bed.input("tar -cf archive tree");
    bed.cools("input");
    // Without that capability an observer cannot raise its limit.
    let script = "ulimit -n 1024; exec setpriv --bounding-set=-sys_resource \
                  $RUN tar -xf ../input/archive";
    let figures = Figures::of(&bed, "--only 'observed/**'", "observed", script);
    assert_eq!(bed.cached("observed"), [], "{figures:?}");
}

/// An overlay's files cannot be opened by a handle: each keeps two descriptors while it waits.
#[test]
fn more_files_of_an_overlay_than_there_are_descriptors() {
    need!(Need::Filesystem("overlay"));
    need!(all Bed::needs(Fs::Ext4, &["tar", "setpriv"]));
    let bed = Bed::on(Fs::Ext4);
    bed.input(TREE);
    bed.input("tar -cf archive tree; mkdir ../lower ../upper ../work");
    bed.cools("input");
    let _mounted = Mounted::overlay(&bed);
    let script = "ulimit -n 1024; exec setpriv --bounding-set=-sys_resource \
                  $RUN tar -xf ../input/archive";
    let figures = Figures::of(&bed, "--only 'merged/**'", "merged", script);
    assert_eq!(figures.bytes("files"), 5001, "{figures:?}");
    assert_eq!(bed.cached("upper"), [], "{figures:?}");
}

/// Writeback waits for a disk whose queue is full.
#[test]
fn small_files_do_not_wait_for_a_disk_that_is_not_theirs() {
    need!(all Bed::needs(Fs::Ext4, &["fincore"]));
    need!(all SlowDisk::needs());
    let bed = Bed::on(Fs::Ext4);
    let hanging = SlowDisk::new(SlowDiskOptions::default()).expect("a disk");
    let elsewhere = hanging.mount(Fs::Ext4).expect("a file system");
    hanging.set_write_speed(Some(0)).expect("a disk that hangs");
    let script = format!(
        "for i in $(seq 600); do head -c 16384 /dev/zero >{}/$i; done; sleep 3; \
         for i in $(seq 20); do head -c 16384 /dev/zero >$i; done; \
         for look in $(seq 100); do sleep 0.1; \
left=0; \
         for bytes in $(fincore -bno RES *); do left=$((left + bytes)); done; \
         [ $left = 0 ] && echo dropped && break; done; \
         echo end",
        elsewhere.path().display()
    );
    let script = format!("exec $RUN -m dontcache bash -c '{script}'");
    let mut command = bed.bash(RUN, "observed", &script);
    let mut running = command.stdout(Stdio::piped()).spawn().expect("the command");
    let mut line = String::new();
    let mut stdout = BufReader::new(running.stdout.take().expect("its output"));
    let read = stdout.read_line(&mut line);
    let written = hanging.written_bytes();
    hanging.set_write_speed(None).expect("a disk that works");
    let end = running.wait();
    assert_eq!(written.ok(), Some(0), "the disk did not hang");
    assert_eq!((read.ok(), line.as_str()), (Some(8), "dropped\n"));
    assert!(end.is_ok_and(|status| status.success()));
}

#[test]
fn who_waits_for_small_files_at_an_open_does_not_wait_for_their_grace() {
    need!(all Bed::needs(Fs::Ext4, &["python3"]));
    let bed = Bed::on(Fs::Ext4);
    // This takes seconds. If one grace followed the other, it would take a minute.
    let script = "$RUN timeout 25 python3 -c \
                  'for i in range(4000): open(str(i), \"wb\").write(bytes(1 << 16))'; echo $?";
    let run = format!("{RUN} --source seccomp --max-dirty 16MiB");
    let left = bed.runs(&run, "observed", script);
    assert_eq!(left.stdout, "0\n", "{left:?}");
}
