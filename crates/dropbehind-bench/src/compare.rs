//! What changed between two benchmarks.

use std::fmt::Write;

use crate::metric::{Better, Metric, shown};
use crate::results::{ModeResults, Results, ScenarioResults};
use crate::statistics::Spread;
use crate::table::{range, roles, write_aligned};

/// What is compared, of each role.
const COMPARED: [&str; 11] = [
    "speed",
    "total",
    "sync",
    "p50",
    "p99",
    "p999",
    "cpu_program",
    "cpu_machine",
    "idle_cpu",
    "peak_dirty",
    "peak_cached",
];
/// And where they are of one kind, what else matters.
const MORE: [&str; 4] = ["left_cached", "disk_bytes", "extents", "hot_evicted"];

/// A figure that is in both.
struct Change {
    what: String,
    metric: &'static Metric,
    before: Spread,
    after: Spread,
}

impl Change {
    /// More than chance: no run of the one is within the range of the other.
    fn is_apart(&self) -> bool {
        self.before.is_apart(&self.after) && self.before.count.min(self.after.count) > 1
    }

    fn is_better(&self) -> bool {
        match self.metric.better {
            Better::Higher => self.after.median > self.before.median,
            Better::Lower => self.after.median < self.before.median,
        }
    }
}

/// Tells what changed, as text: what differs between the machines, and every
/// figure whose runs do not overlap; and how many do.
#[must_use]
pub fn compare(before: &Results, after: &Results) -> String {
    let mut text = String::new();
    differences(&mut text, before, after);
    let changes = changes(before, after);
    if changes.is_empty() {
        text.push_str("\nThere is no figure that both have.\n");
        return text;
    }
    let apart: Vec<&Change> = changes.iter().filter(|change| change.is_apart()).collect();
    for (title, better) in [("Better", true), ("Worse", false)] {
        let here = apart.iter().filter(|change| change.is_better() == better);
        let mut rows = vec![row_of(["", "", "before", "", "after", "", "change"])];
        rows.extend(here.map(|change| row(change)));
        let _ = writeln!(text, "\n{title} ({}):", rows.len() - 1);
        if rows.len() > 1 {
            write_aligned(&mut text, &rows);
        }
    }
    let single = changes
        .iter()
        .filter(|change| change.before.count.min(change.after.count) < 2)
        .count();
    let within = changes.len() - apart.len() - single;
    let _ = writeln!(
        text,
        "\n{within} figures differ by no more than their runs do among themselves."
    );
    if single > 0 {
        let _ = writeln!(
            text,
            "{single} figures come from a single run, which proves nothing: use --runs."
        );
    }
    text
}

fn differences(text: &mut String, before: &Results, after: &Results) {
    let facts = |results: &Results| {
        let (machine, settings) = (&results.environment, &results.settings);
        vec![
            ("dropbehind", results.version.clone()),
            ("kernel", machine.kernel.clone()),
            ("processor", machine.processor.clone()),
            ("processors", machine.cpus.to_string()),
            ("memory", format!("{} MiB", machine.memory_bytes >> 20)),
            ("file system", machine.filesystem.clone()),
            ("disk", machine.disk.name.clone()),
            ("scheduler", machine.disk.scheduler.clone()),
            (
                "readahead",
                format!("{} KiB", machine.disk.read_ahead_bytes >> 10),
            ),
            ("debug build", machine.debug_build.to_string()),
            ("memory cgroup", settings.memory_group.clone()),
            ("memory limit", format!("{:?}", settings.memory_limit_bytes)),
            ("size", format!("{:?}", settings.size_bytes)),
            ("quick", settings.quick.to_string()),
        ]
    };
    let mut same = true;
    for ((name, before), (_, after)) in facts(before).into_iter().zip(facts(after)) {
        if before != after {
            same = false;
            let _ = writeln!(text, "{name}: {before} → {after}");
        }
    }
    if same {
        text.push_str("Same kernel, machine, disk and settings.\n");
    }
}

fn changes(before: &Results, after: &Results) -> Vec<Change> {
    let mut changes = Vec::new();
    for old in &before.scenarios {
        let Some(new) = after.scenarios.iter().find(|new| new.name == old.name) else {
            continue;
        };
        for old_mode in &old.modes {
            let same = |new: &&ModeResults| new.mode == old_mode.mode;
            if let Some(new_mode) = new.modes.iter().find(same) {
                of_mode(&mut changes, old, old_mode, new_mode);
            }
        }
    }
    changes
}

fn of_mode(
    changes: &mut Vec<Change>,
    scenario: &ScenarioResults,
    old: &ModeResults,
    new: &ModeResults,
) {
    for (index, role) in roles(scenario).iter().enumerate() {
        for key in COMPARED.iter().chain(&MORE) {
            let Some(metric) = Metric::named(key) else {
                continue;
            };
            // What is of the machine is compared once.
            if index > 0 && !metric.is_of_role() {
                continue;
            }
            let spreads = metric.spread(old, role).zip(metric.spread(new, role));
            if let Some((before, after)) = spreads {
                changes.push(Change {
                    what: format!("{} {} {role}", scenario.name, old.mode),
                    metric,
                    before,
                    after,
                });
            }
        }
    }
}

fn row(change: &Change) -> Vec<String> {
    let percent = (change.after.median / change.before.median - 1.0) * 100.0;
    let percent = if percent.is_finite() {
        format!("{percent:+.0} %")
    } else {
        "from 0".to_owned()
    };
    row_of([
        &change.what,
        change.metric.label,
        &shown(change.before.median),
        &range(&change.before),
        &shown(change.after.median),
        &range(&change.after),
        &percent,
    ])
}

fn row_of(cells: [&str; 7]) -> Vec<String> {
    cells.iter().map(ToString::to_string).collect()
}
