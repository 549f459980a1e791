//! A snapshot as metrics for Prometheus.
//!
//! Base units (bytes, seconds). Every series carries the label `observer`,
//! `watch` or `run-PID`, so that the files of several observers can stand side
//! by side in the node exporter's directory.

mod exposition;
mod textfile;

use std::collections::BTreeSet;

use dropbehind_flusher::WAIT_LENGTHS;

pub use textfile::write_file;

use crate::snapshot::{DiskSnapshot, FileSnapshot, RuleSnapshot, Snapshot};
use exposition::{Exposition, Kind, Labels, Seconds};

/// The text of a snapshot. Only the first `files` files get series, since each file is a new set
/// of them to whoever stores them.
pub fn text(snapshot: &Snapshot, files: usize) -> String {
    let mut metrics = Exposition::new(observer(snapshot));
    observer_families(&mut metrics, snapshot);
    totals_families(&mut metrics, snapshot);
    let rules = once_each(&snapshot.rules, |rule| vec![("rule", rule.name.clone())]);
    figures(&mut metrics, "rule", &RULE_FIGURES, &rules);
    let disks = once_each(&snapshot.disks, |disk| vec![("disk", disk.name.clone())]);
    figures(&mut metrics, "disk", &DISK_FIGURES, &disks);
    metrics.family(
        Kind::Counter,
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
    figures(&mut metrics, "file", &FILE_FIGURES, &listed);
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
        Kind::Gauge,
        "build_info",
        "Always 1; the labels say which dropbehind this is.",
        [(&version, 1)],
    );
    metrics.one(
        Kind::Gauge,
        "observer_uptime_seconds",
        "Time since the observer began.",
        Seconds(snapshot.elapsed_ns),
    );
    metrics.one(
        Kind::Counter,
        "observer_cpu_seconds_total",
        "CPU time of the observer's process.",
        Seconds(snapshot.cpu_ns),
    );
    metrics.one(
        Kind::Gauge,
        "observer_notes",
        "Things that are not possible here; dropbehind top says which.",
        snapshot.notes.len(),
    );
    let Some(read) = &snapshot.rules_read else {
        return;
    };
    metrics.one(
        Kind::Gauge,
        "rules_last_reload_successful",
        "Whether the rules that were read last are in force; 0 if they had a mistake.",
        u8::from(!read.refused),
    );
    metrics.one(
        Kind::Gauge,
        "rules_last_reload_success_timestamp_seconds",
        "When the rules in force were read, in seconds since 1970.",
        read.in_force_since,
    );
}

/// A metric's kind, name and help, and where its value is.
type Figure<T> = (Kind, &'static str, &'static str, fn(&T) -> u64);

const RULE_FIGURES: [Figure<RuleSnapshot>; 4] = [
    (
        Kind::Counter,
        "files_total",
        "Files that were observed, by the rule that applied when they were first opened.",
        |rule| rule.files,
    ),
    (
        Kind::Counter,
        "written_bytes_total",
        "Seen written to a rule's files.",
        |rule| rule.written_bytes,
    ),
    (
        Kind::Counter,
        "read_bytes_total",
        "Seen read in from disks, of a rule's files.",
        |rule| rule.read_bytes,
    ),
    (
        Kind::Counter,
        "dropped_bytes_total",
        "Dropped from a rule's files.",
        |rule| rule.dropped_bytes,
    ),
];

fn totals_families(metrics: &mut Exposition, snapshot: &Snapshot) {
    let totals = &snapshot.totals;
    for (name, help, value) in [
        ("events", "Events read from the kernel.", totals.events),
        (
            "event_overflows",
            "Times the kernel's queue of events was full.",
            totals.overflows,
        ),
        ("files", "Files that were observed.", totals.files),
        ("written_bytes", "Seen written.", totals.written_bytes),
        ("read_bytes", "Seen read in from disks.", totals.read_bytes),
        (
            "reread_bytes",
            "Seen read in from disks, after it had been dropped.",
            totals.reread_bytes,
        ),
        (
            "brought_bytes",
            "Brought into the page cache by the programs observed.",
            totals.brought_bytes,
        ),
        ("dropped_bytes", "Dropped.", totals.dropped_bytes),
        (
            "reused_bytes",
            "Used again, and so not dropped.",
            totals.reused_bytes,
        ),
        (
            "left_bytes",
            "Should have gone, and could not be dropped.",
            totals.left_bytes,
        ),
    ] {
        metrics.one(Kind::Counter, &format!("{name}_total"), help, value);
    }
    let reasons = totals.writeback_bytes.iter();
    let reasons: Vec<_> = reasons
        .map(|(reason, bytes)| (vec![("reason", reason.clone())], bytes))
        .collect();
    metrics.family(
        Kind::Counter,
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
    for (name, help, value) in [
        (
            "cached_bytes",
            "Cached, brought in by the programs observed and still to be dropped.",
            totals.cached_bytes,
        ),
        (
            "kept_bytes",
            "Cached before, or brought in by others, and so kept: of files that are done with.",
            totals.kept_bytes,
        ),
        (
            "peak_cached_bytes",
            "Most at once that was cached and brought in by the programs observed.",
            totals.peak_cached_bytes,
        ),
        (
            "peak_dirty_bytes",
            "Most at once that was dirty or under writeback.",
            totals.peak_dirty_bytes,
        ),
    ] {
        metrics.one(Kind::Gauge, name, help, value);
    }
}

const DISK_FIGURES: [Figure<DiskSnapshot>; 12] = [
    (
        Kind::Gauge,
        "files",
        "Files on the disk that are observed now.",
        |disk| disk.files,
    ),
    (
        Kind::Counter,
        "written_bytes_total",
        "Seen written to the disk's files.",
        |disk| disk.written_bytes,
    ),
    (
        Kind::Counter,
        "read_bytes_total",
        "Seen read in from the disk.",
        |disk| disk.read_bytes,
    ),
    (
        Kind::Gauge,
        "dirty_bytes",
        "Dirty bytes of the disk's files.",
        |disk| disk.dirty_bytes,
    ),
    (
        Kind::Gauge,
        "writeback_bytes",
        "Bytes of the disk's files under writeback.",
        |disk| disk.writeback_bytes,
    ),
    (
        Kind::Gauge,
        "cached_bytes",
        "Cached bytes of the disk's files.",
        |disk| disk.cached_bytes,
    ),
    (
        Kind::Counter,
        "dropped_bytes_total",
        "Dropped from the disk's files.",
        |disk| disk.dropped_bytes,
    ),
    (
        Kind::Gauge,
        "kept_bytes",
        "Kept for others, of files that are done with.",
        |disk| disk.kept_bytes,
    ),
    (
        Kind::Counter,
        "left_bytes_total",
        "Should have gone, and could not be dropped.",
        |disk| disk.left_bytes,
    ),
    (
        Kind::Gauge,
        "writeback_bytes_per_second",
        "Measured speed of writeback; 0 until known.",
        |disk| disk.writeback_bytes_per_second,
    ),
    (Kind::Gauge, "window_bytes", "The window now.", |disk| {
        disk.window_bytes
    }),
    (
        Kind::Gauge,
        "flushers",
        "Flushers that share the window, those of other programs included.",
        |disk| disk.flushers,
    ),
];

const FILE_FIGURES: [Figure<FileSnapshot>; 8] = [
    (
        Kind::Counter,
        "written_bytes_total",
        "Seen written to the file.",
        |file| file.written_bytes,
    ),
    (
        Kind::Counter,
        "read_bytes_total",
        "Seen read in from the disk.",
        |file| file.read_bytes,
    ),
    (
        Kind::Gauge,
        "dirty_bytes",
        "Dirty bytes of the file.",
        |file| file.dirty_bytes,
    ),
    (
        Kind::Gauge,
        "writeback_bytes",
        "Bytes of the file under writeback.",
        |file| file.writeback_bytes,
    ),
    (
        Kind::Gauge,
        "cached_bytes",
        "Cached bytes of the file.",
        |file| file.cached_bytes,
    ),
    (
        Kind::Counter,
        "dropped_bytes_total",
        "Dropped from the file.",
        |file| file.dropped_bytes,
    ),
    (Kind::Gauge, "kept_bytes", "Kept for others.", |file| {
        file.kept_bytes
    }),
    (
        Kind::Counter,
        "waits_total",
        "Times a writer waited.",
        |file| file.waits,
    ),
];

/// The same figures of several.
fn figures<T>(
    metrics: &mut Exposition,
    prefix: &str,
    figures: &[Figure<T>],
    several: &[(Labels, &T)],
) {
    for (kind, name, help, figure) in figures {
        let samples = several.iter().map(|(labels, one)| (labels, figure(one)));
        metrics.family(*kind, &format!("{prefix}_{name}"), help, samples);
    }
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
