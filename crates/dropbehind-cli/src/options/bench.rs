//! The options of `bench`: rows of the table, and their values.

use super::{Kind, OptionSpec, Value};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use std::ffi::OsString;

const DIR: OptionSpec = OptionSpec {
    name: "dir",
    value_name: "DIR",
    kind: Kind::Path,
    meaning: "Measure files in this directory",
    details: "The working directory unless given. A folder is made in it, and removed in the end.",
    ..OptionSpec::PLAIN
};

const DEVICE: OptionSpec = OptionSpec {
    name: "device",
    value_name: "DEVICE",
    kind: Kind::Path,
    meaning: "Measure a raw block device; everything on it is written over",
    details: "Refused while anything uses it, and asked about unless --yes is given. Only the \
              scenarios device-write and device-read run then.",
    ..OptionSpec::PLAIN
};

const YES: OptionSpec = OptionSpec {
    name: "yes",
    short: Some('y'),
    kind: Kind::Flag,
    meaning: "Do not ask before --device is written over",
    ..OptionSpec::PLAIN
};

const SIZE: OptionSpec = OptionSpec {
    name: "size",
    value_name: "SIZE",
    kind: Kind::Bytes {
        min: 1 << 20,
        max: 1 << 50,
    },
    meaning: "How much each scenario moves",
    details: "Unless given, a small multiple of the workers' memory limit, which differs from \
              scenario to scenario. It may be more than the machine's memory.",
    ..OptionSpec::PLAIN
};

const MEMORY: OptionSpec = OptionSpec {
    name: "memory",
    value_name: "SIZE",
    kind: Kind::Bytes {
        min: 32 << 20,
        max: 1 << 50,
    },
    meaning: "Limit of the workers' memory cgroup, page cache included",
    details: "Unless given, 1GiB (256MiB with --quick), or a quarter of a --size below 4GiB; no \
              more than a quarter of the machine's memory and no less than 64MiB.",
    ..OptionSpec::PLAIN
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
    value_name: "LIST",
    kind: Kind::Words {
        words: &MODE_NAMES,
        check: are_modes,
    },
    meaning: "The modes to compare, with commas between them",
    details: "Those that make sense for each scenario unless given. `dropbehind bench list` tells \
              what they are.",
    ..OptionSpec::PLAIN
};

const RUNS: OptionSpec = OptionSpec {
    name: "runs",
    value_name: "N",
    kind: Kind::Count { min: 1, max: 1000 },
    meaning: "How often each mode runs",
    details: "From 1 to 1000; 5 unless given, 1 with --quick. Modes take turns, and another is \
              first in each round.",
    ..OptionSpec::PLAIN
};

const QUICK: OptionSpec = OptionSpec {
    name: "quick",
    kind: Kind::Flag,
    meaning: "A few minutes for everything: small sizes, one run, the main modes",
    details: "To see how it looks. Cases are cut short after 4 seconds (60 without it), and only \
              the benchmark's own files are dropped from the page cache before each.",
    ..OptionSpec::PLAIN
};

const JSON: OptionSpec = OptionSpec {
    name: "json",
    value_name: "FILE",
    kind: Kind::Path,
    meaning: "Write all results to FILE, after every case",
    details: "For `bench compare` and `bench report`.",
    ..OptionSpec::PLAIN
};

const HTML: OptionSpec = OptionSpec {
    name: "html",
    value_name: "FILE",
    kind: Kind::Path,
    meaning: "Write a report to FILE, after every scenario",
    details: "One file that needs no network.",
    ..OptionSpec::PLAIN
};

const CSV: OptionSpec = OptionSpec {
    name: "csv",
    value_name: "FILE",
    kind: Kind::Path,
    meaning: "Write a table to FILE, after every scenario",
    details: "A figure a line: scenario, mode, role, metric, unit, which is better, median, \
              lowest, highest, and of how many runs.",
    ..OptionSpec::PLAIN
};

const MARKDOWN: OptionSpec = OptionSpec {
    name: "markdown",
    value_name: "FILE",
    kind: Kind::Path,
    meaning: "Write the tables to FILE in Markdown, after every scenario",
    ..OptionSpec::PLAIN
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
