//! What observed programs say about their use of a file, with posix_fadvise(2).

use crate::bed::Bed;
use crate::shell::RUN;
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::{page_bytes, sample};
use dropbehind_testbed::trace::has_event;
use dropbehind_testbed::{Fs, need, skip};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

const MIB: u64 = 1 << 20;
const MIB_WRITTEN: u64 = 96;

const EVENT: &str = "syscalls/sys_enter_fadvise64";

/// Says so once it has written all, and goes on when it is told to.
const PROGRAM: &str = r#"
import os, sys, time
file = os.open("data", os.O_CREAT | os.O_RDWR, 0o600)
for advice in sys.argv[2:]:
    os.posix_fadvise(file, 0, 0, getattr(os, "POSIX_FADV_" + advice))
    # The observer has to look which file that was.
    time.sleep(1)
for _ in range(int(sys.argv[1])):
    os.write(file, bytes(1 << 20))
print("written", flush=True)
input()
"#;

/// What is dirty once the program has written everything, in bytes, and what is cached in the
/// end.
fn left_by(bed: &Bed, advice: &str) -> (u64, u64) {
    let path = bed.file("observed/data");
    let _ = std::fs::remove_file(&path);
    std::fs::write(bed.file("program.py"), PROGRAM).unwrap();
    let script = format!("exec $RUN python3 ../program.py {MIB_WRITTEN} {advice}");
    let run = format!("{RUN} -m write-behind-any");
    let mut command = bed.bash(&run, "observed", &script);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let mut said = String::new();
    let mut stdout = BufReader::new(running.stdout.take().unwrap());
    stdout.read_line(&mut said).unwrap();
    assert_eq!(said, "written\n");
    let file = File::open(&path).unwrap();
    // What is on its way arrives.
    let mut dirty_bytes = u64::MAX;
    loop {
        let counts = sample(&file).unwrap();
        dirty_bytes = dirty_bytes.min(counts.dirty_pages * page_bytes());
        if counts.writeback_pages == 0 {
            break;
        }
    }
    running.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(running.wait().unwrap().success());
    (
        dirty_bytes,
        sample(&file).unwrap().cached_pages * page_bytes(),
    )
}

#[test]
fn advice_is_heeded() {
    need!(all Bed::needs(Fs::Ext4, &["python3"]));
    if !has_event(EVENT) {
        skip!("the kernel has no {EVENT}");
    }
    let bed = Bed::on(Fs::Ext4);
    let all_bytes = MIB_WRITTEN * MIB;
    for (advice, written_behind, drops) in [
        ("", true, false),
        ("RANDOM", false, false),
        ("RANDOM SEQUENTIAL", true, false),
        ("RANDOM NORMAL", true, false),
        ("NOREUSE", true, true),
    ] {
        in_some_attempt(|_| {
            let (dirty_bytes, cached_bytes) = left_by(&bed, advice);
            let found = format!("{advice}: {dirty_bytes} bytes dirty, {cached_bytes} cached");
            println!("{found}");
            // The kernel may write some by itself, or evict some.
            let is_behind = dirty_bytes < all_bytes / 2;
            let has_dropped = cached_bytes < all_bytes / 4;
            match (is_behind, has_dropped) == (written_behind, drops) {
                true => Ok(()),
                false => Err(found),
            }
        });
    }
}

/// Reads a file once, and asks `top` about it until that shows the mode that was advised.
const SHOWN: &str = r#"
import os, subprocess, sys
file = os.open("data", os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_NOREUSE)
os.read(file, 32 << 20)
for _ in range(1000):
    top = subprocess.run([sys.argv[1], "top", "--once"], capture_output=True, text=True)
    if " dontcache " in top.stdout:
        break
print(top.stdout, top.stderr)
"#;

#[test]
fn a_mode_that_is_advised_is_shown_as_advice() {
    need!(all Bed::needs(Fs::Ext4, &["python3"]));
    if !has_event(EVENT) {
        skip!("the kernel has no {EVENT}");
    }
    let bed = Bed::on(Fs::Ext4);
    std::fs::write(bed.file("program.py"), SHOWN).unwrap();
    bed.runs("", "observed", "head -c 32M /dev/urandom >data");
    bed.cools("observed");
    let dropbehind = env!("CARGO_BIN_EXE_dropbehind");
    let script = format!(
        "mkdir -m 700 ../runtime; export DROPBEHIND_RUNTIME_DIR=$(cd ../runtime; pwd); \
         exec $RUN python3 ../program.py {dropbehind}"
    );
    let left = bed.runs(&format!("{RUN} -m write-through"), "observed", &script);
    let row = left.stdout.lines().find(|line| line.contains("dontcache"));
    assert!(row.is_some_and(|row| row.contains(" advice ")), "{left:?}");
}
