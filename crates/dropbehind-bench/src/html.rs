//! The report: one HTML file that needs nothing else.

mod chart;
mod comparison;
mod glossary;
mod markup;
mod plots;
mod tables;

use std::fmt::Write;

use crate::compare::Compared;
use crate::gains::{Gains, against_plain, gains};
use crate::results::{Results, ScenarioResults};
use crate::table::remarks;
use crate::verdict::{Outcome, verdict};
pub use comparison::render as render_comparison;
use markup::Escaped;

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/script.js");

/// Makes the report.
#[must_use]
pub fn render(results: &Results) -> String {
    let all: Vec<Compared> = results.scenarios.iter().flat_map(against_plain).collect();
    let mut main = short(
        &gains(&all),
        "dropbehind compared with plain buffered I/O, on this machine",
    );
    main.push_str(&verdicts(results));
    main.push_str(TOOLS);
    for scenario in &results.scenarios {
        main.push_str(&section(scenario));
    }
    main.push_str(&machine(results));
    main.push_str(&method(results));
    main.push_str(&glossary::section());
    shell(
        &format!("dropbehind bench: {}", results.environment.kernel),
        &header(results),
        &main,
        &format!(
            "Made by dropbehind {} from its own results; `dropbehind bench report` makes it again \
             from the JSON file.",
            results.version
        ),
    )
}

/// Above the scenarios; the script shows and works them.
const TOOLS: &str = "<h2 id=\"scenarios\">Scenarios</h2>\n<p class=\"tools\">\
    <button type=\"button\" data-open=\"yes\" hidden>Open everything</button>\
    <button type=\"button\" data-open=\"no\" hidden>Close everything</button></p>\n";

/// A page around this.
fn shell(title: &str, header: &str, main: &str, footer: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#main\">To the results</a>\n{header}<main id=\"main\">\n{main}\
         </main>\n<footer><p class=\"soft\">{}</p></footer>\n<script>\n{SCRIPT}</script>\n</body>\n\
         </html>\n",
        Escaped(title),
        Escaped(footer)
    )
}

/// The largest gains and losses, for those who read no further.
fn short(found: &Gains, what: &str) -> String {
    let mut text = format!(
        "<section id=\"short\">\n<h2>In short</h2>\n<p>{what}.{}</p>\n<div class=\"gains\">\n",
        if found.is_proof {
            " What is told here is beyond the noise of the runs."
        } else {
            " <strong>Every mode ran only once: all of this may be chance.</strong>"
        }
    );
    let sides = [
        ("gained", "▲ Gained", &found.gained),
        ("lost", "▼ Lost", &found.lost),
    ];
    for (class, title, gains) in sides {
        let _ = writeln!(text, "<div class=\"{class}\"><h3>{title}</h3>");
        if gains.is_empty() {
            let _ = writeln!(
                text,
                "<p>Nothing was {class} beyond the noise of the runs.</p>"
            );
        }
        for gain in gains {
            let _ = writeln!(
                text,
                "<p><strong>{}.</strong> {}<br><span class=\"soft\">Scenario \
                 <a href=\"#{2}\">{2}</a>, {3}. {4}</span></p>",
                gain.title,
                glossary::linked(&gain.sentence),
                Escaped(&gain.scenario),
                glossary::mode(gain.mode),
                gain.elsewhere
            );
        }
        text.push_str("</div>\n");
    }
    text.push_str("</div>\n</section>\n");
    text
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
    let outcomes = [Outcome::Won, Outcome::Even, Outcome::Lost, Outcome::Unknown];
    let [won, even, lost, open] =
        outcomes.map(|outcome| all.iter().filter(|one| one.outcome == outcome).count());
    let mut text = format!(
        "<h2 id=\"verdicts\">Verdicts</h2>\n<p>dropbehind against the best of everything else, a \
         scenario a line: {won} won, {even} even, {lost} lost, {open} open. A difference counts \
         where no run of the one is within the range of the other.</p>\n<ul class=\"verdicts\">\n"
    );
    for (scenario, verdict) in results.scenarios.iter().zip(&all) {
        let _ = writeln!(
            text,
            "<li>{}<a href=\"#{1}\">{1}</a><p>{2}</p></li>",
            badge(verdict.outcome),
            Escaped(&scenario.name),
            glossary::linked(&verdict.sentence)
        );
    }
    text.push_str("</ul>\n");
    text
}

/// The beginning of a scenario's card.
fn card(scenario: &ScenarioResults, badge: &str) -> String {
    format!(
        "<section class=\"scenario\" id=\"{0}\" aria-labelledby=\"{0}-title\">\n<details open>\
         <summary><h3 id=\"{0}-title\">{0}</h3>{badge}</summary>\n\
         <p class=\"soft\">{1}.</p>\n",
        Escaped(&scenario.name),
        glossary::linked(&scenario.description())
    )
}

fn section(scenario: &ScenarioResults) -> String {
    let verdict = verdict(scenario);
    let mut text = card(scenario, badge(verdict.outcome));
    let _ = writeln!(text, "<p>{}</p>", glossary::linked(&verdict.sentence));
    for note in &scenario.notes {
        let _ = writeln!(text, "<p class=\"soft\">{}.</p>", Escaped(note));
    }
    for remark in remarks(scenario) {
        let class = if remark.is_failure { "warn" } else { "soft" };
        let _ = writeln!(text, "<p class=\"{class}\">{}.</p>", Escaped(&remark.text));
    }
    if scenario.skipped.is_none() {
        let _ = write!(
            text,
            "{}<div class=\"flow\">\n{}{}{}</div>\n{}",
            plots::legend(scenario),
            tables::bars(&[(None, scenario)]),
            tables::baseline(scenario),
            plots::plots(&[(None, scenario)]),
            tables::all(scenario)
        );
    }
    text.push_str("</details></section>\n");
    text
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
    text
}
