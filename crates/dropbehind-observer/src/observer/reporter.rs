//! Builds a snapshot from what the observer's thread, the flusher and the thread for small files
//! count.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dropbehind_flusher::{DiskStats, Flusher, ObservedState, Waits};
use dropbehind_policy::{Reason, Writeback};

use crate::board::{FileFacts, Finished, SharedBoard, lock};
use crate::small_files::SmallFiles;
use crate::snapshot::{DiskSnapshot, FileSnapshot, RuleSnapshot, Snapshot, Totals};
use crate::status::FILES_MAX;

/// All counters of an observer.
pub(super) struct Reporter {
    /// What the snapshot calls the observer.
    pub(super) kind: &'static str,
    pub(super) flusher: Flusher,
    pub(super) small: SmallFiles,
    pub(super) board: SharedBoard,
    pub(super) events: AtomicU64,
    pub(super) overflows: AtomicU64,
    pub(super) started: Instant,
    /// The kernel reports who brings in what.
    pub(super) traced: bool,
}

impl Reporter {
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut board = lock(&self.board).clone();
        let mut files = Vec::new();
        for file in std::mem::take(&mut board.files).into_values() {
            let (disk, state) = (file.observed.disk_name(), file.observed.state());
            *board.sums(disk, &file.facts.rule) += Finished::of_stream(&state);
            files.push((file.facts, disk.to_owned(), state));
        }
        let mut notes = [board.notes, board.user_notes].concat();
        let board = board.figures;
        let mut by_rule = BTreeMap::<Arc<str>, Finished>::new();
        let mut by_disk = HashMap::<String, Finished>::new();
        for (disk, rules) in board.by_disk {
            let of_disk = by_disk.entry(disk).or_default();
            for (rule, finished) in rules {
                *of_disk += finished;
                if let Some(rule) = rule {
                    *by_rule.entry(rule).or_default() += finished;
                }
            }
        }
        let lost = board.lost_records;
        notes.extend(self.flusher.degraded());
        if lost > 0 {
            notes.push(format!(
                "the kernel lost {lost} records of the page cache: files that were in use then may \
                 stay cached"
            ));
        }
        let mut finished = Finished::default();
        by_disk.values().for_each(|of_disk| finished += *of_disk);
        let mut totals = self.totals_without_disks(&finished);
        totals.cached_bytes += board.waiting_bytes;
        // Of files that have no stream and are not on the shelf, no other counter says so.
        totals.brought_bytes += board.waiting_bytes + board.reused_bytes;
        totals.reused_bytes += board.reused_bytes;
        let mut disks: Vec<DiskSnapshot> = Vec::new();
        for disk in self.flusher.disks_stats() {
            add_disk(&mut totals, &disk);
            let of_finished = by_disk.remove(&disk.name).unwrap_or_default();
            disks.push(disk_snapshot(disk, of_finished));
        }
        // Disks on which no file had a stream.
        let others = by_disk.into_iter().filter(|(name, _)| !name.is_empty());
        disks.extend(others.map(|(name, finished)| finished_snapshot(name, finished)));
        disks.sort_by(|one, other| one.name.cmp(&other.name));
        totals.peak_cached_bytes = totals.peak_cached_bytes.max(board.peak_cached_bytes);
        files.sort_by_key(|(.., state)| {
            let counts = &state.counts;
            (
                counts.idle,
                Reverse(counts.written_bytes + counts.read_bytes),
            )
        });
        let listed = files.into_iter().take(FILES_MAX);
        let listed = listed.map(|(facts, name, state)| {
            let disk = disks.iter().find(|disk| disk.name == name);
            file_snapshot(facts, name, state, disk.map_or(0, |disk| disk.window_bytes))
        });
        let files = listed.collect();
        Snapshot {
            elapsed_ns: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            kind: self.kind.to_owned(),
            process: std::process::id(),
            traced: self.traced,
            cpu_ns: own_cpu_ns(),
            totals,
            disks,
            rules: by_rule
                .into_iter()
                .map(|(name, finished)| rule_snapshot(&name, finished))
                .collect(),
            rules_read: board.rules_read,
            files,
            notes,
        }
    }

    /// The sums over files that are finished and over small ones.
    fn totals_without_disks(&self, finished: &Finished) -> Totals {
        let small = self.small.totals();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut totals = Totals {
            events: count(&self.events),
            overflows: count(&self.overflows),
            files: finished.files,
            written_bytes: finished.written_bytes,
            read_bytes: finished.read_bytes,
            reread_bytes: finished.reread_bytes,
            kept_bytes: finished.kept_bytes,
            brought_bytes: small.brought_bytes + finished.unclear_bytes,
            dropped_bytes: small.dropped_bytes,
            left_bytes: small.left_bytes + finished.unclear_bytes,
            reused_bytes: small.reused_bytes,
            cached_bytes: small.waiting_bytes,
            ..Totals::default()
        };
        add_waits(&mut totals, &finished.waits);
        let budget = Reason::Budget.name().to_owned();
        totals.writeback_bytes.insert(budget, small.writeback_bytes);
        totals
    }
}

fn rule_snapshot(name: &str, finished: Finished) -> RuleSnapshot {
    RuleSnapshot {
        name: name.to_owned(),
        files: finished.files,
        written_bytes: finished.written_bytes,
        read_bytes: finished.read_bytes,
        dropped_bytes: finished.dropped_bytes + finished.stream_dropped_bytes,
    }
}

fn add_waits(totals: &mut Totals, waits: &Waits) {
    totals.waits += waits.begun;
    totals.wait_ns += waits.ns;
    totals.waits_by_length.resize(waits.by_length.len(), 0);
    let lengths = totals.waits_by_length.iter_mut().zip(waits.by_length);
    lengths.for_each(|(sum, count)| *sum += count);
}

fn add_disk(totals: &mut Totals, disk: &DiskStats) {
    let (stats, pages) = (&disk.stats, disk.observed);
    totals.brought_bytes += stats.brought_bytes;
    totals.dropped_bytes += stats.dropped_bytes;
    totals.left_bytes += stats.left_bytes;
    totals.reused_bytes += stats.reused_bytes;
    totals.cached_bytes += pages.counted.cached_bytes;
    // Disks peak at different times, so the sum is an upper bound.
    totals.peak_cached_bytes += pages.peak_cached_bytes;
    totals.peak_dirty_bytes += pages.peak_unwritten_bytes;
    for (reason, bytes) in stats.writeback_bytes.iter() {
        *totals
            .writeback_bytes
            .entry(reason.name().to_owned())
            .or_default() += bytes;
    }
}

/// The bytes written and read are those of its files that have finished so far.
fn disk_snapshot(disk: DiskStats, finished: Finished) -> DiskSnapshot {
    let (stats, pages) = (&disk.stats, disk.observed);
    let of_finished = finished_snapshot(disk.name, finished);
    DiskSnapshot {
        files: disk.files as u64,
        dirty_bytes: pages.counted.dirty_bytes,
        writeback_bytes: pages.counted.writeback_bytes,
        cached_bytes: pages.counted.cached_bytes,
        dropped_bytes: stats.dropped_bytes + finished.dropped_bytes,
        left_bytes: stats.left_bytes + of_finished.left_bytes,
        writeback_bytes_per_second: disk.bytes_per_second,
        window_bytes: disk.window_bytes,
        flushers: disk.flushers,
        yielded_ns: disk.yielded_ns,
        ..of_finished
    }
}

fn finished_snapshot(name: String, finished: Finished) -> DiskSnapshot {
    DiskSnapshot {
        name,
        written_bytes: finished.written_bytes,
        read_bytes: finished.read_bytes,
        reread_bytes: finished.reread_bytes,
        dropped_bytes: finished.dropped_bytes,
        left_bytes: finished.left_bytes + finished.unclear_bytes,
        kept_bytes: finished.kept_bytes,
        ..DiskSnapshot::default()
    }
}

fn file_snapshot(
    facts: FileFacts,
    disk: String,
    state: ObservedState,
    disk_window_bytes: u64,
) -> FileSnapshot {
    FileSnapshot {
        mode: facts.mode.to_string(),
        reason: facts.reason(),
        advised: facts.advised,
        rule: facts.mode_rule.as_deref().unwrap_or_default().to_owned(),
        window_bytes: match facts.mode.writeback {
            Writeback::Lazy => 0,
            _ => facts.window_bytes.unwrap_or(disk_window_bytes),
        },
        path: facts.path,
        disk,
        users: facts.users,
        size_bytes: state.counts.size_bytes,
        written_bytes: state.counts.written_bytes,
        read_bytes: state.counts.read_bytes,
        dirty_bytes: state.counts.counted.dirty_bytes,
        writeback_bytes: state.counts.counted.writeback_bytes,
        cached_bytes: state.counts.counted.cached_bytes,
        dropped_bytes: state.counters.dropped_bytes,
        kept_bytes: kept_bytes(&state, facts.mode.drops()),
        waits: state.waits.begun,
        state: match state.counts.idle {
            true => "idle".into(),
            false => "active".into(),
        },
    }
}

/// The bytes of a file that are cached and not ours, as of one look: what has been dropped since
/// was ours then.
fn kept_bytes(state: &ObservedState, drops: bool) -> u64 {
    let counts = &state.counts;
    // In other modes, all that is cached counts as ours there.
    let ours_bytes = match drops {
        true => counts.ours.cached_bytes,
        false => counts.read_bytes + counts.written_bytes,
    };
    counts.counted.cached_bytes.saturating_sub(ours_bytes)
}

fn own_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).map_or(0, |time| time.as_nanos() as u64)
}
