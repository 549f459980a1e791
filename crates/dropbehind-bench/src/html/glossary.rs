//! The words of the report: each is explained once, and linked wherever it stands.

use std::fmt::Write;
use std::sync::LazyLock;

use super::markup::Escaped;
use crate::metric::Metric;
use crate::mode::Mode;

/// Words besides metrics and modes.
const WORDS: &str = include_str!("words.txt");
/// Modes whose names are everyday words, too: they are linked in tables, and not in sentences.
const EVERYDAY: [Mode; 3] = [Mode::Run, Mode::Alone, Mode::Direct];

struct Term {
    id: String,
    name: &'static str,
    meaning: String,
    /// Whether it is linked in sentences.
    is_plain: bool,
}

static TERMS: LazyLock<Vec<Term>> = LazyLock::new(|| {
    let words = WORDS.lines().filter_map(|line| line.split_once(": "));
    let words = words.map(|(name, meaning)| Term {
        id: format!("word-{}", name.replace([' ', '/'], "-")),
        name,
        meaning: meaning.to_owned(),
        is_plain: true,
    });
    let modes = Mode::ALL.iter().map(|mode| Term {
        id: mode_id(*mode),
        name: mode.name(),
        meaning: mode.summary().to_owned(),
        is_plain: !EVERYDAY.contains(mode),
    });
    let metrics = Metric::ALL.iter().map(|metric| Term {
        id: metric_id(metric),
        name: if metric.name().is_empty() {
            metric.label
        } else {
            metric.name()
        },
        meaning: format!("{}; {}", metric.meaning, metric.direction()),
        is_plain: matches!(metric.key, "p50" | "p99" | "p999"),
    });
    words.chain(modes).chain(metrics).collect()
});

fn mode_id(mode: Mode) -> String {
    format!("mode-{mode}")
}

fn metric_id(metric: &Metric) -> String {
    format!("metric-{}", metric.key)
}

fn link(id: &str, text: &str) -> String {
    let meaning = TERMS.iter().find(|term| term.id == id);
    format!(
        "<a class=\"term\" href=\"#{id}\" title=\"{}\">{}</a>",
        Escaped(meaning.map_or("", |term| &term.meaning)),
        Escaped(text)
    )
}

/// A mode's name.
pub(super) fn mode(mode: Mode) -> String {
    link(&mode_id(mode), mode.name())
}

/// A heading that names a metric.
pub(super) fn metric(metric: &Metric, heading: &str) -> String {
    link(&metric_id(metric), heading)
}

/// A text as HTML, with the first of each of its terms linked.
pub(super) fn linked(text: &str) -> String {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let mut html = String::new();
    let mut seen: Vec<&str> = Vec::new();
    let (mut rest, mut last) = (text, ' ');
    while let Some(next) = rest.chars().next() {
        let is_here = |term: &&Term| {
            term.is_plain
                && rest
                    .strip_prefix(term.name)
                    .is_some_and(|after| !after.starts_with(is_of_word))
        };
        let terms = TERMS.iter().filter(is_here);
        let found = terms.max_by_key(|term| term.name.len());
        let length = match found.filter(|_| !is_of_word(last)) {
            Some(term) if !seen.contains(&term.name) => {
                seen.push(term.name);
                html.push_str(&link(&term.id, term.name));
                term.name.len()
            }
            found => {
                let length = found.map_or(next.len_utf8(), |term| term.name.len());
                let _ = write!(html, "{}", Escaped(&rest[..length]));
                length
            }
        };
        last = rest[..length].chars().next_back().unwrap_or(' ');
        rest = &rest[length..];
    }
    html
}

/// All of them.
pub(super) fn section() -> String {
    let mut text = String::from("<h2 id=\"glossary\">Glossary</h2>\n");
    for (title, prefix) in [
        ("Words", "word-"),
        ("Modes", "mode-"),
        ("Figures", "metric-"),
    ] {
        let _ = writeln!(text, "<h3>{title}</h3>\n<dl>");
        for term in TERMS.iter().filter(|term| term.id.starts_with(prefix)) {
            let _ = writeln!(
                text,
                "<dt id=\"{}\">{}</dt><dd>{}</dd>",
                term.id,
                Escaped(term.name),
                Escaped(&term.meaning)
            );
        }
        text.push_str("</dl>\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_linked_once_and_whole() {
        let html = linked("dontcache p99.9 <of> native; native-like p99, dontcache");
        assert_eq!(html.matches("class=\"term\"").count(), 4, "{html}");
        assert!(html.contains("href=\"#metric-p999\"") && html.contains("href=\"#metric-p99\""));
        assert!(
            html.contains("&lt;of&gt;") && html.contains("; native-like"),
            "{html}"
        );
        assert_eq!(linked("no run of a µs"), "no run of a µs");
    }
}
