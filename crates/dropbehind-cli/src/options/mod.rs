//! The one table of options: name, unit, range, default and meaning.
//!
//! The command line, the environment, `--help`, the completions and the man pages are made from
//! it; a rules file can read the same names and values through [`OptionSpec::parse`]. Options of
//! a single command (`cp -r`) are not here but with that command.

mod arguments;
mod bench;
mod foreign;
mod run_settings;
mod settings;
mod table;
mod top;

pub(crate) use bench::BenchSettings;
pub(crate) use foreign::{instead_of, is_of_dd};
pub(crate) use run_settings::{OpenSource, RunSettings};
pub(crate) use settings::{IoSettings, Voice, When, WriteEnd};
pub(crate) use top::TopSettings;

use crate::size;
use dropbehind_config::nearest;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

/// What an option's value is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// One of some words, or anything else that the type's own parser takes.
    Words {
        /// The words worth naming.
        words: &'static [&'static str],
        /// Whether a text is a value.
        check: fn(&str) -> Result<(), String>,
    },
    /// A number of bytes in this range.
    Bytes {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// A time in this range, given in seconds.
    Seconds {
        /// The shortest, in milliseconds.
        min_ms: u64,
        /// The longest, in milliseconds.
        max_ms: u64,
    },
    /// A pattern; the option may be repeated.
    Pattern {
        /// Whether a text is a pattern.
        check: fn(&str) -> Result<(), String>,
    },
    /// A plain number in this range.
    Count {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// Present or not.
    Flag,
    /// A file's name.
    Path,
}

/// A value that fits its option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// The value of a [`Kind::Words`] or [`Kind::Pattern`].
    Word(String),
    /// The value of a [`Kind::Seconds`].
    Time(Duration),
    /// The value of a [`Kind::Bytes`].
    Bytes(u64),
    /// The value of a [`Kind::Count`].
    Count(u64),
    /// The value of a [`Kind::Path`].
    Path(PathBuf),
}

/// One option.
#[derive(Debug)]
pub(crate) struct OptionSpec {
    /// Its long name.
    pub(crate) name: &'static str,
    /// Its letter.
    pub(crate) short: Option<char>,
    /// What its value is called in help.
    pub(crate) value_name: &'static str,
    /// The variable that sets it if the command line does not.
    pub(crate) env: Option<&'static str>,
    /// What its value is made of.
    pub(crate) kind: Kind,
    /// Its value if nothing sets it.
    pub(crate) default: Option<&'static str>,
    /// What it does, in one line.
    pub(crate) meaning: &'static str,
    /// The rest, for `--help` and the man page.
    pub(crate) details: &'static str,
}

impl OptionSpec {
    /// What most options have: neither letter nor variable nor default.
    const PLAIN: Self = Self {
        name: "",
        short: None,
        value_name: "",
        env: None,
        kind: Kind::Flag,
        default: None,
        meaning: "",
        details: "",
    };

    /// Parses a value, or says what would be one.
    pub(crate) fn parse(&self, text: &OsStr) -> Result<Value, String> {
        if let Kind::Path = self.kind {
            return Ok(Value::Path(text.into()));
        }
        let text = text.to_str().ok_or("expected plain text")?;
        match self.kind {
            Kind::Words { words, check } => match check(text) {
                Ok(()) => Ok(Value::Word(text.to_owned())),
                Err(reason) => Err(match nearest(text, words.iter().copied()) {
                    Some(meant) => format!("{reason}. Did you mean {meant}?"),
                    None => reason,
                }),
            },
            Kind::Pattern { check } => check(text).map(|()| Value::Word(text.to_owned())),
            Kind::Bytes { min, max } => match size::parse(text)? {
                bytes if (min..=max).contains(&bytes) => Ok(Value::Bytes(bytes)),
                _ => Err(format!(
                    "expected a size from {} to {}",
                    size::show(min),
                    size::show(max)
                )),
            },
            Kind::Seconds { min_ms, max_ms } => {
                let range = Duration::from_millis(min_ms)..=Duration::from_millis(max_ms);
                let number = text.trim();
                let number = number.strip_suffix('s').unwrap_or(number).parse();
                match number.map(Duration::try_from_secs_f64) {
                    Ok(Ok(time)) if range.contains(&time) => Ok(Value::Time(time)),
                    _ => Err(format!(
                        "expected seconds from {} to {}, such as 2 or 0.5",
                        range.start().as_secs_f64(),
                        range.end().as_secs_f64()
                    )),
                }
            }
            Kind::Count { min, max } => match text.parse() {
                Ok(count) if (min..=max).contains(&count) => Ok(Value::Count(count)),
                _ => Err(format!("expected a number from {min} to {max}")),
            },
            Kind::Flag => Err("takes no value".to_owned()),
            Kind::Path => unreachable!("read above"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::bench::BENCH;
    use super::table::{INTERVAL, MODE, RUN, SETTLE, TOP, TRANSFER, WINDOW, WRITE_END};
    use super::*;
    use dropbehind::Mode;

    #[test]
    fn every_named_word_and_default_is_a_value() {
        let all = TRANSFER.iter().chain(&WRITE_END).chain(&RUN).chain(&TOP);
        for spec in all.chain(&BENCH) {
            if let Kind::Words { words, .. } = spec.kind {
                for word in words {
                    assert!(spec.parse(OsStr::new(word)).is_ok(), "{} {word}", spec.name);
                }
            }
            if let Some(default) = spec.default {
                assert!(spec.parse(OsStr::new(default)).is_ok(), "{}", spec.name);
            }
            if let Some(env) = spec.env {
                let name = spec.name.to_uppercase().replace('-', "_");
                assert_eq!(env, format!("DROPBEHIND_{name}"));
            }
        }
    }

    #[test]
    fn every_mode_is_named() {
        let Kind::Words { words, .. } = MODE.kind else {
            panic!("modes are words");
        };
        assert!(
            words
                .iter()
                .copied()
                .eq(Mode::ALL.iter().filter_map(|mode| mode.name()))
        );
    }

    #[test]
    fn times_are_seconds() {
        let half = Value::Time(Duration::from_millis(500));
        for text in ["0.5", "0.5s", " .5 "] {
            assert_eq!(INTERVAL.parse(OsStr::new(text)), Ok(half.clone()), "{text}");
        }
        for text in [
            "", "0", "0.01", "1e9", "-1", "inf", "nan", "2ms", "1m", "61",
        ] {
            let error = INTERVAL.parse(OsStr::new(text)).unwrap_err();
            assert!(error.contains("from 0.1 to 60"), "{text}: {error}");
        }
    }

    #[test]
    fn refuses_what_is_out_of_range() {
        let error = WINDOW.parse(OsStr::new("1k")).unwrap_err();
        assert!(error.contains("64 KiB"), "{error}");
        assert_eq!(WINDOW.parse(OsStr::new("64k")), Ok(Value::Bytes(64 << 10)));
        for wrong in ["-1", "86401", "NaN", "inf", ""] {
            assert!(SETTLE.parse(OsStr::new(wrong)).is_err(), "{wrong}");
        }
        let half = Duration::from_millis(500);
        assert_eq!(SETTLE.parse(OsStr::new(".5")), Ok(Value::Time(half)));
    }
}
