//! `--trace`: what it says is what was done.

mod user;

use dropbehind_testbed::residency::fincore;
use dropbehind_testbed::{Need, need};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use user::User;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 40 * MIB;

/// The records of a trace, which is complete.
fn records(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut records: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let end = records.pop().expect("an end");
    assert_eq!(end["event"], "end");
    assert_eq!(end["records"], records.len());
    assert_eq!(end["lost"], 0);
    records
}

fn figures(user: &User) -> Value {
    serde_json::from_str(&std::fs::read_to_string(user.file("figures")).unwrap()).unwrap()
}

fn of<'a>(records: &'a [Value], event: &'a str) -> impl Iterator<Item = &'a Value> {
    records
        .iter()
        .filter(move |record| record["event"] == event)
}

fn sum<'a>(records: impl Iterator<Item = &'a Value>, key: &str) -> u64 {
    records.map(|record| record[key].as_u64().unwrap()).sum()
}

/// What the records and the figures say of each reason.
fn assert_same_writeback(records: &[Value], figures: &Value) {
    let mut by_reason = BTreeMap::new();
    for record in of(records, "writeback") {
        let reason = record["reason"].as_str().unwrap().to_owned();
        *by_reason.entry(reason).or_insert(0) += record["bytes"].as_u64().unwrap();
    }
    let told = figures["writeback_bytes"].as_object().unwrap();
    let told = told
        .iter()
        .map(|(reason, bytes)| (reason.clone(), bytes.as_u64().unwrap()));
    let told: BTreeMap<String, u64> = told.filter(|(_, bytes)| *bytes > 0).collect();
    assert_eq!(by_reason, told);
}

#[test]
fn a_trace_of_a_write_adds_up() {
    need!(Need::Cachestat, Need::Tool("fincore"), Need::Tool("strace"));
    let user = User::new();
    user.has("source", SIZE as usize);
    let before_ns = dropbehind_linux::monotonic_ns();
    let said = user.sh("strace -f -qq -e trace=sync_file_range -o calls \
         dropbehind write --trace trace --stats figures file < source");
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let after_ns = dropbehind_linux::monotonic_ns();
    let (records, figures) = (records(&user.file("trace")), figures(&user));
    assert_same_writeback(&records, &figures);
    // The sync at the end writes the rest.
    assert!(sum(of(&records, "writeback"), "bytes") > SIZE / 2);
    assert_eq!(sum(of(&records, "drop"), "bytes"), SIZE);
    assert_eq!(figures["dropped_bytes"], SIZE);
    assert_eq!(fincore(&user.file("file")).unwrap(), 0);
    // As the kernel was asked.
    let calls = std::fs::read_to_string(user.file("calls")).unwrap();
    let calls = calls
        .lines()
        .filter(|line| line.contains("sync_file_range("));
    // Those of an empty range only ask whether writeback has failed.
    let called: Vec<[u64; 2]> = calls
        .map(|call| {
            let mut numbers = call
                .split(", ")
                .skip(1)
                .map(|number| number.parse().unwrap());
            [(); 2].map(|()| numbers.next().unwrap())
        })
        .filter(|[_, length]| *length > 0)
        .collect();
    let traced: Vec<[u64; 2]> = of(&records, "writeback")
        .map(|record| ["offset", "length"].map(|key| record[key].as_u64().unwrap()))
        .collect();
    assert_eq!(traced, called);
    let file = std::fs::metadata(user.file("file")).unwrap();
    let device = format!(
        "{}:{}",
        rustix::fs::major(file.dev()),
        rustix::fs::minor(file.dev())
    );
    for record in &records {
        assert_eq!(record["inode"], file.ino());
        assert_eq!(record["device"], device.as_str());
        assert_eq!(record["path"], user.file("file").to_str().unwrap());
        let at_ns = record["at_ns"].as_u64().unwrap();
        let end_ns = at_ns + record["took_ns"].as_u64().unwrap();
        assert!(before_ns < at_ns && end_ns < after_ns, "{record}");
    }
}

#[test]
fn a_trace_of_a_read_adds_up() {
    need!(Need::Cachestat, Need::Tool("fincore"));
    let user = User::new();
    let file = user.has("file", SIZE as usize);
    std::fs::File::open(&file).unwrap().sync_all().unwrap();
    dropbehind_testbed::residency::evict(&file);
    user.does("read --trace trace --stats figures file");
    let (records, figures) = (records(&user.file("trace")), figures(&user));
    assert_eq!(of(&records, "writeback").count(), 0);
    // The flusher and a reader that helps may drop the same pages at the same time.
    assert!(sum(of(&records, "drop"), "bytes") >= SIZE);
    let mut ranges: Vec<[u64; 2]> = of(&records, "drop")
        .map(|record| ["offset", "length"].map(|key| record[key].as_u64().unwrap()))
        .collect();
    ranges.sort_unstable();
    let end = ranges.iter().fold(0, |end, [offset, length]| {
        assert!(*offset <= end, "a gap at {end}");
        end.max(offset + length)
    });
    assert_eq!(end, SIZE);
    assert_eq!(figures["dropped_bytes"], SIZE);
    assert_eq!(fincore(&file).unwrap(), 0);
}

#[test]
fn a_trace_of_a_run_adds_up() {
    need!(Need::Root, Need::Cachestat, Need::Tool("fincore"));
    let user = User::new();
    let script = "mkdir many; dd if=/dev/zero of=large bs=1M count=40 status=none; \
                  for file in 1 2 3 4 5; do head -c 100000 /dev/zero > many/$file; done";
    std::fs::write(user.file("script"), script).unwrap();
    user.does("run --trace trace --stats figures sh script");
    let (records, figures) = (records(&user.file("trace")), figures(&user));
    assert_same_writeback(&records, &figures);
    assert_eq!(
        sum(of(&records, "drop"), "bytes"),
        figures["dropped_bytes"].as_u64().unwrap()
    );
    let large = user.file("large");
    let inode = std::fs::metadata(&large).unwrap().ino();
    let ours = |event| of(&records, event).filter(|record| record["inode"] == inode);
    // The fsync of another test has ext4 write what has blocks already.
    let written_bytes = sum(ours("writeback"), "bytes");
    assert!(
        (SIZE / 2..=SIZE).contains(&written_bytes),
        "{written_bytes}"
    );
    assert_eq!(sum(ours("drop"), "bytes"), SIZE);
    assert!(ours("drop").all(|record| record["path"] == large.to_str().unwrap()));
    assert_eq!(fincore(&large).unwrap(), 0);
}

#[test]
fn perfetto_gets_its_own_format() {
    let user = User::new();
    user.has("source", SIZE as usize);
    user.does("cp --trace trace.json source copy");
    let text = std::fs::read_to_string(user.file("trace.json")).unwrap();
    let events: Vec<Value> = serde_json::from_str(&text).unwrap();
    // The sync writes some of it, and then all of it goes.
    let drops = events.iter().filter(|event| event["cat"] == "drop");
    let bytes: u64 = drops
        .inspect(|event| assert_eq!(event["ph"], "X"))
        .map(|event| event["args"]["bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(bytes, SIZE);
    let end = events.last().unwrap();
    assert_eq!(end["args"]["lost"], 0);
}

#[test]
fn a_trace_that_cannot_be_written_is_an_error_before_and_a_note_after() {
    let user = User::new();
    user.has("a", 3 << 20);
    user.runs("cp --trace no/where a b")
        .fails(1, "Create the directory no first.");
    assert!(!user.file("b").exists());
    let said = user.does("cp -q --trace /dev/full a b");
    assert!(
        said.stderr.contains("/dev/full is not complete"),
        "{}",
        said.stderr
    );
    user::holds(&user.file("b"), 3 << 20);
    need!(Need::Root);
    let said = user.runs("run --trace no/where -- touch c");
    said.fails(125, "Create the directory");
    assert!(!user.file("c").exists());
    let said = user.does("run --trace /dev/full -- touch c");
    assert!(
        said.stderr.contains("/dev/full is not complete"),
        "{}",
        said.stderr
    );
}

#[test]
fn tracers_find_the_probes() {
    need!(Need::Tool("readelf"));
    let command = std::process::Command::new("readelf")
        .args(["--notes", env!("CARGO_BIN_EXE_dropbehind")])
        .output()
        .unwrap();
    let notes = String::from_utf8_lossy(&command.stdout).into_owned();
    for name in ["writeback", "drop"] {
        let wanted = format!("Provider: dropbehind\n    Name: {name}\n");
        let (_, rest) = notes
            .split_once(&wanted)
            .unwrap_or_else(|| panic!("{name}: {notes}"));
        let arguments = rest
            .lines()
            .find(|line| line.contains("Arguments:"))
            .unwrap();
        assert_eq!(arguments.split_whitespace().count(), 1 + 6, "{arguments}");
    }
}

/// What a tracer makes of the probes is what the figures say.
#[test]
fn a_tracer_reads_the_probes() {
    need!(Need::Root, Need::Cachestat, Need::Tool("bpftrace"));
    let user = User::new();
    user.has("source", SIZE as usize);
    let command = env!("CARGO_BIN_EXE_dropbehind");
    let program = ["writeback", "drop"]
        .map(|probe| format!("usdt:{command}:dropbehind:{probe} {{ @{probe} = sum(arg4); }} "));
    // bpftrace wants tracefs in its usual place, where few machines mount it before somebody
    // looks.
    let mounts = "test -e /sys/kernel/tracing/events || \
                  mount -t tracefs tracefs /sys/kernel/tracing; exec bpftrace \"$@\"";
    let traced = Command::new("unshare")
        .args(["--mount", "sh", "-c", mounts, "sh"])
        .args(["-q", "-f", "json", "-e", &program.concat(), "-c"])
        .arg(format!("{command} cp --stats figures source file"))
        .current_dir(user.file(""))
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&traced.stdout);
    assert!(traced.status.success(), "{traced:?}");
    let sum_of = |probe: &str| {
        let mut lines = stdout.lines().filter_map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            line["data"][format!("@{probe}")].as_u64()
        });
        lines
            .next_back()
            .unwrap_or_else(|| panic!("no {probe}: {traced:?}"))
    };
    let figures = figures(&user);
    let told = figures["writeback_bytes"].as_object().unwrap();
    let written: u64 = told.values().map(|bytes| bytes.as_u64().unwrap()).sum();
    assert_eq!(sum_of("writeback"), written);
    assert_eq!(figures["dropped_bytes"], sum_of("drop"));
    // The copy's own sync may write the rest.
    assert!(sum_of("drop") >= SIZE && written > 0, "{figures}");
}
