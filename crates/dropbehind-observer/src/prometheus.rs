//! A snapshot as metrics for Prometheus.
//!
//! Base units (bytes, seconds). Every series carries the label `observer`,
//! `watch` or `run-PID`, so that the files of several observers can stand side
//! by side in the node exporter's directory.

mod exposition;
mod textfile;

use std::collections::BTreeSet;

use dropbehind_flusher::WAIT_LENGTHS;
use serde::Serialize;
use serde_json::Value;

pub use textfile::write_file;

use crate::snapshot::Snapshot;
use exposition::{Exposition, Labels, Seconds};

// Each line has a metric's name and its help. Without `_total`, the name is that of the field with
// the value.

// What was brought in is no counter: what turns out to be others' is subtracted.
const TOTALS_SO_FAR: &str = "\
events_total Events read from the kernel.
event_overflows_total Times the kernel's queue of events was full.
files_total Files that were observed.
written_bytes_total Seen written.
read_bytes_total Brought into the cache by reads, holes included.
reread_bytes_total Brought in by reads after it had been dropped.
dropped_bytes_total Dropped.
reused_bytes_total Used again, and so not dropped.
left_bytes_total Should have gone, and could not be dropped.";

const TOTALS_NOW: &str = "\
cached_bytes Cached, brought in by the programs observed and still to be dropped.
kept_bytes Cached before, or brought in by others, and so kept: of files that are done with.
peak_cached_bytes Most at once that was cached and brought in by the programs observed.
peak_dirty_bytes Most at once that was dirty or under writeback.";

const OF_RULE: &str = "\
files_total Files that were observed, by the rule that applied when they were first opened.
written_bytes_total Seen written to a rule's files.
read_bytes_total Brought into the cache by reads of a rule's files, holes included.
dropped_bytes_total Dropped from a rule's files.";

const OF_DISK: &str = "\
files Files on the disk that are observed now.
written_bytes_total Seen written to the disk's files.
read_bytes_total Brought into the cache by reads, holes included.
dirty_bytes Dirty bytes of the disk's files.
writeback_bytes Bytes of the disk's files under writeback.
cached_bytes Cached bytes of the disk's files.
dropped_bytes_total Dropped from the disk's files.
kept_bytes Kept for others, of files that are done with.
left_bytes_total Should have gone, and could not be dropped.
writeback_bytes_per_second Measured speed of writeback; 0 until known.
window_bytes The window now.
flushers Flushers that share the window, those of other programs included.";

const OF_FILE: &str = "\
written_bytes_total Seen written to the file.
read_bytes_total Brought into the cache by reads, holes included.
dirty_bytes Dirty bytes of the file.
writeback_bytes Bytes of the file under writeback.
cached_bytes Cached bytes of the file.
dropped_bytes_total Dropped from the file.
kept_bytes Kept for others.
waits_total Times a writer waited.";

/// The text of a snapshot. Only the first `files` files get series, since each file is a new set
/// of them to whoever stores them.
pub fn text(snapshot: &Snapshot, files: usize) -> String {
    let mut metrics = Exposition::new(observer(snapshot));
    observer_families(&mut metrics, snapshot);
    totals_families(&mut metrics, snapshot);
    let rules = once_each(&snapshot.rules, |rule| vec![("rule", rule.name.clone())]);
    figures(&mut metrics, "rule_", OF_RULE, &rules);
    let disks = once_each(&snapshot.disks, |disk| vec![("disk", disk.name.clone())]);
    figures(&mut metrics, "disk_", OF_DISK, &disks);
    metrics.family(
        "disk_yielded_seconds_total",
        "Time the flusher held back for other users of the disk.",
        disks
            .iter()
            .map(|(labels, disk)| (labels, Seconds(disk.yielded_ns))),
    );
    let listed = &snapshot.files[..files.min(snapshot.files.len())];
    let listed = once_each(listed, |file| {
        let path = file.path.to_string_lossy().into_owned();
        vec![
            ("disk", file.disk.clone()),
            ("path", path),
            ("mode", file.mode.clone()),
        ]
    });
    figures(&mut metrics, "file_", OF_FILE, &listed);
    metrics.into_text()
}

fn observer(snapshot: &Snapshot) -> String {
    match snapshot.kind.as_str() {
        "watch" => "watch".to_owned(),
        kind => format!("{kind}-{}", snapshot.process),
    }
}

fn observer_families(metrics: &mut Exposition, snapshot: &Snapshot) {
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    metrics.family(
        "build_info",
        "Always 1; the labels say which dropbehind this is.",
        [(&version, 1)],
    );
    metrics.one(
        "observer_uptime_seconds",
        "Time since the observer began.",
        Seconds(snapshot.elapsed_ns),
    );
    metrics.one(
        "observer_cpu_seconds_total",
        "CPU time of the observer's process.",
        Seconds(snapshot.cpu_ns),
    );
    metrics.one(
        "observer_notes",
        "Things that are not possible here; dropbehind top says which.",
        snapshot.notes.len(),
    );
    let Some(read) = &snapshot.rules_read else {
        return;
    };
    metrics.one(
        "rules_last_reload_successful",
        "Whether the rules that were read last are in force; 0 if they had a mistake, or the observer \
         is not free to take them.",
        u8::from(!read.refused && !read.waiting),
    );
    metrics.one(
        "rules_last_reload_success_timestamp_seconds",
        "When the rules in force were taken, in seconds since 1970.",
        read.in_force_since,
    );
}

fn totals_families(metrics: &mut Exposition, snapshot: &Snapshot) {
    let totals = &snapshot.totals;
    let mut fields = fields(totals);
    // The only metric that is not named after its field.
    fields["event_overflows"] = totals.overflows.into();
    let once = [(Labels::new(), &fields)];
    figures(metrics, "", TOTALS_SO_FAR, &once);
    let reasons = totals.writeback_bytes.iter();
    let reasons: Vec<_> = reasons
        .map(|(reason, bytes)| (vec![("reason", reason.clone())], bytes))
        .collect();
    metrics.family(
        "writeback_started_bytes_total",
        "For which writeback was started, by reason.",
        reasons.iter().map(|(labels, bytes)| (labels, bytes)),
    );
    metrics.histogram(
        "wait_seconds",
        "How long writers were made to wait for their disk.",
        &WAIT_LENGTHS,
        &totals.waits_by_length,
        totals.wait_ns,
    );
    figures(metrics, "", TOTALS_NOW, &once);
}

/// The same figures of several.
fn figures<T: Serialize>(
    metrics: &mut Exposition,
    prefix: &str,
    figures: &str,
    several: &[(Labels, &T)],
) {
    let several = several.iter().map(|(labels, one)| (labels, fields(one)));
    let several: Vec<_> = several.collect();
    for line in figures.lines() {
        let (name, help) = line.split_once(' ').expect("a help follows the name");
        let field = name.strip_suffix("_total").unwrap_or(name);
        // If there is no such field, this is null, which no reader of metrics accepts.
        let samples = several.iter().map(|(labels, one)| (*labels, &one[field]));
        metrics.family(&format!("{prefix}{name}"), help, samples);
    }
}

fn fields(of: &impl Serialize) -> Value {
    serde_json::to_value(of).expect("parts of a snapshot are JSON")
}

/// The first of those with the same labels, such as a removed file and one that took its name. A
/// duplicate series makes the whole text invalid.
fn once_each<T>(all: &[T], labels: impl Fn(&T) -> Labels) -> Vec<(Labels, &T)> {
    let mut seen = BTreeSet::new();
    all.iter()
        .map(|one| (labels(one), one))
        .filter(|(labels, _)| seen.insert(labels.clone()))
        .collect()
}
