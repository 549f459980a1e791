//! `dropbehind watch` while a user makes more events, or has more descriptors, than it can read.
//! Other watches would lose events or time meanwhile, so these tests are alone.

mod user;

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use dropbehind_testbed::{Need, Running, need, residency};
use user::User;
use user::running_watch::RunningWatch;

/// Each of these tests keeps the other's watch from its work.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A program that opens a file, over and over, until it is killed.
fn flood(user: &User, name: &str) -> Running {
    std::fs::write(user.file(name), "").unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do : <\"$0\"; done"]);
    Running::start(command.arg(user.file(name)).stderr(Stdio::null()))
}

/// It must not be restarted for that.
#[test]
fn an_observer_that_is_busy_is_no_server_that_hangs() {
    need!(Need::Root, Need::Cachestat);
    let _alone = ONE_AT_A_TIME.lock();
    let user = User::new();
    std::fs::write(
        user.file("rules"),
        "[[rule]]\npath = \"*\"\nmode = \"dontcache\"\n",
    )
    .unwrap();
    let mut watch = user.watch("--config rules");
    let mut watch = RunningWatch::start(&user, watch.env("WATCHDOG_USEC", "90000"));
    watch.says("READY=1");
    let _flood = ["a", "b", "c"].map(|name| flood(&user, name));
    for _ in 0..30 {
        watch.says("WATCHDOG=1");
    }
    let log = watch.log();
    assert!(!log.contains("does not answer"), "{log}");
}

/// Five million descriptors, if the limit allows 15,000 in each process.
const DESCRIPTORS: &str = "
import os, resource, sys
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
each = min(most - 100, 15000)
for _ in range(each):
    os.open(sys.argv[1], os.O_WRONLY)
for _ in range(5000000 // each):
    if os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
print('ready', flush=True)
sys.stdin.read()
# Closing all of these takes both processors for a while, which the next test must not see.
for _ in range(5000000 // each):
    os.wait()
";

#[test]
fn a_users_descriptors_keep_no_others_files_cached() {
    need!(
        Need::Root,
        Need::Cachestat,
        Need::Tool("setpriv"),
        Need::Tool("python3")
    );
    let _alone = ONE_AT_A_TIME.lock();
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    let rule = format!(
        "[[rule]]\npath = \"{}/wanted/\"\nmode = \"dontcache\"\n",
        home.display()
    );
    std::fs::write(user.file("rules"), rule).unwrap();
    std::fs::create_dir(home.join("wanted")).unwrap();
    let held = "/tmp/dropbehind-held";
    let mut hoard = Command::new("setpriv")
        .args(["--reuid", "65534", "--clear-groups", "sh", "-c"])
        .arg(format!(
            ": >{held}-$$; python3 -c \"$0\" {held}-$$; rm {held}-$$"
        ))
        .arg(DESCRIPTORS)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 6];
    hoard
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut said)
        .unwrap();
    let mut watch = RunningWatch::by_rules(&user);
    let files: Vec<_> = (0..20)
        .map(|number| home.join(format!("wanted/{number}")))
        .collect();
    for file in &files {
        std::fs::write(file, vec![1; 64 << 10]).unwrap();
    }
    // It says that it has not looked for all that is open, later.
    let is_said = || watch.log().contains("programs have so many files open");
    let are_cached = || {
        files
            .iter()
            .any(|file| residency::fincore(file).unwrap() > 0)
    };
    let mut looks = 0;
    while are_cached() || !is_said() {
        looks += 1;
        assert!(looks < 1500, "cached: {}, {}", are_cached(), watch.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    drop(hoard.stdin.take());
    hoard.wait().unwrap();
}
