//! Files that were there before, written here and there.

use crate::bed::Bed;
use crate::shell::RUN;
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::{cached_range, page_bytes};
use dropbehind_testbed::{Fs, need};

const MIB: u64 = 1 << 20;
const FILE_MIB: u64 = 128;

/// Writes all of a file over in random order, faster than anybody could look, and
/// syncs it: most pages are clean before they were seen dirty.
const WRITER: &str = "\
import os, random, sys
file = os.open(sys.argv[1], os.O_RDWR)
places = list(range(0, os.fstat(file).st_size, 65536))
random.shuffle(places)
block = os.urandom(65536)
for place in places: os.pwrite(file, block, place)
os.fsync(file)
";

/// Reads the first 16 MiB of a file, and writes over another one of its MiB.
const READER: &str = "\
import os, sys, time
file = os.open(sys.argv[1], os.O_RDWR)
os.pwrite(file, bytes(1 << 20), 64 << 20)
time.sleep(0.3)
for place in range(0, 16 << 20, 1 << 20): os.pread(file, 1 << 20, place)
os.fsync(file)
time.sleep(0.3)
";

fn bed_with_file(filesystem: Fs) -> Bed {
    let bed = Bed::on(filesystem);
    bed.input(&format!("head -c {FILE_MIB}M /dev/zero >data"));
    bed.cools("input");
    bed
}

fn runs(bed: &Bed, options: &str, program: &str) -> serde_json::Value {
    std::fs::write(bed.file("program.py"), program).unwrap();
    let script =
        format!("exec $RUN --stats ../figures {options} python3 ../program.py ../input/data");
    let left = bed.runs(RUN, "observed", &script);
    assert_eq!((left.code, left.stderr.as_str()), (Some(0), ""));
    let figures = std::fs::read_to_string(bed.file("figures")).unwrap();
    serde_json::from_str(&figures).unwrap()
}

#[test]
fn all_that_was_written_is_dropped() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["python3"]));
        let bed = bed_with_file(filesystem);
        for options in ["", "--no-reads"] {
            let figures = runs(&bed, options, WRITER);
            let told = format!("{filesystem:?} {options}: {figures}");
            assert_eq!(bed.cached("input"), [], "{told}");
            let moved = |name: &str| figures[name].as_u64().unwrap();
            let moved_mib = (moved("bytes_written") + moved("bytes_read")) / MIB;
            // Found in pieces of 128 KiB, some of them twice; and Python itself.
            let found_once = FILE_MIB * 9 / 10..FILE_MIB * 2;
            assert!(found_once.contains(&moved_mib), "{moved_mib} MiB, {told}");
        }
    }
}

#[test]
fn what_was_read_stays_where_reads_are_left_alone() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["python3"]));
        let bed = bed_with_file(filesystem);
        let data = bed.file("input").join("data");
        in_some_attempt(|reclaim| {
            bed.cools("input");
            runs(&bed, "--no-reads", READER);
            let read = cached_range(&data, 0..16 * MIB).unwrap().cached_pages * page_bytes();
            reclaim.stays(&data, read, 16 * MIB)
        });
    }
}
