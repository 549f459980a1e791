//! Two benchmarks laid over each other: one page.

use std::fmt::Write;

use super::markup::Escaped;
use super::tables::{bars, changed, heading, table, value};
use super::{TOOLS, card, glossary, plots, shell, short};
use crate::compare::{Compared, changes, differences};
use crate::gains::gains;
use crate::results::{Results, ScenarioResults};
use crate::table::roles;

/// Makes the page. The older one is A in it, and the newer one B.
#[must_use]
pub fn render(before: &Results, after: &Results) -> String {
    let changes = changes(before, after);
    let mut main = short(&gains(&changes), "What B gained and lost compared with A");
    let _ = write!(main, "<p>Of all figures {}.</p>\n{TOOLS}", counts(&changes));
    for old in &before.scenarios {
        match after.scenarios.iter().find(|new| new.name == old.name) {
            Some(new) => main.push_str(&section(old, new, &changes)),
            None => main.push_str(&only(old, 'A')),
        }
    }
    for new in &after.scenarios {
        if !before.scenarios.iter().any(|old| old.name == new.name) {
            main.push_str(&only(new, 'B'));
        }
    }
    main.push_str(&glossary::section());
    shell(
        "dropbehind bench: what changed",
        &header(before, after),
        &main,
        &format!(
            "Made by dropbehind {} from two files of results.",
            env!("CARGO_PKG_VERSION")
        ),
    )
}

fn only(scenario: &ScenarioResults, run: char) -> String {
    format!(
        "<p class=\"soft\">{} is in {run} only.</p>\n",
        Escaped(&scenario.name)
    )
}

fn header(before: &Results, after: &Results) -> String {
    let mut text = String::from("<header>\n<h1>What changed</h1>\n");
    for (name, results) in [('A', before), ('B', after)] {
        let facts = results.circumstances();
        let _ = writeln!(text, "<p><strong>{name}</strong>: {}</p>", Escaped(&facts));
        for caution in results.cautions() {
            let _ = writeln!(text, "<p class=\"warn\">{name}: {}</p>", Escaped(&caution));
        }
    }
    let differences = differences(before, after);
    if differences.is_empty() {
        text.push_str("<p>Same kernel, machine, disk and settings.</p>\n");
    } else {
        let rows: String = differences
            .iter()
            .map(|[name, before, after]| {
                let [name, before, after] = [name, before, after].map(|text| Escaped(text));
                format!("<tr><th scope=\"row\">{name}</th><td>{before}</td><td>{after}</td></tr>\n")
            })
            .collect();
        let heads = ["what differs", "A", "B"].map(str::to_owned);
        text.push_str(&table("What differs", "facts", "", &heads, &rows));
    }
    text.push_str("</header>\n");
    text
}

/// How many figures differ beyond the noise, and how many do not.
fn counts<'a>(changes: impl IntoIterator<Item = &'a Compared>) -> String {
    let [mut better, mut worse, mut within, mut single] = [0; 4];
    for Compared { change, .. } in changes {
        *match (change.is_single(), change.is_apart(), change.is_better()) {
            (true, ..) => &mut single,
            (_, false, _) => &mut within,
            (_, _, true) => &mut better,
            (_, _, false) => &mut worse,
        } += 1;
    }
    let mut text = format!("{better} are better, {worse} worse, {within} within the noise");
    if single > 0 {
        let _ = write!(
            text,
            ", and {single} are of single runs, which prove nothing"
        );
    }
    text
}

fn section(old: &ScenarioResults, new: &ScenarioResults, all: &[Compared]) -> String {
    let here: Vec<&Compared> = all.iter().filter(|one| one.scenario == old.name).collect();
    let (apart, within): (Vec<&Compared>, Vec<&Compared>) =
        here.iter().partition(|one| one.change.is_apart());
    let sources = [(Some('A'), old), (Some('B'), new)];
    let mut text = card(new, "");
    let _ = write!(
        text,
        "<p>{}.</p>\n{}<div class=\"flow\">\n{}{}{}</div>\n",
        counts(here.iter().copied()),
        plots::legend(new),
        bars(&sources),
        figures(old, "Beyond the noise", &apart),
        plots::plots(&sources)
    );
    if !within.is_empty() {
        let _ = writeln!(
            text,
            "<details><summary>Other figures</summary>\n{}</details>",
            figures(old, "Within the noise, or of single runs", &within)
        );
    }
    text.push_str("</details></section>\n");
    text
}

fn figures(scenario: &ScenarioResults, caption: &str, changes: &[&Compared]) -> String {
    if changes.is_empty() {
        return String::new();
    }
    let roles = roles(scenario);
    let mut rows = String::new();
    for one in changes {
        let change = &one.change;
        let _ = writeln!(
            rows,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td>{}</tr>",
            glossary::mode(one.mode),
            glossary::metric(change.metric, &heading(&one.role, &roles, change.metric)),
            value(&change.before),
            value(&change.after),
            changed(change)
        );
    }
    table(
        &format!("{}: {caption}", scenario.name),
        "figures",
        &format!("{caption}: medians, with the range of the runs below"),
        &["mode", "figure", "A", "B", "change"].map(str::to_owned),
        &rows,
    )
}
