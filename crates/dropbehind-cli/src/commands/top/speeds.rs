//! What changed between two samples, per second.

use dropbehind_observer::snapshot::Snapshot;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Speeds in bytes a second; empty after the first sample.
#[derive(Clone, Debug, Default)]
pub(super) struct Speeds {
    disks: HashMap<String, u64>,
    files: HashMap<(String, PathBuf), u64>,
    pub(super) cpu_percent: Option<f64>,
    pub(super) events_per_second: Option<u64>,
}

impl Speeds {
    /// The speeds since the sample before, if that is one of the same observer.
    pub(super) fn between(before: &Snapshot, now: &Snapshot) -> Self {
        let elapsed_ns = now.elapsed_ns.saturating_sub(before.elapsed_ns);
        if elapsed_ns == 0 || before.process != now.process {
            return Self::default();
        }
        // A counter that went back belongs to a new file with an old name.
        let per_second = |before: u64, now: u64| {
            let change = u128::from(now.saturating_sub(before));
            u64::try_from(change * 1_000_000_000 / u128::from(elapsed_ns)).unwrap_or(u64::MAX)
        };
        let moved = |written: u64, read: u64| written.saturating_add(read);
        let disks_before: HashMap<&str, u64> = before
            .disks
            .iter()
            .map(|disk| {
                (
                    disk.name.as_str(),
                    moved(disk.written_bytes, disk.read_bytes),
                )
            })
            .collect();
        let files_before: HashMap<(&str, &Path), u64> = before
            .files
            .iter()
            .map(|file| {
                let key = (file.disk.as_str(), file.path.as_path());
                (key, moved(file.written_bytes, file.read_bytes))
            })
            .collect();
        let disks = now.disks.iter().map(|disk| {
            let moved = moved(disk.written_bytes, disk.read_bytes);
            let was = disks_before.get(disk.name.as_str()).copied();
            (disk.name.clone(), per_second(was.unwrap_or(moved), moved))
        });
        let files = now.files.iter().map(|file| {
            let moved = moved(file.written_bytes, file.read_bytes);
            let was = files_before.get(&(file.disk.as_str(), file.path.as_path()));
            // A new file has moved all its bytes since the last sample.
            let speed = per_second(was.copied().unwrap_or(0), moved);
            ((file.disk.clone(), file.path.clone()), speed)
        });
        let cpu_ns = now.cpu_ns.saturating_sub(before.cpu_ns);
        Self {
            disks: disks.collect(),
            files: files.collect(),
            cpu_percent: Some(cpu_ns as f64 * 100.0 / elapsed_ns as f64),
            events_per_second: Some(per_second(before.totals.events, now.totals.events)),
        }
    }

    pub(super) fn of_disk(&self, name: &str) -> Option<u64> {
        self.disks.get(name).copied()
    }

    /// By disk and path.
    pub(super) fn files(&self) -> impl Iterator<Item = (&(String, PathBuf), u64)> {
        self.files.iter().map(|(file, &speed)| (file, speed))
    }

    pub(super) fn of_file(&self, disk: &str, path: &Path) -> Option<u64> {
        // The map cannot be searched by borrowed parts of a key.
        self.files.get(&(disk.to_owned(), path.to_owned())).copied()
    }
}
