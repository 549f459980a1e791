//! Which files are observed.

use crate::files::{
    assert_dropped, assert_kept, cached_mib, cold, dd, until_dropped, writes_until_seen,
};
use crate::user::User;
use crate::user::running_watch::RunningWatch;
use dropbehind_testbed::{Need, Running, need, residency};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn files_are_looked_after_by_the_rules_in_force() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    for folder in ["wanted", "hot", "later"] {
        std::fs::create_dir(home.join(folder)).unwrap();
    }
    let rule = |path: &str, mode: &str| {
        format!(
            "[[rule]]\npath = {:?}\nmode = \"{mode}\"\n",
            home.join(path)
        )
    };
    let rules = rule("wanted/hot.*", "buffered") + &rule("wanted/**", "dontcache");
    user.writes("rules", &rules);
    let mut watch = RunningWatch::by_rules(&user);
    let (wanted, hot) = (home.join("wanted/a"), home.join("wanted/hot.a"));
    let (other, later) = (home.join("other"), home.join("later/a"));
    for path in [&wanted, &hot, &other, &later] {
        dd(path);
    }
    assert_kept(&other, &watch);

    // A broken file leaves the rules in force; a whole one replaces them.
    user.writes("rules", "broken");
    watch.signal("HUP");
    watch.says("READY=1");
    // So does one from which nothing comes, and one that is too large.
    for make in ["mkfifo rules", "head -c 2M /dev/zero >rules"] {
        assert_eq!(user.sh(&format!("rm rules && {make}")).code, 0);
        watch.signal("HUP");
        watch.says("READY=1");
    }
    assert_eq!(user.sh("rm rules").code, 0);
    for why in ["nothing comes", "more than 1 MiB"] {
        assert!(watch.log().contains(why), "{}", watch.log());
    }
    let still = home.join("wanted/b");
    dd(&still);
    user.writes("rules", &rule("later/**", "dontcache"));
    watch.signal("HUP");
    watch.says("READY=1");
    let no_more = home.join("wanted/c");
    std::fs::remove_file(&later).unwrap();
    dd(&later);
    dd(&no_more);
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    for path in [&wanted, &still, &later] {
        assert_dropped(path, &watch);
    }
    for path in [&hot, &other, &no_more] {
        assert_kept(path, &watch);
    }
}

#[test]
fn programs_are_looked_after_by_name() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    user.writes(
        "rules",
        "[[rule]]\nprogram = \"dropbehindtest\"\nmode = \"dontcache\"\n",
    );
    let copier = home.join("dropbehindtest");
    let dd_path = user.sh("command -v dd").text();
    std::fs::copy(dd_path.trim(), &copier).unwrap();
    let mut watch = RunningWatch::by_rules(&user);
    let (ours, others) = (home.join("ours"), home.join("others"));
    dd(&others);
    let mut copying = Command::new(&copier)
        .arg(format!("of={}", ours.display()))
        .args(["bs=1M", "iflag=fullblock", "status=none"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writes_until_seen(&mut copying, &ours, &watch);
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    assert_dropped(&ours, &watch);
    assert_kept(&others, &watch);
}

/// A `dd` of this name.
fn program(user: &User, name: &str) -> PathBuf {
    let path = std::fs::canonicalize(user.file("")).unwrap().join(name);
    std::fs::copy(user.sh("command -v dd").text().trim(), &path).unwrap();
    path
}

fn reads(program: &Path, path: &Path) {
    let from = format!("if={}", path.display());
    let read = Command::new(program)
        .args([&from, "of=/dev/null", "bs=64K", "status=none"])
        .status();
    assert!(read.unwrap().success());
}

/// Whoever opens a file by a path that no rule wants, as any user can who has a mount
/// namespace, takes it from no rule; nor does the name that it had while it was written.
#[test]
fn a_file_is_wanted_by_the_path_of_each_open() {
    need!(Need::Root, Need::Cachestat, Need::Tool("unshare"));
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    let wanted = home.join("wanted");
    for folder in [&wanted, &home.join("other")] {
        std::fs::create_dir(folder).unwrap();
    }
    let path = wanted.join("**");
    user.writes(
        "rules",
        &format!("[[rule]]\npath = {path:?}\nmode = \"dontcache\"\n"),
    );
    let mounted = cold(wanted.join("mounted"), 1 << 20);
    let mut watch = RunningWatch::by_rules(&user);
    let script = "mount --bind wanted other && head -c 1 other/mounted >/dev/null";
    let opened = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .current_dir(&home)
        .status();
    assert!(opened.unwrap().success());
    let renamed = wanted.join("renamed");
    std::fs::write(home.join("part"), vec![1; 1 << 20]).unwrap();
    dd(&wanted.join("first"));
    until_dropped(&wanted.join("first"), &watch, 0);
    std::fs::rename(home.join("part"), &renamed).unwrap();
    for path in [&mounted, &renamed] {
        residency::evict(path);
        reads(Path::new("dd"), path);
    }
    for path in [&mounted, &renamed] {
        until_dropped(path, &watch, 0);
    }
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

/// A program that has ended before the watch has read the event of its open.
#[test]
fn a_program_that_is_gone_is_known_by_its_name() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let rule = "[[rule]]\nprogram = \"dropbehindtest\"\nmode = \"dontcache\"\n";
    user.writes("rules", rule);
    let named = program(&user, "dropbehindtest");
    let home = std::fs::canonicalize(user.file("")).unwrap();
    let [ours, others] = ["ours", "others"].map(|name| cold(home.join(name), 32 << 20));
    let mut watch = RunningWatch::by_rules(&user);
    watch.signal("STOP");
    reads(&named, &ours);
    reads(Path::new("dd"), &others);
    watch.signal("CONT");
    until_dropped(&ours, &watch, 0);
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    assert_kept(&others, &watch);
}

/// A program that reads a file, and is there until the end: which program it is can be told
/// only for as long as it runs.
fn reader(program: &Path, path: &Path) -> Running {
    let from = format!("if={}", path.display());
    let mut command = Command::new(program);
    command.args([&from, "bs=1M", "status=none"]);
    let mut reader = Running::start(command.stdout(Stdio::piped()));
    let output = reader.stdout.as_mut().unwrap();
    output.read_exact(&mut vec![0; 31 << 20]).unwrap();
    reader
}

/// What each program brings in goes or stays as the rule for that program says, though
/// another one had the file open before.
#[test]
fn who_has_a_file_open_decides_nothing_for_others() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let rule = |name, mode| format!("[[rule]]\nprogram = \"{name}\"\nmode = \"{mode}\"\n");
    let rules = [
        rule("dbt-drops", "dontcache"),
        rule("dbt-writes", "dontcache") + "reads = false\n",
        rule("dbt-keeps", "write-behind"),
    ];
    user.writes("rules", &rules.concat());
    let names = ["dbt-drops", "dbt-writes", "dbt-keeps"];
    let [drops, writes, keeps] = names.map(|name| program(&user, name));
    let home = std::fs::canonicalize(user.file("")).unwrap();
    let file = |name| cold(home.join(name), 32 << 20);
    // Who holds it, who reads it, and whether that stays.
    let cases = [
        (&writes, &drops, false, file("a")),
        (&keeps, &drops, false, file("b")),
        (&drops, &writes, true, file("c")),
        (&drops, &keeps, true, file("d")),
    ];
    let markers = [file("marker"), file("another")];
    let mut watch = RunningWatch::by_rules(&user);
    let holders: Vec<Running> = cases
        .iter()
        .map(|(holder, .., path)| reader(holder, path))
        .collect();
    let marking = reader(&drops, &markers[0]);
    until_dropped(&markers[0], &watch, 8);
    for (.., path) in &cases {
        residency::evict(path);
    }
    let readers: Vec<Running> = cases
        .iter()
        .map(|(_, program, _, path)| reader(program, path))
        .collect();
    let marking_again = reader(&drops, &markers[1]);
    until_dropped(&markers[1], &watch, 8);
    for (.., stays, path) in &cases {
        if !stays {
            until_dropped(path, &watch, 8);
        }
    }
    drop((holders, readers, marking, marking_again));
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    for (holder, _, stays, path) in &cases {
        match stays {
            true => assert_kept(path, &watch),
            false => assert_eq!(cached_mib(path), 0, "held by {holder:?}\n{}", watch.log()),
        }
    }
}

/// Where reads stay, they do so whoever else writes to the file.
#[test]
fn no_others_writing_makes_go_what_was_only_read() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let rule = |name| format!("[[rule]]\nprogram = \"{name}\"\nmode = \"dontcache\"\n");
    let rules = rule("dbt-drops") + &rule("dbt-reads") + "reads = false\n";
    user.writes("rules", &rules);
    let [drops, reads] = ["dbt-drops", "dbt-reads"].map(|name| program(&user, name));
    let home = std::fs::canonicalize(user.file("")).unwrap();
    let small = cold(home.join("small"), 512 << 10);
    let marker = cold(home.join("marker"), 32 << 20);
    let mut watch = RunningWatch::by_rules(&user);
    let from = format!("if={}", small.display());
    let mut command = Command::new(&reads);
    command.args([&from, "bs=512K", "status=none"]);
    let mut short = Running::start(command.stdout(Stdio::piped()));
    let output = short.stdout.as_mut().unwrap();
    output.read_exact(&mut [0; 4096]).unwrap();
    drop(std::fs::File::options().append(true).open(&small).unwrap());
    drop(short);
    let marking = reader(&drops, &marker);
    until_dropped(&marker, &watch, 8);
    drop(marking);
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    let stays = residency::cached(&small).unwrap().cached_pages;
    assert!(stays > 64, "{stays} pages\n{}", watch.log());
}

/// A rule counts for each process by what it opens, and by which program it is.
#[test]
fn sizes_and_exceptions_decide_about_each_open() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    let conditions = "size = \">= 48MiB\"\nuser = \"root\"\nnot.program = \"dbt-spared\"\n";
    let rule = format!(
        "[[rule]]\npath = \"{}/\"\nmode = \"dontcache\"\n",
        home.display()
    );
    user.writes("rules", &(rule + conditions));
    let [reads, spares] = ["dbt-reads", "dbt-spared"].map(|name| program(&user, name));
    let file = |name, mib: usize| cold(home.join(name), mib << 20);
    let (large, grown, small, spared) = (
        file("large", 64),
        file("grown", 32),
        file("small", 32),
        file("spared", 64),
    );
    let mut watch = RunningWatch::by_rules(&user);
    let readers = [
        reader(&spares, &spared),
        reader(&reads, &small),
        reader(&reads, &grown),
        reader(&reads, &large),
    ];
    until_dropped(&large, &watch, 8);
    // The size counts at each open.
    std::fs::File::options()
        .append(true)
        .open(&grown)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    residency::evict(&grown);
    let again = reader(&reads, &grown);
    until_dropped(&grown, &watch, 8);
    drop((readers, again));
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    assert_kept(&small, &watch);
    assert_kept(&spared, &watch);
}

/// A database keeps its files open for months.
#[test]
fn changed_rules_hold_for_files_that_are_open() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    let rule = |path: &str| {
        let path = home.join(path);
        format!("[[rule]]\npath = {path:?}\nmode = \"dontcache\"\n")
    };
    user.writes("rules", &rule("held"));
    let mut watch = RunningWatch::by_rules(&user);
    // The shell writes by itself.
    let script = "exec 3>held; while read word; do printf %8388608s >&3; sync held; done";
    let mut shell = Command::new("bash")
        .args(["-c", script])
        .current_dir(&home)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = shell.stdin.take().unwrap();
    let held = home.join("held");
    let mut size_mib = 0;
    let mut write = || {
        input.write_all(b"more\n").unwrap();
        size_mib += 8;
        while std::fs::metadata(&held).map_or(0, |found| found.len()) < size_mib << 20 {
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    write();
    until_cached(&held, 0, &watch);
    for (rules, cached) in [(rule("other"), 8), (rule("held"), 8), (rule("other"), 16)] {
        user.writes("rules", &rules);
        watch.signal("HUP");
        watch.says("RELOADING=1");
        watch.says("READY=1");
        write();
        until_cached(&held, cached, &watch);
    }
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    assert_eq!(cached_mib(&held), 16, "{}", watch.log());
    drop(input);
    assert!(shell.wait().unwrap().success());
}

/// Waits until so many MiB of a file are cached.
fn until_cached(path: &Path, mib: u64, watch: &RunningWatch) {
    let mut looks = 0;
    while cached_mib(path) != mib {
        looks += 1;
        assert!(looks < 500, "{} MiB: {}", cached_mib(path), watch.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}
