//! The report: one HTML file that needs nothing else.

mod chart;
mod markup;
mod plots;
mod tables;

use std::fmt::Write;

use crate::metric::Metric;
use crate::results::{Results, ScenarioResults};
use crate::table::remarks;
use crate::verdict::{Outcome, verdict};
use markup::Escaped;

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/script.js");

/// Makes the report.
#[must_use]
pub fn render(results: &Results) -> String {
    let mut page = String::new();
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>dropbehind bench: {0}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#main\">To the verdicts</a>\n",
        Escaped(&results.environment.kernel)
    );
    page.push_str(&header(results));
    page.push_str("<main id=\"main\">\n");
    page.push_str(&verdicts(results));
    page.push_str("<h2 id=\"scenarios\">Scenarios</h2>\n");
    page.push_str(
        "<p class=\"tools\"><button type=\"button\" data-open=\"yes\" hidden>Open everything\
         </button><button type=\"button\" data-open=\"no\" hidden>Close everything</button></p>\n",
    );
    for scenario in &results.scenarios {
        page.push_str(&section(scenario));
    }
    page.push_str(&machine(results));
    page.push_str(&method(results));
    let _ = write!(
        page,
        "</main>\n<footer><p class=\"soft\">Made by dropbehind {} from its own results; `dropbehind \
         bench report` makes it again from the JSON file.</p></footer>\n<script>\n{SCRIPT}</script>\n\
         </body>\n</html>\n",
        Escaped(&results.version)
    );
    page
}

fn header(results: &Results) -> String {
    let mut text = format!(
        "<header>\n<h1>What buffered I/O costs here</h1>\n<p class=\"soft\">{}</p>\n",
        Escaped(&results.circumstances())
    );
    for caution in results.cautions() {
        let _ = writeln!(text, "<p class=\"warn\">{}</p>", Escaped(&caution));
    }
    text.push_str("</header>\n");
    text
}

fn badge(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Won => "<span class=\"badge won\">▲ wins</span>",
        Outcome::Even => "<span class=\"badge\">= even</span>",
        Outcome::Lost => "<span class=\"badge lost\">▼ loses</span>",
        Outcome::Unknown => "<span class=\"badge\">– open</span>",
    }
}

fn verdicts(results: &Results) -> String {
    let all: Vec<_> = results.scenarios.iter().map(verdict).collect();
    let count = |outcome| all.iter().filter(|one| one.outcome == outcome).count();
    let mut text = format!(
        "<h2 id=\"verdicts\">Verdicts</h2>\n<p>dropbehind against the best of everything else, a \
         scenario a line: {} won, {} even, {} lost, {} open. A difference counts \
         where no run of the one is within the range of the other.</p>\n<ul class=\"verdicts\">\n",
        count(Outcome::Won),
        count(Outcome::Even),
        count(Outcome::Lost),
        count(Outcome::Unknown)
    );
    for (scenario, verdict) in results.scenarios.iter().zip(&all) {
        let _ = writeln!(
            text,
            "<li>{}<a href=\"#{1}\">{1}</a><p>{2}</p></li>",
            badge(verdict.outcome),
            Escaped(&scenario.name),
            Escaped(&verdict.sentence)
        );
    }
    text.push_str("</ul>\n");
    text
}

fn section(scenario: &ScenarioResults) -> String {
    let verdict = verdict(scenario);
    let mut text = format!(
        "<section class=\"scenario\" id=\"{0}\" aria-labelledby=\"{0}-title\">\n<div class=\"title\">\
         <h3 id=\"{0}-title\">{0}</h3>{1}</div>\n<p class=\"soft\">{2}; {3} MiB in calls of {4}.</p>\n\
         <p>{5}</p>\n",
        Escaped(&scenario.name),
        badge(verdict.outcome),
        Escaped(&scenario.summary),
        scenario.size_bytes >> 20,
        block(scenario.block_bytes),
        Escaped(&verdict.sentence)
    );
    for note in &scenario.notes {
        let _ = writeln!(text, "<p class=\"soft\">{}.</p>", Escaped(note));
    }
    if scenario.skipped.is_none() {
        text.push_str("<div class=\"pair\">\n<div>");
        text.push_str(&headline(scenario));
        text.push_str(&absent(scenario));
        text.push_str("</div>\n");
        text.push_str(&tables::baseline(scenario));
        text.push_str("</div>\n");
        text.push_str(&tables::all(scenario));
        text.push_str(&plots::plots(scenario));
    }
    text.push_str("</section>\n");
    text
}

/// The verdict's metric as bars.
fn headline(scenario: &ScenarioResults) -> String {
    let Some(metric) = Metric::named(&scenario.metric) else {
        return String::new();
    };
    let values: Vec<_> = scenario
        .modes
        .iter()
        .filter_map(|mode| Some((mode.mode, metric.spread(mode, &scenario.role)?)))
        .collect();
    if values.is_empty() {
        return String::new();
    }
    let caption = match scenario.role.as_str() {
        "all" => format!("{}, all together", metric.label),
        role => format!("{} of the {role}", metric.label),
    };
    chart::bars(&caption, &direction(metric), &values)
}

fn direction(metric: &Metric) -> String {
    let better = match metric.better {
        crate::metric::Better::Higher => "more is better",
        crate::metric::Better::Lower => "less is better",
    };
    better.to_owned()
}

/// Modes without figures, and runs to be taken with care.
fn absent(scenario: &ScenarioResults) -> String {
    let mut text = String::new();
    for remark in remarks(scenario) {
        let class = if remark.is_failure { "warn" } else { "soft" };
        let _ = writeln!(text, "<p class=\"{class}\">{}.</p>", Escaped(&remark.text));
    }
    text
}

fn block(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} bytes"),
    }
}

fn machine(results: &Results) -> String {
    let mut text = String::from("<h2 id=\"machine\">Machine</h2>\n<dl>\n");
    for (name, value) in results.facts() {
        let _ = writeln!(
            text,
            "<dt>{}</dt><dd>{}</dd>",
            Escaped(&name),
            Escaped(&value)
        );
    }
    text.push_str("</dl>\n");
    text
}

fn method(results: &Results) -> String {
    let mut text = String::from(
        "<h2 id=\"method\">How it was measured</h2>\n<p>Each case is a process of its own in a \
         memory cgroup. The modes take turns, and another is first in each round. Cached and dirty \
         pages are counted from outside with cachestat, bytes at the disk with its own counters, \
         latencies in a histogram of every call. What published tables of this kind got wrong is \
         not repeated: direct is O_DIRECT, every writer has a file of its own, readers run as long \
         as the writer does, and latencies are those of single calls and not the length of a queue \
         divided by its speed.</p>\n",
    );
    for note in &results.notes {
        let _ = writeln!(text, "<p>{}</p>", Escaped(note));
    }
    text.push_str("<h3>Metrics</h3>\n<dl>\n");
    for metric in &Metric::ALL {
        let _ = writeln!(
            text,
            "<dt>{}</dt><dd>{}; {}</dd>",
            Escaped(metric.label),
            Escaped(metric.meaning),
            direction(metric)
        );
    }
    text.push_str("</dl>\n<h3>Modes</h3>\n<dl>\n");
    for mode in crate::mode::Mode::ALL {
        let _ = writeln!(text, "<dt>{mode}</dt><dd>{}</dd>", Escaped(mode.summary()));
    }
    text.push_str("</dl>\n");
    text
}
