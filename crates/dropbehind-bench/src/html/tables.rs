//! The tables of a scenario.

use std::fmt::Write;

use super::chart::{class, name};
use super::glossary;
use super::markup::Escaped;
use super::plots::{Sources, whose};
use crate::change::Change;
use crate::compare::Compared;
use crate::gains::against_plain;
use crate::metric::{Metric, shown};
use crate::mode::Mode;
use crate::results::ScenarioResults;
use crate::statistics::Spread;
use crate::table::{range, roles};

/// What follows from the speed is left out, unless the verdict is about it.
fn is_shown(results: &ScenarioResults, metric: &Metric) -> bool {
    !matches!(metric.key, "total" | "operations") || metric.key == results.metric
}

/// A heading: the role where there are several.
pub(super) fn heading(role: &str, roles: &[String], metric: &Metric) -> String {
    if roles.len() > 1 && metric.is_of_role() {
        format!("{role}: {}", metric.label)
    } else {
        metric.label.to_owned()
    }
}

/// A table in a box of its own, in which it scrolls.
pub(super) fn table(
    label: &str,
    class: &str,
    caption: &str,
    heads: &[String],
    rows: &str,
) -> String {
    let heads: String = heads
        .iter()
        .map(|head| format!("<th scope=\"col\">{head}</th>"))
        .collect();
    format!(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">\
         <table class=\"{class}\"><caption>{caption}</caption><thead><tr>{heads}</tr></thead><tbody>\n\
         {rows}</tbody></table></div>\n",
        Escaped(label)
    )
}

/// The verdict's metric as bars, whose ranges are drawn on them.
pub(super) fn bars(sources: &Sources<'_>) -> String {
    let first = sources[0].1;
    let Some(metric) = Metric::named(&first.metric) else {
        return String::new();
    };
    let mut bars = Vec::new();
    for mode in Mode::ALL {
        for (run, results) in sources {
            let results = results.modes.iter().find(|one| one.mode == mode);
            let spread = results.and_then(|results| metric.spread(results, &first.role));
            bars.extend(spread.map(|spread| (mode, *run, spread)));
        }
    }
    let most = bars
        .iter()
        .map(|bar| bar.2.high)
        .fold(f64::MIN_POSITIVE, f64::max);
    let mut rows = String::new();
    for (mode, run, spread) in bars {
        let percent = |value: f64| value * 100.0 / most;
        let _ = writeln!(
            rows,
            "<tr class=\"{}\"><th scope=\"row\">{}</th><td><div class=\"bar\"><i style=\"width:{:.1}%;\
             background:var(--{mode})\"></i><b style=\"left:{:.1}%;width:{:.1}%\"></b></div></td>\
             <td>{}</td></tr>",
            class(mode, run),
            name(mode, run),
            percent(spread.median),
            percent(spread.low),
            percent(spread.high - spread.low),
            value(&spread)
        );
    }
    let caption = format!(
        "{} {}, {}",
        metric.label,
        whose(&first.role),
        metric.direction()
    );
    let heads = ["mode", "", metric.label].map(str::to_owned);
    let escaped = Escaped(&caption).to_string();
    table(&caption, "bars", &escaped, &heads, &rows)
}

/// Baseline, ours and the change, a row a metric.
pub(super) fn baseline(results: &ScenarioResults) -> String {
    let all = against_plain(results);
    let Some(ours) = all.first().map(|one| one.mode) else {
        return String::new();
    };
    let roles = roles(results);
    let mut rows = String::new();
    for Compared { role, change, .. } in &all {
        if is_shown(results, change.metric) {
            let _ = writeln!(
                rows,
                "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td>{}</tr>",
                glossary::metric(change.metric, &heading(role, &roles, change.metric)),
                shown(change.before.median),
                shown(change.after.median),
                changed(change)
            );
        }
    }
    table(
        &format!("{}: buffered and {ours}", results.name),
        "metrics",
        "Medians; ≈ is within the noise",
        &["metric", "buffered", ours.name(), "change"].map(str::to_owned),
        &rows,
    )
}

/// A cell that says how a figure changed; sorted by factor.
pub(super) fn changed(change: &Change) -> String {
    let class = match (change.is_apart() && !change.is_none(), change.is_better()) {
        (false, _) => "",
        (true, true) => " good",
        (true, false) => " bad",
    };
    let factor = change.after.median / change.before.median;
    format!(
        "<td class=\"change{class}\" data-v=\"{:.3}\">{}</td>",
        factor.log2().clamp(-99.0, 99.0),
        change.words()
    )
}

/// All modes and metrics.
pub(super) fn all(results: &ScenarioResults) -> String {
    let roles = roles(results);
    let mut columns: Vec<(&String, &'static Metric)> = Vec::new();
    for (index, role) in roles.iter().enumerate() {
        // Those of the machine stand with the first role only.
        let metrics = Metric::ALL
            .iter()
            .filter_map(|metric| Metric::named(metric.key));
        columns.extend(
            metrics
                .filter(|metric| is_shown(results, metric) && (index == 0 || metric.is_of_role()))
                .filter(|metric| {
                    results
                        .modes
                        .iter()
                        .any(|mode| metric.spread(mode, role).is_some())
                })
                .map(|metric| (role, metric)),
        );
    }
    let mut heads = vec!["mode".to_owned()];
    heads.extend(
        columns
            .iter()
            .map(|(role, metric)| glossary::metric(metric, &heading(role, &roles, metric))),
    );
    let mut rows = String::new();
    for mode in results.modes.iter().filter(|mode| !mode.runs.is_empty()) {
        let class = if mode.mode.is_ours() {
            " class=\"ours\""
        } else {
            ""
        };
        let name = glossary::mode(mode.mode);
        let _ = write!(rows, "<tr><th scope=\"row\"{class}>{name}</th>");
        for (role, metric) in &columns {
            let spread = metric.spread(mode, role);
            let cell = spread.map_or_else(|| "–".to_owned(), |spread| value(&spread));
            let _ = write!(rows, "<td>{cell}</td>");
        }
        rows.push_str("</tr>\n");
    }
    format!(
        "<details><summary>All modes and metrics</summary>\n{}</details>\n",
        table(
            &format!("{}: all modes and metrics", results.name),
            "wide",
            "Medians, with the range of the runs below",
            &heads,
            &rows
        )
    )
}

/// A median with its range.
pub(super) fn value(spread: &Spread) -> String {
    match spread.count {
        1 => shown(spread.median),
        _ => format!(
            "{}<br><span class=\"range\">{}</span>",
            shown(spread.median),
            range(spread)
        ),
    }
}
