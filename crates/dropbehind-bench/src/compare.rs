//! What changed between two benchmarks.

use std::fmt::Write;

use crate::change::Change;
use crate::metric::{Metric, shown};
use crate::mode::Mode;
use crate::results::{ModeResults, Results, ScenarioResults};
use crate::table::{range, roles, write_aligned};

/// What is compared, of each role.
const COMPARED: [&str; 15] = [
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
    "left_cached",
    "disk_bytes",
    "extents",
    "hot_evicted",
];

/// A figure that is in both.
pub(crate) struct Compared {
    pub(crate) scenario: String,
    pub(crate) mode: Mode,
    pub(crate) role: String,
    pub(crate) change: Change,
}

/// Tells what changed, as text: what differs between the machines, and every
/// figure whose runs do not overlap; and how many do.
#[must_use]
pub fn compare(before: &Results, after: &Results) -> String {
    let mut text = String::new();
    let differences = differences(before, after);
    if differences.is_empty() {
        text.push_str("Same kernel, machine, disk and settings.\n");
    }
    for [name, before, after] in differences {
        let _ = writeln!(text, "{name}: {before} → {after}");
    }
    let changes = changes(before, after);
    let count = |is: fn(&Change) -> bool| changes.iter().filter(|one| is(&one.change)).count();
    if changes.is_empty() {
        text.push_str("\nThere is no figure that both have.\n");
        return text;
    }
    for (title, better) in [("Better", true), ("Worse", false)] {
        let is_here = |one: &&Compared| one.change.is_apart() && one.change.is_better() == better;
        let mut rows = vec![row_of(["", "", "before", "", "after", "", "change"])];
        rows.extend(changes.iter().filter(is_here).map(row));
        let _ = writeln!(text, "\n{title} ({}):", rows.len() - 1);
        if rows.len() > 1 {
            write_aligned(&mut text, &rows);
        }
    }
    let single = count(Change::is_single);
    let within = changes.len() - count(Change::is_apart) - single;
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

/// What differs between the machines and settings: name, before and after.
pub(crate) fn differences(before: &Results, after: &Results) -> Vec<[String; 3]> {
    let (before, after) = (before.facts(), after.facts());
    let value = |facts: &[(String, String)], name: &str| {
        let found = facts.iter().find(|fact| fact.0 == name);
        found.map_or_else(|| "not recorded".to_owned(), |fact| fact.1.clone())
    };
    let is_new = |fact: &&(String, String)| !before.iter().any(|old| old.0 == fact.0);
    let names = before.iter().chain(after.iter().filter(is_new));
    names
        .map(|(name, _)| [name.clone(), value(&before, name), value(&after, name)])
        .filter(|[_, before, after]| before != after)
        .collect()
}

/// The figures that are in both, in the order of the first.
pub(crate) fn changes(before: &Results, after: &Results) -> Vec<Compared> {
    let mut changes = Vec::new();
    for old in &before.scenarios {
        let Some(new) = after.scenarios.iter().find(|new| new.name == old.name) else {
            continue;
        };
        for old_mode in &old.modes {
            let same = |new: &&ModeResults| new.mode == old_mode.mode;
            if let Some(new_mode) = new.modes.iter().find(same) {
                changes.extend(compared(old, old_mode, new_mode, &COMPARED));
            }
        }
    }
    changes
}

/// The figures of these metrics that two modes of a scenario both have; or of one mode, from two
/// benchmarks.
pub(crate) fn compared(
    scenario: &ScenarioResults,
    old: &ModeResults,
    new: &ModeResults,
    keys: &[&str],
) -> Vec<Compared> {
    let mut found = Vec::new();
    for (index, role) in roles(scenario).iter().enumerate() {
        let metrics = keys.iter().filter_map(|key| Metric::named(key));
        // What is of the machine is compared once.
        for metric in metrics.filter(|metric| index == 0 || metric.is_of_role()) {
            let spreads = metric.spread(old, role).zip(metric.spread(new, role));
            found.extend(spreads.map(|(before, after)| Compared {
                scenario: scenario.name.clone(),
                mode: new.mode,
                role: role.clone(),
                change: Change {
                    metric,
                    before,
                    after,
                },
            }));
        }
    }
    found
}

fn row(compared: &Compared) -> Vec<String> {
    let Change {
        metric,
        before,
        after,
    } = &compared.change;
    row_of([
        &format!("{} {} {}", compared.scenario, compared.mode, compared.role),
        metric.label,
        &shown(before.median),
        &range(before),
        &shown(after.median),
        &range(after),
        &compared.change.size(),
    ])
}

fn row_of(cells: [&str; 7]) -> Vec<String> {
    cells.iter().map(ToString::to_string).collect()
}
