//! Programs that copy.

use crate::bed::Bed;
use crate::shell::RUN;
use dropbehind_testbed::{Fs, need};

/// Bytes that do not compress, and are no multiple of a page.
const DATA: &str = "head -c 50000001 /dev/urandom >data";

#[test]
fn dd() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["dd"]));
        let bed = Bed::on(filesystem);
        let left = bed.input(DATA).both(
            "$RUN dd if=../input/data of=a bs=1M status=noxfer; echo $?; \
             $RUN dd if=../input/data of=b bs=4k status=noxfer conv=fsync; echo $?; \
             $RUN dd if=../input/data of=/dev/full bs=1M status=noxfer; echo $?",
        );
        assert_eq!(left.stdout, "0\n0\n1\n");
        assert!(left.stderr.contains("No space left"), "{left:?}");
    }
}

/// Nothing is written back before the end, and the end waits for all of it.
#[test]
fn dd_of_less_than_a_window() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["dd"]));
        let bed = Bed::on(filesystem);
        let run = format!("{RUN} --mode behind+drop --window 1G --stats ../figures");
        let script = "$RUN dd if=/dev/zero of=a bs=1M count=192 status=none";
        let left = bed.runs(&run, "observed", script);
        assert_eq!((left.code, left.stderr.as_str()), (Some(0), ""));
        let figures = std::fs::read_to_string(bed.file("figures")).unwrap();
        assert_eq!(bed.cached("observed"), [], "{filesystem:?}: {figures}");
        assert!(figures.contains(r#""settled":true"#), "{figures}");
    }
}

#[test]
fn cp() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["cp"]));
        let bed = Bed::on(filesystem);
        bed.input(DATA);
        bed.both("$RUN cp --reflink=never ../input/data a");
        // Over what is there: truncated, and emptied first.
        bed.both("$RUN cp --reflink=never ../input/data a; $RUN sh -c 'echo more >>a; cat a >b'");
    }
}

/// Shared extents are another file's blocks, with pages of their own.
#[test]
fn cp_that_shares_blocks() {
    need!(all Bed::needs(Fs::Btrfs, &["cp"]));
    let bed = Bed::on(Fs::Btrfs);
    bed.input(DATA)
        .both("$RUN sh -c 'cp --reflink=always ../input/data a && dd if=a of=b bs=1M conv=notrunc status=none'");
}

#[test]
fn rsync() {
    need!(all Bed::needs(Fs::Ext4, &["rsync"]));
    let bed = Bed::on(Fs::Ext4);
    let tree = "mkdir -p tree/d; head -c 30000000 /dev/urandom >tree/d/large; \
                for i in 1 2 3 4 5; do head -c 3000000 /dev/urandom >tree/$i; done; \
                ln -s d/large tree/link; touch tree/empty; \
                touch -h -d 2020-02-02 tree/* tree/d/* tree/d tree";
    bed.input(tree);
    let left = bed.both_leave("$RUN rsync -a -i ../input/tree/ copy; echo $?");
    assert!(left.stdout.ends_with("\n0\n"), "{left:?}");
    // Now parts of the files are another's: by delta, in place, by checksum.
    bed.input("dd if=/dev/zero of=tree/d/large bs=1M seek=7 count=2 conv=notrunc; echo x >>tree/3");
    let script = "$RUN rsync -a -i --no-whole-file ../input/tree/ copy; echo $?; \
                  $RUN sh -c 'echo y >>$0' copy/1; \
                  $RUN rsync -a -i -c --inplace ../input/tree/ copy; echo $?";
    // Of each of the copies, a window may be read ahead.
    bed.both_leave_up_to(4096, script);
    bed.are_alike("input/tree", "observed/copy");
}
