//! Results for other programs: spreadsheets, and pages that are written in Markdown.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::metric::{Better, Metric};
use crate::results::{Results, ScenarioResults, replace};
use crate::table::{remarks, roles, rows};
use crate::verdict::verdict;

type Maker = fn(&Results) -> String;

/// The files that are made from results.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    /// A page for a browser.
    pub html: Option<PathBuf>,
    /// A table with a figure a line.
    pub csv: Option<PathBuf>,
    /// Tables in Markdown.
    pub markdown: Option<PathBuf>,
}

impl Reports {
    /// Whether none is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.html.is_none() && self.csv.is_none() && self.markdown.is_none()
    }

    /// Writes those that are wanted.
    ///
    /// # Errors
    /// Those of writing and renaming.
    pub fn save(&self, results: &Results) -> Result<(), Error> {
        let makers: [(_, Maker); 3] = [
            (&self.html, crate::html::render),
            (&self.csv, csv),
            (&self.markdown, markdown),
        ];
        for (path, make) in makers {
            if let Some(path) = path {
                replace(path, make(results).as_bytes())?;
            }
        }
        Ok(())
    }
}

/// Writes the page of two benchmarks, the older one first.
///
/// # Errors
/// Those of writing and renaming.
pub fn save_comparison(before: &Results, after: &Results, path: &Path) -> Result<(), Error> {
    replace(
        path,
        crate::html::render_comparison(before, after).as_bytes(),
    )
}

/// A line for each figure: one of a role, or of the machine where there is none.
#[must_use]
pub fn csv(results: &Results) -> String {
    let mut text =
        String::from("scenario,mode,role,metric,unit,better,median,lowest,highest,runs\n");
    for scenario in &results.scenarios {
        for (index, role) in roles(scenario).iter().enumerate() {
            let here = |metric: &&Metric| index == 0 || metric.is_of_role();
            for metric in Metric::ALL.iter().filter(here) {
                csv_of(&mut text, scenario, role, metric);
            }
        }
    }
    text
}

fn csv_of(text: &mut String, scenario: &ScenarioResults, role: &str, metric: &Metric) {
    for mode in &scenario.modes {
        let Some(spread) = metric.spread(mode, role) else {
            continue;
        };
        let better = match metric.better {
            Better::Higher => "higher",
            Better::Lower => "lower",
        };
        let role = if metric.is_of_role() { role } else { "" };
        let _ = writeln!(
            text,
            "{},{},{},{},{},{better},{},{},{},{}",
            field(&scenario.name),
            mode.mode,
            field(role),
            metric.key,
            field(metric.unit),
            spread.median,
            spread.low,
            spread.high,
            spread.count
        );
    }
}

/// A field as RFC 4180 wants it.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

/// The tables of the terminal, for a page in Markdown.
#[must_use]
pub fn markdown(results: &Results) -> String {
    let mut text = String::from("# What buffered I/O costs here\n\n");
    let _ = writeln!(text, "{}.", plain(&results.circumstances()));
    for caution in results.cautions() {
        let _ = writeln!(text, "\n**{}**", plain(&caution));
    }
    for scenario in &results.scenarios {
        let _ = writeln!(
            text,
            "\n## {}\n\n{}.\n\n{}",
            plain(&scenario.name),
            plain(&scenario.description()),
            plain(&verdict(scenario).sentence)
        );
        if scenario.skipped.is_some() {
            continue;
        }
        text.push('\n');
        for (index, row) in rows(scenario).iter().enumerate() {
            let cells: Vec<String> = row.iter().map(|cell| plain(cell)).collect();
            let _ = writeln!(text, "| {} |", cells.join(" | "));
            if index == 0 {
                let _ = writeln!(text, "|---|{}", "--:|".repeat(row.len().saturating_sub(1)));
            }
        }
        for remark in remarks(scenario) {
            let _ = writeln!(text, "\n{}.", plain(&remark.text));
        }
    }
    text
}

/// Text that is not taken for markup.
fn plain(text: &str) -> String {
    let mut safe = String::new();
    for c in text.chars() {
        match c {
            '\n' | '\r' => safe.push(' '),
            '|' | '<' | '*' | '_' | '`' | '[' | '\\' => safe.extend(['\\', c]),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_cells_keep_to_themselves() {
        assert_eq!(field("s/GiB"), "s/GiB");
        assert_eq!(field("a \"b\", c"), "\"a \"\"b\"\", c\"");
        assert_eq!(plain("a|b\n<c>"), "a\\|b \\<c>");
    }
}
