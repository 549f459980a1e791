//! Where the kernel does not report which process brings in which page, one rule holds: what was
//! resident when a file was opened stays, the rest goes.

use crate::bed::Bed;
use crate::kept::still_cached;
use crate::shell::RUN;
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::{evict, resident_map, warm};
use dropbehind_testbed::{Fs, need};
use std::fs::File;

const MIB: u64 = 1 << 20;
/// As on a kernel without the tracepoint.
const UNTRACED: &str = "env DROPBEHIND_NO_TRACE=1";

#[test]
fn what_was_resident_at_the_open_stays_and_the_rest_goes() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["cat", "dd", "tar"]));
        let bed = Bed::on(filesystem);
        bed.input(
            "head -c 64M /dev/urandom >data; mkdir tree; cd tree; for name in $(seq 200); \
                   do head -c 20000 /dev/urandom >$name; done",
        );
        let data = bed.file("input/data");
        in_some_attempt(|reclaim| {
            bed.cools("input");
            warm(&data, 0..32 * MIB);
            // Held open by somebody, which is no reason to keep it.
            let _held = File::open(&data).unwrap();
            let script = "$RUN sh -c 'cat ../input/data >copy; \
                          tar cf - -C ../input/tree . | tar xf -'";
            let left = bed.runs(&format!("{UNTRACED} {RUN}"), "observed", script);
            assert_eq!((left.code, left.stderr.as_str()), (Some(0), ""));
            let rest = resident_map(&data).unwrap();
            // The kernel reads ahead of who warmed it.
            let rest = rest[(48 * MIB / 4096) as usize..]
                .iter()
                .filter(|&&page| page);
            assert_eq!(rest.count(), 0, "{filesystem:?}");
            // An archive that is read again in the moment it was written may keep some.
            let left = bed.cached("observed");
            let pages: u64 = left.iter().map(|(_, pages)| pages).sum();
            assert!(pages <= 64, "{left:?}");
            still_cached(reclaim, &data, 32 * MIB)
        });
        evict(&data);
    }
}

/// A file is not new to its reader because it is younger than the run.
#[test]
fn what_others_made_during_the_run_stays() {
    need!(all Bed::needs(Fs::Ext4, &["cat", "head", "sync"]));
    let bed = Bed::on(Fs::Ext4);
    let script = "$RUN sh -c ': >begun; until [ -e go ]; do sleep 0.1; done; cat made >/dev/null' & \
                  until [ -e begun ]; do sleep 0.1; done; \
                  head -c 16M /dev/urandom >made; sync made; sleep 3; : >go; wait $!";
    in_some_attempt(|reclaim| {
        let left = bed.runs(&format!("{UNTRACED} {RUN}"), "observed", script);
        assert_eq!((left.code, left.stderr.as_str()), (Some(0), ""));
        still_cached(reclaim, &bed.file("observed/made"), 16 * MIB)
    });
}

/// Nothing reports forks then. A file that none of the programs has open counts as closed.
#[test]
fn files_of_children_that_pause_are_dropped_while_they_are_open() {
    need!(all Bed::needs(Fs::Ext4, &["dd", "fincore"]));
    let bed = Bed::on(Fs::Ext4);
    let write = "dd if=/dev/zero bs=1M count=32 status=none >&3; sleep 3; \
                 fincore -bno RES data | xargs";
    let child = format!("exec 3>data; {write}; {write}; {write}");
    let script = format!("$RUN sh -c 'bash -c \"{child}\"; true'");
    let left = bed.runs(&format!("{UNTRACED} {RUN}"), "observed", &script);
    assert_eq!(left.code, Some(0), "{left:?}");
    let cached = left
        .stdout
        .lines()
        .map(|bytes| bytes.parse().unwrap_or(u64::MAX));
    let cached: Vec<u64> = cached.collect();
    let few = |bytes: &u64| *bytes <= MIB;
    assert!(cached.len() == 3 && cached.iter().all(few), "{left:?}");
}

#[test]
fn the_summary_says_so() {
    need!(all Bed::needs(Fs::Ext4, &["dd"]));
    let bed = Bed::on(Fs::Ext4);
    let script = "$RUN dd if=/dev/zero of=data bs=1M count=8 status=none";
    for (environment, said) in [(UNTRACED, true), ("", false)] {
        let left = bed.runs(&format!("{environment} {RUN} -v"), "observed", script);
        assert_eq!(left.code, Some(0), "{left:?}");
        let told = left
            .stderr
            .contains("the rest is dropped, except what came before we looked at the file");
        assert_eq!(told, said, "{left:?}");
        // All is done soon, and nothing that others have mapped is waited for.
        assert!(!left.stderr.contains("left to the kernel"), "{left:?}");
    }
}
