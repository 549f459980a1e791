//! Who a program is, and which file a file is.

use crate::bed::Bed;
use crate::figures::Figures;
use crate::kept::still_cached;
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::{cached, evict, page_bytes, warm};
use dropbehind_testbed::{Fs, need};
use std::os::unix::fs::MetadataExt;

const BYTES: u64 = 32 << 20;

/// Inode numbers begin anew in each subvolume, and the kernel's trace does not tell
/// which it was.
#[test]
fn files_of_two_subvolumes_with_the_same_number() {
    need!(all Bed::needs(Fs::Btrfs, &["btrfs", "cat"]));
    let bed = Bed::on(Fs::Btrfs);
    bed.input(&format!(
        "for name in one two; do btrfs -q subvolume create $name; \
         head -c {BYTES} /dev/urandom >$name/data; done"
    ));
    let [one, two] = ["one", "two"].map(|name| bed.file("input").join(name).join("data"));
    let number = |path| std::fs::metadata(path).unwrap().ino();
    assert_eq!(number(&one), number(&two));
    for (hot, cold) in [(&one, &two), (&two, &one)] {
        in_some_attempt(|reclaim| {
            for program in [
                "cat COLD",
                "cat COLD HOT",
                "cat HOT COLD",
                "cat HOT COLD HOT COLD",
            ] {
                evict(cold);
                evict(hot);
                warm(hot, 0..BYTES);
                let program = program.replace("COLD", &cold.display().to_string());
                let program = program.replace("HOT", &hot.display().to_string());
                let script = format!("exec $RUN {program} >/dev/null");
                let figures = Figures::of(&bed, "--only 'input/**'", "observed", &script);
                let stays = cached(cold).unwrap().cached_pages;
                still_cached(reclaim, hot, BYTES)?;
                // Where it uses both in the same moment, they cannot always be told apart,
                // and pages stay.
                let uses_both = program.contains(&hot.display().to_string());
                assert!(stays == 0 || uses_both, "{stays}: {program}: {figures:?}");
            }
            Ok(())
        });
    }
}

/// To look at all of them for each record of the trace would take too long.
#[test]
fn pages_of_one_among_many_files_with_the_same_number_stay() {
    need!(all Bed::needs(Fs::Btrfs, &["btrfs", "bash", "cat"]));
    let bed = Bed::on(Fs::Btrfs);
    bed.input(&format!(
        "for name in $(seq 9); do btrfs -q subvolume create $name; \
         head -c {BYTES} /dev/urandom >$name/data; done"
    ));
    let file = |name: usize| bed.file("input").join(name.to_string()).join("data");
    for (names, stays) in [(1..=8, 0), (1..=9, BYTES)] {
        let last = file(*names.end());
        names.clone().for_each(|name| evict(&file(name)));
        let opens = names.map(|name| format!("exec 3<{} {{fd}}<&3;", file(name).display()));
        let opens: String = opens.collect();
        // What is cached at an open is looked at a moment later.
        let script = format!("exec $RUN bash -c '{opens} sleep 0.3; cat <&3 >/dev/null'");
        let figures = Figures::of(&bed, "--only 'input/**'", "observed", &script);
        let cached_bytes = cached(&last).unwrap().cached_pages * page_bytes();
        assert_eq!(cached_bytes, stays, "{figures:?}");
    }
}

/// What a run's programs may do changes on their way, and they are its programs all
/// the same.
#[test]
fn programs_of_another_user() {
    for filesystem in [Fs::Ext4, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["cat", "setpriv", "su"]));
        let bed = Bed::on(filesystem);
        bed.input(&format!(
            "head -c {BYTES} /dev/urandom >data; cp data secret; chmod 600 secret; \
             cp $(command -v cat) ../cat; chmod 4755 ../cat"
        ));
        for (name, program) in [
            ("data", "su nobody -s /bin/sh -c \"exec cat <&3\" 3<data"),
            ("data", "su nobody -s /bin/sh -c \"exec cat data\""),
            // Only who becomes root can read this one.
            (
                "secret",
                "setpriv --reuid 65534 --regid 65534 --clear-groups sh -c \"../cat secret\"",
            ),
        ] {
            let path = bed.file("input").join(name);
            // Its folders are root's own.
            bed.runs("", "input", "chmod 755 . .. ../..");
            evict(&path);
            let script = format!("exec $RUN {program} >/dev/null");
            let figures = Figures::of(&bed, "--only 'input/*'", "input", &script);
            let stays = cached(&path).unwrap().cached_pages;
            assert_eq!(stays, 0, "{filesystem:?}, {program}: {figures:?}");
            assert_eq!(figures.bytes("bytes_read"), BYTES, "{program}: {figures:?}");
        }
    }
}
