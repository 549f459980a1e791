//! A snapshot in Prometheus' text format, version 0.0.4.
//!
//! Base units (bytes, seconds). Every series carries the label `observer`,
//! `watch` or `run-PID`, so that the files of several observers can stand side
//! by side in the node exporter's directory.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::snapshot::{DiskSnapshot, FileSnapshot, Snapshot};

/// The text of a snapshot; per file only for the first `files` of them, since
/// each file is a new set of series to whoever keeps them.
pub fn text(snapshot: &Snapshot, files: usize) -> String {
    let mut page = Page {
        text: String::new(),
        observer: observer(snapshot),
    };
    observer_families(&mut page, snapshot);
    totals_families(&mut page, snapshot);
    disk_families(&mut page, &snapshot.disks);
    file_families(&mut page, &snapshot.files, files);
    page.text
}

/// Puts a text where the node exporter's textfile collector reads it: whoever
/// reads `path` finds the old text or the new one, whole.
///
/// The name is to end in `.prom`, or the collector passes it over.
///
/// # Errors
///
/// Those of writing into the directory of `path`.
pub fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    // Hidden, and without the ending that the collector looks for.
    let temporary = path.with_file_name(format!(
        ".{}.{}.tmp",
        name.to_string_lossy(),
        std::process::id()
    ));
    let written = write_new(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // Whatever became of it, it is of no use.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Not synced: after a crash of the machine the figures are old anyway.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let open = || -> io::Result<File> {
        // New, so that a link somebody put there is not followed. The exporter
        // runs as another user.
        File::options()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(path)
    };
    let mut file = match open() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Of a process with our number, which is dead.
            fs::remove_file(path)?;
            open()?
        }
        other => other?,
    };
    file.write_all(text.as_bytes())
}

fn observer(snapshot: &Snapshot) -> String {
    match snapshot.kind.as_str() {
        "watch" => "watch".to_owned(),
        kind => format!("{kind}-{}", snapshot.process),
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

struct Page {
    text: String,
    observer: String,
}

impl Page {
    /// One metric and its samples; nothing, where there are none. A counter's
    /// name ends in `_total`.
    fn family<'a, V: fmt::Display>(
        &mut self,
        kind: Kind,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, V)>,
    ) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        // Writing to a string cannot fail.
        let _ = writeln!(
            self.text,
            "# HELP dropbehind_{name} {help}\n# TYPE dropbehind_{name} {kind}"
        );
        for (labels, value) in samples {
            let _ = write!(
                self.text,
                "dropbehind_{name}{{observer=\"{}\"",
                Escaped(&self.observer)
            );
            for (label, text) in labels {
                let _ = write!(self.text, ",{label}=\"{}\"", Escaped(text));
            }
            let _ = writeln!(self.text, "}} {value}");
        }
    }

    fn one(&mut self, kind: Kind, name: &str, help: &str, value: impl fmt::Display) {
        self.family(kind, name, help, [(Vec::new(), value)]);
    }
}

/// A label's value as it stands between quotes.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// Nanoseconds as seconds, all digits of them.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        write!(f, "{whole}.{part:09}")
    }
}

fn observer_families(page: &mut Page, snapshot: &Snapshot) {
    page.one(
        Kind::Gauge,
        "observer_uptime_seconds",
        "Time since the observer began.",
        Seconds(snapshot.elapsed_ns),
    );
    page.one(
        Kind::Counter,
        "observer_cpu_seconds_total",
        "CPU time of the observer's process.",
        Seconds(snapshot.cpu_ns),
    );
    page.one(
        Kind::Gauge,
        "observer_notes",
        "Things that are not possible here; dropbehind top says which.",
        snapshot.notes.len(),
    );
}

fn totals_families(page: &mut Page, snapshot: &Snapshot) {
    let totals = &snapshot.totals;
    for (name, help, value) in [
        ("events", "Events read from the kernel.", totals.events),
        (
            "event_overflows",
            "Times the kernel's queue of events was full.",
            totals.overflows,
        ),
        ("files", "Files that were looked after.", totals.files),
        ("written_bytes", "Seen written.", totals.written_bytes),
        ("read_bytes", "Seen read in from disks.", totals.read_bytes),
        (
            "brought_bytes",
            "Brought into the page cache by the programs observed.",
            totals.brought_bytes,
        ),
        ("dropped_bytes", "Dropped.", totals.dropped_bytes),
        (
            "kept_bytes",
            "Cached before, or used by others, and kept.",
            totals.kept_bytes,
        ),
        (
            "left_bytes",
            "Should have gone, and could not be dropped.",
            totals.left_bytes,
        ),
    ] {
        page.one(Kind::Counter, &format!("{name}_total"), help, value);
    }
    page.family(
        Kind::Counter,
        "writeback_started_bytes_total",
        "For which writeback was started, by reason.",
        totals
            .writeback_bytes
            .iter()
            .map(|(reason, bytes)| (vec![("reason", reason.as_str())], bytes)),
    );
    for (name, help, value) in [
        (
            "cached_bytes",
            "Cached, brought in by the programs observed and still to be dropped.",
            totals.cached_bytes,
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
        page.one(Kind::Gauge, name, help, value);
    }
}

type DiskFigure = (Kind, &'static str, &'static str, fn(&DiskSnapshot) -> u64);

const DISK_FIGURES: [DiskFigure; 11] = [
    (
        Kind::Gauge,
        "files",
        "Files on the disk that are looked after now.",
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
        Kind::Counter,
        "kept_bytes_total",
        "Kept for others.",
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
];

fn disk_families(page: &mut Page, disks: &[DiskSnapshot]) {
    let disks = once_each(disks, |disk| disk.name.clone());
    for (kind, name, help, figure) in DISK_FIGURES {
        let samples = disks
            .iter()
            .map(|(name, disk)| (vec![("disk", name.as_str())], figure(disk)));
        page.family(kind, &format!("disk_{name}"), help, samples);
    }
    let yielded = disks
        .iter()
        .map(|(name, disk)| (vec![("disk", name.as_str())], Seconds(disk.yielded_ns)));
    page.family(
        Kind::Counter,
        "disk_yielded_seconds_total",
        "Time the flusher held back for other users of the disk.",
        yielded,
    );
}

type FileFigure = (Kind, &'static str, &'static str, fn(&FileSnapshot) -> u64);

const FILE_FIGURES: [FileFigure; 8] = [
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
    (
        Kind::Counter,
        "kept_bytes_total",
        "Kept for others.",
        |file| file.kept_bytes,
    ),
    (
        Kind::Counter,
        "waits_total",
        "Times a writer waited.",
        |file| file.waits,
    ),
];

fn file_families(page: &mut Page, files: &[FileSnapshot], most: usize) {
    let key = |file: &FileSnapshot| {
        let path = file.path.to_string_lossy().into_owned();
        (file.disk.clone(), path, file.mode.clone())
    };
    let files = once_each(&files[..most.min(files.len())], key);
    for (kind, name, help, figure) in FILE_FIGURES {
        let samples = files.iter().map(|((disk, path, mode), file)| {
            let labels = vec![
                ("disk", disk.as_str()),
                ("path", path.as_str()),
                ("mode", mode.as_str()),
            ];
            (labels, figure(file))
        });
        page.family(kind, &format!("file_{name}"), help, samples);
    }
}

/// The first of those with the same labels: a file that took a removed one's
/// name, say. A series that stands there twice makes the whole text invalid.
fn once_each<T, K: Ord + Clone>(all: &[T], key: impl Fn(&T) -> K) -> Vec<(K, &T)> {
    let mut seen = BTreeSet::new();
    all.iter()
        .map(|one| (key(one), one))
        .filter(|(key, _)| seen.insert(key.clone()))
        .collect()
}
