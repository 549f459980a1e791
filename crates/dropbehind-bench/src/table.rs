//! Results as text.

use std::fmt::Write;

use crate::metric::{Metric, shown};
use crate::results::{ModeResults, Run, ScenarioResults};
use crate::statistics::Spread;
use crate::verdict::verdict;

/// A column: a metric of a role.
struct Column {
    role: String,
    metric: &'static Metric,
}

/// What is shown besides the verdict's own metric.
const COLUMNS: [&str; 19] = [
    "speed",
    "speed_unsynced",
    "p50",
    "p99",
    "p999",
    "max",
    "slowest_second",
    "slowest_stream",
    "cpu_program",
    "cpu_flusher",
    "cpu_machine",
    "idle_cpu",
    "peak_dirty",
    "peak_cached",
    "left_cached",
    "direct_scanned",
    "refaulted",
    "disk_bytes",
    "extents",
];

/// The roles of a scenario, that of the verdict first.
pub(crate) fn roles(results: &ScenarioResults) -> Vec<String> {
    let mut roles = vec![results.role.clone()];
    for run in results.modes.iter().flat_map(|mode| &mode.runs) {
        for role in run.roles.keys() {
            if !roles.contains(role) {
                roles.push(role.clone());
            }
        }
    }
    roles
}

/// One table of a scenario: a row a mode, and for each role its speed and tail.
pub(crate) fn of_scenario(results: &ScenarioResults) -> String {
    let mut text = format!("\n{}: {}\n", results.name, results.summary);
    if let Some(why) = &results.skipped {
        let _ = writeln!(text, "skipped: {why}");
        return text;
    }
    let _ = writeln!(text, "{}", verdict(results).sentence);
    write_aligned(&mut text, &rows(results));
    for remark in remarks(results) {
        let _ = writeln!(text, "{}", remark.text);
    }
    text
}

/// A heading, and a row a mode.
pub(crate) fn rows(results: &ScenarioResults) -> Vec<Vec<String>> {
    let columns = columns(results);
    let mut rows = vec![header(&columns)];
    rows.extend(results.modes.iter().map(|mode| row(mode, &columns)));
    rows
}

/// What is to be known about a mode's figures, or why it has none.
pub(crate) struct Remark {
    pub(crate) text: String,
    pub(crate) is_failure: bool,
}

pub(crate) fn remarks(results: &ScenarioResults) -> Vec<Remark> {
    let mut remarks = Vec::new();
    for mode in &results.modes {
        let name = mode.mode;
        let mut says = |is_failure, text| remarks.push(Remark { text, is_failure });
        if let Some(why) = &mode.unavailable {
            says(false, format!("{name}: not available: {why}"));
        }
        if let Some(why) = &mode.failed {
            says(true, format!("{name}: FAILED: {why}"));
        }
        let disturbed: Vec<&String> = mode.runs.iter().flat_map(|run| &run.disturbances).collect();
        if let Some(first) = disturbed.first() {
            let count = mode.runs.iter().filter(|run| !run.disturbances.is_empty());
            let (count, runs) = (count.count(), mode.runs.len());
            says(
                false,
                format!("{name}: {count} of {runs} runs disturbed ({first})"),
            );
        }
        let is_cut = |run: &Run| run.roles.values().any(|role| role.cut_short);
        if mode.runs.iter().any(is_cut) {
            let text = format!("{name}: cut short; speeds are of what was moved");
            says(false, text);
        }
    }
    remarks
}

/// The columns for which any mode has a value.
fn columns(results: &ScenarioResults) -> Vec<Column> {
    let mut columns = Vec::new();
    let mut keys = vec![results.metric.as_str()];
    if results.metric == "total" {
        keys.extend(["sync", "dirty_before_sync"]);
    }
    keys.extend(COLUMNS.iter().filter(|key| **key != results.metric));
    keys.push("hot_evicted");
    for (index, role) in roles(results).into_iter().enumerate() {
        for key in &keys {
            let Some(metric) = Metric::named(key) else {
                continue;
            };
            // Other roles are there to be compared, not to be studied.
            let is_brief = matches!(*key, "speed" | "p50" | "p99" | "p999" | "slowest_stream");
            if index > 0 && !is_brief {
                continue;
            }
            let has_value = results
                .modes
                .iter()
                .any(|mode| metric.spread(mode, &role).is_some());
            if has_value {
                columns.push(Column {
                    role: role.clone(),
                    metric,
                });
            }
        }
    }
    columns
}

fn header(columns: &[Column]) -> Vec<String> {
    let first = columns.first().map_or("", |column| column.role.as_str());
    let mut cells = vec!["mode".to_owned()];
    for (index, column) in columns.iter().enumerate() {
        cells.push(if column.role == first {
            column.metric.label.to_owned()
        } else {
            format!("{} {}", column.role, column.metric.label)
        });
        if index == 0 {
            cells.push("(range)".to_owned());
        }
    }
    cells
}

fn row(mode: &ModeResults, columns: &[Column]) -> Vec<String> {
    let mut cells = vec![mode.mode.to_string()];
    for (index, column) in columns.iter().enumerate() {
        let spread = column.metric.spread(mode, &column.role);
        cells.push(spread.map_or_else(|| "-".to_owned(), |spread| shown(spread.median)));
        if index == 0 {
            cells.push(spread.map_or_else(String::new, |spread| range(&spread)));
        }
    }
    cells
}

pub(crate) fn range(spread: &Spread) -> String {
    format!("({}-{})", shown(spread.low), shown(spread.high))
}

/// Columns as wide as their widest cell, numbers to the right.
pub(crate) fn write_aligned(text: &mut String, rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    for row in rows {
        let mut line = String::new();
        for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if index == 0 {
                write!(line, "{cell:<width$}")
            } else {
                write!(line, "  {cell:>width$}")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}
