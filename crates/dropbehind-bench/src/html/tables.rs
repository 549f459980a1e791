//! The tables of a scenario.

use std::fmt::Write;

use super::markup::Escaped;
use crate::change::Change;
use crate::metric::{Metric, shown};
use crate::mode::Mode;
use crate::results::{ModeResults, ScenarioResults};
use crate::table::{range, roles};

/// The metrics of a role that any mode has a value of; those of the machine
/// with the first role only. What follows from the speed is left out, unless
/// the verdict is about it.
fn metrics(results: &ScenarioResults, index: usize, role: &str) -> Vec<&'static Metric> {
    let has_value = |metric: &&Metric| {
        let mut modes = results.modes.iter();
        modes.any(|mode| metric.spread(mode, role).is_some())
    };
    let keys = Metric::ALL.map(|metric| metric.key);
    keys.into_iter()
        .filter(|key| !matches!(*key, "total" | "operations") || *key == results.metric)
        .filter_map(Metric::named)
        .filter(|metric| index == 0 || metric.is_of_role())
        .filter(has_value)
        .collect()
}

/// A heading: the role where there are several.
fn heading(role: &str, roles: &[String], metric: &Metric) -> String {
    if roles.len() > 1 && metric.is_of_role() {
        format!("{role}: {}", metric.label)
    } else {
        metric.label.to_owned()
    }
}

/// Baseline, ours and the change, a row a metric.
pub(super) fn baseline(results: &ScenarioResults) -> String {
    let of = |wanted: Mode| {
        let mut modes = results.modes.iter();
        modes.find(|mode| mode.mode == wanted && !mode.runs.is_empty())
    };
    let Some(plain) = of(Mode::Buffered) else {
        return String::new();
    };
    let Some(ours) = of(Mode::Dontcache).or_else(|| of(Mode::Run)) else {
        return String::new();
    };
    let mut text = format!(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{0}: {1} and {2}\">\
         <table><caption>Medians of {3} and {4} runs; ≈ where the ranges overlap</caption>\
         <thead><tr><th scope=\"col\">metric</th><th scope=\"col\">{1}</th>\
         <th scope=\"col\" class=\"ours\">{2}</th><th scope=\"col\">change</th></tr></thead><tbody>\n",
        Escaped(&results.name),
        plain.mode,
        ours.mode,
        plain.runs.len(),
        ours.runs.len()
    );
    let roles = roles(results);
    for (index, role) in roles.iter().enumerate() {
        for metric in metrics(results, index, role) {
            let spreads = metric.spread(plain, role).zip(metric.spread(ours, role));
            let Some((before, after)) = spreads else {
                continue;
            };
            let change = Change {
                metric,
                before,
                after,
            };
            let _ = writeln!(
                text,
                "<tr><th scope=\"row\" title=\"{}\">{}</th><td>{}</td><td>{}</td>\
                 <td{}>{}</td></tr>",
                Escaped(metric.meaning),
                Escaped(&heading(role, &roles, metric)),
                shown(before.median),
                shown(after.median),
                class(&change),
                change.words(),
            );
        }
    }
    text.push_str("</tbody></table></div>\n");
    text
}

fn class(change: &Change) -> &'static str {
    match (change.is_apart() && !change.is_none(), change.is_better()) {
        (false, _) => "",
        (true, true) => " class=\"good\"",
        (true, false) => " class=\"bad\"",
    }
}

/// All modes and metrics.
pub(super) fn all(results: &ScenarioResults) -> String {
    let roles = roles(results);
    let columns: Vec<(&String, &'static Metric)> = roles
        .iter()
        .enumerate()
        .flat_map(|(index, role)| {
            let metrics = metrics(results, index, role).into_iter();
            metrics.map(move |metric| (role, metric))
        })
        .collect();
    let mut text = format!(
        "<details><summary>All modes and metrics</summary>\n<div class=\"scroll\" role=\"region\" \
         tabindex=\"0\" aria-label=\"{0}: all modes and metrics\"><table class=\"wide\">\
         <caption>Medians, with the range of the runs below</caption><thead><tr>\
         <th scope=\"col\">mode</th>",
        Escaped(&results.name)
    );
    for (role, metric) in &columns {
        let _ = write!(
            text,
            "<th scope=\"col\" title=\"{}\">{}</th>",
            Escaped(metric.meaning),
            Escaped(&heading(role, &roles, metric))
        );
    }
    text.push_str("</tr></thead><tbody>\n");
    for mode in results.modes.iter().filter(|mode| !mode.runs.is_empty()) {
        let class = if mode.mode.is_ours() {
            " class=\"ours\""
        } else {
            ""
        };
        let _ = write!(
            text,
            "<tr><th scope=\"row\"{class} title=\"{}\">{}</th>",
            Escaped(mode.mode.summary()),
            mode.mode
        );
        for (role, metric) in &columns {
            text.push_str(&cell(mode, role, metric));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table></div></details>\n");
    text
}

fn cell(mode: &ModeResults, role: &str, metric: &Metric) -> String {
    match metric.spread(mode, role) {
        None => "<td>–</td>".to_owned(),
        Some(spread) if spread.count == 1 => format!("<td>{}</td>", shown(spread.median)),
        Some(spread) => format!(
            "<td>{}<br><span class=\"range\">{}</span></td>",
            shown(spread.median),
            range(&spread)
        ),
    }
}
