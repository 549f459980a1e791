//! What other processes have in the cache stays there.

use crate::bed::Bed;
use crate::kept::still_cached;
use crate::shell::{Left, RUN, Running, wait_for};
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::{evict, page_bytes, resident_map, warm};
use dropbehind_testbed::{Fs, MemoryCgroup, need};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Cached pages from an offset on.
fn cached_from(path: &Path, offset: u64) -> usize {
    let map = resident_map(path).unwrap();
    let rest = &map[(offset / page_bytes()) as usize..];
    rest.iter().filter(|&&page| page).count()
}

#[test]
fn the_half_that_was_cached_before() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["cat"]));
        let bed = Bed::on(filesystem);
        bed.input("head -c 64M /dev/urandom >data; cp data overwritten");
        let data = bed.file("input/data");
        let overwritten = bed.file("input/overwritten");
        in_some_attempt(|reclaim| {
            for file in [&data, &overwritten] {
                evict(file);
                warm(file, 0..32 * MIB);
            }
            let script = "$RUN sh -c 'cat ../input/data >copy; \
                          dd if=copy of=../input/overwritten bs=1M conv=notrunc status=none'";
            let left = bed.runs(RUN, "observed", script);
            assert_eq!(left.code, Some(0), "{left:?}");
            for file in [&data, &overwritten] {
                let map = resident_map(file).unwrap();
                let first = map.iter().skip(8192).position(|&page| page);
                assert_eq!(
                    (cached_from(file, 32 * MIB), first),
                    (0, None),
                    "{}",
                    file.display()
                );
            }
            assert_eq!(bed.cached("observed"), []);
            still_cached(reclaim, &data, 32 * MIB)?;
            still_cached(reclaim, &overwritten, 32 * MIB)
        });
    }
}

/// Reads a file in blocks over and over while something else happens.
fn while_read_by_another<T>(file: &File, bytes: u64, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut block = vec![0; 64 << 10];
            while !done.load(Ordering::Relaxed) {
                for at in (0..bytes).step_by(block.len()) {
                    file.read_exact_at(&mut block, at).unwrap();
                }
            }
        });
        let result = work();
        // One more round to the end.
        std::thread::sleep(Duration::from_millis(300));
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// Of a file that is read in the middle by another process all the while, that part
/// stays. What the program brings in of it goes, and is brought in by the other.
#[test]
fn a_file_that_another_process_reads() {
    for filesystem in [Fs::Ext4, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["cat"]));
        let bed = Bed::on(filesystem);
        bed.input("head -c 48M /dev/urandom >data");
        let data = bed.file("input/data");
        in_some_attempt(|reclaim| {
            evict(&data);
            let file = File::open(&data).unwrap();
            let script = "$RUN sh -c 'cat ../input/data ../input/data >copy'";
            let left = while_read_by_another(&file, 8 * MIB, || bed.runs(RUN, "observed", script));
            assert_eq!(left.code, Some(0), "{left:?}");
            assert_eq!(bed.cached("observed"), []);
            still_cached(reclaim, &data, 8 * MIB)
        });
    }
}

/// One that another process comes to read when the program has begun with it: what the
/// program had brought in by then goes, what the other process did stays.
#[test]
fn a_file_that_another_process_opens_meanwhile() {
    need!(all Bed::needs(Fs::Xfs, &["bash"]));
    let bed = Bed::on(Fs::Xfs);
    bed.input("head -c 48M /dev/urandom >data");
    let data = bed.file("input/data");
    in_some_attempt(|reclaim| {
        evict(&data);
        bed.runs("", "observed", "rm -f begun go");
        let script = "exec $RUN bash -c 'exec 3<../input/data; head -c 16M <&3 >/dev/null; \
                      touch begun; while test ! -e go; do sleep 0.01; done; \
                      cat <&3 >copy; cat ../input/data >>copy'";
        let mut running = Running::start(bed.bash(RUN, "observed", script));
        wait_for("half of it is read", || bed.file("observed/begun").exists());
        let file = File::open(&data).unwrap();
        // What is being dropped in this moment is read anew.
        std::thread::sleep(Duration::from_millis(300));
        let mut block = vec![0; 1 << 20];
        for at in 0..48 {
            file.read_exact_at(&mut block, at * MIB).unwrap();
        }
        std::fs::write(bed.file("observed/go"), "").unwrap();
        assert!(running.ends().success());
        assert_eq!(bed.cached("observed"), []);
        // The kernel reads ahead, but not as far as this.
        let theirs = (cached_from(&data, 32 * MIB) as u64) * page_bytes();
        reclaim.stays(&data, theirs, 16 * MIB)
    });
}

/// What another process reads of files before the program does is its own.
#[test]
fn files_that_another_process_reads_before_the_program_does() {
    for filesystem in [Fs::Ext4, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["bash", "cat"]));
        let bed = Bed::on(filesystem);
        bed.input(
            "for name in one two argument large held never; do \
             head -c 3M /dev/urandom >$name; done; head -c 50000 /dev/urandom >small",
        );
        let path = |name| bed.file("input").join(name);
        in_some_attempt(|reclaim| {
            bed.cools("input");
            bed.runs("", "observed", "rm -f begun go");
            let held = File::open(path("held")).unwrap();
            let script = "exec $RUN bash -c 'cat ../input/one ../input/two >/dev/null; \
                          touch begun; while test ! -e go; do sleep 0.01; done; \
                          cd ../input; cat $0 large small held never >/dev/null' argument";
            let mut running = Running::start(bed.bash(RUN, "observed", script));
            wait_for("it has begun", || bed.file("observed/begun").exists());
            std::thread::sleep(Duration::from_millis(300));
            for name in ["argument", "large", "small"] {
                std::fs::read(path(name)).unwrap();
            }
            let mut block = vec![0; 3 << 20];
            held.read_exact_at(&mut block, 0).unwrap();
            std::fs::write(bed.file("observed/go"), "").unwrap();
            assert!(running.ends().success());
            let never = resident_map(&path("never")).unwrap();
            assert!(never.iter().all(|&page| !page));
            for name in ["argument", "large", "held"] {
                still_cached(reclaim, &path(name), 3 * MIB)?;
            }
            still_cached(reclaim, &path("small"), 50_000)
        });
    }
}

/// Three times what its memory cgroup may use is copied beside files that a
/// neighbour in the same cgroup reads over and over.
fn hot_pages_after_copy(bed: &Bed, run: &str) -> usize {
    let group = MemoryCgroup::new(512 * MIB).expect("a cgroup");
    let hot = bed.file("hot/set");
    evict(&hot);
    // All memory is charged to whom it came in for.
    let warmed = group.run(bed.bash("", "hot", "cat set >/dev/null"));
    assert!(warmed.unwrap().status.success());
    let script = "rm -f copy; $RUN dd if=../input/data of=copy bs=1M status=none; echo $?";
    let left: Left = group.run(bed.bash(run, "observed", script)).unwrap().into();
    assert_eq!(left.stdout, "0\n", "{left:?}");
    println!(
        "{run:?}: peak {:?} MiB",
        group.peak_bytes().map(|bytes| bytes / MIB)
    );
    let map = resident_map(&hot).unwrap();
    map.iter().filter(|&&page| page).count()
}

#[test]
fn a_hot_set_beside_a_copy() {
    need!(all Bed::needs(Fs::Ext4, &["dd"]));
    need!(all MemoryCgroup::needs());
    let bed = Bed::on(Fs::Ext4);
    bed.input("truncate -s 768M data");
    bed.runs("", "hot", "head -c 128M /dev/urandom >set; sync set");
    let all = (128 * MIB / page_bytes()) as usize;
    let plain = hot_pages_after_copy(&bed, "");
    assert!(plain < all * 9 / 10, "a plain copy left {plain} of {all}");
    in_some_attempt(|reclaim| {
        let observed = hot_pages_after_copy(&bed, RUN);
        let bytes = |pages: usize| pages as u64 * page_bytes();
        reclaim.stays(&bed.file("hot/set"), bytes(observed), bytes(all))
    });
}
