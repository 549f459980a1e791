//! Whether what `run` says is so.

use crate::bed::Bed;
use crate::figures::Figures;
use crate::kept::still_cached;
use crate::shell::{Left, RUN};
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::{Sampler, cached, page_bytes};
use dropbehind_testbed::{Fs, Need, need};
use std::time::Duration;

const MIB: u64 = 1 << 20;

#[test]
fn a_hot_tree_is_told_as_kept() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["tar"]));
        let bed = Bed::on(filesystem);
        bed.input("head -c 64M /dev/urandom | split -b 1M -d -a 2; sync -f .");
        in_some_attempt(|reclaim| {
            let hot = bed.runs("", "input", "cat * >/dev/null; ls");
            // A pipe, since tar reads nothing for /dev/null.
            let script = "exec $RUN sh -c 'tar -cf - ../input | cat >/dev/null'";
            let figures = Figures::of(&bed, "--only 'input/*'", "observed", script);
            let names = hot.stdout.lines().map(|name| bed.file("input").join(name));
            let taken = names.map(|name| reclaim.bytes_of(&name).unwrap());
            let taken: u64 = taken.sum();
            if taken > 0 {
                return Err(format!("the kernel took {taken} bytes"));
            }
            assert_eq!(figures.bytes("kept_bytes"), 64 * MIB, "{figures:?}");
            assert_eq!(figures.bytes("dropped_bytes"), 0, "{figures:?}");
            assert_eq!(figures.bytes("bytes_read"), 0, "{figures:?}");
            Ok(())
        });
    }
}

/// Writes two files, and then reads more pages of a third one than the observer, which is stopped,
/// hears of.
const UNHEARD: &str = r#"
import os, signal, time
small = open("small", "wb", buffering=0)
large = open("large", "wb", buffering=0)
small.write(bytes(300000))
for _ in range(8): large.write(bytes(1 << 20))
time.sleep(0.5)
run = os.getppid()
children = open(f"/proc/{run}/task/{run}/children").read().split()
(observer,) = [c for c in children if b"\0observe\0" in open(f"/proc/{c}/cmdline", "rb").read()]
sparse = os.open("sparse", os.O_RDWR | os.O_CREAT)
os.truncate(sparse, 1 << 30)
os.posix_fadvise(sparse, 0, 0, os.POSIX_FADV_RANDOM)
# Each processor has a ring.
os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
for page in range(80000):
    if page % 500 == 0: os.kill(int(observer), signal.SIGSTOP)
    os.pread(sparse, 1, page * 3 * 4096)
os.kill(int(observer), signal.SIGCONT)
"#;

#[test]
fn what_stays_since_nobody_knows_whose_it_is_is_told_as_left() {
    need!(Need::Trace);
    need!(all Bed::needs(Fs::Ext4, &["python3"]));
    let bed = Bed::on(Fs::Ext4);
    std::fs::write(bed.file("unheard.py"), UNHEARD).unwrap();
    let script = "exec $RUN python3 ../unheard.py";
    let options = "-v -m auto --only 'observed/*'";
    let (left, figures) = Figures::told(&bed, options, "observed", script);
    assert_eq!(left.code, Some(0), "{left:?}");
    assert!(left.stderr.contains("the kernel lost"), "{left:?}");
    let cached = bed.cached("observed");
    let cached_bytes: u64 = cached.iter().map(|(_, pages)| pages * page_bytes()).sum();
    assert!(cached_bytes > 0, "nothing stayed: {figures:?}");
    assert!(
        figures.bytes("left_bytes") >= cached_bytes,
        "{cached:?} {figures:?}"
    );
    assert!(!left.stderr.contains(" 0 B at the end"), "{left:?}");
    figures.add_up();
}

/// Deleted at once.
const TEMPORARY: &str = r#"
import os
block = bytes(1 << 20)
for number in range(16):
    with open(f"temporary{number}", "wb", buffering=0) as file:
        for _ in range(16): file.write(block)
    os.unlink(f"temporary{number}")
"#;

#[test]
fn temporary_files_are_told_as_written() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["python3"]));
        let bed = Bed::on(filesystem);
        std::fs::write(bed.file("temporary.py"), TEMPORARY).unwrap();
        let script = "exec $RUN python3 ../temporary.py";
        let options = "-v --only 'observed/*'";
        let (left, figures) = Figures::told(&bed, options, "observed", script);
        assert_eq!(left.code, Some(0), "{left:?}");
        assert_eq!(figures.bytes("bytes_written"), 256 * MIB, "{figures:?}");
        assert_eq!(figures.bytes("left_bytes"), 0, "{figures:?}");
        assert_eq!(figures.bytes("kept_bytes"), 0, "{figures:?}");
        figures.add_up();
    }
}

/// In a mode that drops nothing, too.
#[test]
fn what_stays_is_told_as_written() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["dd"]));
        let bed = Bed::on(filesystem);
        let data = bed.file("observed/data");
        in_some_attempt(|reclaim| {
            let script = "rm -f data; exec $RUN dd if=/dev/zero of=data bs=64K count=1024";
            let options = "-v --mode write-behind --only 'observed/*'";
            let (left, figures) = Figures::told(&bed, options, "observed", script);
            assert_eq!(left.code, Some(0), "{left:?}");
            assert_eq!(figures.bytes("bytes_written"), 64 * MIB, "{figures:?}");
            assert!(left.stderr.contains("wrote 64 MiB"), "{left:?}");
            assert_eq!(figures.bytes("dropped_bytes"), 0, "{figures:?}");
            assert_eq!(figures.bytes("left_bytes"), 0, "{figures:?}");
            still_cached(reclaim, &data, 64 * MIB)
        });
    }
}

/// At a pace that leaves time to look.
const PACED: &str = r#"
import os, sys, time
path, write = sys.argv[1], sys.argv[2] == "write"
file = os.open(path, os.O_RDWR)
block = bytes(1 << 20)
begun = time.monotonic()
for mib in range(256):
    if write: os.pwrite(file, block, mib << 20)
    else: os.pread(file, 1 << 20, mib << 20)
    time.sleep(max(0, begun + mib / 300 - time.monotonic()))
"#;

/// One look of the observer's or ours may be so much apart from the next.
const STEP_BYTES: u64 = 16 * MIB;

#[test]
fn the_peak_is_what_others_see() {
    for filesystem in [Fs::Ext4, Fs::Xfs] {
        need!(all Bed::needs(filesystem, &["python3"]));
        let bed = Bed::on(filesystem);
        bed.input("truncate -s 256M data");
        std::fs::write(bed.file("paced.py"), PACED).unwrap();
        let data = bed.file("input/data");
        for way in ["write", "read"] {
            // Whoever has no processor looks too late.
            in_some_attempt(|_| {
                bed.cools("input");
                let sampler = Sampler::start(&data, Duration::from_millis(1)).unwrap();
                let script = format!("exec $RUN python3 ../paced.py ../input/data {way}");
                let figures = Figures::of(&bed, "--only 'input/data'", "observed", &script);
                let peaks = sampler.stop().unwrap();
                assert_eq!(cached(&data).unwrap().cached_pages, 0, "{figures:?}");
                let seen = peaks.cached_pages * page_bytes();
                let told = figures.bytes("peak_cached_bytes");
                let near = told.abs_diff(seen) <= STEP_BYTES && told > 0;
                near.then_some(())
                    .ok_or_else(|| format!("{filesystem:?}, {way}: {seen} seen, {figures:?}"))
            });
        }
    }
}

/// What is said in words is what the figures say.
#[test]
fn the_summary_tells_what_was_dropped_and_kept() {
    need!(all Bed::needs(Fs::Ext4, &["cat"]));
    let bed = Bed::on(Fs::Ext4);
    bed.input("for name in hot cold; do head -c 32M /dev/urandom >$name; done; sync -f .");
    in_some_attempt(|reclaim| {
        bed.cools("input");
        bed.runs("", "input", "cat hot >/dev/null");
        let script = "exec $RUN -v --only 'input/*' cat ../input/hot ../input/cold >/dev/null";
        let left: Left = bed.runs(RUN, "observed", script);
        assert_eq!(left.code, Some(0), "{left:?}");
        if reclaim.bytes_of(&bed.file("input/hot")).unwrap() > 0 {
            return Err("the kernel took some".to_owned());
        }
        for words in [
            "read 32 MiB into the cache",
            "kept 32 MiB for others",
            "0 B at the end",
        ] {
            assert!(left.stderr.contains(words), "{words}: {left:?}");
        }
        Ok(())
    });
}

/// Some are deleted at once, and one was there before.
const SYNCED: &str = r#"
import os
# Memory that is there: where it is not, a write dirties the same folio in several steps.
block = b"x" * (2 << 20)
with open("old", "r+b", buffering=0) as file:
    for _ in range(32):
        file.write(block)
        os.fdatasync(file.fileno())
for number in range(32):
    with open(f"synced{number}", "wb", buffering=0) as file:
        file.write(block)
        os.fsync(file.fileno())
    if number % 2: os.unlink(f"synced{number}")
"#;

#[test]
fn what_the_program_has_synced_itself_is_told_as_written() {
    need!(Need::Trace);
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["python3"]));
        let bed = Bed::on(filesystem);
        std::fs::write(bed.file("synced.py"), SYNCED).unwrap();
        std::fs::create_dir_all(bed.file("observed")).unwrap();
        std::fs::write(bed.file("observed/old"), vec![1; 64 << 20]).unwrap();
        bed.cools("observed");
        let script = "exec $RUN python3 ../synced.py";
        // Where reads stay, what counts as read would stay as well.
        let options = "-v --only 'observed/*' --no-reads";
        let (left, figures) = Figures::told(&bed, options, "observed", script);
        assert_eq!(left.code, Some(0), "{left:?}");
        // A page that is looked at between two steps of one write counts twice.
        let written_bytes = figures.bytes("bytes_written");
        assert!(
            (128 * MIB..136 * MIB).contains(&written_bytes),
            "{filesystem:?} {figures:?}"
        );
        assert_eq!(figures.bytes("bytes_read"), 0, "{figures:?}");
        let cached = bed.cached("observed");
        assert!(
            cached.iter().all(|(_, pages)| *pages == 0),
            "{cached:?} {figures:?}"
        );
        figures.add_up();
    }
}
