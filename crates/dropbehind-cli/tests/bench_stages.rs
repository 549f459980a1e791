//! Scenarios with a stage of their own: a slow disk, an NFS server, programs
//! that run under others.

mod bench;
mod user;

use bench::{mode, nothing_is_left, results, runs, scenario};
use dropbehind_testbed::{Need, SlowDisk, need};
use std::process::Command;
use user::User;

const SIZE: u64 = 8 << 20;

/// The second one syncs what it has closed.
#[test]
fn demonstrations_have_a_slow_disk_of_their_own() {
    need!(all SlowDisk::needs());
    need!(Need::Tool("mkfs.ext4"));
    let user = User::new();
    user.does(
        "bench demonstration slow-folder --quick --size 8MiB --runs 1 \
         --modes buffered,dontcache,direct --json r.json",
    );
    let found = results(&user.file("r.json"));
    let modes = ["buffered", "dontcache", "direct"];
    let each = |name: &'static str| modes.map(|mode| (name, mode));
    for (name, mode) in each("demonstration").into_iter().chain(each("slow-folder")) {
        let run = &runs(&found, name, mode)[0];
        assert_eq!(run["roles"]["writer"]["bytes"], SIZE);
        assert!(run["disk"]["written_bytes"].as_u64() >= Some(SIZE), "{run}");
        // The disk takes this long at the least.
        let total_ns = run["roles"]["writer"]["total_ns"].as_u64();
        assert!(total_ns >= Some(SIZE * 9), "{total_ns:?}");
    }
    let notes = scenario(&found, "demonstration")["notes"].to_string();
    assert!(notes.contains("slowed to 100 MB/s"), "{notes}");
    nothing_is_left(user.file("").as_path());
}

#[test]
fn an_nfs_server_is_measured_with_its_clients() {
    need!(
        Need::Root,
        Need::Tool("ganesha.nfsd"),
        Need::Tool("rpcbind"),
        Need::Tool("python3"),
        Need::Tool("nfs-cp"),
        Need::Cachestat
    );
    let user = User::new();
    user.does("bench nfs --quick --size 8MiB --modes buffered --json r.json");
    let found = results(&user.file("r.json"));
    for (name, streams) in [
        ("nfs-seq-write-1", 1),
        ("nfs-seq-write-4", 4),
        ("nfs-rand-write-1", 1),
        ("nfs-rand-write-4", 4),
        ("nfs-noisy-neighbour", 1),
    ] {
        let run = &runs(&found, name, "buffered")[0];
        let writer = &run["roles"]["writer"];
        assert_eq!(writer["bytes"], SIZE, "{name}");
        let found = writer["stream_bytes_per_s"].as_array().map(Vec::len);
        assert_eq!(found, Some(streams), "{name}");
        // What clients wrote is in the server's cache, and on its disk. The kernel may
        // have taken some.
        assert!(
            run["memory"]["left_cached_bytes"].as_u64() > Some(SIZE / 2),
            "{name}: {run}"
        );
    }
    let run = &runs(&found, "nfs-noisy-neighbour", "buffered")[0];
    assert!(run["roles"]["reader"]["operations"].as_u64() > Some(0));
    assert!(run["memory"]["hot_pages"].as_u64() > Some(0));
    nothing_is_left(user.file("").as_path());
}

#[test]
fn a_missing_nfs_server_is_said() {
    let user = User::new();
    // With another PATH nothing is installed, but for what the system's own
    // folders have.
    let mut command =
        user.dropbehind("bench nfs-seq-write-1 --quick --size 4MiB --runs 1".split(' '));
    let said = user::finish(command.env("PATH", "/nonexistent"));
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(
        said.stderr.contains("SKIP nfs-seq-write-1: ") && said.stderr.contains("needs root")
            || said.stderr.contains("is not installed (Debian's packages"),
        "{}",
        said.stderr
    );
}

#[test]
fn whole_programs_run_under_others() {
    need!(Need::Root, Need::Cachestat, Need::Tool("nocache"));
    let user = User::new();
    user.does("bench seq-write-1m --quick --size 8MiB --runs 1 --modes run,nocache --json r.json");
    let found = results(&user.file("r.json"));
    for name in ["run", "nocache"] {
        let run = &runs(&found, "seq-write-1m", name)[0];
        assert_eq!(run["roles"]["writer"]["bytes"], SIZE, "{name}");
        assert_eq!(run["memory"]["left_cached_bytes"], 0, "{name}");
    }
    // Who watches from outside is charged for.
    let watched = &runs(&found, "seq-write-1m", "run")[0];
    assert!(watched["cpu"]["flusher_ns"].as_u64() > Some(0), "{watched}");
}

#[test]
fn a_missing_nocache_is_said() {
    let user = User::new();
    let mut command = user.dropbehind(
        "bench seq-write-1m --quick --size 1MiB --runs 1 --modes nocache --json r.json".split(' '),
    );
    let said = user::finish(command.env("PATH", "/nonexistent"));
    assert_eq!(said.code, 0, "{}", said.stderr);
    let found = results(&user.file("r.json"));
    let why = &mode(&found, "seq-write-1m", "nocache")["unavailable"];
    assert!(
        why.as_str()
            .is_some_and(|why| why.contains("not installed")),
        "{why}"
    );
}

#[test]
fn no_process_outlives_the_benchmark() {
    need!(all SlowDisk::needs());
    need!(Need::Tool("mkfs.ext4"), Need::Tool("pgrep"));
    let user = User::new();
    user.does("bench demonstration --quick --size 4MiB --runs 1 --modes buffered");
    // By the command lines of the disk's server and of workers.
    let mine = user.file("").display().to_string();
    let found = Command::new("pgrep").args(["-f", &mine]).output().unwrap();
    assert!(
        found.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&found.stdout)
    );
}
