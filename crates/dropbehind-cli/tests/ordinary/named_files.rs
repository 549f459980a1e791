//! `stat` and `drop` of files of others, trees and lists.

use crate::bed::{Ordinary, is_root};
use dropbehind_testbed::residency::cached;
use dropbehind_testbed::{Need, need};
use std::os::unix::fs::PermissionsExt;

#[test]
fn files_of_others_are_dropped_though_nobody_may_count_them() {
    need!(Need::Root);
    need!(all Ordinary::needs(&["sync"]));
    assert!(is_root());
    let user = Ordinary::new();
    let file = user.file("roots");
    std::fs::write(&file, vec![1; 4 << 20]).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::File::open(&file).unwrap().sync_all().unwrap();
    assert_eq!(user.cached_pages("roots"), 1024);
    let left = user.runs("", "$DROPBEHIND stat roots; $DROPBEHIND stat --json roots");
    assert_eq!(left.code, Some(0), "{left:?}");
    assert!(left.stdout.contains("4.0 MiB"), "{left:?}");
    assert!(left.stdout.contains("\"cached_bytes\": null"), "{left:?}");
    assert!(left.stderr.contains("cannot be counted"), "{left:?}");
    let left = user.runs("", "$DROPBEHIND drop roots");
    assert_eq!(left.code, Some(0), "{left:?}");
    assert!(left.stdout.contains("dropped its clean pages"), "{left:?}");
    assert!(left.stderr.contains("cannot be counted"), "{left:?}");
    // A page that was just read may be on some processor's list still.
    let mut looks = 0;
    while user.cached_pages("roots") > 0 {
        looks += 1;
        assert!(looks < 100);
        user.runs("", "$DROPBEHIND drop roots");
    }
}

#[test]
fn files_of_others_are_synced_before_they_are_dropped() {
    need!(Need::Root);
    need!(all Ordinary::needs(&[]));
    let user = Ordinary::new();
    let file = user.file("roots");
    std::fs::write(&file, vec![1; 4 << 20]).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    assert!(cached(&file).unwrap().dirty_pages > 0);
    let left = user.runs("", "$DROPBEHIND drop --sync roots");
    assert_eq!(left.code, Some(0), "{left:?}");
    assert_eq!(cached(&file).unwrap().cached_pages, 0);
}

#[test]
fn trees_are_gone_through_and_links_are_not_followed() {
    need!(all Ordinary::needs(&["seq"]));
    let user = Ordinary::new();
    user.does(
        "mkdir -p tree/a/b outside; for f in tree/1 tree/a/2 tree/a/b/3 outside/4; do \
         head -c 40000 /dev/zero >$f; sync $f; done; ln -s ../outside tree/link; \
         ln -s ../outside/4 tree/file; mkfifo tree/pipe",
    );
    let said = user.does("$DROPBEHIND stat -r tree");
    assert_eq!(said.lines().count(), 4, "{said}");
    assert!(said.contains("tree/a/b/3"), "{said}");
    let said = user.does("$DROPBEHIND drop -r tree");
    assert!(said.contains("dropped 120 KiB of 3 files"), "{said}");
    for name in ["tree/1", "tree/a/2", "tree/a/b/3"] {
        assert_eq!(user.cached_pages(name), 0, "{name}");
    }
    assert_eq!(user.cached_pages("outside/4"), 10);
    let left = user.runs("", "$DROPBEHIND drop tree");
    assert_eq!(left.code, Some(1), "{left:?}");
    assert!(left.stderr.contains("-r"), "{left:?}");
}

#[test]
fn lists_may_hold_any_name() {
    need!(all Ordinary::needs(&["find"]));
    let user = Ordinary::new();
    user.does("mkdir d; for f in 'd/a b' $'d/c\\nd'; do head -c 8192 /dev/zero >\"$f\"; sync \"$f\"; done");
    user.does("find d -type f -print0 | $DROPBEHIND drop -q --files0-from -");
    for name in ["d/a b", "d/c\nd"] {
        assert_eq!(user.cached_pages(name), 0, "{name}");
    }
    user.does("find d -type f -print0 >list; sync list; test $($DROPBEHIND stat --json --files0-from list | grep -c path) = 2");
    let left = user.runs("", "$DROPBEHIND stat --files0-from list d/x");
    assert_eq!(left.code, Some(2), "{left:?}");
    let left = user.runs(
        "",
        "printf 'missing\\0list\\0' | $DROPBEHIND drop --files0-from -",
    );
    assert_eq!(left.code, Some(1), "{left:?}");
    assert!(left.stdout.contains("list: dropped"), "{left:?}");
}
