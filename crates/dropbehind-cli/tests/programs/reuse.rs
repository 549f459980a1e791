//! The mode `auto`: what is used once goes, what is used again stays.

use crate::bed::Bed;
use crate::figures::Figures;
use crate::kept::still_cached;
use dropbehind_testbed::disk_io::disk_io;
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::{self, evict, warm};
use dropbehind_testbed::trace::has_event;
use dropbehind_testbed::{Fs, LoopDisk, MemoryCgroup, Need, need};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const AUTO: &str = "dropbehind run -m auto";
const DEFAULT: &str = "env -u DROPBEHIND_MODE dropbehind run";
/// More than what waits at once, so that all that was there before is decided about. A stream
/// waits for no longer than until it fills that by itself.
const STREAMS: &str =
    "for n in 1 2; do dd if=/dev/zero of=stream$n bs=1M count=280 status=none; done";

/// Newer kernels tell of uses of cached pages.
fn sees_uses() -> bool {
    let sees = has_event("filemap/mm_filemap_get_pages");
    if !sees {
        eprintln!("SKIPPED: this kernel does not report which cached pages are used");
    }
    sees
}

fn needs(filesystem: Fs) -> Vec<Need> {
    let mut needs = Bed::needs(filesystem, &["dd", "cat", "python3"]);
    needs.push(Need::Root);
    needs
}

/// The names of a folder's files of which something is cached.
fn cached(bed: &Bed, folder: &str) -> Vec<String> {
    let mut names: Vec<String> = bed
        .cached(folder)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    names.sort();
    names
}

#[test]
fn what_was_written_and_read_back_stays() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all needs(filesystem));
        if !sees_uses() {
            return;
        }
        let bed = Bed::on(filesystem);
        in_some_attempt(|reclaim| {
            let script = "exec $RUN sh -ec 'rm -rf *; mkdir small; \
                          dd if=/dev/zero of=again bs=1M count=8 status=none; \
                          dd if=/dev/zero of=once bs=1M count=8 status=none; \
                          for n in 1 2 3 4 5 6 7 8; do echo $n >small/again$n; echo $n >small/once$n; done; \
                          cat again small/again* >/dev/null'";
            let left = bed.runs(AUTO, "observed", script);
            assert_eq!(left.code, Some(0), "{left:?}");
            let expected = ["./again"].into_iter().map(str::to_owned);
            let small = (1..=8).map(|number| format!("./small/again{number}"));
            assert_eq!(
                cached(&bed, "observed"),
                expected.chain(small).collect::<Vec<_>>()
            );
            still_cached(reclaim, &bed.file("observed/again"), 8 * MIB)
        });
    }
}

/// What waits would take the memory of a container, and evict what others there have cached.
#[test]
fn little_waits_in_a_small_memory_cgroup() {
    const LIMIT: u64 = 256 * MIB;
    need!(all needs(Fs::Ext4));
    need!(all MemoryCgroup::needs());
    need!(all LoopDisk::needs());
    if !sees_uses() {
        return;
    }
    let bed = Bed::on(Fs::Ext4);
    bed.input("head -c 200M /dev/zero >file; sync file");
    let (file, disk) = (bed.file("input/file"), LoopDisk::new(200 * MIB).unwrap());
    for path in [file.as_path(), disk.path()] {
        evict(path);
        let group = MemoryCgroup::new(LIMIT).unwrap();
        let sampler = residency::Sampler::start(path, Duration::from_millis(1)).unwrap();
        let script = format!("exec $RUN cat {} >/dev/null", path.display());
        let output = group.run(bed.bash(DEFAULT, "observed", &script)).unwrap();
        let peaks = sampler.stop().unwrap();
        assert!(output.status.success(), "{output:?}");
        let most_bytes = peaks.cached_pages * residency::page_bytes();
        assert!(most_bytes > 0, "{}", path.display());
        assert!(most_bytes <= LIMIT / 2, "{} MiB cached", most_bytes / MIB);
        assert_eq!(residency::cached(path).unwrap().cached_pages, 0);
    }
}

/// Whether a file has a stream, waits, is on the shelf, or is expected to be used again when that
/// is decided.
#[test]
fn what_stays_was_brought_in() {
    need!(all needs(Fs::Ext4));
    if !sees_uses() {
        return;
    }
    let bed = Bed::on(Fs::Ext4);
    let script = "exec $RUN sh -ec 'rm -rf *; for n in 1 2 3 4 5 6 7 8 9; do mkdir $n; \
                  for k in 1 5 16 40 80; do \
                  dd if=/dev/zero of=$n/$k bs=64k count=$k status=none; done; \
                  [ $n = 7 ] || cat $n/* >/dev/null; done'";
    let options = format!("-m auto --only '{}/'", bed.file("observed").display());
    let figures = Figures::of(&bed, &options, "observed", script);
    let set_bytes = (1 + 5 + 16 + 40 + 80) * (64 << 10);
    assert_eq!(figures.bytes("brought_bytes"), 9 * set_bytes, "{figures:?}");
    let cached = bed.cached("observed").into_iter();
    let cached_bytes = cached.map(|(_, pages)| pages * 4096).sum::<u64>();
    assert!(cached_bytes > 0, "{figures:?}");
    assert!(
        cached_bytes <= figures.bytes("reused_bytes"),
        "{cached_bytes} {figures:?}"
    );
}

/// By default, too, unless nobody can tell what was used.
#[test]
fn by_default_what_is_read_back_stays_if_that_can_be_known() {
    need!(all needs(Fs::Ext4));
    if !sees_uses() {
        return;
    }
    let bed = Bed::on(Fs::Ext4);
    let script = "exec $RUN sh -ec 'rm -f *; dd if=/dev/zero of=once bs=1M count=8 status=none; \
                  dd if=/dev/zero of=again bs=1M count=8 status=none; cat again >/dev/null'";
    in_some_attempt(|reclaim| {
        let left = bed.runs(DEFAULT, "observed", script);
        assert_eq!(left.code, Some(0), "{left:?}");
        assert_eq!(cached(&bed, "observed"), ["./again"]);
        still_cached(reclaim, &bed.file("observed/again"), 8 * MIB)
    });
    // Pages of shared libraries that others map would not go.
    let untraced = format!("{DEFAULT} --source seccomp -v --only 'observed/*'");
    let left = bed.runs(&untraced, "observed", script);
    assert_eq!(left.code, Some(0), "{left:?}");
    assert_eq!(bed.cached("observed"), [], "{left:?}");
    assert!(left.stderr.contains(", 0 B at the end"), "{left:?}");
}

/// The default drops all then. A disk's own mode was asked for, and who asks for this one fears
/// drops more than what stays.
#[test]
fn a_disk_with_this_mode_keeps_everything_where_uses_are_unknown() {
    need!(all needs(Fs::Ext4));
    let bed = Bed::on(Fs::Ext4);
    let disk = bed.device().file_name().unwrap().display();
    let config = bed.file("config.toml");
    std::fs::write(&config, format!("[disk.{disk}]\nmode = \"auto\"\n")).unwrap();
    let run = format!(
        "{DEFAULT} --config {} --source seccomp -v",
        config.display()
    );
    let script = "exec $RUN sh -ec 'rm -f *; dd if=/dev/zero of=out bs=1M count=8 status=none'";
    in_some_attempt(|reclaim| {
        let left = bed.runs(&run, "observed", script);
        assert_eq!(left.code, Some(0), "{left:?}");
        let why = "what may be used again stays (mode auto)";
        assert!(left.stderr.contains(why), "{left:?}");
        assert!(!left.stderr.contains("at the end"), "{left:?}");
        still_cached(reclaim, &bed.file("observed/out"), 8 * MIB)
    });
}

/// Nothing on a device is known to be new, so what is read once after it was written may be on its
/// way out as well.
#[test]
fn on_a_raw_device_what_is_read_again_stays_and_the_rest_goes() {
    need!(all LoopDisk::needs());
    need!(all needs(Fs::Ext4));
    if !sees_uses() {
        return;
    }
    let bed = Bed::on(Fs::Ext4);
    // It holds the device open, whose pages would go with the last close.
    let disk = LoopDisk::new(32 * MIB).unwrap();
    let device = disk.path().display();
    let script = format!(
        "exec $RUN sh -ec 'dd if=/dev/zero of={device} bs=1M count=24 conv=notrunc status=none; \
         for n in 1 2; do dd if={device} of=/dev/null bs=1M count=8 status=none; done'"
    );
    in_some_attempt(|reclaim| {
        evict(disk.path());
        let run = format!("{DEFAULT} -v");
        let (left, figures) = Figures::by(&bed, &run, "observed", &script);
        assert_eq!(left.code, Some(0), "{left:?}");
        assert!(left.stderr.contains(", 0 B at the end"), "{left:?}");
        for name in ["cached_bytes", "left_bytes"] {
            assert_eq!(figures.bytes(name), 0, "{name}: {figures:?}");
        }
        let map = residency::resident_map(disk.path()).unwrap();
        let once = map[(8 * MIB / residency::page_bytes()) as usize..].iter();
        assert_eq!(once.filter(|&&page| page).count(), 0, "{figures:?}");
        still_cached(reclaim, disk.path(), 8 * MIB)
    });
}

#[test]
fn what_is_read_again_stays_and_a_reader_that_passes_leaves_nothing() {
    for filesystem in [Fs::Ext4, Fs::Xfs] {
        need!(all needs(filesystem));
        if !sees_uses() {
            return;
        }
        let bed = Bed::on(filesystem);
        bed.input("for n in once pieces again; do head -c 8M /dev/urandom >$n; done; echo x >small; echo x >smallagain");
        in_some_attempt(|reclaim| {
            bed.cools("input");
            let script = "exec $RUN sh -ec 'cd ../input; cat once small >/dev/null; \
                          dd if=pieces of=/dev/null bs=1000 status=none; \
                          cat again smallagain >/dev/null; cat again smallagain >/dev/null'";
            let left = bed.runs(AUTO, "observed", script);
            assert_eq!(left.code, Some(0), "{left:?}");
            assert_eq!(cached(&bed, "input"), ["./again", "./smallagain"]);
            still_cached(reclaim, &bed.file("input/again"), 8 * MIB)
        });
    }
}

/// Half of each folio was dropped before, and so stays after one use. The other half would too only
/// after two, and cannot go without the first.
#[test]
fn a_folio_that_is_back_in_part_stays_as_a_whole() {
    let program = r#"
import mmap, os
f = os.open("../input/folios", os.O_RDONLY)
os.posix_fadvise(f, 0, 0, os.POSIX_FADV_RANDOM)
for at in range(0, 16 << 20, 2 << 20):
    for piece in range(0, 1 << 20, 64 << 10):
        os.pread(f, 64 << 10, at + piece)
os.close(f)
for number in range(2):
    os.system("dd if=/dev/zero of=stream%d bs=1M count=280 status=none" % number)
f = os.open("../input/folios", os.O_RDONLY)
folios = mmap.mmap(f, 16 << 20, prot=mmap.PROT_READ)
folios.madvise(mmap.MADV_HUGEPAGE)
for at in range(0, 16 << 20, 2 << 20):
    folios[at]
folios.close()
for at in range(0, 16 << 20, 1 << 20):
    os.pread(f, 1 << 20, at)
"#;
    for filesystem in [Fs::Ext4, Fs::Xfs] {
        need!(all needs(filesystem));
        if !sees_uses() {
            return;
        }
        let bed = Bed::on(filesystem);
        bed.input("head -c 16M /dev/urandom >folios");
        bed.cools("input");
        std::fs::write(bed.file("program"), program).unwrap();
        let figures = Figures::of(&bed, "-m auto", "observed", "exec $RUN python3 ../program");
        assert!(figures.bytes("reread_bytes") > 0, "{figures:?}");
        assert!(figures.bytes("reused_bytes") > 0, "{figures:?}");
    }
}

/// The kernel drops a folio as a whole or not at all: what is used again keeps all of its folio,
/// and nothing counts as left for it.
#[test]
fn what_is_used_again_keeps_its_folio() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all needs(filesystem));
        if !sees_uses() {
            return;
        }
        let bed = Bed::on(filesystem);
        let script = "exec $RUN sh -ec 'rm -f *; dd if=/dev/zero of=out bs=1M count=16 status=none; \
                      dd if=out of=/dev/null bs=4k skip=700 count=1 status=none; \
                      dd if=out of=/dev/null bs=4k skip=2900 count=1 status=none'";
        let options = format!("-m auto --only '{}/'", bed.file("observed").display());
        in_some_attempt(|reclaim| {
            let figures = Figures::of(&bed, &options, "observed", script);
            let path = bed.file("observed/out");
            let cached_bytes = residency::cached(&path).unwrap().cached_pages * 4096;
            let reused_bytes = figures.bytes("reused_bytes");
            assert!(reused_bytes <= 4 * MIB, "{figures:?}");
            assert!(cached_bytes <= reused_bytes, "{cached_bytes} {figures:?}");
            reclaim.stays(&path, cached_bytes, reused_bytes)
        });
    }
}

/// Page 7 of each 256 KiB is read once: it stays if the rest of these is cached, or was evicted by the
/// kernel. It goes if half of these is cached, or nothing.
#[test]
fn what_returns_among_pages_that_the_kernel_keeps_stays() {
    let others = r#"
import mmap, os
# What another CPU is about to put on its lists cannot be evicted.
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
f = os.open("data", os.O_RDONLY)
os.posix_fadvise(f, 0, 0, os.POSIX_FADV_RANDOM)
for page in range(1536):
    if page >= 1024 or (page % 64 != 7 if page < 512 else page % 2 == 0):
        os.pread(f, 4096, page * 4096)
evicted = mmap.mmap(f, 2 << 20, prot=mmap.PROT_READ, offset=4 << 20)
sum(evicted[at] for at in range(0, 2 << 20, 4096))
evicted.madvise(21) # MADV_PAGEOUT, which takes what is mapped
"#;
    let program = r#"
import os
f = os.open("../input/data", os.O_RDONLY)
os.posix_fadvise(f, 0, 0, os.POSIX_FADV_RANDOM)
for page in range(7, 2048, 64):
    os.pread(f, 4096, page * 4096)
"#;
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all needs(filesystem));
        if !sees_uses() {
            return;
        }
        let bed = Bed::on(filesystem);
        bed.input("head -c 8M /dev/urandom >data");
        let data = bed.file("input/data");
        std::fs::write(bed.file("others"), others).unwrap();
        std::fs::write(bed.file("program"), program).unwrap();
        let counts = |mib: [u64; 2]| {
            let range = mib[0] * MIB..mib[1] * MIB;
            residency::cached_range(&data, range).unwrap()
        };
        let cached_bytes = |mib| counts(mib).cached_pages * 4096;
        in_some_attempt(|reclaim| {
            bed.cools("input");
            bed.input("python3 ../others");
            let evicted = counts([4, 6]);
            if evicted.cached_pages > 0 {
                return Err(format!("pages were not evicted: {evicted:?}"));
            }
            let before = cached_bytes([0, 4]);
            let options = format!("-m auto --only '{}'", data.display());
            let figures = Figures::of(&bed, &options, "observed", "exec $RUN python3 ../program");
            let evicted = counts([4, 6]);
            if evicted.cached_pages + evicted.recently_evicted_pages < 512 {
                return Err(format!("the kernel forgot pages: {evicted:?}"));
            }
            assert_eq!(figures.bytes("reused_bytes"), 16 * 4096, "{figures:?}");
            assert!(cached_bytes([2, 4]) <= MIB, "{figures:?}");
            assert_eq!(cached_bytes([6, 8]), 0, "{figures:?}");
            reclaim.stays(&data, cached_bytes([0, 6]), before + 16 * 4096)
        });
    }
}

/// As programs load weights: mapped, and mapped again.
#[test]
fn what_is_mapped_again_stays() {
    need!(all needs(Fs::Ext4));
    if !sees_uses() {
        return;
    }
    let bed = Bed::on(Fs::Ext4);
    bed.input("for n in once again; do head -c 8M /dev/urandom >$n; done");
    in_some_attempt(|reclaim| {
        bed.cools("input");
        let script = r#"exec $RUN sh -ec '
for name in once again again; do
    python3 -c "
import mmap
with open(\"../input/$name\", \"rb\") as file:
    with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
        sum(memory[at] for at in range(0, len(memory), 4096))
"
done'"#;
        let left = bed.runs(AUTO, "observed", script);
        assert_eq!(left.code, Some(0), "{left:?}");
        assert_eq!(cached(&bed, "input"), ["./again"]);
        still_cached(reclaim, &bed.file("input/again"), 8 * MIB)
    });
}

#[test]
fn what_comes_back_after_it_was_dropped_stays() {
    for filesystem in [Fs::Ext4, Fs::Xfs] {
        need!(all needs(filesystem));
        let bed = Bed::on(filesystem);
        in_some_attempt(|reclaim| {
            // Cached in the end is what the last reader brought in.
            let script = format!(
                "exec $RUN sh -ec 'rm -f *; echo x >small; \
                 dd if=/dev/zero of=again bs=1M count=8 status=none; {STREAMS}; \
                 for n in $(seq 300); do fincore -n -r -o PAGES again small >../before; \
                 grep -q [1-9] ../before || break; sleep 0.1; done; \
                 cat again small >/dev/null'"
            );
            let left = bed.runs(AUTO, "observed", &script);
            assert_eq!(left.code, Some(0), "{left:?}");
            let cached = cached(&bed, "observed");
            assert_eq!(cached, ["./again", "./small"]);
            let before = std::fs::read_to_string(bed.file("before")).unwrap();
            assert_eq!(before, "0\n0\n", "it was dropped");
            still_cached(reclaim, &bed.file("observed/again"), 8 * MIB)
        });
    }
}

/// What is written anew does not come back.
#[test]
fn what_is_overwritten_and_not_read_goes() {
    need!(all needs(Fs::Ext4));
    if !sees_uses() {
        return;
    }
    let bed = Bed::on(Fs::Ext4);
    let script = format!(
        "exec $RUN sh -ec 'rm -f *; dd if=/dev/zero of=once bs=1M count=8 status=none; {STREAMS}; \
         dd if=/dev/zero of=once bs=1M count=8 conv=notrunc status=none'"
    );
    let left = bed.runs(AUTO, "observed", &script);
    assert_eq!(left.code, Some(0), "{left:?}");
    assert_eq!(bed.cached("observed"), []);
}

#[test]
fn a_stream_never_has_much_more_cached_than_what_waits() {
    need!(all needs(Fs::Ext4));
    let bed = Bed::sized(Fs::Ext4, 2 << 30);
    bed.input("head -c 700M /dev/zero >source");
    for script in [
        "exec $RUN sh -ec 'rm -f *; dd if=/dev/zero of=out bs=1M count=700 status=none'",
        "exec $RUN sh -ec 'rm -f *; cat ../input/source >/dev/null'",
    ] {
        bed.cools("input");
        let figures = Figures::of(&bed, "-m auto", "observed", script);
        let peak_bytes = figures.bytes("peak_cached_bytes");
        assert!(peak_bytes <= (256 + 128) * MIB, "{script}: {figures:?}");
        assert!(figures.bytes("dropped_bytes") >= 690 * MIB, "{figures:?}");
        assert_eq!(bed.cached("observed"), []);
        assert_eq!(bed.cached("input"), []);
    }
}

/// What others had before, or bring in while it waits, stays, whatever becomes of the rest.
#[test]
fn what_others_have_stays() {
    need!(all needs(Fs::Ext4));
    let bed = Bed::on(Fs::Ext4);
    bed.input("head -c 16M /dev/urandom >data");
    let data = bed.file("input/data");
    in_some_attempt(|reclaim| {
        evict(&data);
        warm(&data, 0..8 * MIB);
        let left = bed.runs(AUTO, "observed", "exec $RUN cp ../input/data copy");
        assert_eq!(left.code, Some(0), "{left:?}");
        assert_eq!(bed.cached("observed"), []);
        let pages: u64 = bed.cached("input").iter().map(|(_, pages)| pages).sum();
        assert!(pages <= 8 * MIB / 4096, "{pages}");
        still_cached(reclaim, &data, 8 * MIB)
    });
}

/// What was dropped and read again is told, in every mode, and what was written anew is not.
#[test]
fn what_is_read_again_after_it_was_dropped_is_told() {
    need!(all needs(Fs::Ext4));
    let bed = Bed::on(Fs::Ext4);
    let script = "exec $RUN sh -ec 'rm -rf *; mkdir small; \
                  dd if=/dev/zero of=read bs=1M count=24 status=none; \
                  dd if=/dev/zero of=written bs=1M count=8 status=none; \
                  for n in 1 2 3 4 5; do echo $n >small/$n; done; \
                  for n in 1 2; do dd if=/dev/zero of=stream$n bs=1M count=280 status=none; done; sync; \
                  for file in read written small/*; do \
                  for n in $(seq 300); do [ $(fincore -n -r -o PAGES $file) = 0 ] && break; sleep 0.1; done; \
                  done; cat read small/* >/dev/null; \
                  dd if=/dev/zero of=written bs=1M count=8 conv=notrunc status=none'";
    for mode in ["dontcache", "auto"] {
        let before = disk_io(bed.device()).unwrap();
        let folder = bed.file("observed");
        let options = format!("-v -m {mode} --only '{}/'", folder.display());
        let (left, figures) = Figures::told(&bed, &options, "observed", script);
        assert_eq!(left.code, Some(0), "{mode}: {left:?}");
        let read_bytes = disk_io(bed.device()).unwrap().since(before).read_bytes;
        let expected = 24 * MIB + 5 * 4096;
        let told = figures.bytes("reread_bytes");
        assert_eq!(told, expected, "{mode}: {figures:?}");
        // The rest is the file system's own.
        let counted = expected..expected + 2 * MIB;
        assert!(
            counted.contains(&read_bytes),
            "{mode}: {read_bytes} {figures:?}"
        );
        let line = "re-read 24 MiB of what was dropped";
        assert!(left.stderr.contains(line), "{mode}: {left:?}");
    }
}

/// Files that wait keep neither their blocks nor their mount.
#[test]
fn what_waits_can_be_deleted_and_unmounted() {
    need!(all needs(Fs::Ext4));
    let bed = Bed::on(Fs::Ext4);
    let mount = bed.file("");
    let script = format!(
        "exec $RUN sh -ec 'rm -rf *; sync; before=$(stat -f -c %f .); \
         dd if=/dev/zero of=large bs=1M count=64 status=none; mkdir small; \
         for n in $(seq 200); do head -c 20000 /dev/zero >small/$n; done; sync; sleep 3; \
         rm -rf large small; for n in $(seq 100); do sync; \
         [ $(stat -f -c %f .) -lt $((before - 256)) ] || exit 0; sleep 0.1; done; \
         stat -f {}; exit 9'",
        mount.display()
    );
    let left = bed.runs(AUTO, "observed", &script);
    assert_eq!(left.code, Some(0), "{left:?}");
}
