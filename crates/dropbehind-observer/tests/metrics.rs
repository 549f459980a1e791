//! What Prometheus is told.

mod exposition;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

use dropbehind_observer::prometheus;
use dropbehind_observer::snapshot::{
    DiskSnapshot, FileSnapshot, RuleSnapshot, RulesRead, Snapshot, Totals,
};
use dropbehind_observer::status::Server;
use dropbehind_testbed::{Need, Scratch, need};

const ODD: &str = "/srv/a \"b\"\\c\nd, e=\"f\"}";

fn busy() -> Snapshot {
    let file = |path: OsString, written_bytes| FileSnapshot {
        path: path.into(),
        disk: "sda".into(),
        mode: "dontcache".into(),
        written_bytes,
        ..FileSnapshot::default()
    };
    Snapshot {
        elapsed_ns: 61_000_000_007,
        kind: "run".into(),
        process: 4711,
        traced: true,
        cpu_ns: 250_000_000,
        totals: Totals {
            events: 12,
            left_bytes: 4096,
            cached_bytes: u64::MAX,
            wait_ns: 2_500_000_000,
            waits_by_length: vec![4, 0, 0, 3, 0, 1],
            writeback_bytes: BTreeMap::from([("dontcache".into(), 1 << 20), ("age".into(), 5)]),
            ..Totals::default()
        },
        rules: ["dumps", "2", "dumps"]
            .map(|name| RuleSnapshot {
                name: name.into(),
                files: 9,
                dropped_bytes: 4096,
                ..RuleSnapshot::default()
            })
            .to_vec(),
        rules_read: Some(RulesRead {
            in_force_since: 1_790_000_000,
            refused: true,
            ..RulesRead::default()
        }),
        disks: ["sda", "sdb", "sda"]
            .map(|name| DiskSnapshot {
                name: name.into(),
                yielded_ns: 1_500_000_000,
                dirty_bytes: 8192,
                flushers: 3,
                ..DiskSnapshot::default()
            })
            .to_vec(),
        files: vec![
            file(ODD.into(), 7),
            file(ODD.into(), 8),
            file(OsString::from_vec(b"/srv/\xff".to_vec()), 9),
            file("/srv/last".into(), 10),
        ],
        notes: vec!["overlayfs is out of reach".into()],
    }
}

fn value(text: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let samples = exposition::read(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut all: BTreeMap<String, String> = labels
        .iter()
        .map(|(label, value)| (label.to_string(), value.to_string()))
        .collect();
    all.insert("observer".into(), "run-4711".into());
    samples.get(&(name.to_owned(), all)).copied()
}

#[test]
fn every_line_is_what_prometheus_expects() {
    let text = prometheus::text(&busy(), 1000);
    for (name, labels, expected) in [
        ("dropbehind_observer_uptime_seconds", &[][..], 61.000000007),
        ("dropbehind_observer_cpu_seconds_total", &[], 0.25),
        ("dropbehind_events_total", &[], 12.0),
        ("dropbehind_left_bytes_total", &[], 4096.0),
        ("dropbehind_cached_bytes", &[], u64::MAX as f64),
        ("dropbehind_observer_notes", &[], 1.0),
        (
            "dropbehind_build_info",
            &[("version", env!("CARGO_PKG_VERSION"))],
            1.0,
        ),
        ("dropbehind_rules_last_reload_successful", &[], 0.0),
        (
            "dropbehind_rules_last_reload_success_timestamp_seconds",
            &[],
            1.79e9,
        ),
        ("dropbehind_rule_files_total", &[("rule", "dumps")], 9.0),
        (
            "dropbehind_rule_dropped_bytes_total",
            &[("rule", "2")],
            4096.0,
        ),
        ("dropbehind_wait_seconds_bucket", &[("le", "0.001")], 4.0),
        ("dropbehind_wait_seconds_bucket", &[("le", "1")], 7.0),
        ("dropbehind_wait_seconds_bucket", &[("le", "+Inf")], 8.0),
        ("dropbehind_wait_seconds_sum", &[], 2.5),
        ("dropbehind_wait_seconds_count", &[], 8.0),
        (
            "dropbehind_writeback_started_bytes_total",
            &[("reason", "age")],
            5.0,
        ),
        ("dropbehind_disk_dirty_bytes", &[("disk", "sdb")], 8192.0),
        ("dropbehind_disk_flushers", &[("disk", "sdb")], 3.0),
        (
            "dropbehind_disk_yielded_seconds_total",
            &[("disk", "sda")],
            1.5,
        ),
        (
            "dropbehind_file_written_bytes_total",
            &[("disk", "sda"), ("mode", "dontcache"), ("path", ODD)],
            7.0,
        ),
        (
            "dropbehind_file_written_bytes_total",
            &[
                ("disk", "sda"),
                ("mode", "dontcache"),
                ("path", "/srv/\u{fffd}"),
            ],
            9.0,
        ),
    ] {
        assert_eq!(value(&text, name, labels), Some(expected), "{name}\n{text}");
    }
}

#[test]
fn files_are_told_of_only_when_asked_for_and_only_so_many() {
    let files = |most| {
        let text = prometheus::text(&busy(), most);
        exposition::read(&text)
            .unwrap()
            .keys()
            .filter(|(name, _)| name == "dropbehind_file_dirty_bytes")
            .count()
    };
    assert_eq!([0, 1, 2, 3, 4, 9].map(files), [0, 1, 1, 2, 3, 3]);
}

#[test]
fn an_observer_without_anything_is_valid_too() {
    let text = prometheus::text(&Snapshot::default(), 10);
    assert!(exposition::read(&text).is_ok(), "{text}");
    assert!(!text.contains("disk_"), "{text}");
}

#[test]
fn the_checker_finds_faults() {
    let good = "# HELP a_b x\n# TYPE a_b gauge\na_b{c=\"d\"} 1\n";
    assert!(exposition::read(good).is_ok());
    for (from, to) in [
        ("gauge\n", "gouge\n"),
        ("gauge\n", "counter\n"),
        ("gauge\n", "histogram\n"),
        ("# HELP a_b x\n", ""),
        ("# TYPE a_b gauge\n", ""),
        ("a_b{", "a_c{"),
        ("c=", "c-="),
        ("\"d\"", "d"),
        ("\"d\"", "\"d\"\""),
        ("\"d\"", "\"\\d\""),
        (" 1\n", " x\n"),
        (" 1\n", " 1"),
        ("a_b{c=\"d\"} 1\n", "a_b{c=\"d\"} 1\na_b{c=\"d\"} 2\n"),
    ] {
        let bad = good.replace(from, to);
        assert!(exposition::read(&bad).is_err(), "{bad}");
    }
}

#[test]
fn a_file_is_replaced_whole() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.file("dropbehind.prom");
    let texts: Vec<String> = (0..2)
        .map(|number| {
            let mut snapshot = busy();
            snapshot.totals.events = number;
            prometheus::text(&snapshot, 10)
        })
        .collect();
    prometheus::write_file(&path, &texts[0]).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for text in texts.iter().cycle().take(500) {
                prometheus::write_file(&path, text).unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        while !over.load(Ordering::Relaxed) {
            let found = fs::read_to_string(&path).unwrap();
            assert!(texts.contains(&found), "{found}");
        }
    });
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    assert!(prometheus::write_file(&scratch.file("missing/x.prom"), "").is_err());
    // A directory cannot be replaced, and nothing is left beside it.
    fs::create_dir(scratch.file("taken.prom")).unwrap();
    assert!(prometheus::write_file(&scratch.file("taken.prom"), "").is_err());
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 2);
}

#[test]
fn curl_reads_the_metrics() {
    need!(Need::Tool("curl"));
    let scratch = Scratch::new().unwrap();
    let server = Server::start(scratch.file("watch.sock"), busy).unwrap();
    let output = std::process::Command::new("curl")
        .args(["--silent", "--show-error", "--fail", "--unix-socket"])
        .arg(server.path())
        .arg("http://localhost/metrics")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!exposition::read(&text).unwrap().is_empty());
}

/// All that the dashboard asks for is there.
#[test]
fn the_dashboard_shows_metrics_that_exist() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging/grafana-dashboard.json");
    let text = fs::read_to_string(path).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut snapshot = busy();
    snapshot.kind = "watch".into();
    let samples = exposition::read(&prometheus::text(&snapshot, 10)).unwrap();
    let labels_of = |name: &str| {
        let of_name = samples.keys().filter(|(sample, _)| sample == name);
        of_name.map(|(_, labels)| labels).next()
    };
    let mut asked = std::collections::BTreeSet::new();
    let mut ids = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        ids.push(panel["id"].as_u64().unwrap());
        let targets = panel["targets"].as_array();
        assert_eq!(targets.is_none(), panel["type"] == "row", "{panel:#}");
        for target in targets.into_iter().flatten() {
            let query = target["expr"].as_str().unwrap();
            let names: Vec<&str> = query
                .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
                .filter(|word| word.starts_with("dropbehind_"))
                .collect();
            assert!(!names.is_empty(), "{query}");
            for name in names {
                let labels = labels_of(name).unwrap_or_else(|| panic!("{name} in {query}"));
                let legend = target["legendFormat"].as_str().unwrap();
                let by = query.split(" by (").skip(1);
                let by = by.map(|rest| rest.split(')').next().unwrap());
                let shown = legend.split("{{").skip(1);
                let shown = shown.map(|rest| rest.split("}}").next().unwrap());
                for label in by.chain(shown) {
                    assert!(labels.contains_key(label), "{label} of {query}");
                }
                asked.insert(name.to_owned());
            }
        }
    }
    let panels = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), panels);
    assert!(asked.len() >= 20, "{asked:?}");
}
