//! How a watch starts and ends, as its service manager and its terminal see it.

use crate::commands::RULES;
use crate::user::running_watch::RunningWatch;
use crate::user::{User, finish};
use dropbehind_testbed::{Need, need};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn a_service_manager_is_told_of_each_step() {
    need!(Need::Root);
    let user = User::new();
    user.writes("rules", RULES);
    let mut watch = user.watch("--config rules");
    let mut watch = RunningWatch::start(&user, watch.env("WATCHDOG_USEC", "600000"));
    assert!(watch.says("READY=1").contains("\nSTATUS="));
    watch.says("WATCHDOG=1");
    assert!(
        watch.log().contains("<5>watching, by the rules of rules\n"),
        "{}",
        watch.log()
    );

    user.writes("rules", "mode = \"write-behind\"\n");
    watch.signal("HUP");
    assert!(watch.says("RELOADING=1").contains("\nMONOTONIC_USEC="));
    watch.says("READY=1");
    assert!(
        watch
            .log()
            .contains("<5>the rules of rules are in force now\n"),
        "{}",
        watch.log()
    );

    user.writes("rules", "mode = \"write-behind\"\nwindow = 1\n");
    watch.signal("HUP");
    watch.says("RELOADING=1");
    watch.says("READY=1");
    assert!(
        watch.log().contains("<3>rules:2:10: window is 1;"),
        "{}",
        watch.log()
    );
    assert!(
        watch.log().contains("<3>the rules stay as they were\n"),
        "{}",
        watch.log()
    );
    watch.says("WATCHDOG=1");

    watch.signal("USR1");
    while !watch.log().contains(" files observed now, ") {
        watch.says("WATCHDOG=1");
    }

    user.writes("rules", RULES);
    std::fs::create_dir(user.file("rules.d")).unwrap();
    user.writes("rules.d/a.toml", "reads = 1\n");
    watch.signal("HUP");
    watch.says("RELOADING=1");
    watch.says("READY=1");
    assert!(
        watch.log().contains("<3>rules.d/a.toml:1:9: reads is 1;"),
        "{}",
        watch.log()
    );

    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

#[test]
fn a_key_on_the_terminal_ends_it() {
    need!(Need::Root);
    let user = User::new();
    user.writes("rules", RULES);
    let mut watch = RunningWatch::by_rules(&user);
    assert_eq!(watch.ends("INT"), Some(0), "{}", watch.log());
}

#[test]
fn a_second_one_is_told_who_is_there() {
    need!(Need::Root);
    let user = User::new();
    user.writes("rules", RULES);
    let mut first = RunningWatch::by_rules(&user);
    // Two at once would not end by themselves.
    let second = user.watch("--config rules --socket other.sock");
    let said = finish(&mut user.wrapped(&["timeout"], "60", &second));
    said.fails(
        1,
        &format!("process {}, by the rules of rules", first.child.id()),
    );
    assert!(
        said.stderr.starts_with("dropbehind: another watch"),
        "{}",
        said.stderr
    );
    // Nothing of the first is disturbed, and its death frees the place.
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    drop(first);
    std::fs::remove_file(user.file("notify")).unwrap();
    let mut next = RunningWatch::by_rules(&user);
    assert_eq!(next.ends("TERM"), Some(0));
}

/// Whoever can open a file can lock it.
#[test]
fn other_users_cannot_take_its_place() {
    need!(Need::Root, Need::Tool("setpriv"), Need::Tool("flock"));
    let user = User::new();
    user.writes("rules", RULES);
    let runtime = user.file("runtime");
    std::fs::create_dir(&runtime).unwrap();
    let lock = runtime.join("watch.lock");
    // As anybody can read it.
    std::fs::write(&lock, "").unwrap();
    let takes = |command: &str| {
        let mut other = Command::new("setpriv");
        other.args(["--reuid", "65534", "--clear-groups", "flock"]);
        other.args(["--nonblock", "--shared"]).arg(&lock);
        other.args(["sh", "-c", command]).stdout(Stdio::piped());
        other.spawn().unwrap()
    };
    let mut other = takes("echo taken; exec sleep 60");
    let mut line = String::new();
    let mut said = BufReader::new(other.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "taken\n");
    let mut watch = RunningWatch::by_rules(&user);
    assert!(!takes("true").wait().unwrap().success());
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn without_the_privilege_it_says_what_is_missing() {
    need!(Need::Root, Need::Tool("setpriv"));
    let user = User::new();
    user.writes("rules", RULES);
    let watch = user.watch("--config rules");
    let mut command = user.wrapped(&["setpriv", "--bounding-set"], "-sys_admin", &watch);
    let said = finish(&mut command);
    said.fails(3, "CAP_SYS_ADMIN");
    said.fails(3, "`dropbehind run`");
}

/// Each of these takes a second, since nothing comes from the rules' file.
#[test]
fn many_reloads_are_one_and_delay_nothing_else() {
    need!(Need::Root, Need::Cachestat, Need::Tool("mkfifo"));
    let user = User::new();
    user.writes("rules", RULES);
    let mut watch = user.watch("--config rules");
    let mut watch = RunningWatch::start(&user, watch.env("WATCHDOG_USEC", "600000"));
    watch.says("READY=1");
    std::fs::remove_file(user.file("rules")).unwrap();
    let mkfifo = Command::new("mkfifo").arg(user.file("rules")).status();
    assert!(mkfifo.unwrap().success());
    for _ in 0..20 {
        watch.signal("HUP");
        std::thread::sleep(Duration::from_millis(10));
    }
    watch.says("RELOADING=1");
    let next = watch.says_one_of(&["RELOADING=1", "WATCHDOG=1"]);
    assert!(next.starts_with("WATCHDOG=1"), "{next}");
    watch.signal("TERM");
    let mut reloads = 1;
    while watch
        .says_one_of(&["RELOADING=1", "STOPPING=1"])
        .starts_with("RELOADING=1")
    {
        reloads += 1;
    }
    assert!(reloads < 10, "{reloads}");
    assert_eq!(watch.child.wait().unwrap().code(), Some(0));
}
