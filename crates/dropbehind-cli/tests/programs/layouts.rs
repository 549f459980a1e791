//! Holes, several disks, and disks without a file system.

use crate::bed::Bed;
use crate::figures::Figures;
use crate::shell::{RUN, bash};
use crate::user::User;
use dropbehind_testbed::residency::cached;
use dropbehind_testbed::{Fs, Need, need};
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// Data and holes of a file, as the file system tells them, and how many MiB of
/// blocks; some are for the list of the others.
const MAP: &str = r#"
import os, sys
for name in sys.argv[1:]:
    f = os.open(name, os.O_RDONLY); at = 0; size = os.fstat(f).st_size
    os.fsync(f)
    while True:
        try: start = os.lseek(f, at, os.SEEK_DATA)
        except OSError: break
        at = os.lseek(f, start, os.SEEK_HOLE)
        print(name, start, at)
    print(name, size, os.fstat(f).st_blocks // 2048)
"#;

#[test]
fn holes_stay_holes() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["python3", "fallocate"]));
        let bed = Bed::on(filesystem);
        std::fs::write(bed.file("map.py"), MAP).unwrap();
        bed.input(
            "truncate -s 200M sparse; for at in 0 40 130; do \
             dd if=/dev/urandom of=sparse bs=1M count=8 seek=$at conv=notrunc status=none; done",
        );
        bed.both(
            "$RUN cp --reflink=never --sparse=always ../input/sparse a; \
             $RUN sh -c 'dd if=/dev/zero of=b bs=1M count=8 seek=100 status=none && \
             dd if=/dev/urandom of=/dev/null bs=1M count=1 status=none && \
             dd if=/dev/zero of=b bs=1M count=8 seek=20 conv=notrunc status=none'; \
             $RUN sh -c 'dd if=/dev/zero of=c bs=1M count=60 status=none && \
             fallocate -p -o 10M -l 20M c'; truncate -s 300M c",
        );
        let map = |folder| bed.runs("", folder, "python3 ../map.py a b c");
        let (plain, observed) = (map("plain"), map("observed"));
        assert_eq!(plain.code, Some(0), "{plain:?}");
        assert!(plain.stdout.lines().count() > 6, "{plain:?}");
        assert_eq!(plain, observed, "{filesystem:?}");
    }
}

#[test]
fn two_file_systems_at_once() {
    need!(all Bed::needs(Fs::Ext4, &[]));
    need!(all Bed::needs(Fs::Btrfs, &[]));
    let (bed, other) = (Bed::on(Fs::Ext4), Bed::on(Fs::Btrfs));
    bed.input("head -c 60000000 /dev/urandom >data");
    bed.cools("input");
    let there = other.file("observed");
    std::fs::create_dir(&there).unwrap();
    let script = format!(
        "$RUN sh -c 'cp $0 a & cp $0 {there}/b; wait; mv a {there}/c; cp {there}/b d' \
         ../input/data",
        there = there.display()
    );
    let left = bed.runs(RUN, "observed", &script);
    assert_eq!(left.code, Some(0), "{left:?}");
    assert_eq!(bed.cached("observed"), []);
    assert_eq!(bed.cached("input"), []);
    assert_eq!(other.cached("observed"), []);
    for copy in [there.join("b"), there.join("c"), bed.file("observed/d")] {
        let original = std::fs::read(bed.file("input/data")).unwrap();
        assert!(std::fs::read(copy).unwrap() == original);
    }
}

/// Holds a device open for as long as the commands in its arguments run, or its
/// pages would go with the last close. It is one of those observed: what others
/// hold is left to them. Ends when nothing of the device is cached any more.
pub(crate) const HOLDER: &str = r#"
import ctypes, os, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
device = os.open(sys.argv[1], os.O_RDONLY)
def cached():
    whole = (ctypes.c_uint64 * 2)(); counts = (ctypes.c_uint64 * 5)()
    assert libc.syscall(451, device, whole, counts, 0) == 0
    return counts[0]
most = 0
for command in sys.argv[2:]:
    running = subprocess.Popen(command, shell=True)
    while running.poll() is None:
        most = max(most, cached())
        time.sleep(0.001)
    assert running.returncode == 0, command
print("seen at work" if most > 0 else "nothing seen", flush=True)
for _ in range(6000):
    if cached() == 0: break
    time.sleep(0.01)
else: print(cached(), "pages stay")
"#;

/// A loop device that nobody holds open.
pub(crate) struct Device(pub(crate) String);

impl Device {
    pub(crate) fn new(bed: &Bed, image: &str) -> Self {
        let script =
            format!("truncate -s 64M {image}; losetup --find --show --direct-io=on {image}");
        let left = bed.runs("", ".", &script);
        assert_eq!(left.code, Some(0), "{left:?}");
        Self(left.stdout.trim().to_owned())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let status = Command::new("losetup").args(["--detach", &self.0]).status();
        assert!(status.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

#[test]
fn a_raw_device() {
    need!(all Bed::needs(Fs::Ext4, &["dd", "cmp", "losetup", "python3"]));
    need!(Need::Loop);
    let bed = Bed::on(Fs::Ext4);
    bed.input("head -c 64M /dev/urandom >data");
    bed.cools("input");
    std::fs::write(bed.file("holder.py"), HOLDER).unwrap();
    let device = Device::new(&bed, "image");
    let name = &device.0;
    for commands in [
        format!("'dd if=../input/data of={name} bs=64k status=none'"),
        // Read, too; and it holds what it should.
        format!("'cmp {name} ../input/data' 'dd if=../input/data of={name} bs=4k status=none'"),
    ] {
        let script = format!("$RUN python3 ../holder.py {name} {commands}");
        let left = bed.runs(RUN, "observed", &script);
        assert_eq!(left.stdout, "seen at work\n", "{left:?}");
        assert_eq!(left.code, Some(0), "{left:?}");
    }
    let compared = bed.runs("", ".", &format!("cmp {name} input/data"));
    assert_eq!(compared.code, Some(0), "{compared:?}");
}

#[test]
fn what_is_read_of_a_raw_device_after_a_write_counts_as_read() {
    need!(all Bed::needs(Fs::Ext4, &["dd", "losetup"]));
    need!(Need::Loop, Need::Trace);
    let bed = Bed::on(Fs::Ext4);
    let device = Device::new(&bed, "image");
    let name = &device.0;
    let script = format!(
        "$RUN sh -c 'dd if=/dev/zero of={name} bs=1M count=32 status=none; \
         dd if={name} of=/dev/null bs=1M skip=32 count=32 status=none'"
    );
    let (left, figures) = Figures::told(&bed, "-v", "observed", &script);
    assert_eq!(left.code, Some(0), "{left:?}");
    // What is clean before it is looked at counts as read, and so does the kernel's readahead.
    let written_bytes = figures.bytes("bytes_written");
    let read_bytes = figures.bytes("bytes_read");
    assert!((MIB..40 * MIB).contains(&written_bytes), "{figures:?}");
    assert!(read_bytes >= 28 * MIB, "{figures:?}");
}

/// What makes disks of virtual machines and file systems writes to devices in ways of its own.
#[test]
fn a_raw_device_with_an_image_or_a_file_system() {
    need!(all Bed::needs(Fs::Ext4, &["qemu-img", "mkfs.ext4", "e2fsck", "cmp", "losetup", "python3"]));
    need!(Need::Loop);
    let bed = Bed::on(Fs::Ext4);
    bed.input("head -c 64M /dev/urandom >data");
    std::fs::write(bed.file("holder.py"), HOLDER).unwrap();
    let device = Device::new(&bed, "image");
    let name = &device.0;
    for (command, check) in [
        (
            format!("qemu-img convert -n -t writeback -f raw -O raw ../input/data {name}"),
            format!("cmp {name} input/data"),
        ),
        (
            format!("mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0 {name}"),
            format!("e2fsck -fn {name}"),
        ),
    ] {
        let script = format!("$RUN python3 ../holder.py {name} '{command}'");
        let left = bed.runs(RUN, "observed", &script);
        assert_eq!(left.stdout, "seen at work\n", "{command}: {left:?}");
        assert_eq!(left.code, Some(0), "{command}: {left:?}");
        let checked = bed.runs("", ".", &check);
        assert_eq!(checked.code, Some(0), "{check}: {checked:?}");
    }
}

/// The kernel writes all of a device before its last close returns. The observer has it open
/// for moments only, so that this is the program's close but in rare cases.
#[test]
fn what_is_on_a_raw_device_after_its_close() {
    need!(all Bed::needs(Fs::Ext4, &["dd", "cmp", "losetup"]));
    need!(Need::Loop);
    let bed = Bed::on(Fs::Ext4);
    let device = Device::new(&bed, "image");
    let name = &device.0;
    let is_written = || {
        bed.input("head -c 512K /dev/urandom >data");
        // Long enough for the observer to find it.
        let script = format!(
            "$RUN sh -c 'exec 3<>{name}; dd if=../input/data bs=64k status=none >&3; sleep 0.3; \
             exec 3>&-; cmp -n 512K ../image ../input/data'"
        );
        bed.runs(RUN, "observed", &script).code == Some(0)
    };
    assert!((0..5).any(|_| is_written()));
}

fn holds_zeros(path: &Path, bytes: u64) {
    let data = std::fs::read(path).unwrap();
    assert!(data.len() as u64 == bytes && data.iter().all(|&byte| byte == 0));
}

/// A standard output that is a file, from before the program was there.
#[test]
fn redirections() {
    need!(all Bed::needs(Fs::Xfs, &["cat"]));
    let bed = Bed::on(Fs::Xfs);
    bed.input("head -c 40000000 /dev/urandom >data");
    bed.both(
        "$RUN cat ../input/data >a; $RUN cat ../input/data ../input/data >>a; \
         $RUN cat <../input/data >b; exec 5<>c; $RUN sh -c 'cat ../input/data >&5'; \
         exec 5>&-; $RUN sh -c 'cat ../input/data; ls no-such-file' >d 2>&1",
    );
    // Beside what others have on the same description.
    let user = User::new();
    let script =
        "(dd if=/dev/zero bs=1M count=20; $RUN dd if=/dev/zero bs=1M count=30) 2>/dev/null >e";
    let mut command = bash(&user, RUN, script);
    let folder = bed.file("observed");
    assert!(command.current_dir(&folder).status().unwrap().success());
    let left = cached(&folder.join("e")).unwrap();
    assert!(left.cached_pages <= 5120, "{left:?}");
    holds_zeros(&folder.join("e"), 50 << 20);
}
