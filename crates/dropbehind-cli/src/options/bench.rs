//! The options of `bench`: rows of the table, and their values.

use super::{Kind, OptionSpec, Value};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use std::ffi::OsString;

const DIR: OptionSpec = OptionSpec {
    name: "dir",
    short: None,
    value_name: "DIR",
    env: None,
    kind: Kind::Path,
    default: None,
    meaning: "Measure files in this directory",
    details: "The working directory unless given. A folder is made in it, and removed in the end.",
};

const DEVICE: OptionSpec = OptionSpec {
    name: "device",
    short: None,
    value_name: "DEVICE",
    env: None,
    kind: Kind::Path,
    default: None,
    meaning: "Measure a raw block device; everything on it is written over",
    details: "Refused while anything uses it, and asked about unless --yes is given. Only the \
              scenarios device-write and device-read run then.",
};

const YES: OptionSpec = OptionSpec {
    name: "yes",
    short: Some('y'),
    value_name: "",
    env: None,
    kind: Kind::Flag,
    default: None,
    meaning: "Do not ask before --device is written over",
    details: "",
};

const SIZE: OptionSpec = OptionSpec {
    name: "size",
    short: None,
    value_name: "SIZE",
    env: None,
    kind: Kind::Bytes {
        min: 1 << 20,
        max: 1 << 50,
    },
    default: None,
    meaning: "How much each scenario moves",
    details: "Unless given, a small multiple of the workers' memory limit, which differs from \
              scenario to scenario. It may be more than the machine's memory.",
};

const MEMORY: OptionSpec = OptionSpec {
    name: "memory",
    short: None,
    value_name: "SIZE",
    env: None,
    kind: Kind::Bytes {
        min: 32 << 20,
        max: 1 << 50,
    },
    default: None,
    meaning: "Limit of the workers' memory cgroup, page cache included",
    details: "Unless given, 1GiB (256MiB with --quick), or a quarter of a --size below 4GiB; no \
              more than a quarter of the machine's memory and no less than 64MiB.",
};

/// Ways of doing I/O that the benchmark knows.
const MODE_NAMES: [&str; 14] = [
    "buffered",
    "native",
    "direct",
    "direct-q16",
    "snippet",
    "cgroup",
    "nocache",
    "dontcache",
    "noreuse",
    "write-behind",
    "write-behind-any",
    "write-through",
    "run",
    "alone",
];

const MODES: OptionSpec = OptionSpec {
    name: "modes",
    short: None,
    value_name: "LIST",
    env: None,
    kind: Kind::Words {
        words: &MODE_NAMES,
        check: are_modes,
    },
    default: None,
    meaning: "The modes to compare, with commas between them",
    details: "Those that make sense for each scenario unless given. `dropbehind bench list` tells \
              what they are.",
};

const RUNS: OptionSpec = OptionSpec {
    name: "runs",
    short: None,
    value_name: "N",
    env: None,
    kind: Kind::Count { min: 1, max: 1000 },
    default: None,
    meaning: "How often each mode runs",
    details: "From 1 to 1000; 5 unless given, 1 with --quick. Modes take turns, and another is \
              first in each round.",
};

const QUICK: OptionSpec = OptionSpec {
    name: "quick",
    short: None,
    value_name: "",
    env: None,
    kind: Kind::Flag,
    default: None,
    meaning: "A few minutes for everything: small sizes, one run, the main modes",
    details: "To see how it looks. Cases are cut short after 4 seconds (60 without it), and only \
              the benchmark's own files are dropped from the page cache before each.",
};

const JSON: OptionSpec = OptionSpec {
    name: "json",
    short: None,
    value_name: "FILE",
    env: None,
    kind: Kind::Path,
    default: None,
    meaning: "Write all results to FILE, after every case",
    details: "For `bench compare` and `bench report`.",
};

const HTML: OptionSpec = OptionSpec {
    name: "html",
    short: None,
    value_name: "FILE",
    env: None,
    kind: Kind::Path,
    default: None,
    meaning: "Write a report to FILE, after every scenario",
    details: "One file that needs no network.",
};

const CSV: OptionSpec = OptionSpec {
    name: "csv",
    short: None,
    value_name: "FILE",
    env: None,
    kind: Kind::Path,
    default: None,
    meaning: "Write a table to FILE, after every scenario",
    details: "A figure a line: scenario, mode, role, metric, unit, which is better, median, \
              lowest, highest, and of how many runs.",
};

const MARKDOWN: OptionSpec = OptionSpec {
    name: "markdown",
    short: None,
    value_name: "FILE",
    env: None,
    kind: Kind::Path,
    default: None,
    meaning: "Write the tables to FILE in Markdown, after every scenario",
    details: "",
};

/// The options of `bench`.
pub(super) const BENCH: [&OptionSpec; 12] = [
    &DIR, &DEVICE, &YES, &SIZE, &MEMORY, &MODES, &RUNS, &QUICK, &JSON, &HTML, &CSV, &MARKDOWN,
];

fn are_modes(text: &str) -> Result<(), String> {
    match text
        .split(',')
        .find(|name| !MODE_NAMES.contains(&name.trim()))
    {
        None => Ok(()),
        Some(unknown) => Err(format!(
            "there is no mode {:?}; the modes are {}",
            unknown.trim(),
            MODE_NAMES.join(", ")
        )),
    }
}

/// The values of [`BENCH`], as words for `dropbehind-bench`.
#[derive(Clone, Debug)]
pub(crate) struct BenchSettings {
    pub(crate) words: Vec<OsString>,
}

impl FromArgMatches for BenchSettings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut words = Vec::new();
        for spec in BENCH {
            let mut word = OsString::from(format!("--{}", spec.name));
            if let Kind::Flag = spec.kind {
                if matches.get_flag(spec.name) {
                    words.push(word);
                }
                continue;
            }
            let Some(value) = matches.get_one::<Value>(spec.name) else {
                continue;
            };
            // One word, since a value may begin with a hyphen.
            word.push("=");
            match value {
                Value::Path(path) => word.push(path),
                Value::Bytes(number) | Value::Count(number) => word.push(number.to_string()),
                Value::Word(text) => word.push(text.replace(' ', "")),
                Value::Time(time) => word.push(time.as_secs_f64().to_string()),
            }
            words.push(word);
        }
        Ok(Self { words })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for BenchSettings {
    fn augment_args(command: Command) -> Command {
        BENCH.iter().fold(command, |command, spec| {
            command.arg(spec.arg().help_heading(None::<&str>))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn every_mode_is_named() {
        let names = dropbehind_bench::Mode::ALL.map(|mode| mode.name());
        assert_eq!(MODE_NAMES, names);
        assert!(MODES.parse(OsStr::new("buffered, run")).is_ok());
        let error = MODES.parse(OsStr::new("buffered,fast")).unwrap_err();
        assert!(error.contains("write-behind"), "{error}");
    }

    #[test]
    fn counts_have_a_range() {
        assert_eq!(RUNS.parse(OsStr::new("7")), Ok(Value::Count(7)));
        for text in ["0", "1001", "-1", "five", ""] {
            let error = RUNS.parse(OsStr::new(text)).unwrap_err();
            assert!(error.contains("from 1 to 1000"), "{error}");
        }
    }
}
