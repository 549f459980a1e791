//! Thousands of small files, read cold and written.

use crate::bed::Bed;
use crate::figures::Figures;
use crate::rounds::rounds;
use crate::small_files::TREE;
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::page_bytes;
use dropbehind_testbed::{Fs, need};
use std::collections::HashMap;

/// None is looked at too late: nothing stays of any.
#[test]
fn trees_that_are_archived_and_unpacked() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["tar"]));
        let bed = Bed::on(filesystem);
        bed.input(TREE);
        for round in 0..rounds() {
            bed.runs("", ".", "rm -rf observed out");
            bed.cools("input");
            let archived = "exec $RUN tar -C ../input -cf archive tree";
            let options = "--only 'input/**' --only 'observed/**' --only 'out/**'";
            let figures = Figures::of(&bed, options, "observed", archived);
            let of = format!("{filesystem:?}, round {round}: {figures:?}");
            assert_eq!(bed.cached("input"), [], "{of}");
            assert_eq!(bed.cached("observed"), [], "{of}");
            let unpacked = "exec $RUN tar -xf ../observed/archive";
            let figures = Figures::of(&bed, options, "out", unpacked);
            let of = format!("{filesystem:?}, round {round}: {figures:?}");
            assert_eq!(bed.cached("out"), [], "{of}");
            assert_eq!(bed.cached("observed"), [], "{of}");
            bed.are_alike("input/tree", "out/tree");
        }
    }
}

/// The other way about: a tree that is in the cache already.
#[test]
fn a_tree_that_was_cached_before() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["tar"]));
        let bed = Bed::on(filesystem);
        bed.input(TREE);
        // The rest of it went to the disk.
        bed.runs("", "input", "sync -f .");
        in_some_attempt(|reclaim| {
            bed.runs("", "input", "cat $(find -type f) >/dev/null");
            let before = bed.cached("input");
            // A pipe, since tar reads nothing for /dev/null.
            let script = "exec $RUN sh -c 'tar -cf - ../input/tree | cat >/dev/null'";
            let figures = Figures::of(&bed, "--only 'input/**'", "observed", script);
            let after: HashMap<_, _> = bed.cached("input").into_iter().collect();
            for (name, pages) in &before {
                let found = after.get(name).copied().unwrap_or(0);
                let path = bed.file("input").join(name);
                reclaim.stays(&path, found * page_bytes(), pages * page_bytes())?;
            }
            let kept: u64 = before.iter().map(|(_, pages)| pages * page_bytes()).sum();
            let told = figures.bytes("kept_bytes");
            (told >= kept && figures.bytes("dropped_bytes") == 0)
                .then_some(())
                .ok_or_else(|| format!("{kept} bytes were kept: {figures:?}"))
        });
    }
}
