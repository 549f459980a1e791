//! Archivers, compressors, and pipelines of them.

use crate::bed::Bed;
use dropbehind_testbed::{Fs, need};

const TREE: &str = "mkdir -p tree/d; head -c 30000000 /dev/urandom >tree/d/large; \
                    for i in $(seq 60); do head -c $((i * 7919)) /dev/urandom >tree/$i; done; \
                    ln -s d/large tree/link; ln tree/7 tree/hard; touch tree/empty; chmod 600 tree/9";

/// Compresses to about a quarter.
const TEXT: &str = "seq 1000000 8000000 >text";

#[test]
fn tar() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["tar"]));
        let bed = Bed::on(filesystem);
        bed.input(TREE).both_leave(
            "$RUN tar -C ../input -cf archive tree; echo $?; \
             mkdir out; $RUN tar -C out -xpvf archive; echo $?; $RUN tar -tf archive",
        );
        bed.are_alike("input/tree", "observed/out/tree");
    }
}

#[test]
fn zstd() {
    need!(all Bed::needs(Fs::Xfs, &["zstd"]));
    let bed = Bed::on(Fs::Xfs);
    let left = bed.input(TEXT).both(
        "$RUN zstd -q -T2 ../input/text -o a.zst; echo $?; $RUN zstd -q -d a.zst -o a; echo $?; \
         $RUN zstd -q -d --rm a.zst -o b; echo $?; $RUN zstd -q -t ../input/text; echo $?",
    );
    assert!(left.stdout.starts_with("0\n0\n0\n1\n"), "{left:?}");
}

#[test]
fn a_pipeline_of_gzip() {
    need!(all Bed::needs(Fs::Btrfs, &["gzip"]));
    let bed = Bed::on(Fs::Btrfs);
    // All of it observed, and only one of its programs.
    bed.input(TEXT);
    let script = "$RUN bash -c 'set -o pipefail; gzip -1n <../input/text | tee a.gz | gzip -d >a'; echo $?; \
         seq 5000000 | $RUN gzip -1n >b.gz; echo ${PIPESTATUS[*]}; \
         $RUN gzip -k ../input/text -c | cksum";
    bed.both_leave(script);
    // A shell's redirection names no argument to look at ahead: what is read by
    // the time of the first look stays, a window of readahead at most.
    let window_pages = 4096;
    let stayed: u64 = bed.cached("input").iter().map(|(_, pages)| pages).sum();
    assert!(stayed <= window_pages, "{stayed}");
}
