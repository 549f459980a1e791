//! Running one case: workers, witnesses, accounts.

mod accounts;
mod crew;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dropbehind_linux::DiskInfo;

use crate::clock::{now_ns, pause_ms};
use crate::job::{Done, Operation, TaskFigures};
use crate::latency::Latencies;
use crate::memory_group::MemoryGroup;
use crate::nfs::NfsServer;
use crate::process::Launcher;
use crate::quiet::disturbances;
use crate::results::{DiskFigures, MemoryFigures, RoleFigures, Run};
use crate::sampler::{Sampler, Seen, Watched};
use crate::scenario::Case;
use crate::worker::add_series;
use accounts::{Accounts, cpu, server_cpu};
use crew::{End, hire, lift};

/// How long pages that somebody drops behind may take to go.
const DROP_PATIENCE_STEPS: u32 = 20;

/// How a case ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Measured(Box<Run>),
    Unavailable(String),
    Failed(String),
    Interrupted,
}

/// What a case is run with.
pub(crate) struct Stand<'a> {
    pub(crate) launcher: &'a Launcher,
    /// The group of all workers, and the small one of `Mode::Cgroup`.
    pub(crate) group: Option<&'a MemoryGroup>,
    pub(crate) small_group: Option<&'a MemoryGroup>,
    /// The disk whose counters are read.
    pub(crate) disk: &'a DiskInfo,
    /// Limit of each task.
    pub(crate) limit_ms: u64,
    /// The role "all" is wanted, too.
    pub(crate) together: bool,
    /// A server that does the I/O, to which the workers are clients.
    pub(crate) server: Option<&'a NfsServer>,
    pub(crate) interrupted: &'a AtomicBool,
}

impl From<End> for Outcome {
    fn from(end: End) -> Self {
        match end {
            End::Unavailable(why) => Outcome::Unavailable(why),
            End::Failed(why) => Outcome::Failed(why),
            End::Interrupted => Outcome::Interrupted,
        }
    }
}

/// Runs a case whose files are prepared.
pub(crate) fn run(case: &Case, watched: Arc<Watched>, stand: &Stand<'_>) -> Outcome {
    match measure(case, watched, stand) {
        Ok(run) => Outcome::Measured(Box::new(run)),
        Err(end) => end.into(),
    }
}

fn measure(case: &Case, watched: Arc<Watched>, stand: &Stand<'_>) -> Result<Run, End> {
    let mut crew = hire(case, stand)?;
    let hot_before = watched.hot_bytes();
    let before = Accounts::now(stand.disk);
    let at_ns = now_ns();
    let sampler = Sampler::start(Arc::clone(&watched), at_ns);
    let worked = crew.work(case, at_ns, stand);
    if worked.is_err() {
        lift(stand);
        sampler.finish();
        worked?;
        unreachable!("it was an error");
    }
    let ended_ns = now_ns();
    wait_for_drops(&watched);
    let after = Accounts::now(stand.disk);
    let seen = sampler.finish();
    let done: Vec<Done> = crew.done.into_iter().flatten().collect();
    let tasks = || done.iter().flat_map(|one| &one.tasks);
    let mut run = Run {
        roles: roles(tasks(), at_ns, stand.together),
        memory: memory(&seen, &watched, hot_before),
        settle_ns: done.iter().map(|one| one.settle_ns).max().unwrap_or(0),
        ..Run::default()
    };
    run.memory.peak_group_bytes = stand.group.and_then(MemoryGroup::peak_bytes);
    let moved_bytes = run.roles.values().map(|role| role.bytes).sum();
    let machine = after.machine.since(before.machine);
    let others = after
        .programs
        .load_since(&before.programs, std::process::id());
    run.disturbances = disturbances(ended_ns - before.at_ns, moved_bytes, machine, &others);
    run.cpu = match stand.server {
        None => cpu(case, &done, &before, &after, machine.busy_ns, &others),
        Some(_) => server_cpu(&done, &before, &after, machine.busy_ns, &others),
    };
    run.disk = before
        .disk
        .zip(after.disk)
        .map(|(before, after)| DiskFigures {
            read_bytes: after.read_bytes.wrapping_sub(before.read_bytes),
            written_bytes: after.written_bytes.wrapping_sub(before.written_bytes),
            asked_read_bytes: asked(case, &done, Operation::Read),
            asked_written_bytes: asked(case, &done, Operation::Write),
        });
    let reclaim = after.reclaim.zip(before.reclaim);
    run.reclaim = reclaim.map(|(after, before)| after.since(before));
    run.extents = extents(case, &watched);
    Ok(run)
}

/// Native uncached pages are dropped by the kernel's workers some time after
/// the last sync: waits as long as pages still go.
fn wait_for_drops(watched: &Watched) {
    let Ok(mut last) = watched.count() else {
        return;
    };
    for _ in 0..DROP_PATIENCE_STEPS {
        pause_ms(20);
        match watched.count() {
            Ok(now) if now.cached_bytes < last.cached_bytes => last = now,
            _ => return,
        }
    }
}

fn roles<'a>(
    tasks: impl Iterator<Item = &'a TaskFigures>,
    at_ns: u64,
    together: bool,
) -> BTreeMap<String, RoleFigures> {
    let mut roles: BTreeMap<String, (RoleFigures, Latencies)> = BTreeMap::new();
    for task in tasks {
        let all = together.then_some("all");
        for name in std::iter::once(task.role.as_str()).chain(all) {
            let (role, latencies) = roles
                .entry(name.to_owned())
                .or_insert_with(|| (RoleFigures::default(), Latencies::new()));
            role.bytes += task.bytes;
            role.operations += task.operations;
            role.io_ns = role.io_ns.max(task.io_ended_ns.saturating_sub(at_ns));
            let total_ns = task.sync_ended_ns.saturating_sub(at_ns);
            role.total_ns = role.total_ns.max(total_ns);
            role.cpu_ns += task.cpu_ns;
            role.idle_cpu_ns += task.idle_cpu_ns;
            role.idle_ns = role.idle_ns.max(task.idle_ns);
            role.cut_short |= task.cut_short;
            add_series(&mut role.series_bytes, &task.series_bytes);
            let speed = task.bytes as f64 * 1e9 / total_ns.max(1) as f64;
            role.stream_bytes_per_s.push(speed as u64);
            latencies.add_counts(&task.latencies);
        }
    }
    roles
        .into_iter()
        .map(|(name, (mut role, latencies))| {
            role.latency = latencies.summary();
            role.stream_bytes_per_s.sort_unstable();
            (name, role)
        })
        .collect()
}

fn memory(seen: &Seen, watched: &Watched, hot_before: Option<u64>) -> MemoryFigures {
    let page_bytes = dropbehind_linux::page_size();
    let left = watched.count().ok();
    let counted = seen.looks > 0 && left.is_some();
    let most = |of: fn(&crate::sampler::MemorySample) -> u64| {
        counted.then(|| seen.series.iter().map(of).max().unwrap_or(0))
    };
    let low = seen
        .hot_low_bytes
        .map(|low| low.min(watched.hot_bytes().unwrap_or(low)));
    MemoryFigures {
        peak_dirty_bytes: most(|sample| sample.dirty_bytes),
        peak_cached_bytes: most(|sample| sample.cached_bytes)
            .map(|peak| peak.max(left.map_or(0, |left| left.cached_bytes))),
        left_cached_bytes: left.map(|left| left.cached_bytes),
        peak_group_bytes: None,
        hot_pages: hot_before.map(|bytes| bytes / page_bytes),
        hot_evicted_pages: hot_before
            .zip(low)
            .map(|(before, low)| before.saturating_sub(low) / page_bytes),
        series: seen.series.clone(),
    }
}

/// What the programs asked to be moved in one direction.
fn asked(case: &Case, done: &[Done], operation: Operation) -> u64 {
    let plans = case.processes.iter().zip(done);
    plans
        .flat_map(|(plan, done)| plan.tasks.iter().zip(&done.tasks))
        .filter(|(task, _)| task.operation == operation && !task.warm)
        .map(|(_, figures)| figures.bytes)
        .sum()
}

fn extents(case: &Case, watched: &Watched) -> Option<u64> {
    let new = |file: &&std::fs::File| file.metadata().is_ok_and(|metadata| metadata.is_file());
    if case.files.iter().all(|file| file.bytes > 0) {
        return None;
    }
    let written = watched.files().iter().filter(new);
    written
        .map(|file| dropbehind_linux::extent_count(file.as_fd()).ok())
        .sum()
}
