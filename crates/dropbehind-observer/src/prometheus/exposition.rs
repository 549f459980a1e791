//! Prometheus' text exposition format, version 0.0.4.

use std::fmt::{self, Write as _};
use std::time::Duration;

/// The labels of a series besides the observer's, and their texts.
pub(super) type Labels = Vec<(&'static str, String)>;

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

    /// One metric and its samples; nothing if there are none. It is a counter if its name ends in
    /// `_total`, and else a gauge.
    pub(super) fn family<'a, V: fmt::Display>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (&'a Labels, V)>,
    ) {
        let kind = match name.ends_with("_total") {
            true => "counter",
            false => "gauge",
        };
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        self.head(name, kind, help);
        for (labels, value) in samples {
            self.sample(name, labels, value);
        }
    }

    /// A histogram of times: how many are up to each of the `bounds` and longer than the one
    /// before it, and last how many are longer still.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        bounds: &[Duration],
        counts: &[u64],
        sum_ns: u64,
    ) {
        self.head(name, "histogram", help);
        let bounds = bounds.iter().map(|bound| bound.as_secs_f64().to_string());
        let mut so_far = 0;
        for (place, bound) in bounds.chain(["+Inf".to_owned()]).enumerate() {
            so_far += counts.get(place).unwrap_or(&0);
            self.sample(&format!("{name}_bucket"), &vec![("le", bound)], so_far);
        }
        self.sample(&format!("{name}_sum"), &Labels::new(), Seconds(sum_ns));
        self.sample(&format!("{name}_count"), &Labels::new(), so_far);
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            self.text,
            "# HELP dropbehind_{name} {help}\n# TYPE dropbehind_{name} {kind}"
        );
    }

    fn sample(&mut self, name: &str, labels: &Labels, value: impl fmt::Display) {
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

    pub(super) fn one(&mut self, name: &str, help: &str, value: impl fmt::Display) {
        self.family(name, help, [(&Labels::new(), value)]);
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
