//! `dropbehind watch` while somebody makes more events than it can read. Other watches lose
//! events meanwhile, so this test is alone.

mod user;

use std::process::{Child, Command, Stdio};

use dropbehind_testbed::{Need, need};
use user::User;
use user::running_watch::RunningWatch;

/// A program that opens a file, over and over, until it is killed.
struct Flood(Child);

impl Flood {
    fn of(user: &User, name: &str) -> Self {
        std::fs::write(user.file(name), "").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do : <\"$0\"; done"]);
        command.arg(user.file(name)).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// It must not be restarted for that.
#[test]
fn an_observer_that_is_busy_is_no_server_that_hangs() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    std::fs::write(
        user.file("rules"),
        "[[rule]]\npath = \"*\"\nmode = \"dontcache\"\n",
    )
    .unwrap();
    let mut watch = user.watch("--config rules");
    let mut watch = RunningWatch::start(&user, watch.env("WATCHDOG_USEC", "90000"));
    watch.says("READY=1");
    let _flood = ["a", "b", "c"].map(|name| Flood::of(&user, name));
    for _ in 0..30 {
        watch.says("WATCHDOG=1");
    }
    let log = watch.log();
    assert!(!log.contains("does not answer"), "{log}");
}
