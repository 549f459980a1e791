//! Files seen through other mounts than the one they are on.

use crate::bed::Bed;
use crate::figures::Figures;
use crate::kept::still_cached;
use crate::shell::RUN;
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::{cached_range, evict, page_bytes, warm};
use dropbehind_testbed::{Fs, Need, need};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

/// A mount made by a test.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    fn new(bed: &Bed, arguments: &str, at: &str) -> Self {
        let path = bed.file(at);
        std::fs::create_dir_all(&path).unwrap();
        let left = bed.runs("", ".", &format!("mount {arguments} {at}"));
        assert_eq!(left.code, Some(0), "{left:?}");
        Self(path)
    }

    /// The folders `lower` and `upper` as one, `merged`.
    pub(crate) fn overlay(bed: &Bed) -> Self {
        let [lower, upper, work] = ["lower", "upper", "work"].map(|name| bed.file(name));
        let options = format!(
            "-t overlay overlay -o lowerdir={},upperdir={},workdir={}",
            lower.display(),
            upper.display(),
            work.display()
        );
        Self::new(bed, &options, "merged")
    }
}

/// Nothing shows where relative layers begin: Docker's do above the mount point.
#[test]
fn an_overlay_with_relative_layers() {
    need!(all Bed::needs(Fs::Ext4, &["mount", "cp"]));
    need!(Need::Filesystem("overlay"));
    // Mounted before, with files of the same inode numbers.
    let other = Bed::on(Fs::Ext4);
    other.runs("", "lower", "touch {1..400}");
    let bed = Bed::on(Fs::Ext4);
    for elsewhere in [false, true] {
        let data = "head -c 20000000 /dev/urandom >data; mkdir ../upper ../work";
        bed.runs("", "lower", data);
        let inode = bed.file("lower/data").metadata().unwrap().ino();
        let find = format!("find . -inum {inode} -exec mv {{}} data \\;; [ -e data ]");
        assert_eq!(other.runs("", "lower", &find).code, Some(0), "{inode}");
        bed.cools("lower");
        let outside = elsewhere.then(|| dropbehind_testbed::Scratch::new().unwrap());
        let merged = match &outside {
            Some(outside) => outside.file("merged"),
            None => bed.file("merged"),
        };
        std::fs::create_dir_all(&merged).unwrap();
        let options = "lowerdir=lower,upperdir=upper,workdir=work";
        let mount = format!("mount -t overlay overlay -o {options} {}", merged.display());
        let left = bed.runs("", ".", &mount);
        assert_eq!(left.code, Some(0), "{left:?}");
        let mounted = Mounted(merged.clone());
        let script = format!("cd {}; exec $RUN -v cp data copy", merged.display());
        let left = bed.runs(RUN, ".", &script);
        assert_eq!(left.code, Some(0), "{left:?}");
        for folder in ["lower", "upper"] {
            assert_eq!(bed.cached(folder), [], "{left:?}");
        }
        drop(mounted);
        bed.runs("", ".", "rm -r lower upper work");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let status = Command::new("umount")
            .args(["-R", "-l"])
            .arg(&self.0)
            .status();
        assert!(status.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

#[test]
fn an_overlay() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["mount"]));
        need!(Need::Filesystem("overlay"));
        let bed = Bed::on(filesystem);
        let data = "for file in read copied tail; do head -c 20000000 /dev/urandom >$file; done";
        bed.runs("", "lower", data);
        for folder in ["upper", "work"] {
            std::fs::create_dir(bed.file(folder)).unwrap();
        }
        bed.cools("lower");
        let _mounted = Mounted::overlay(&bed);
        let left = bed.runs(
            RUN,
            "merged",
            "$RUN sh -c 'cksum <$0; cp $0 new; echo more >>tail; \
             dd if=new of=copied bs=1M conv=notrunc status=none; mv new newer' read",
        );
        assert_eq!(left.code, Some(0), "{left:?}");
        let left = bed.runs(RUN, "merged", "exec $RUN cat read >inherited");
        assert_eq!(left.code, Some(0), "{left:?}");
        assert_eq!(bed.cached("upper"), [], "{filesystem:?}");
        // Nor of what the kernel read to copy it up.
        assert_eq!(bed.cached("lower"), [], "{filesystem:?}");
        bed.runs("", "lower", "cp read ../expected");
        for name in ["newer", "copied", "read", "inherited"] {
            let compared = bed.runs("", "merged", &format!("cmp {name} ../expected"));
            assert_eq!(compared.code, Some(0), "{compared:?}");
        }
        let tail = bed.runs(
            "",
            "merged",
            "tail -c 5 tail; cmp -n 20000000 tail ../lower/tail",
        );
        assert_eq!((tail.code, tail.stdout.as_str()), (Some(0), "more\n"));
    }
}

/// The event of an open comes before what the trace says of the copy that this open made.
#[test]
fn many_small_files_that_an_overlay_copies() {
    need!(all Bed::needs(Fs::Ext4, &["mount"]));
    need!(Need::Filesystem("overlay"));
    let bed = Bed::on(Fs::Ext4);
    let data = "mkdir ../upper ../work; for i in $(seq 200); do head -c 20000 /dev/zero >$i; done";
    bed.runs("", "lower", data);
    bed.cools("lower");
    let _mounted = Mounted::overlay(&bed);
    let script = "$RUN bash -c 'for i in $(seq 200); do echo more >>$i; done'";
    let left = bed.runs(RUN, "merged", script);
    assert_eq!(left.code, Some(0), "{left:?}");
    for folder in ["lower", "upper"] {
        assert_eq!(bed.cached(folder), [], "{folder}");
    }
}

/// The kernel does not report that a directory above a mount was renamed.
#[test]
fn an_overlay_that_moves_with_the_directory_above_it() {
    need!(all Bed::needs(Fs::Ext4, &["mount", "mv"]));
    need!(Need::Filesystem("overlay"));
    let bed = Bed::on(Fs::Ext4);
    let data = "for file in before after; do head -c 20000000 /dev/urandom >$file; done";
    bed.runs("", "lower", data);
    bed.runs("", "above", "mkdir merged ../upper ../work");
    bed.cools("lower");
    let script = "set -e; in=$(cd ..; pwd); \
                  mount -t overlay overlay merged \
                  -o lowerdir=$in/lower,upperdir=$in/upper,workdir=$in/work; \
                  status=0; $RUN sh -ec 'cksum <merged/before; mv ../above ../moved; \
                  cksum <../moved/merged/after; sleep 1; mv ../moved ../above' || status=$?; \
                  umount merged; exit $status";
    let left = bed.runs(RUN, "above", script);
    assert_eq!(left.code, Some(0), "{left:?}");
    assert_eq!(bed.cached("lower"), []);
}

/// Its pages are clean as soon as they are written.
#[test]
fn a_file_system_that_a_process_serves() {
    let tools = ["fuse2fs", "mkfs.ext4", "cp", "tar"];
    need!(all Bed::needs(Fs::Ext4, &tools));
    let bed = Bed::on(Fs::Ext4);
    let script = "truncate -s 300M image; mkfs.ext4 -q image; mkdir served; \
                  fuse2fs image served -o fakeroot && head -c 32M /dev/urandom >served/data";
    let left = bed.runs("", ".", script);
    assert_eq!(left.code, Some(0), "{left:?}");
    let _mounted = Mounted(bed.file("served"));
    evict(&bed.file("served/data"));
    // By default it is not known where what waits could be opened again.
    let by_default = "env -u DROPBEHIND_MODE dropbehind run";
    for (run, script) in [
        (RUN, "cp data copy; cmp data copy"),
        (RUN, "tar -cf archive data copy"),
        (by_default, "tar -cf archive data copy"),
    ] {
        let left = bed.runs(run, "served", &format!("exec $RUN -v sh -c '{script}'"));
        assert_eq!(left.code, Some(0), "{left:?}");
        assert_eq!(bed.cached("served"), [], "{left:?}");
        assert!(!left.stderr.contains("left to the kernel"), "{left:?}");
    }
    // Who stops a program at its opens must not make one of its own there.
    let stopped = format!("{RUN} -v --source seccomp");
    let left = bed.runs(&stopped, "served", "exec $RUN cat data >/dev/null");
    assert_eq!(left.code, Some(0), "{left:?}");
    let words = "served is left to the kernel: a process serves it";
    assert!(left.stderr.contains(words), "{left:?}");
}

/// A program that is there already can still open its files.
#[test]
fn files_of_a_mount_that_was_detached() {
    need!(all Bed::needs(Fs::Ext4, &["mount", "umount", "cat"]));
    let bed = Bed::on(Fs::Ext4);
    bed.runs("", "lower", "head -c 20000000 /dev/urandom >data");
    let stopped = format!("{RUN} -v --source seccomp");
    let script = "mkdir at; mount --bind lower at; cd at; umount -l ../at; exec $RUN cat data";
    let left = bed.runs(&stopped, ".", &format!("{script} >/dev/null"));
    assert_eq!(left.code, Some(0), "{left:?}");
    let words = "are left to the kernel: their file system is not known";
    assert!(left.stderr.contains(words), "{left:?}");
}

/// One program has both open, and both have the same pages.
#[test]
fn a_file_of_an_overlay_and_the_one_below_it() {
    need!(Need::Filesystem("overlay"));
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["mount", "cat"]));
        let bed = Bed::on(filesystem);
        let data = "head -c 20000000 /dev/urandom >data; mkdir ../upper ../work";
        bed.runs("", "lower", data);
        let _mounted = Mounted::overlay(&bed);
        for (first, second) in [("lower", "merged"), ("merged", "lower")] {
            bed.cools("lower");
            let script =
                format!("exec $RUN sh -c 'exec 3<{first}/data; exec cat {second}/data >/dev/null'");
            let figures = Figures::of(&bed, "", ".", &script);
            let of = format!("{filesystem:?}, {first} first: {figures:?}");
            assert_eq!(bed.cached("lower"), [], "{of}");
            assert!(figures.bytes("bytes_read") >= 20_000_000, "{of}");
        }
    }
}

/// Nobody is told of reads of the file below, so what appears there may have been
/// read, whatever else is written.
#[test]
fn what_was_read_through_an_overlay_stays_where_reads_are_left_alone() {
    need!(all Bed::needs(Fs::Ext4, &["mount", "python3"]));
    need!(Need::Filesystem("overlay"));
    let bed = Bed::on(Fs::Ext4);
    for folder in ["lower", "upper", "work"] {
        std::fs::create_dir(bed.file(folder)).unwrap();
    }
    bed.runs("", "upper", "head -c 40000000 /dev/urandom >data");
    let program = "import os, time\n\
                   file = os.open('data', os.O_RDWR)\n\
                   os.pwrite(file, bytes(1 << 20), 30 << 20)\n\
                   time.sleep(0.3)\n\
                   for mib in range(16): os.pread(file, 1 << 20, mib << 20)\n\
                   time.sleep(0.3)\n";
    std::fs::write(bed.file("program.py"), program).unwrap();
    in_some_attempt(|reclaim| {
        bed.cools("upper");
        let mounted = Mounted::overlay(&bed);
        let left = bed.runs(RUN, "merged", "exec $RUN --no-reads python3 ../program.py");
        assert_eq!((left.code, left.stderr.as_str()), (Some(0), ""));
        drop(mounted);
        let data = bed.file("upper/data");
        let read = cached_range(&data, 0..16 << 20).unwrap();
        reclaim.stays(&data, read.cached_pages * page_bytes(), 16 << 20)
    });
}

/// The pages are those of the file below, and so are the others who use it.
#[test]
fn what_others_had_of_the_file_below_an_overlay() {
    need!(all Bed::needs(Fs::Ext4, &["mount", "cat"]));
    need!(Need::Filesystem("overlay"));
    let bed = Bed::on(Fs::Ext4);
    bed.runs("", "lower", "head -c 32M /dev/urandom >data");
    let data = bed.file("lower/data");
    for folder in ["upper", "work"] {
        std::fs::create_dir(bed.file(folder)).unwrap();
    }
    let _mounted = Mounted::overlay(&bed);
    for argument in ["data", ""] {
        in_some_attempt(|reclaim| {
            evict(&data);
            warm(&data, 0..16 << 20);
            let script = format!("$RUN sh -c 'cat data >../copy' {argument}");
            let left = bed.runs(RUN, "merged", &script);
            assert_eq!(left.code, Some(0), "{left:?}");
            still_cached(reclaim, &data, 16 << 20)
        });
    }
}

/// The overlay copies the file, and reads the half below that is not cached.
#[test]
fn what_others_had_of_a_file_that_an_overlay_copies() {
    need!(all Bed::needs(Fs::Ext4, &["mount", "cat"]));
    need!(Need::Filesystem("overlay"));
    let bed = Bed::on(Fs::Ext4);
    bed.runs("", "lower", "head -c 32M /dev/urandom >data");
    let data = bed.file("lower/data");
    in_some_attempt(|reclaim| {
        bed.runs("", ".", "rm -rf upper work; mkdir upper work");
        let _mounted = Mounted::overlay(&bed);
        evict(&data);
        warm(&data, 0..16 << 20);
        let left = bed.runs(RUN, "merged", "$RUN sh -c 'echo more >>data'");
        assert_eq!(left.code, Some(0), "{left:?}");
        assert_eq!(bed.cached("upper"), []);
        let brought = cached_range(&data, 24 << 20..32 << 20).unwrap();
        assert_eq!(brought.cached_pages, 0);
        still_cached(reclaim, &data, 16 << 20)
    });
}

#[test]
fn a_bind_mount() {
    need!(all Bed::needs(Fs::Xfs, &["mount"]));
    let bed = Bed::on(Fs::Xfs);
    bed.input("head -c 30000000 /dev/urandom >data");
    bed.cools("input");
    std::fs::create_dir(bed.file("there")).unwrap();
    let _mounted = Mounted::new(&bed, "--bind there", "here");
    let left = bed.runs(RUN, "here", "$RUN cp ../input/data copy");
    assert_eq!(left.code, Some(0), "{left:?}");
    assert_eq!(bed.cached("there"), []);
    assert_eq!(bed.cached("input"), []);
}

#[test]
fn a_root_of_its_own() {
    need!(all Bed::needs(Fs::Ext4, &["chroot", "mount"]));
    let bed = Bed::on(Fs::Ext4);
    bed.input("head -c 30000000 /dev/urandom >data");
    bed.cools("input");
    let _root = Mounted::new(&bed, "--bind /", "root");
    let _inside = Mounted::new(&bed, "--bind .", "root/mnt");
    let left = bed.runs(
        RUN,
        "observed",
        "$RUN chroot ../root sh -c 'cd /mnt/observed && cp $0 a && cat a >b && sha1sum b' \
         ../input/data",
    );
    assert_eq!(left.code, Some(0), "{left:?}");
    assert_eq!(bed.cached("observed"), []);
    assert_eq!(bed.cached("input"), []);
    assert_eq!(bed.runs("", "observed", "cmp a b").code, Some(0));
}

/// Has a program mount the file system once more, where nobody outside sees it,
/// and unmount it by a command.
fn with_a_mount_of_its_own(filesystem: Fs, unmount: &str) {
    need!(all Bed::needs(filesystem, &["mount", "umount"]));
    let bed = Bed::on(filesystem);
    bed.input("head -c 60000000 /dev/urandom >data");
    bed.cools("input");
    std::fs::create_dir(bed.file("observed")).unwrap();
    std::fs::create_dir(bed.file("inner")).unwrap();
    let device = bed.device().display();
    let left = bed.runs(
        RUN,
        "input",
        &format!(
            "$RUN sh -c 'mount {device} ../inner && cd ../inner && \
             cp input/data observed/a && cat observed/a >observed/b && cd .. && {unmount}'; echo $?"
        ),
    );
    let cached = bed.cached("observed");
    assert_eq!((left.stdout.as_str(), cached), ("0\n", vec![]), "{left:?}");
    let compared = bed.runs("", "observed", "cmp a b && cmp a ../input/data");
    assert_eq!(compared.code, Some(0), "{compared:?}");
}

#[test]
fn a_mount_that_the_program_makes() {
    for filesystem in [Fs::Ext4, Fs::Btrfs] {
        with_a_mount_of_its_own(filesystem, "umount -l inner");
    }
}

#[test]
fn a_mount_that_the_program_unmounts() {
    for filesystem in [Fs::Ext4, Fs::Btrfs] {
        // Files are held while they are written back and dropped.
        let unmount = "for try in $(seq 500); do umount inner && exit; sleep 0.01; done; exit 1";
        with_a_mount_of_its_own(filesystem, unmount);
    }
}

/// Small files wait for long to be used again, and this one is used without reading the disk.
#[test]
fn a_mount_whose_files_wait_can_be_unmounted_after_they_were_opened_again() {
    need!(all Bed::needs(Fs::Ext4, &["mount", "umount"]));
    let bed = Bed::on(Fs::Ext4);
    std::fs::create_dir(bed.file("inner")).unwrap();
    let device = bed.device().display();
    let script = format!(
        "$RUN -m auto sh -c 'mount {device} inner && echo text >inner/small && sleep 4 && \
         cat inner/small && for try in $(seq 500); do umount inner && exit; sleep 0.01; done; \
         exit 1'; echo $?"
    );
    let left = bed.runs(RUN, ".", &script);
    assert_eq!(left.stdout, "text\n0\n", "{left:?}");
}
