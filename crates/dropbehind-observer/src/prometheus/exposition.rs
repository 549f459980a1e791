//! Prometheus' text exposition format, version 0.0.4.

use std::fmt::{self, Write as _};

/// What a metric is.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Counter,
    Gauge,
}

/// The text so far.
pub(super) struct Exposition {
    text: String,
    observer: String,
}

impl Exposition {
    /// For this observer, which is a label of every series.
    pub(super) fn new(observer: String) -> Exposition {
        Exposition {
            text: String::new(),
            observer,
        }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// One metric and its samples; nothing if there are none. A counter's name ends in `_total`.
    pub(super) fn family<'a, V: fmt::Display>(
        &mut self,
        kind: Kind,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, V)>,
    ) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        // Writing to a string cannot fail.
        let _ = writeln!(
            self.text,
            "# HELP dropbehind_{name} {help}\n# TYPE dropbehind_{name} {kind}"
        );
        for (labels, value) in samples {
            let _ = write!(
                self.text,
                "dropbehind_{name}{{observer=\"{}\"",
                Escaped(&self.observer)
            );
            for (label, text) in labels {
                let _ = write!(self.text, ",{label}=\"{}\"", Escaped(text));
            }
            let _ = writeln!(self.text, "}} {value}");
        }
    }

    pub(super) fn one(&mut self, kind: Kind, name: &str, help: &str, value: impl fmt::Display) {
        self.family(kind, name, help, [(Vec::new(), value)]);
    }
}

/// A label's value as it appears between quotes.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// Nanoseconds as seconds, with all their digits.
pub(super) struct Seconds(pub(super) u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        write!(f, "{whole}.{part:09}")
    }
}
