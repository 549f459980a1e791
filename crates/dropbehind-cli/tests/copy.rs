//! `dropbehind cp`, from a user's chair.

mod user;

use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::{Fs, MountedFs, Need, need, pattern, residency};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use user::{User, holds};

const MODES: [&str; 7] = [
    "buffered",
    "dontcache",
    "noreuse",
    "write-behind",
    "write-behind-any",
    "write-through",
    "behind+drop",
];

#[test]
fn every_mode_copies_every_byte() {
    let user = User::new();
    for size in [0, 1, 4095, 4096, 4097, 65_536, (1 << 20) + 1, 5_000_000] {
        user.has("from", size);
        for mode in MODES {
            user.does(&format!("cp --mode {mode} from to"));
            holds(&user.file("to"), size);
        }
        std::fs::remove_file(user.file("to")).unwrap();
        user.does("cp from to");
        holds(&user.file("to"), size);
    }
}

#[test]
fn every_option_value_copies_every_byte() {
    let user = User::new();
    user.has("from", 3_000_001);
    for options in [
        "--block-size 512",
        "--block-size 4097",
        "--block-size 64MiB",
        "--window 64KiB",
        "--window 1MiB --request 4KiB",
        "--strategy emulated",
        "--strategy native",
        "--io-priority idle",
        "--io-priority best-effort:7",
        "--no-sync",
        "--sparse never",
        "--quiet",
    ] {
        user.does(&format!("cp {options} from to"));
        holds(&user.file("to"), 3_000_001);
    }
}

#[test]
fn nothing_of_a_copy_stays_in_the_page_cache() {
    need!(Need::Cachestat, Need::Tool("fincore"));
    let user = User::new();
    let from = user.has("from", 80 << 20);
    for mode in ["dontcache", "noreuse"] {
        residency::evict(&from);
        user.does(&format!("cp --mode {mode} from to"));
        assert_eq!(residency::fincore(&from).unwrap(), 0, "{mode}");
        assert_eq!(residency::fincore(&user.file("to")).unwrap(), 0, "{mode}");
        let left = residency::cached(&user.file("to")).unwrap();
        assert_eq!(left.cached_pages, 0, "{mode}");
    }
    holds(&user.file("to"), 80 << 20);
    user.does("cp --mode buffered from to");
    assert!(residency::fincore(&user.file("to")).unwrap() > 0);
}

#[test]
fn nothing_stays_on_other_file_systems_either() {
    need!(Need::Cachestat);
    let user = User::new();
    let from = user.has("from", 30_000_001);
    for filesystem in [Fs::Xfs, Fs::Btrfs, Fs::Ext4NoJournal] {
        need!(all MountedFs::needs(filesystem));
        let disk = MountedFs::new(filesystem, 512 << 20).unwrap();
        let to = disk.file("to");
        // A new file, and then over it.
        for _ in 0..2 {
            user.does(&format!("cp {} {}", from.display(), to.display()));
            holds(&to, 30_000_001);
            residency::evict(&to);
            user.does(&format!("cp {} {}", from.display(), to.display()));
            assert_eq!(residency::fincore(&to).unwrap(), 0, "{filesystem:?}");
        }
        user.does(&format!(
            "cp {} {}",
            to.display(),
            user.file("back").display()
        ));
        assert_eq!(residency::fincore(&to).unwrap(), 0, "{filesystem:?}");
        holds(&user.file("back"), 30_000_001);
    }
}

#[test]
fn what_was_cached_before_stays() {
    need!(Need::Cachestat);
    let user = User::new();
    let from = user.has("from", 16 << 20);
    in_some_attempt(|reclaim| {
        residency::evict(&from);
        residency::warm(&from, 0..8 << 20);
        let before = residency::resident_map(&from).unwrap();
        user.does("cp from to");
        let after = residency::resident_map(&from).unwrap();
        assert_eq!(residency::cached(&user.file("to")).unwrap().cached_pages, 0);
        let mut pages = before.iter().zip(&after);
        assert!(pages.all(|(had, has)| had >= has), "more than before");
        let bytes = |map: &[bool]| {
            let pages = map.iter().filter(|&&resident| resident).count();
            pages as u64 * residency::page_bytes()
        };
        reclaim.stays(&from, bytes(&after), bytes(&before))
    });
}

#[test]
fn the_copy_is_as_readable_as_plain_cp_makes_it() {
    let user = User::new();
    let from = user.has("from", 10);
    for mode in [0o644, 0o600, 0o777, 0o444] {
        std::fs::set_permissions(&from, PermissionsExt::from_mode(mode)).unwrap();
        user.sh("rm -f plain ours; umask 027; cp from plain; dropbehind cp from ours");
        let of = |name| user.file(name).metadata().unwrap().mode();
        assert_eq!(of("ours"), of("plain"), "{mode:o}");
    }
}

#[test]
fn preserve_keeps_owner_permissions_and_times() {
    need!(Need::Root);
    let user = User::new();
    user.has("from", 10);
    user.sh("chown 1:2 from; chmod 4711 from; touch -d 2001-02-03T04:05:06.789 from");
    user.does("cp -p from to");
    let (from, to) = (
        user.file("from").metadata().unwrap(),
        user.file("to").metadata().unwrap(),
    );
    assert_eq!((to.uid(), to.gid(), to.mode()), (1, 2, from.mode()));
    assert_eq!(
        (to.mtime(), to.mtime_nsec()),
        (from.mtime(), from.mtime_nsec())
    );
    // Without it, not even root copies a set-user-ID bit.
    user.does("cp from plain");
    assert_eq!(user.file("plain").metadata().unwrap().mode() & 0o7000, 0);
}

#[test]
fn holes_stay_holes_unless_told_otherwise() {
    let user = User::new();
    let from = user.file("from");
    let file = std::fs::File::create(&from).unwrap();
    file.set_len(64 << 20).unwrap();
    for megabyte in [0, 20, 63] {
        let data = pattern::filled(3, 0, 1 << 20);
        std::os::unix::fs::FileExt::write_all_at(&file, &data, megabyte << 20).unwrap();
    }
    file.sync_all().unwrap();
    // A hole at the end, too.
    file.set_len(70 << 20).unwrap();
    user.does("cp from auto");
    user.does("cp --sparse never from full");
    let original = std::fs::read(&from).unwrap();
    assert!(std::fs::read(user.file("auto")).unwrap() == original);
    assert!(std::fs::read(user.file("full")).unwrap() == original);
    let used = |name| user.file(name).metadata().unwrap().blocks() * 512;
    assert!(used("auto") <= 4 << 20, "{}", used("auto"));
    assert!(used("full") >= 70 << 20, "{}", used("full"));
    // All hole.
    user.sh("truncate -s 1G nothing");
    user.does("cp nothing copy");
    assert_eq!(user.file("copy").metadata().unwrap().len(), 1 << 30);
    assert_eq!(used("copy"), 0);
}

#[test]
fn several_files_go_into_a_directory() {
    let user = User::new();
    user.has("a", 5000);
    user.has("b", 0);
    std::fs::create_dir(user.file("d")).unwrap();
    user.does("cp a b d");
    holds(&user.file("d/a"), 5000);
    holds(&user.file("d/b"), 0);
    user.does("cp a d/");
    user.runs("cp a b c")
        .fails(1, "c: it is no directory. Create it first");
    assert!(!user.file("c").exists());
}

#[test]
fn one_missing_source_does_not_stop_the_others() {
    let user = User::new();
    user.has("a", 5000);
    std::fs::create_dir(user.file("d")).unwrap();
    user.runs("cp missing a d")
        .fails(1, "cannot open missing: No such file");
    holds(&user.file("d/a"), 5000);
}

#[test]
fn a_file_is_not_copied_onto_itself() {
    let user = User::new();
    user.has("a", 5000);
    std::fs::hard_link(user.file("a"), user.file("hard")).unwrap();
    symlink("a", user.file("soft")).unwrap();
    for line in [
        "cp a a",
        "cp a ./a",
        "cp a hard",
        "cp soft a",
        "cp -f a hard",
        "cp a .",
    ] {
        user.runs(line).fails(1, "are the same file");
        holds(&user.file("a"), 5000);
    }
}

#[test]
fn two_sources_of_one_name_do_not_overwrite_each_other() {
    let user = User::new();
    user.sh("mkdir x y d; echo 1 > x/a; echo 2 > y/a");
    user.runs("cp x/a y/a d")
        .fails(1, "copy of another source just made");
    assert_eq!(std::fs::read(user.file("d/a")).unwrap(), b"1\n");
}

#[test]
fn a_dangling_link_is_not_written_through() {
    let user = User::new();
    user.has("a", 10);
    symlink("nowhere", user.file("link")).unwrap();
    user.runs("cp a link")
        .fails(1, "symbolic link to a file that is not there");
    assert!(!user.file("nowhere").exists());
}

#[test]
fn verbose_says_what_is_copied() {
    let user = User::new();
    user.has("a", 10);
    assert_eq!(user.does("cp -v a b").text(), "'a' -> 'b'\n");
}
