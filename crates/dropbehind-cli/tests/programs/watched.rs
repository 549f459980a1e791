//! The same under `dropbehind watch`, by rules for paths and for programs.

use crate::bed::Bed;
use crate::held_open::held;
use crate::kept::still_cached;
use crate::mounts::Mounted;
use crate::readers::{self, READERS};
use crate::shell::wait_for;
use crate::user::User;
use crate::user::running_watch::RunningWatch;
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::{evict, page_bytes, resident_map, warm};
use dropbehind_testbed::{Fs, LoopDisk, Need, need};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const BYTES: u64 = 64 * MIB;

pub(crate) fn watch_with(user: &User, rule: &str) -> RunningWatch {
    let rules = format!("[[rule]]\n{rule}\nmode = \"dontcache\"\n");
    std::fs::write(user.file("rules"), rules).unwrap();
    RunningWatch::by_rules(user)
}

fn cached_from(path: &Path, offset: u64) -> usize {
    let map = resident_map(path).unwrap();
    let rest = &map[(offset / page_bytes()) as usize..];
    rest.iter().filter(|&&page| page).count()
}

/// A rule for a path: who reads the file does not matter, who holds it does not
/// either. Its pages may belong to a file by another path.
fn by_path(bed: &Bed, path: &Path, pages_of: &Path) {
    readers::prepare(bed);
    let name = path.display();
    let _held = [held(path), held(pages_of)];
    for reader in READERS {
        for hot_bytes in [0, BYTES / 2] {
            in_some_attempt(|reclaim| {
                evict(pages_of);
                warm(pages_of, 0..hot_bytes);
                let user = User::new();
                let mut watch = watch_with(&user, &format!("path = \"{name}\""));
                let left = bed.runs("", "observed", &reader.replace("PATH", &name.to_string()));
                assert_eq!(left.code, Some(0), "{left:?}");
                assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
                let stays = cached_from(pages_of, hot_bytes);
                let of = format!("{reader} {name}, {hot_bytes} bytes were hot");
                assert_eq!(stays, 0, "{of}\n{}", watch.log());
                still_cached(reclaim, pages_of, hot_bytes)
            });
        }
    }
}

#[test]
fn a_path_that_a_sleeping_process_holds_open() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &readers::TOOLS));
        let bed = Bed::on(filesystem);
        bed.input(&format!("head -c {BYTES} /dev/urandom >data"));
        let data = std::fs::canonicalize(bed.file("input/data")).unwrap();
        by_path(&bed, &data, &data);
    }
}

#[test]
fn a_path_on_an_overlay_that_a_sleeping_process_holds_open() {
    need!(Need::Filesystem("overlay"));
    need!(all Bed::needs(Fs::Ext4, &["mount"]));
    need!(all Bed::needs(Fs::Ext4, &readers::TOOLS));
    let bed = Bed::on(Fs::Ext4);
    let data = format!("head -c {BYTES} /dev/urandom >data; mkdir ../upper ../work");
    bed.runs("", "lower", &data);
    let _mounted = Mounted::overlay(&bed);
    let [above, below] =
        ["merged/data", "lower/data"].map(|name| std::fs::canonicalize(bed.file(name)).unwrap());
    by_path(&bed, &above, &below);
}

#[test]
fn a_device_that_a_sleeping_process_holds_open() {
    need!(all LoopDisk::needs());
    need!(all Bed::needs(Fs::Ext4, &readers::TOOLS));
    let bed = Bed::on(Fs::Ext4);
    let disk = LoopDisk::new(BYTES).unwrap();
    by_path(&bed, disk.path(), disk.path());
}

/// A rule for a program: what others read of the same file meanwhile stays, also
/// where they do so by a descriptor from before.
#[test]
fn a_program_that_reads_what_others_read() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["dd"]));
        let bed = Bed::on(filesystem);
        bed.input(&format!(
            "head -c {BYTES} /dev/urandom >data; cp $(command -v dd) ../dropbehindheld"
        ));
        let data = bed.file("input/data");
        let _held = held(&data);
        for hot_bytes in [0, BYTES / 4] {
            in_some_attempt(|reclaim| {
                evict(&data);
                warm(&data, 0..hot_bytes);
                let user = User::new();
                let mut watch = watch_with(&user, "program = \"dropbehindheld\"");
                // Others come first to the last quarter.
                warm(&data, BYTES / 4 * 3..BYTES);
                let mut reading = Command::new(bed.file("dropbehindheld"))
                    .arg(format!("if={}", data.display()))
                    .args(["bs=1M", "status=none"])
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap();
                let mut output = reading.stdout.take().unwrap();
                let mut half = vec![0; (BYTES / 2) as usize];
                output.read_exact(&mut half).unwrap();
                // Who it is can be told while it runs.
                std::thread::sleep(Duration::from_millis(300));
                output.read_exact(&mut half).unwrap();
                assert!(reading.wait().unwrap().success());
                assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
                let of = format!("{filesystem:?}, {hot_bytes} bytes were hot");
                let map = resident_map(&data).unwrap();
                let [first, last] =
                    [hot_bytes, BYTES / 4 * 3].map(|at| (at / page_bytes()) as usize);
                let stays: Vec<usize> = (first..last).filter(|page| map[*page]).collect();
                assert!(
                    stays.is_empty(),
                    "{of}, pages {stays:?} stay\n{}",
                    watch.log()
                );
                let last = cached_from(&data, BYTES / 4 * 3) as u64 * page_bytes();
                reclaim.stays(&data, last, BYTES / 4)?;
                still_cached(reclaim, &data, hot_bytes)
            });
        }
    }
}

/// The kernel may tell a watch of two opens, of the overlay's file and of the one below it.
#[test]
fn a_program_that_reads_through_an_overlay() {
    need!(Need::Filesystem("overlay"));
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["dd", "mount"]));
        let bed = Bed::on(filesystem);
        let data = format!("head -c {BYTES} /dev/urandom >data; mkdir ../upper ../work");
        bed.runs("", "lower", &data);
        bed.runs("", ".", "cp $(command -v dd) dropbehindheld");
        let _mounted = Mounted::overlay(&bed);
        let data = bed.file("lower/data");
        // A watch that is late does not see who it was.
        in_some_attempt(|_| {
            evict(&data);
            let user = User::new();
            let mut watch = watch_with(&user, "program = \"dropbehindheld\"");
            let mut reading = Command::new(bed.file("dropbehindheld"))
                .arg(format!("if={}", bed.file("merged/data").display()))
                .args(["bs=1M", "status=none"])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(300));
            let mut output = Vec::new();
            let mut pipe = reading.stdout.take().unwrap();
            pipe.read_to_end(&mut output).unwrap();
            assert_eq!(output.len() as u64, BYTES);
            assert!(reading.wait().unwrap().success());
            assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
            match cached_from(&data, 0) {
                0 => Ok(()),
                pages => Err(format!("{filesystem:?}, {pages} pages: {}", watch.log())),
            }
        });
    }
}

/// Events queue up while others keep the watch from a processor.
#[test]
fn a_file_that_somebody_closed_before_the_program_opened_it() {
    need!(all Bed::needs(Fs::Ext4, &["dd", "mkfifo"]));
    let bed = Bed::on(Fs::Ext4);
    bed.input(&format!(
        "head -c {BYTES} /dev/urandom >data; cp $(command -v dd) ../dropbehindheld; \
         mkfifo ../fifo"
    ));
    let (data, fifo) = (bed.file("input/data"), bed.file("fifo"));
    evict(&data);
    let user = User::new();
    let mut watch = watch_with(&user, "program = \"dropbehindheld\"");
    watch.signal("STOP");
    drop(File::open(&data).unwrap());
    let mut reading = Command::new(bed.file("dropbehindheld"))
        .arg(format!("if={}", data.display()))
        .arg(format!("of={}", fifo.display()))
        .args(["bs=1M", "status=none"])
        .spawn()
        .unwrap();
    let opened = format!("/proc/{}/fd/0", reading.id());
    wait_for("its open", || {
        std::fs::read_link(&opened).is_ok_and(|file| file == data)
    });
    watch.signal("CONT");
    // It has seen both by then, and the close once more.
    std::thread::sleep(Duration::from_millis(500));
    watch.signal("STOP");
    assert_eq!(std::fs::read(&fifo).unwrap().len() as u64, BYTES);
    assert!(reading.wait().unwrap().success());
    watch.signal("CONT");
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    assert_eq!(cached_from(&data, 0), 0, "{}", watch.log());
}
