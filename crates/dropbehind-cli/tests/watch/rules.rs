//! Which files are observed.

use crate::files::{assert_dropped, assert_kept, dd, writes_until_seen};
use crate::user::User;
use crate::user::running_watch::RunningWatch;
use dropbehind_testbed::{Need, need};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
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
    let mut watch = RunningWatch::start(&user, &mut user.watch("--config rules"));
    watch.says("READY=1");
    let (wanted, hot) = (home.join("wanted/a"), home.join("wanted/hot.a"));
    let (other, later) = (home.join("other"), home.join("later/a"));
    for path in [&wanted, &hot, &other, &later] {
        dd(path);
    }
    assert_kept(&other, &watch);

    // A broken file leaves the rules in force; a whole one replaces them, also
    // for files of which the kernel was told not to tell again.
    user.writes("rules", "broken");
    watch.signal("HUP");
    watch.says("READY=1");
    let still = home.join("wanted/b");
    dd(&still);
    user.writes("rules", &rule("later/**", "dontcache"));
    watch.signal("HUP");
    watch.says("READY=1");
    let no_more = home.join("wanted/c");
    // The rules take their way through the observer: the next files show which
    // are in force, and the last of them is the one that is asked about.
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
    let mut watch = RunningWatch::start(&user, &mut user.watch("--config rules"));
    watch.says("READY=1");
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

/// Whether the kernel does not tell a process of what is done to this file.
fn is_ignored(process: u32, path: &Path) -> bool {
    let inode = format!("ino:{:x} ", std::fs::metadata(path).unwrap().ino());
    let entries = std::fs::read_dir(format!("/proc/{process}/fdinfo")).unwrap();
    let infos = entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
    let marks = infos.flat_map(|info| info.lines().map(str::to_owned).collect::<Vec<_>>());
    marks
        .filter(|mark| mark.starts_with("fanotify ") && mark.contains(&inode))
        .any(|mark| !mark.contains("ignored_mask:0"))
}

#[test]
fn the_kernel_need_not_tell_of_what_no_rule_can_want() {
    need!(Need::Root);
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    std::fs::create_dir(home.join("wanted")).unwrap();
    user.writes(
        "rules",
        &format!(
            "[[rule]]\npath = \"{}/wanted/**\"\nprogram = \"nobody\"\nmode = \"dontcache\"\n",
            home.display()
        ),
    );
    let mut watch = RunningWatch::start(&user, &mut user.watch("--config rules"));
    watch.says("READY=1");
    // Another program may still want the first; nobody ever wants the second.
    let (perhaps, never) = (home.join("wanted/a"), home.join("b"));
    dd(&perhaps);
    dd(&never);
    let process = watch.child.id();
    let mut looks = 0;
    while !is_ignored(process, &never) {
        looks += 1;
        assert!(looks < 3000, "it still hears of {}", never.display());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!is_ignored(process, &perhaps));
    // Other rules may want it.
    user.writes(
        "rules",
        &format!(
            "[[rule]]\npath = \"{}/**\"\nmode = \"dontcache\"\n",
            home.display()
        ),
    );
    watch.signal("HUP");
    watch.says("READY=1");
    while is_ignored(process, &never) {
        looks += 1;
        assert!(looks < 6000, "it never hears of {} again", never.display());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}
