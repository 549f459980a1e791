//! `dropbehind stat`, `drop` and `probe`, from a user's chair.

mod user;

use dropbehind_testbed::{Need, need, residency};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use user::{User, finish};

const BYTES: usize = 32 << 20;

#[test]
fn stat_agrees_with_fincore() {
    need!(Need::Cachestat, Need::Tool("fincore"));
    let user = User::new();
    let (a, b) = (user.has("a", 10 << 20), user.has("b", 5000));
    std::fs::File::open(&a).unwrap().sync_all().unwrap();
    residency::evict(&a);
    residency::warm(&a, 0..4 << 20);
    let said = user.does("stat --json a b");
    let found: serde_json::Value = serde_json::from_str(&said.text()).unwrap();
    for (state, path) in found.as_array().unwrap().iter().zip([&a, &b]) {
        let cached = residency::fincore(path).unwrap() * residency::page_bytes();
        assert_eq!(state["cached_bytes"], cached, "{path:?}");
        assert_eq!(state["size_bytes"], path.metadata().unwrap().len());
    }
    assert_eq!(found[0]["cached_percent"], 40.0);
    assert_eq!(found[0]["dirty_bytes"], 0);
    assert_eq!(
        found[0]["extents"],
        dropbehind_testbed::extents::extents(&a).unwrap()
    );
}

#[test]
fn a_missing_proc_is_told() {
    need!(Need::Root);
    let user = User::new();
    user.has("a", 10);
    for command in ["stat a", "drop a", "drop -r .", "cp --verify a b"] {
        user.sh(&format!(
            "exec unshare --mount bash -c 'umount -l /proc && exec dropbehind {command}'"
        ))
        .fails(1, "mount -t proc proc /proc");
    }
}

#[test]
fn stat_prints_a_line_a_file() {
    need!(Need::Cachestat);
    let user = User::new();
    user.has("a", 10 << 20);
    user.has("empty", 0);
    let said = user.runs("stat a missing empty");
    said.fails(1, "cannot open missing");
    let text = said.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(
        lines[0].contains("CACHED") && lines[1].ends_with(" a"),
        "{text}"
    );
    assert!(
        lines[1].contains("10 MiB") && lines[1].contains("100%"),
        "{text}"
    );
    let column = lines[0].find("FILE").unwrap();
    assert!(
        lines.iter().all(|line| line.as_bytes()[column - 1] == b' '),
        "{text}"
    );
}

#[test]
fn what_is_on_no_disk_stays_and_that_is_told() {
    let on_tmpfs = std::path::PathBuf::from(format!("/dev/shm/dropbehind-{}", std::process::id()));
    if std::fs::write(&on_tmpfs, vec![1; 1 << 20]).is_err() {
        dropbehind_testbed::skip!("no tmpfs at /dev/shm");
    }
    let said = User::new().does(&format!("drop {}", on_tmpfs.display()));
    let kept = std::fs::read(&on_tmpfs).unwrap();
    std::fs::remove_file(&on_tmpfs).unwrap();
    assert_eq!(kept, vec![1; 1 << 20]);
    let text = said.text();
    assert!(
        text.contains("dropped 0 B; 1.0 MiB stayed: 1.0 MiB on tmpfs"),
        "{text}"
    );
}

#[test]
fn drop_drops_clean_pages_and_leaves_dirty_ones() {
    need!(Need::Cachestat);
    let user = User::new();
    let path = user.has("a", 16 << 20);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.sync_all().unwrap();
    residency::warm(&path, 0..16 << 20);
    file.write_all_at(&[1; 4096], 8 << 20).unwrap();
    let dirty = residency::cached(&path).unwrap().dirty_pages;
    assert!(dirty > 0);
    let said = user.does("drop a");
    let after = residency::cached(&path).unwrap();
    assert_eq!(
        (after.dirty_pages, after.writeback_pages),
        (dirty, 0),
        "nothing was written"
    );
    assert_eq!(after.cached_pages, dirty);
    assert!(said.text().starts_with("a: dropped 1"), "{}", said.text());
    assert!(
        said.text().contains("dirty (--sync writes them first)"),
        "{}",
        said.text()
    );
    let said = user.does("drop --sync a");
    assert!(!said.text().contains("stayed"), "{}", said.text());
    assert_eq!(residency::cached(&path).unwrap().cached_pages, 0);
    assert_eq!(user.does("drop a").text(), "a: dropped 0 B\n");
}

#[test]
fn drop_says_why_mapped_pages_stay() {
    need!(Need::Cachestat, Need::Tool("python3"));
    let user = User::new();
    user.has("a", 1 << 20);
    let said = user.sh("sync a; python3 -c 'import mmap, os, subprocess
m = mmap.mmap(os.open(\"a\", os.O_RDONLY), 0, prot=mmap.PROT_READ)
sum(m[::4096])
subprocess.run([\"dropbehind\", \"drop\", \"a\"], check=True)'");
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(
        said.text().contains("1.0 MiB mapped or in use"),
        "{}",
        said.text()
    );
}

#[test]
fn drop_goes_on_after_a_file_that_is_not_there() {
    need!(Need::Cachestat);
    let user = User::new();
    let path = user.has("a", 1 << 20);
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    user.runs("drop missing a").fails(1, "cannot open missing");
    assert_eq!(residency::cached(&path).unwrap().cached_pages, 0);
    user.runs("drop .").fails(1, "it is a directory");
}

#[test]
fn probe_tells_what_works_and_what_would_be_used() {
    let user = User::new();
    let said = user.does("probe");
    for word in [
        "kernel",
        "file system",
        "disk",
        "cachestat",
        "RWF_DONTCACHE",
        "overwrite",
        "page cache trace",
    ] {
        assert!(said.text().contains(word), "{}", said.text());
    }
    let said = user.does("probe --json .");
    let found: serde_json::Value = serde_json::from_str(&said.text()).unwrap();
    assert!(found["works"].as_array().unwrap().len() > 8);
    for strategy in found["strategies"].as_array().unwrap() {
        assert!(["native", "emulated"].contains(&strategy["strategy"].as_str().unwrap()));
        assert!(!strategy["why"].as_str().unwrap().is_empty());
    }
    assert_eq!(
        std::fs::read_dir(user.file("")).unwrap().count(),
        0,
        "nothing is left behind"
    );
    let mut untraced = user.dropbehind(["probe"]);
    let said = finish(untraced.env("DROPBEHIND_NO_TRACE", "1"));
    let why = "no: DROPBEHIND_NO_TRACE is set";
    assert!(said.text().contains(why), "{}", said.text());
    user.runs("probe missing").fails(1, "Check the name");
    user.runs("probe /dev/null")
        .fails(1, "Name a directory, a file or a block device");
}

/// Whoever may rename a file can put a pipe in its place at any moment.
#[test]
fn a_pipe_in_a_files_place_is_not_waited_for() {
    need!(Need::Cachestat);
    let user = User::new();
    let file = user.has("a", 5000);
    user.sh("mkfifo p");
    let (pipe, ended) = (user.file("p"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                renameat_with(CWD, &file, CWD, &pipe, RenameFlags::EXCHANGE).unwrap();
            }
        });
        for command in ["stat", "drop"] {
            let mut child = user
                .dropbehind([command].into_iter().chain(["a"; 10_000]))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let since = Instant::now();
            while child.try_wait().unwrap().is_none() && since.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(10));
            }
            if child.try_wait().unwrap().is_none() {
                child.kill().unwrap();
                ended.store(true, Ordering::Relaxed);
                panic!("{command} waits");
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
}

/// Also where nobody waits for the disk, and where the kernel drops what is written natively.
#[test]
fn what_stays_cached_is_in_the_figures() {
    need!(Need::Cachestat);
    let user = User::new();
    user.has("a", BYTES);
    for line in [
        "cp --no-sync -m noreuse --reflink=never --stats s.json a b",
        "cp --no-sync --reflink=never --stats s.json a b",
        "write --seek 0 --strategy native --stats s.json b",
    ] {
        user.sh("cat a > b; dropbehind drop -q --sync b");
        let said = user.sh(&format!("dropbehind {line} < a"));
        assert_eq!(said.code, 0, "{line}: {}", said.stderr);
        let stats = std::fs::read(user.file("s.json")).unwrap();
        let stats: serde_json::Value = serde_json::from_slice(&stats).unwrap();
        let of = |name: &str| stats[name].as_u64().unwrap();
        let left = of("left_bytes");
        assert_eq!(
            of("brought_bytes"),
            of("dropped_bytes") + left,
            "{line}: {stats}"
        );
        let cached = residency::cached(&user.file("b")).unwrap().cached_pages;
        let cached_bytes = cached * residency::page_bytes();
        println!("{line}: {left} left, {cached_bytes} cached");
        // What is under writeback may be clean by now, and the kernel may take it.
        assert!(left >= cached_bytes, "{line}: {left}, not {cached_bytes}");
        std::fs::remove_file(user.file("b")).unwrap();
    }
}
