//! `dropbehind watch` for a long time: what it takes does not grow.

mod user;

use dropbehind_testbed::{Need, need};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;
use user::User;
use user::running_watch::RunningWatch;

/// Files of one round, as many again that no rule wants.
const FILES: u32 = 2_000;
/// Rounds before its memory is looked at for the first time: its tables and
/// threads have had their busiest moments by then.
const FIRST_ROUNDS: u32 = 4;
/// Rounds of the short tier. Between the looks at its memory 16,000 files come
/// and go, of which half are observed: 33 bytes more for each of all, or 66
/// for each observed, are noticed. An hour's rounds notice a byte.
const ROUNDS: u32 = 8;
const HOUR_ROUNDS: u32 = 180;
/// Memory that it may have taken more at the end: some 40 KiB were seen, and on a
/// busy machine, where events gather, 190.
const MORE_KIB: u64 = 512;
/// Files that it may hold open at once: those of a round, which begins once none of the last
/// one's is held. How many of them wait depends on the disk.
const MOST_DESCRIPTORS: usize = 2 * FILES as usize + 256;

/// What a watch takes.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// Anonymous memory, which is heap and stacks, also where it was swapped out;
    /// pages of the program's file come and go.
    anonymous_kib: u64,
    descriptors: usize,
}

fn taken(watch: &RunningWatch) -> Taken {
    let process = watch.child.id();
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let kib = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.unwrap().trim().trim_end_matches(" kB");
        kib.parse().unwrap()
    };
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    Taken {
        anonymous_kib: kib("RssAnon:") + kib("VmSwap:"),
        descriptors: descriptors.count(),
    }
}

/// What it takes once it holds no file any more.
fn taken_at_rest(watch: &RunningWatch, most_descriptors: usize) -> Taken {
    // Small files wait for their grace, deleted or not.
    for _ in 0..12_000 {
        let taken = taken(watch);
        if taken.descriptors <= most_descriptors {
            return taken;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it holds on to files: {:?}\n{}", taken(watch), watch.log());
}

/// Programs at work in a folder: files that are new, renamed, deleted, read
/// again, written over, and a log that grows.
fn work(folder: &Path, files: u32) {
    let (page, piece) = ([1; 4096], vec![2; 1 << 20]);
    let mut log = OpenOptions::new();
    log.append(true).create(true);
    for number in 0..files {
        let mut path = folder.join(number.to_string());
        File::create(&path).unwrap().write_all(&page).unwrap();
        if number % 3 == 0 {
            let renamed = path.with_extension("renamed");
            fs::rename(&path, &renamed).unwrap();
            path = renamed;
        }
        if number % 7 == 0 {
            let mut log = log.open(folder.join("log")).unwrap();
            log.write_all(&page).unwrap();
        }
        if number % 11 == 0 {
            let mut text = Vec::new();
            File::open(&path).unwrap().read_to_end(&mut text).unwrap();
        }
        if number % 500 == 0 {
            let mut large = File::create(folder.join("large")).unwrap();
            (0..8).for_each(|_| large.write_all(&piece).unwrap());
        }
        if number % 2 == 0 {
            fs::remove_file(&path).unwrap();
        }
    }
}

/// Deletes what the work left, but for the log and the large file.
fn tidy(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.metadata().unwrap().len() == 4096 {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}

fn takes_no_more_after(rounds: u32) {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let home = fs::canonicalize(user.file("")).unwrap();
    let (wanted, other) = (home.join("wanted"), home.join("other"));
    for folder in [&wanted, &other] {
        fs::create_dir(folder).unwrap();
    }
    let rule = format!(
        "[[rule]]\npath = {:?}\nmode = \"dontcache\"\n",
        wanted.join("**")
    );
    fs::write(home.join("rules"), rule).unwrap();
    let mut command = user.watch("--config rules");
    // What is freed is used again, whichever thread comes next, and goes back to
    // the kernel: what is taken is what is in use.
    command
        .env("MALLOC_ARENA_MAX", "1")
        .env("MALLOC_TRIM_THRESHOLD_", "65536");
    let mut watch = RunningWatch::start(&user, &mut command);
    watch.says("READY=1");
    let idle = taken(&watch);
    // Files that are still young, and the log.
    let most_descriptors = idle.descriptors + 8;
    let round = || {
        taken_at_rest(&watch, most_descriptors);
        for folder in [&wanted, &other] {
            work(folder, FILES);
        }
        let taken = taken(&watch);
        assert!(taken.descriptors <= MOST_DESCRIPTORS, "{taken:?}");
        for folder in [&wanted, &other] {
            tidy(folder);
        }
    };
    for _ in 0..FIRST_ROUNDS {
        round();
    }
    let first = taken_at_rest(&watch, most_descriptors);
    for _ in FIRST_ROUNDS..rounds {
        round();
    }
    let last = taken_at_rest(&watch, most_descriptors);
    println!("idle {idle:?}, after {FIRST_ROUNDS} rounds {first:?}, after {rounds} {last:?}");
    assert!(
        last.anonymous_kib <= first.anonymous_kib + MORE_KIB,
        "{last:?} after {rounds} rounds, {first:?} after {FIRST_ROUNDS}\n{}",
        watch.log()
    );
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

#[test]
fn minutes_of_events_leave_no_trace() {
    takes_no_more_after(ROUNDS);
}

#[test]
#[ignore = "an hour's events take minutes: cargo test --release --test watch_soak -- --ignored"]
fn an_hour_of_events_leaves_no_trace() {
    takes_no_more_after(HOUR_ROUNDS);
}
