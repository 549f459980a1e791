//! Small benchmarks from start to end.

mod bench;
mod user;

use bench::{mode, nothing_is_left, results, runs, scenario};
use dropbehind_testbed::{MemoryCgroup, Need, need, residency};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use user::{User, finish};

const SIZE: u64 = 4 << 20;

#[test]
fn modes_are_listed_with_the_scenarios() {
    let user = User::new();
    let text = user.does("bench list").text();
    for name in [
        "seq-write-1m",
        "seq-read-4k",
        "overwrite",
        "rand-write-64k",
        "rand-read-4k",
        "ring-write-1",
        "ring-read-128",
        "append-log",
        "multi-writer",
        "files-32",
        "noisy-neighbour-mixed",
        "competing-writers",
        "backup",
        "device-read",
        "demonstration",
        "slow-folder",
        "scale-files-1000",
        "scale-threads-16",
        "nfs-noisy-neighbour",
        "direct-q16",
        "snippet",
        "cgroup",
        "nocache",
    ] {
        assert!(text.contains(&format!("  {name} ")), "{name}\n{text}");
    }
    assert!(text.lines().all(|line| line.len() < 220), "{text}");
}

#[test]
fn a_wrong_command_line_does_nothing() {
    let user = User::new();
    user.runs("bench seq-wriet --size 4M")
        .fails(2, "bench list");
    user.runs("bench --modes buffered,fast")
        .fails(2, "write-behind");
    user.runs("bench --runs 0").fails(2, "from 1 to 1000");
    user.runs("bench seq-read-1m --quick --device /dev/null")
        .fails(2, "needs a directory");
    user.runs("bench seq-read-1m --quick --dir missing")
        .fails(1, "missing");
    nothing_is_left(user.file("").as_path());
}

/// Another program does the work. It is found where packages, cargo and users put it.
#[test]
fn the_other_program_is_found() {
    let user = User::new();
    // Made by others: what this process has open for writing, while another thread starts a
    // program, cannot be executed.
    let put = |path: &str, says: &str| {
        let text = format!("#!/bin/sh\necho {says} \"$@\"");
        let script = format!(
            "mkdir -p $(dirname {path})\ncat >{path} <<'END'\n{text}\nEND\nchmod +x {path}"
        );
        assert_eq!(user.sh(&script).code, 0);
    };
    let dropbehind = user.file("usr/bin/dropbehind");
    let copied = user.sh("mkdir -p usr/bin && cp $(command -v dropbehind) usr/bin");
    assert_eq!(copied.code, 0, "{}", copied.stderr);
    let runs = |words: &str| {
        let mut command = Command::new(&dropbehind);
        // A folder that is not absolute is whatever the user happens to be in.
        let path = format!("here:{}", user.file("path").display());
        command.args(words.split(' ')).env("PATH", path);
        finish(command.current_dir(user.file("")))
    };
    put("here/dropbehind-bench", "here");
    runs("bench list").fails(3, "Install the package dropbehind-bench");
    put("usr/libexec/dropbehind/dropbehind-bench", "libexec");
    assert_eq!(runs("bench list").text(), "libexec list\n");
    put("path/dropbehind-bench", "path");
    assert_eq!(runs("bench report -- -f").text(), "path report -- -f\n");
    put("usr/bin/dropbehind-bench", "beside");
    assert_eq!(
        runs("bench --runs 2 -y --size 1.5MiB --dir=-d a b").text(),
        format!(
            "beside measure --dropbehind={} --dir=-d --yes --size=1572864 --runs=2 -- a b\n",
            dropbehind.display()
        )
    );
    // What cannot be run is not passed over.
    assert_eq!(user.sh("chmod -x usr/bin/dropbehind-bench").code, 0);
    runs("bench list").fails(1, "cannot start");
}

#[test]
fn every_run_is_kept_with_its_figures() {
    need!(Need::Cachestat);
    let user = User::new();
    let said = user.does(
        "bench seq-write-1m seq-read-4k rand-write-4k append-log --quick --size 4MiB --runs 2 --modes \
         buffered,dontcache,direct,snippet --json r.json",
    );
    let text = said.text();
    assert!(text.contains("seq-write-1m: a new file"), "{text}");
    let found = results(&user.file("r.json"));
    assert_eq!(found["schema"], "dropbehind-bench-1");
    assert_eq!(found["complete"], true);
    assert_eq!(found["settings"]["runs"], 2);
    assert!(found["environment"]["cpus"].as_u64() >= Some(1));
    for (name, role, block) in [
        ("seq-write-1m", "writer", 1 << 20),
        ("seq-read-4k", "reader", 4096),
        ("rand-write-4k", "writer", 4096),
        ("append-log", "writer", 256),
    ] {
        for mode in ["buffered", "dontcache", "direct", "snippet"] {
            if (name, mode) == ("append-log", "direct") {
                continue;
            }
            let runs = runs(&found, name, mode);
            assert_eq!(runs.len(), 2, "{name} {mode}");
            for run in runs {
                check_run(run, role, block, mode);
            }
        }
    }
    for run in runs(&found, "seq-write-1m", "dontcache") {
        assert!(run["extents"].as_u64() >= Some(1), "{run}");
    }
    let why = mode(&found, "append-log", "direct");
    assert!(
        why["unavailable"]
            .as_str()
            .is_some_and(|why| why.contains("sector")),
        "{why}"
    );
    assert!(text.contains("direct: not available"), "{text}");
    nothing_is_left(user.file("").as_path());
}

/// The rings' programs report what completes; nothing else differs from those above.
#[test]
fn programs_that_drive_a_ring_are_measured() {
    need!(Need::Cachestat);
    let user = User::new();
    user.does(
        "bench ring-write-1 ring-write-16 ring-read-16 ring-read-128 --quick --size 4MiB \
         --modes buffered,native,dontcache --json r.json",
    );
    let found = results(&user.file("r.json"));
    for (name, role) in [
        ("ring-write-1", "writer"),
        ("ring-write-16", "writer"),
        ("ring-read-16", "reader"),
        ("ring-read-128", "reader"),
    ] {
        for of in ["buffered", "native", "dontcache"] {
            if mode(&found, name, of)["unavailable"].is_string() {
                assert_ne!(of, "dontcache", "{name}");
                continue;
            }
            for run in runs(&found, name, of) {
                check_run(run, role, 64 << 10, of);
            }
        }
    }
    nothing_is_left(user.file("").as_path());
}

fn check_run(run: &Value, role: &str, block: u64, mode: &str) {
    let role = &run["roles"][role];
    let bytes = role["bytes"].as_u64().expect("a count");
    // A busy machine may not get through all of it in the time that a quick run has.
    let cut_short = role["cut_short"] == true;
    let whole = if cut_short {
        SIZE / 16..SIZE
    } else {
        SIZE..SIZE + 1
    };
    assert!(whole.contains(&bytes), "{mode}: {role}");
    assert_eq!(role["operations"], bytes / block, "{mode}");
    let ns = |key: &str| role[key].as_u64().expect("a time");
    assert!(0 < ns("io_ns") && ns("io_ns") <= ns("total_ns"), "{mode}");
    let latency = |key: &str| role["latency"][key].as_u64().expect("a latency");
    assert!(latency("p50_ns") <= latency("p99_ns") && latency("p999_ns") <= latency("max_ns"));
    let series: u64 = role["series_bytes"]
        .as_array()
        .expect("a series")
        .iter()
        .filter_map(Value::as_u64)
        .sum();
    assert_eq!(series, bytes, "{mode}");
    let memory = |key: &str| run["memory"][key].as_u64().expect("a count");
    let left = memory("left_cached_bytes");
    match mode {
        // All of it, but for what the machine reclaims by itself (DAMON).
        "buffered" => assert!(left >= bytes / 4 * 3, "{left}"),
        "dontcache" | "direct" => assert_eq!(left, 0),
        _ => {}
    }
    assert!(memory("peak_cached_bytes") >= left);
    assert!(run["cpu"]["program_ns"].as_u64() > Some(0), "{mode}");
}

#[test]
fn modes_take_turns() {
    let user = User::new();
    user.does(
        "bench seq-write-1m --quick --size 2MiB --runs 3 --modes buffered,direct,dontcache --json r.json",
    );
    let found = results(&user.file("r.json"));
    let turns = |mode: &str| -> Vec<u64> {
        runs(&found, "seq-write-1m", mode)
            .iter()
            .filter_map(|run| run["turn"].as_u64())
            .collect()
    };
    assert_eq!(turns("buffered"), [0, 5, 7]);
    assert_eq!(turns("direct"), [1, 3, 8]);
    assert_eq!(turns("dontcache"), [2, 4, 6]);
}

#[test]
fn several_programs_share_a_case() {
    need!(Need::Cachestat);
    let user = User::new();
    user.does(
        "bench multi-writer noisy-neighbour competing-writers backup scale-files-10 \
         scale-threads-4 --quick --size 8MiB --modes buffered,dontcache,alone --json r.json",
    );
    let found = results(&user.file("r.json"));
    for mode in ["buffered", "dontcache"] {
        let run = &runs(&found, "multi-writer", mode)[0];
        let writer = &run["roles"]["writer"];
        assert_eq!(writer["bytes"], 8 << 20);
        assert_eq!(
            writer["stream_bytes_per_s"].as_array().map(Vec::len),
            Some(4)
        );
        let run = &runs(&found, "noisy-neighbour", mode)[0];
        assert_eq!(run["roles"]["writer"]["bytes"], 8 << 20);
        assert!(run["roles"]["reader"]["operations"].as_u64() > Some(0));
        let run = &runs(&found, "competing-writers", mode)[0];
        assert_eq!(run["roles"]["all"]["bytes"], 8 << 20);
        assert_eq!(run["roles"]["rival"]["bytes"], 4 << 20);
        let run = &runs(&found, "backup", mode)[0];
        assert_eq!(run["roles"]["backup"]["bytes"], 8 << 20);
        assert_eq!(
            run["memory"]["hot_pages"],
            (2 << 20) / residency::page_bytes()
        );
        let run = &runs(&found, "scale-threads-4", mode)[0];
        assert_eq!(run["roles"]["writer"]["bytes"], 8 << 20);
    }
    let alone = &runs(&found, "backup", "alone")[0];
    assert_eq!(alone["roles"]["backup"], Value::Null);
    // All but what the machine reclaims by itself (DAMON) is still there.
    let evicted = alone["memory"]["hot_evicted_pages"].as_u64().unwrap();
    let hot = alone["memory"]["hot_pages"].as_u64().unwrap();
    assert!(evicted < hot / 2, "{evicted} of {hot}");
    assert_eq!(
        scenario(&found, "scale-files-10")["modes"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
    nothing_is_left(user.file("").as_path());
}

#[test]
fn workers_live_in_a_memory_cgroup() {
    need!(all MemoryCgroup::needs());
    let user = User::new();
    user.does(
        "bench seq-write-1m --quick --size 96MiB --memory 48MiB --runs 1 --modes buffered,cgroup --json \
         r.json",
    );
    let found = results(&user.file("r.json"));
    let limit = 48 << 20;
    assert_eq!(found["settings"]["memory_limit_bytes"], limit);
    let peak = |mode: &str| {
        let run = &runs(&found, "seq-write-1m", mode)[0];
        let peak = run["memory"]["peak_group_bytes"].as_u64().expect("a peak");
        let cached = run["memory"]["peak_cached_bytes"].as_u64().expect("a peak");
        (peak, cached)
    };
    let (group, cached) = peak("buffered");
    assert!((limit / 2..=limit).contains(&group), "{group}");
    assert!(cached <= limit, "{cached}");
    // The small group is another one, with room for all of it.
    let (group, cached) = peak("cgroup");
    assert!(group < limit / 2 && cached > limit, "{group} {cached}");
}

#[test]
fn what_does_not_work_is_said_and_not_replaced() {
    need!(Need::Filesystem("tmpfs"));
    let user = User::new();
    let dir = std::path::Path::new("/dev/shm");
    if !dir.is_dir() {
        dropbehind_testbed::skip!("there is no /dev/shm");
    }
    let said = user.does(
        "bench seq-write-1m --quick --dir /dev/shm --size 2MiB --runs 1 --modes buffered,native,dontcache \
         --json r.json",
    );
    let found = results(&user.file("r.json"));
    assert_eq!(runs(&found, "seq-write-1m", "buffered").len(), 1);
    for (name, why) in [("native", "RWF_DONTCACHE"), ("dontcache", "no effect here")] {
        let mode = mode(&found, "seq-write-1m", name);
        assert_eq!(mode["runs"].as_array().map(Vec::len), Some(0), "{name}");
        assert!(
            mode["unavailable"]
                .as_str()
                .is_some_and(|text| text.contains(why)),
            "{mode}"
        );
        assert!(said.text().contains(&format!("{name}: not available")));
    }
}

#[test]
fn an_interrupted_benchmark_cleans_up_and_keeps_what_it_has() {
    let user = User::new();
    let mut command = user.dropbehind(
        "bench seq-write-1m --quick --size 2MiB --runs 1000 --modes buffered --json r.json"
            .split(' '),
    );
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let file = user.file("r.json");
    let has_run = || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.contains("\"turn\":1")
    };
    while !has_run() {
        assert_eq!(child.try_wait().unwrap(), None, "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let pid = child.id().to_string();
    let kill = |signal: &str| {
        let killed = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(killed.success());
    };
    kill("-USR1");
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let answer = "dropbehind: measuring seq-write-1m, buffered, run ";
    while !lines.next().unwrap().unwrap().starts_with(answer) {}
    std::thread::spawn(move || lines.for_each(drop));
    kill("-INT");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let found = results(&file);
    assert_eq!(found["complete"], false);
    assert!(runs(&found, "seq-write-1m", "buffered").len() >= 2);
    nothing_is_left(user.file("").as_path());
}

#[test]
fn a_full_disk_skips_the_scenario() {
    let user = User::new();
    let said = user
        .does("bench seq-write-1m --quick --size 100TiB --runs 1 --modes buffered --json r.json");
    assert!(said.stderr.contains("SKIP seq-write-1m"), "{}", said.stderr);
    let found = results(&user.file("r.json"));
    let skipped = &scenario(&found, "seq-write-1m")["skipped"];
    assert!(
        skipped.as_str().is_some_and(|why| why.contains("--size")),
        "{skipped}"
    );
}
