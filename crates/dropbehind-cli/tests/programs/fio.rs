//! fio, which verifies what it wrote. Its blocks carry the time, so that no two
//! files are alike.

use crate::bed::Bed;
use dropbehind_testbed::{Fs, need, skip};

/// Writes and verifies, by what stands in `$HOW`.
const JOB: &str = "$RUN fio --name=job --filename=data --size=64m --verify=crc32c --verify_fatal=1 \
                   --fallocate=none --output=report $HOW; echo $?";

fn verifies(filesystem: Fs, how: &str) {
    need!(all Bed::needs(filesystem, &["fio"]));
    let bed = Bed::on(filesystem);
    let job = JOB.replace("$HOW", how);
    if bed.runs("", "plain", &job).stdout != "0\n" {
        let report = std::fs::read_to_string(bed.file("plain/report"));
        skip!("fio does not work here: {report:?}");
    }
    assert_ne!(bed.cached("plain"), []);
    let left = bed.observed(&job);
    assert_eq!((left.stdout.as_str(), left.stderr.as_str()), ("0\n", ""));
    assert_eq!(bed.cached("observed"), []);
    // From the disk, and by a process of its own.
    let left = bed.observed(
        &format!("{job}; rm report")
            .replace("$RUN", "")
            .replace("--size", "--verify_only --size"),
    );
    assert_eq!(left.stdout, "0\n", "{left:?}");
}

#[test]
fn io_uring() {
    verifies(
        Fs::Ext4,
        "--ioengine=io_uring --rw=write --bs=64k --iodepth=16",
    );
}

#[test]
fn io_uring_at_random_places() {
    verifies(
        Fs::Xfs,
        "--ioengine=io_uring --rw=randwrite --bs=16k --iodepth=16 --nonvectored=1 --registerfiles=1",
    );
}

#[test]
fn a_writer_through_a_mapping() {
    verifies(Fs::Ext4, "--ioengine=mmap --rw=write --bs=64k");
    verifies(Fs::Btrfs, "--ioengine=mmap --rw=randwrite --bs=64k");
}

#[test]
fn several_jobs_that_read_and_write() {
    verifies(
        Fs::Btrfs,
        "--ioengine=psync --rw=randrw --bs=32k --numjobs=1 --do_verify=1",
    );
}
