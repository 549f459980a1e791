//! The report: one HTML file that needs nothing else.

mod chart;
mod markup;
mod plots;
mod tables;

use std::fmt::Write;

use crate::metric::Metric;
use crate::results::{Results, ScenarioResults};
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
    let (machine, settings) = (&results.environment, &results.settings);
    let mut text = format!(
        "<header>\n<h1>What buffered I/O costs here</h1>\n<p class=\"soft\">{}, Linux {}, {} \
         processors, {} GiB, {} on {}; {} runs of each mode; dropbehind {}</p>\n",
        date(results.started_s),
        Escaped(&machine.kernel),
        machine.cpus,
        (machine.memory_bytes as f64 / f64::from(1 << 30)).round(),
        Escaped(&machine.filesystem),
        Escaped(&machine.disk.name),
        settings.runs,
        Escaped(&results.version)
    );
    let mut warnings = Vec::new();
    if !results.complete {
        warnings.push("The benchmark has not come to its end.".to_owned());
    }
    if machine.debug_build {
        warnings.push("Built without optimisation: speeds mean nothing.".to_owned());
    }
    if settings.quick {
        warnings.push("A quick benchmark: to see how it looks, not to compare by.".to_owned());
    }
    let disturbed = results.disturbed_runs();
    if disturbed > 0 {
        warnings.push(format!(
            "{disturbed} runs were disturbed by other programs; they are left out where a mode \
             has others. Stop what else runs, and run those scenarios again."
        ));
    }
    for warning in warnings {
        let _ = writeln!(text, "<p class=\"warn\">{}</p>", Escaped(&warning));
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
    for mode in &scenario.modes {
        let name = mode.mode;
        if let Some(why) = &mode.unavailable {
            let why = Escaped(why);
            let _ = writeln!(
                text,
                "<p class=\"soft\">{name} is not available: {why}.</p>"
            );
        }
        if let Some(why) = &mode.failed {
            let _ = writeln!(
                text,
                "<p class=\"warn\">{name} failed: {}.</p>",
                Escaped(why)
            );
        }
        let disturbed: Vec<&String> = mode.runs.iter().flat_map(|run| &run.disturbances).collect();
        if let Some(first) = disturbed.first() {
            let runs = mode.runs.iter().filter(|run| !run.disturbances.is_empty());
            let _ = writeln!(
                text,
                "<p class=\"soft\">{name}: {} of {} runs disturbed ({}).</p>",
                runs.count(),
                mode.runs.len(),
                Escaped(first)
            );
        }
        let cut = |run: &&crate::results::Run| run.roles.values().any(|role| role.cut_short);
        if mode.runs.iter().any(|run| cut(&run)) {
            let _ = writeln!(
                text,
                "<p class=\"soft\">{name} was cut short; its speeds are of what was moved.</p>"
            );
        }
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
    let (machine, settings) = (&results.environment, &results.settings);
    let disk = &machine.disk;
    let mut facts: Vec<(&str, String)> = vec![
        (
            "Kernel",
            format!("{} ({})", machine.kernel, machine.architecture),
        ),
        (
            "Processor",
            format!("{} × {}", machine.cpus, machine.processor),
        ),
        ("Memory", format!("{} MiB", machine.memory_bytes >> 20)),
        ("File system", machine.filesystem.clone()),
        (
            "Disk",
            format!(
                "{} {}, scheduler {}, requests up to {} KiB, readahead {} KiB, cache {}",
                disk.name,
                disk.model,
                disk.scheduler,
                disk.request_bytes >> 10,
                disk.read_ahead_bytes >> 10,
                disk.write_cache
            ),
        ),
        ("Place", settings.place.clone()),
        (
            "Memory cgroup",
            match settings.memory_limit_bytes {
                Some(limit) => format!("{}, {} MiB", settings.memory_group, limit >> 20),
                None => settings.memory_group.clone(),
            },
        ),
        ("Caches", settings.caches_dropped.clone()),
        ("Huge pages", machine.huge_pages.clone()),
    ];
    for (name, value) in &machine.sysctls {
        facts.push((name, value.clone()));
    }
    let mut text = String::from("<h2 id=\"machine\">Machine</h2>\n<dl>\n");
    for (name, value) in facts {
        let _ = writeln!(
            text,
            "<dt>{}</dt><dd>{}</dd>",
            Escaped(name),
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

/// A day of the proleptic Gregorian calendar, by the usual arithmetic with
/// years that begin in March.
fn date(seconds: u64) -> String {
    let days = i64::try_from(seconds / 86_400).unwrap_or(0) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_795_219_200), "2026-11-21");
    }
}
