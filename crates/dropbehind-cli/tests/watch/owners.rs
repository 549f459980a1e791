//! Programs that a run observes beside a watch, and users who interfere.

use crate::files::{assert_dropped, assert_kept, cached_mib, dd};
use crate::user::User;
use crate::user::running_watch::RunningWatch;
use dropbehind_linux::process_stat;
use dropbehind_testbed::{Need, need};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A watch that drops everything in a folder.
fn watched(user: &User) -> (RunningWatch, PathBuf) {
    let home = std::fs::canonicalize(user.file("")).unwrap();
    let folder = home.join("data");
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("**");
    user.writes(
        "rules",
        &format!("[[rule]]\npath = {path:?}\nmode = \"dontcache\"\n"),
    );
    let watch = RunningWatch::by_rules(user);
    (watch, folder)
}

/// Waits for what takes a moment, longer on a busy machine.
fn until(watch: &RunningWatch, done: impl Fn() -> bool) {
    let mut looks = 0;
    while !done() {
        looks += 1;
        assert!(looks < 6000, "{}", watch.log());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A run keeps what the watch would drop, also where the process that
/// wrote it has ended.
#[test]
fn a_run_looks_after_its_own_files_in_every_namespace() {
    need!(Need::Root, Need::Cachestat, Need::Tool("unshare"));
    let user = User::new();
    let (mut watch, folder) = watched(&user);
    let dropbehind = env!("CARGO_BIN_EXE_dropbehind");
    let run = |name| {
        format!(
            "{dropbehind} run --mode buffered sh -c 'head -c 32M /dev/zero >data/{name}; read _'"
        )
    };
    let runs = [
        ("run", run("run")),
        ("network", format!("unshare --net {}", run("network"))),
        (
            "container",
            format!(
                "unshare --net --pid --fork --mount-proc {}",
                run("container")
            ),
        ),
    ];
    let plain = folder.join("plain");
    for (name, script) in &runs {
        let mut running = Command::new("sh")
            .args(["-c", script])
            .current_dir(user.file(""))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let file = folder.join(name);
        until(&watch, || {
            file.metadata().is_ok_and(|file| file.len() == 32 << 20)
        });
        // The watch has seen it when it has dropped the next one.
        dd(&plain);
        until(&watch, || cached_mib(&plain) == 0);
        drop(running.stdin.take());
        assert!(
            running.wait().unwrap().code().is_some_and(|code| code < 2),
            "{name}"
        );
    }
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    for (name, _) in &runs {
        assert_kept(&folder.join(name), &watch);
    }
}

/// Any user can bind a name without a file before we do, and let all who connect wait.
#[test]
fn a_name_that_any_user_can_take_does_not_stop_a_watch() {
    need!(Need::Root, Need::Cachestat);
    let namespace = std::fs::read_link("/proc/self/ns/mnt").unwrap();
    let digits = |c: &char| c.is_ascii_digit();
    let number: String = namespace.to_str().unwrap().chars().filter(digits).collect();
    let name = format!("dropbehind-owner-{number}");
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    let socket = || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
    };
    let listener = socket();
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let waiting = socket();
    rustix::net::connect(&waiting, &address).unwrap();
    let next = rustix::net::connect(socket(), &address);
    assert_eq!(next, Err(rustix::io::Errno::AGAIN), "the queue is full");

    let user = User::new();
    let (mut watch, folder) = watched(&user);
    dd(&folder.join("plain"));
    watch.signal("TERM");
    watch.says("STOPPING=1");
    let process = i32::try_from(watch.child.id()).unwrap();
    until(&watch, || process_stat(process).unwrap().state == 'Z');
    let status = watch.child.wait().unwrap();
    assert!(status.success(), "{status}");
    assert_dropped(&folder.join("plain"), &watch);
}
