//! Writeback that fails, and an observer that is killed.

use crate::bed::Bed;
use crate::shell::{Left, RUN, Running, bash, children, kill, lives, observer_of, once, wait_for};
use crate::user::User;
use dropbehind_testbed::reclaim::Reclaim;
use dropbehind_testbed::residency::cached;
use dropbehind_testbed::{FailingDisk, Fs, Need, need};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Each line is a way to meet the error. What fsync answers is printed; a
/// program that is told once must not be told twice, nor never.
const WAYS: [(&str, &str); 6] = [
    ("at once", "print(sync(f)); print(sync(f))"),
    (
        "opened anew after",
        "print(sync(f)); os.close(f); f = again(); print(sync(f))",
    ),
    (
        "opened anew before",
        "os.close(f); f = again(); print(sync(f)); print(sync(f))",
    ),
    (
        "two descriptors",
        "g = again(); print(sync(g)); print(sync(f)); print(sync(f))",
    ),
    ("later", "wait(); print(sync(f)); print(sync(f))"),
    (
        "opened anew later",
        "wait(); os.close(f); wait(); f = again(); print(sync(f)); print(sync(f))",
    ),
];

/// `wait` is where an observer has time to take what is not its own; a plain
/// kernel would have tried to write as well, sooner or later.
const PROGRAM: &str = r#"
import errno, os, sys
def again(): return os.open(sys.argv[1], os.O_RDWR)
def sync(f):
    try: os.fsync(f); return "fine"
    except OSError as error: return errno.errorcode[error.errno]
def wait():
    print("waits", flush=True); sys.stdin.readline()
f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
block = b"x" * (1 << 20)
for i in range(int(sys.argv[2])): os.write(f, block)
"#;

/// Answers a program's waits when nothing of its file is left to be written.
fn converses(user: &User, disk: &FailingDisk, run: &str) -> Left {
    let file = disk.file("file");
    let mib = FailingDisk::TOO_MUCH_BYTES >> 20;
    let script = format!("exec $RUN python3 program.py {} {mib}", file.display());
    let mut command = bash(user, run, &script);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut running = command.spawn().expect("the command");
    let mut output = std::io::BufReader::new(running.stdout.take().expect("its output"));
    let mut input = running.stdin.take().expect("its input");
    let mut said = String::new();
    loop {
        let before = said.len();
        if std::io::BufRead::read_line(&mut output, &mut said).unwrap() == 0 {
            break;
        }
        if &said[before..] == "waits\n" {
            if run.is_empty() {
                // As the kernel does after a while; nobody waits for it, so
                // nobody is told.
                let sync = "import ctypes, os, sys; f = os.open(sys.argv[1], 0); \
                            sys.exit(ctypes.CDLL(None).sync_file_range(f, ctypes.c_long(0), \
                            ctypes.c_long(0), 2))";
                let status = std::process::Command::new("python3")
                    .args(["-c", sync])
                    .arg(&file)
                    .status();
                assert!(status.unwrap().success());
            }
            wait_for("writeback", || {
                cached(&file).unwrap().unwritten_pages() == 0
            });
            std::io::Write::write_all(&mut input, b"\n").unwrap();
        }
    }
    drop(input);
    let mut left = Left::from(running.wait_with_output().expect("its end"));
    left.stdout = said;
    left
}

#[test]
fn an_error_reaches_whom_it_would_have_reached() {
    need!(all FailingDisk::needs(Some(Fs::Ext4NoJournal)));
    need!(Need::Cachestat, Need::Tool("python3"));
    let user = User::new();
    let mut waits = 0;
    for (name, way) in WAYS {
        std::fs::write(user.file("program.py"), format!("{PROGRAM}{way}\n")).unwrap();
        // The last one also waits for the disk, beyond so little.
        let figures = user.file("figures");
        let held = format!("{RUN} --max-dirty 16MiB --stats {}", figures.display());
        // There the file itself is asked, which takes no error from anybody.
        let asked = format!("{RUN} --source seccomp");
        let [plain, observed, held, asked] = ["", RUN, &held, &asked].map(|run| {
            let disk = FailingDisk::new().expect("a failing disk");
            converses(&user, &disk, run)
        });
        assert!(plain.stdout.contains("ENOSPC"), "{name}: {plain:?}");
        assert_eq!(plain, observed, "{name}");
        assert_eq!(plain, held, "{name}, held");
        assert_eq!(plain, asked, "{name}, asked");
        let figures = std::fs::read(figures).unwrap();
        let figures: serde_json::Value = serde_json::from_slice(&figures).unwrap();
        let waited = figures["waits"].as_u64().unwrap();
        println!("{name}: waited {waited} times");
        waits += waited;
    }
    // Not each time: writeback may fail before there is so much.
    assert!(waits > 0, "nobody was held");
}

/// Writes a large file and many small ones, waits, and tells of which, and of how much, it
/// reads back other bytes than it wrote. A read that fails gives nothing wrong.
const READS_BACK: &str = r#"
import os, sys, time
LARGE, SMALL = 1 << 20, 100 << 10
def block(i, size): return (b"%08d" % i) * (size // 8)
def is_wrong(f, i, size, offset):
    try: return os.pread(f, size, offset) != block(i, size)
    except OSError: return False
large, folder, blocks, files = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
f = os.open(large, os.O_RDWR | os.O_CREAT, 0o644)
for i in range(blocks): os.pwrite(f, block(i, LARGE), i * LARGE)
names = [folder + "/small%d" % i for i in range(files)]
for i, name in enumerate(names):
    with open(name, "wb") as small: small.write(block(i, SMALL))
time.sleep(4)
wrong = sum(is_wrong(f, i, LARGE, i * LARGE) for i in range(blocks))
if wrong: print(wrong, large)
for i, name in enumerate(names):
    g = os.open(name, os.O_RDONLY)
    if is_wrong(g, i, SMALL, 0): print(1, name)
    os.close(g)
"#;

/// But for pages that the kernel took itself: to it they are clean.
fn reads_back_what_it_wrote(disk: &FailingDisk, run: &str, files: u64) {
    let user = User::new();
    std::fs::write(user.file("program.py"), READS_BACK).unwrap();
    let reclaim = Reclaim::watch();
    let script = format!(
        "$RUN python3 program.py {} {} 120 {files}",
        disk.file("large").display(),
        disk.path().display()
    );
    let left = once(&user, run, &script);
    assert_eq!(left.code, Some(0), "{left:?}");
    for line in left.stdout.lines() {
        let (wrong, path) = line.split_once(' ').unwrap();
        let taken_bytes = reclaim.bytes_of(Path::new(path)).unwrap();
        let taken = taken_bytes / 4096;
        assert!(
            wrong.parse::<u64>().unwrap() <= taken,
            "{line}, and the kernel took {taken} pages: {left:?}"
        );
    }
    if run.contains("-v") {
        assert!(left.stderr.contains("its pages stay cached"), "{left:?}");
        assert!(!left.stderr.contains(" 0 B at the end"), "{left:?}");
    }
}

fn nobody_reads_other_bytes(files: u64, make: impl Fn() -> FailingDisk) {
    let untraced = format!("env DROPBEHIND_NO_TRACE=1 {RUN}");
    let asked = format!("{RUN} --source seccomp");
    for run in ["", &format!("{RUN} -v"), &untraced, &asked] {
        reads_back_what_it_wrote(&make(), run, files);
    }
}

#[test]
fn what_did_not_reach_the_disk_is_read_back_on_ext4() {
    need!(all FailingDisk::needs(Some(Fs::Ext4NoJournal)));
    need!(Need::Cachestat, Need::Tool("python3"));
    nobody_reads_other_bytes(400, || FailingDisk::new().unwrap());
}

/// Btrfs itself takes pages out of the cache whose writeback failed.
#[test]
fn what_did_not_reach_the_disk_is_read_back_on_xfs() {
    need!(all FailingDisk::needs(Some(Fs::Xfs)));
    need!(Need::Cachestat, Need::Tool("python3"));
    nobody_reads_other_bytes(400, || FailingDisk::formatted(Fs::Xfs).unwrap());
}

#[test]
fn what_did_not_reach_the_disk_is_read_back_from_a_raw_device() {
    need!(all FailingDisk::needs(None));
    need!(Need::Cachestat, Need::Tool("python3"));
    nobody_reads_other_bytes(0, || FailingDisk::raw().unwrap());
}

#[test]
fn what_stays_of_a_file_that_could_not_be_written_is_reported() {
    need!(all FailingDisk::needs(Some(Fs::Ext4NoJournal)));
    need!(Need::Cachestat);
    for source in ["fanotify", "seccomp"] {
        let disk = FailingDisk::new().unwrap();
        let user = User::new();
        let (file, stats) = (disk.file("large"), user.file("stats"));
        let mib = FailingDisk::TOO_MUCH_BYTES >> 20;
        let run = format!(
            "{RUN} --source {source} --only {} --stats {}",
            file.display(),
            stats.display()
        );
        let script = format!(
            "$RUN dd if=/dev/zero of={} bs=1M count={mib} status=none",
            file.display()
        );
        let reclaim = Reclaim::watch();
        let left = once(&user, &run, &script);
        assert_eq!(left.code, Some(0), "{left:?}");
        let text = std::fs::read_to_string(stats).unwrap();
        let stats: serde_json::Value = serde_json::from_str(&text).unwrap();
        let bytes = |name: &str| stats[name].as_u64().unwrap();
        let cached_bytes = cached(&file).unwrap().cached_pages * 4096;
        let taken_bytes = reclaim.bytes_of(&file).unwrap();
        assert!(
            (cached_bytes..=cached_bytes + taken_bytes).contains(&bytes("left_bytes")),
            "{source}: {cached_bytes} are cached, {taken_bytes} were taken: {stats}"
        );
        for total in ["brought_bytes", "bytes_written"] {
            assert_eq!(bytes(total), mib << 20, "{source} {total}: {stats}");
        }
    }
}

/// A tree of writers and readers, so that there is something to kill at any
/// moment.
#[test]
fn a_killed_observer_takes_nothing_with_it() {
    need!(all Bed::needs(Fs::Btrfs, &["tar"]));
    let bed = Bed::on(Fs::Btrfs);
    bed.input(
        "mkdir tree; head -c 30000000 /dev/urandom >tree/large; \
         for i in $(seq 300); do head -c $((i * 100)) /dev/urandom >tree/$i; done",
    );
    let script = "rm -rf *; exec $RUN bash -c 'set -o pipefail; \
                  tar -C ../input -cf - tree | tee archive | tar -xf - && \
                  cp tree/large tree/copy && mv tree/copy copy && tar -df archive && echo whole'";
    let plain = bed.runs("", "plain", script);
    assert_eq!(plain.stdout, "whole\n", "{plain:?}");
    let mut killed = 0;
    for moment in 0..10 {
        bed.cools("input");
        let mut command = bed.bash(RUN, "observed", script);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let running = command.spawn().expect("the command");
        wait_for("the program", || {
            !lives(running.id()) || children(running.id()).len() > 1
        });
        std::thread::sleep(Duration::from_millis(moment * 40));
        if let Some(observer) = observer_of(running.id()).filter(|&observer| lives(observer)) {
            kill("KILL", observer);
            killed += 1;
        }
        let left = Left::from(running.wait_with_output().expect("its end"));
        if left.code == Some(125) && left.stderr.contains("bash was not started") {
            // Killed before it was ready.
            continue;
        }
        assert_eq!(
            (left.code, left.stdout.as_str()),
            (Some(0), "whole\n"),
            "{left:?}"
        );
        bed.are_alike("plain", "observed");
    }
    assert!(killed > 2, "{killed}");
}

/// Whoever stands before the program may be killed, too.
#[test]
fn a_killed_supervisor_takes_nothing_with_it() {
    need!(all Bed::needs(Fs::Ext4, &["dd"]));
    let bed = Bed::on(Fs::Ext4);
    let script = "exec $RUN sh -c 'touch ready; while test ! -e go; do sleep 0.01; done; \
                  dd if=/dev/zero of=data bs=1M count=40 2>/dev/null; touch done'";
    let mut running = Running::start(bed.bash(RUN, "observed", script));
    wait_for("the program", || bed.file("observed/ready").exists());
    let observer = observer_of(running.id()).expect("an observer");
    kill("KILL", running.id());
    running.ends();
    std::fs::write(bed.file("observed/go"), "").unwrap();
    wait_for("the program's end", || bed.file("observed/done").exists());
    wait_for("the observer's end", || !lives(observer));
    assert_eq!(bed.cached("observed"), []);
    assert_eq!(
        bed.file("observed/data").metadata().unwrap().len(),
        40 << 20
    );
}
