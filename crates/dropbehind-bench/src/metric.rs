//! The figures of a run that tables, verdicts and comparisons are made of.

use crate::clock::SERIES_STEP_NS;
use crate::results::{ModeResults, RoleFigures, Run};
use crate::statistics::Spread;

/// Which is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is.
    Higher,
    /// Less is.
    Lower,
}

/// One figure of a run.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name in results.
    pub key: &'static str,
    /// Its heading in tables, which ends with the unit.
    pub label: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// What it is, in a sentence.
    pub meaning: &'static str,
    /// Which is better.
    pub better: Better,
    /// Takes it from a run; of a role where it is about one.
    of: fn(&Run, &str) -> Option<f64>,
}

const MIB: f64 = (1 << 20) as f64;
const GIB: f64 = (1 << 30) as f64;

fn speed(bytes: u64, ns: u64) -> Option<f64> {
    (ns > 0).then(|| bytes as f64 * 1e3 / ns as f64)
}

/// A role that ended with a sync: readers have none.
fn synced<'a>(run: &'a Run, role: &str) -> Option<&'a RoleFigures> {
    run.roles
        .get(role)
        .filter(|role| role.total_ns > role.io_ns)
}

fn latency_us(run: &Run, role: &str, ns: fn(&crate::latency::Latency) -> u64) -> Option<f64> {
    let role = run.roles.get(role)?;
    (role.operations > 0).then(|| ns(&role.latency) as f64 / 1e3)
}

/// CPU seconds per GiB that all roles moved.
fn cpu_per_gib(run: &Run, ns: u64) -> Option<f64> {
    let bytes: u64 = run.roles.values().map(|role| role.bytes).sum();
    (bytes > 0).then(|| ns as f64 / 1e9 / (bytes as f64 / GIB))
}

fn mib(bytes: Option<u64>) -> Option<f64> {
    bytes.map(|bytes| bytes as f64 / MIB)
}

/// The slowest whole second of the series as a share of the median one; none in
/// runs of a few seconds, which are all beginning and end.
fn slowest_step(run: &Run, role: &str) -> Option<f64> {
    let series = &run.roles.get(role)?.series_bytes;
    let steps = crate::series::steady(series);
    let spread = Spread::of(steps.bytes.iter().map(|&bytes| bytes as f64))?;
    let is_long = steps.seconds >= 1.0 && spread.median > 0.0;
    is_long.then(|| spread.low / spread.median)
}

impl Metric {
    /// All of them, in the order of the tables.
    pub const ALL: [Metric; 26] = [
        Metric {
            key: "speed",
            label: "MB/s",
            unit: "MB/s",
            meaning: "bytes moved per second, the closing sync included",
            better: Better::Higher,
            of: |run, role| run.roles.get(role).and_then(|r| speed(r.bytes, r.total_ns)),
        },
        Metric {
            key: "speed_unsynced",
            label: "before sync MB/s",
            unit: "MB/s",
            meaning: "bytes moved per second up to the last call, without the closing sync",
            better: Better::Higher,
            of: |run, role| synced(run, role).and_then(|role| speed(role.bytes, role.io_ns)),
        },
        Metric {
            key: "total",
            label: "total s",
            unit: "s",
            meaning: "time from the start to the end of the closing sync",
            better: Better::Lower,
            of: |run, role| Some(run.roles.get(role)?.total_ns as f64 / 1e9),
        },
        Metric {
            key: "sync",
            label: "sync s",
            unit: "s",
            meaning: "time from the last call to the end of the closing sync",
            better: Better::Lower,
            of: |run, role| synced(run, role).map(|role| (role.total_ns - role.io_ns) as f64 / 1e9),
        },
        Metric {
            key: "operations",
            label: "calls/s",
            unit: "1/s",
            meaning: "calls per second, without the closing sync",
            better: Better::Higher,
            of: |run, role| {
                let role = run.roles.get(role)?;
                (role.io_ns > 0).then(|| role.operations as f64 * 1e9 / role.io_ns as f64)
            },
        },
        Metric {
            key: "p50",
            label: "p50 µs",
            unit: "µs",
            meaning: "half of the calls took at most this long",
            better: Better::Lower,
            of: |run, role| latency_us(run, role, |latency| latency.p50_ns),
        },
        Metric {
            key: "p99",
            label: "p99 µs",
            unit: "µs",
            meaning: "99 % of the calls took at most this long",
            better: Better::Lower,
            of: |run, role| latency_us(run, role, |latency| latency.p99_ns),
        },
        Metric {
            key: "p999",
            label: "p99.9 µs",
            unit: "µs",
            meaning: "99.9 % of the calls took at most this long",
            better: Better::Lower,
            of: |run, role| latency_us(run, role, |latency| latency.p999_ns),
        },
        Metric {
            key: "max",
            label: "max µs",
            unit: "µs",
            meaning: "the longest call",
            better: Better::Lower,
            of: |run, role| latency_us(run, role, |latency| latency.max_ns),
        },
        Metric {
            key: "slowest_second",
            label: "slowest second of median",
            unit: "of median",
            meaning: "the slowest second as a share of the median one, in runs of five and more",
            better: Better::Higher,
            of: slowest_step,
        },
        Metric {
            key: "slowest_stream",
            label: "slowest MB/s",
            unit: "MB/s",
            meaning: "the slowest of the streams of this role, its sync included",
            better: Better::Higher,
            of: |run, role| {
                let streams = &run.roles.get(role)?.stream_bytes_per_s;
                (streams.len() > 1).then(|| streams[0] as f64 / 1e6)
            },
        },
        Metric {
            key: "cpu_program",
            label: "CPU program s/GiB",
            unit: "s/GiB",
            meaning: "CPU seconds of the programs' own threads per GiB moved",
            better: Better::Lower,
            of: |run, _| cpu_per_gib(run, run.cpu.program_ns),
        },
        Metric {
            key: "cpu_flusher",
            label: "CPU flusher s/GiB",
            unit: "s/GiB",
            meaning: "CPU seconds of what works behind them in user space per GiB moved: our \
                      flusher, `run`",
            better: Better::Lower,
            of: |run, _| cpu_per_gib(run, run.cpu.flusher_ns),
        },
        Metric {
            key: "cpu_machine",
            label: "CPU all s/GiB",
            unit: "s/GiB",
            meaning: "CPU seconds of the whole machine per GiB moved, the kernel's own threads \
                      included",
            better: Better::Lower,
            of: |run, _| cpu_per_gib(run, run.cpu.machine_ns),
        },
        Metric {
            key: "idle_cpu",
            label: "idle CPU % of a core",
            unit: "% of a core",
            meaning: "CPU that the process takes while its files lie open and idle",
            better: Better::Lower,
            of: |run, role| {
                let role = run.roles.get(role)?;
                (role.idle_ns > 0).then(|| role.idle_cpu_ns as f64 * 100.0 / role.idle_ns as f64)
            },
        },
        Metric {
            key: "peak_dirty",
            label: "dirty MiB",
            unit: "MiB",
            meaning: "most of the files that was dirty or under writeback at once",
            better: Better::Lower,
            of: |run, _| mib(run.memory.peak_dirty_bytes),
        },
        Metric {
            key: "dirty_before_sync",
            label: "dirty at sync MiB",
            unit: "MiB",
            meaning: "what of the files was dirty or under writeback in the tenth of a second in \
                      which the last call ended",
            better: Better::Lower,
            of: |run, role| {
                let step = synced(run, role)?.io_ns / SERIES_STEP_NS;
                let sample = run.memory.series.get(usize::try_from(step).ok()?)?;
                mib(Some(sample.dirty_bytes))
            },
        },
        Metric {
            key: "peak_cached",
            label: "cached MiB",
            unit: "MiB",
            meaning: "most of the files that was in the page cache at once",
            better: Better::Lower,
            of: |run, _| mib(run.memory.peak_cached_bytes),
        },
        Metric {
            key: "left_cached",
            label: "left MiB",
            unit: "MiB",
            meaning: "what of the files was in the page cache in the end",
            better: Better::Lower,
            of: |run, _| mib(run.memory.left_cached_bytes),
        },
        Metric {
            key: "kswapd_scanned",
            label: "kswapd MiB",
            unit: "MiB",
            meaning: "pages that kswapd looked at to find some to reclaim (pgscan)",
            better: Better::Lower,
            of: |run, _| mib(run.reclaim.map(|reclaim| reclaim.kswapd_scanned_bytes)),
        },
        Metric {
            key: "direct_scanned",
            label: "direct MiB",
            unit: "MiB",
            meaning: "pages that programs had to look at themselves before they got memory \
                      (direct reclaim, in the cgroup, too)",
            better: Better::Lower,
            of: |run, _| mib(run.reclaim.map(|reclaim| reclaim.direct_scanned_bytes)),
        },
        Metric {
            key: "reclaimed",
            label: "reclaimed MiB",
            unit: "MiB",
            meaning: "pages that the kernel reclaimed (pgsteal)",
            better: Better::Lower,
            of: |run, _| mib(run.reclaim.map(|reclaim| reclaim.reclaimed_bytes)),
        },
        Metric {
            key: "refaulted",
            label: "refaulted MiB",
            unit: "MiB",
            meaning: "file pages that were needed again soon after the kernel had reclaimed them \
                      (workingset_refault_file)",
            better: Better::Lower,
            of: |run, _| mib(run.reclaim.map(|reclaim| reclaim.refaulted_bytes)),
        },
        Metric {
            key: "disk_bytes",
            label: "disk bytes per byte",
            unit: "per byte",
            meaning: "bytes that the disk read and wrote per byte that the programs asked for",
            better: Better::Lower,
            of: |run, _| {
                let disk = run.disk?;
                let asked = disk.asked_read_bytes + disk.asked_written_bytes;
                let moved = disk.read_bytes + disk.written_bytes;
                (asked > 0).then(|| moved as f64 / asked as f64)
            },
        },
        Metric {
            key: "extents",
            label: "extents",
            unit: "",
            meaning: "extents of the files that were written",
            better: Better::Lower,
            of: |run, _| run.extents.map(|extents| extents as f64),
        },
        Metric {
            key: "hot_evicted",
            label: "hot evicted pages",
            unit: "pages",
            meaning: "most pages of the hot set that were missing from the page cache at once",
            better: Better::Lower,
            of: |run, _| run.memory.hot_evicted_pages.map(|pages| pages as f64),
        },
    ];

    /// The one with this key.
    #[must_use]
    pub fn named(key: &str) -> Option<&'static Metric> {
        static ALL: [Metric; 26] = Metric::ALL;
        ALL.iter().find(|metric| metric.key == key)
    }

    /// Whether it is about one role and not about the machine.
    #[must_use]
    pub fn is_of_role(&self) -> bool {
        !matches!(
            self.key,
            "cpu_program"
                | "cpu_flusher"
                | "cpu_machine"
                | "peak_dirty"
                | "peak_cached"
                | "left_cached"
                | "kswapd_scanned"
                | "direct_scanned"
                | "reclaimed"
                | "refaulted"
                | "disk_bytes"
                | "extents"
                | "hot_evicted"
        )
    }

    /// Its label without the unit.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.label.trim_end_matches(self.unit).trim_end()
    }

    /// Which is better, in words.
    pub(crate) fn direction(&self) -> &'static str {
        match self.better {
            Better::Higher => "more is better",
            Better::Lower => "less is better",
        }
    }

    /// What a multiple of it is a multiple of: `14× the time`.
    pub(crate) fn multiple(&self) -> &'static str {
        match self.unit {
            "s" | "µs" => "the time",
            "s/GiB" | "% of a core" => "the CPU time",
            "MB/s" | "1/s" => "the speed",
            "" | "pages" => "as many",
            _ => "as much",
        }
    }

    /// Its value in a run.
    #[must_use]
    pub fn of(&self, run: &Run, role: &str) -> Option<f64> {
        (self.of)(run, role).filter(|value| value.is_finite())
    }

    /// Its spread over the runs of a mode; runs that were disturbed are left
    /// out where there are others.
    #[must_use]
    pub fn spread(&self, results: &ModeResults, role: &str) -> Option<Spread> {
        let calm: Vec<&Run> = results
            .runs
            .iter()
            .filter(|run| run.disturbances.is_empty())
            .collect();
        let runs = if calm.is_empty() {
            results.runs.iter().collect()
        } else {
            calm
        };
        Spread::of(runs.into_iter().filter_map(|run| self.of(run, role)))
    }
}

/// A value with as many digits as are worth reading.
#[must_use]
pub fn shown(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 99.5 => format!("{value:.0}"),
        size if size >= 9.95 => format!("{value:.1}"),
        size if size >= 0.995 => format!("{value:.2}"),
        size if size >= 0.0005 => format!("{value:.3}"),
        _ => "0".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_with_and_without_the_sync() {
        let mut run = Run::default();
        let role = RoleFigures {
            bytes: 1_000_000_000,
            operations: 1000,
            io_ns: 500_000_000,
            total_ns: 2_000_000_000,
            ..RoleFigures::default()
        };
        run.roles.insert("writer".to_owned(), role);
        let series = (0..20).map(|step| crate::sampler::MemorySample {
            dirty_bytes: step << 20,
            ..Default::default()
        });
        run.memory.series = series.collect();
        run.cpu.machine_ns = 1_000_000_000;
        let value = |key| Metric::named(key).unwrap().of(&run, "writer").unwrap();
        assert_eq!(value("speed"), 500.0);
        assert_eq!(value("speed_unsynced"), 2000.0);
        assert_eq!(value("sync"), 1.5);
        assert_eq!(value("dirty_before_sync"), 5.0);
        assert_eq!(value("operations"), 2000.0);
        assert!((value("cpu_machine") - 1.0737).abs() < 0.001);
        assert_eq!(Metric::named("speed").unwrap().of(&run, "reader"), None);
    }

    #[test]
    fn keys_are_unique_and_roles_are_known() {
        for metric in &Metric::ALL {
            let same = Metric::ALL.iter().filter(|one| one.key == metric.key);
            assert_eq!(same.count(), 1, "{}", metric.key);
            let has_unit = metric.label.ends_with(metric.unit) || metric.unit == "1/s";
            assert!(has_unit, "{} has no unit", metric.label);
            // What is of a role needs one.
            let run = Run::default();
            if metric.is_of_role() {
                assert_eq!(metric.of(&run, ""), None, "{}", metric.key);
            }
        }
    }

    #[test]
    fn three_digits() {
        assert_eq!(shown(1234.5), "1234");
        assert_eq!(shown(12.34), "12.3");
        assert_eq!(shown(1.234), "1.23");
        assert_eq!(shown(0.0123), "0.012");
        assert_eq!(shown(0.0), "0");
    }
}
