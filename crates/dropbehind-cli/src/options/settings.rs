//! The options' values, as the commands use them.

use super::table::{
    BLOCK_SIZE, CONFIG, IO_PRIORITY, MODE, NO_SYNC, PROGRESS, QUIET, REQUEST, STATS, STATS_JSON,
    STRATEGY, TRACE, TRANSFER, WINDOW, WRITE_END,
};
use super::{OptionSpec, Value};
use crate::error::Failure;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use dropbehind::Mode;
use dropbehind::strategy::Strategy;
use dropbehind_linux::IoPriority;
use std::path::PathBuf;
use std::time::Duration;

/// Whether to do something that suits a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// If it is a terminal.
    Auto,
    /// In any case.
    Always,
    /// Not at all.
    Never,
}

/// The values of [`TRANSFER`].
#[derive(Clone, Debug)]
pub(crate) struct IoSettings {
    /// `None` takes the disk's, or else the default.
    pub(crate) mode: Option<Mode>,
    pub(crate) window_bytes: Option<u64>,
    pub(crate) request_bytes: Option<u64>,
    pub(crate) config: Option<PathBuf>,
    pub(crate) strategy: Strategy,
    pub(crate) block_bytes: usize,
    pub(crate) io_priority: IoPriority,
    pub(crate) stats: Option<PathBuf>,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) progress: When,
    pub(crate) quiet: bool,
    pub(crate) voice: Voice,
}

/// How failures are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Voice {
    /// A sentence, with the next step.
    #[default]
    Own,
    /// The line that plain `cp` prints.
    Cp,
}

impl Voice {
    /// The line for standard error.
    pub(crate) fn line(self, failure: &Failure) -> String {
        match self {
            Self::Own => format!("dropbehind: {failure}"),
            Self::Cp => format!("cp: {}", failure.as_cp()),
        }
    }
}

/// The values of [`WRITE_END`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteEnd {
    pub(crate) sync: bool,
}

pub(super) fn word<'a>(matches: &'a ArgMatches, spec: &OptionSpec) -> &'a str {
    match matches.get_one::<Value>(spec.name) {
        Some(Value::Word(word)) => word,
        _ => unreachable!("{} has a default", spec.name),
    }
}

pub(super) fn bytes(matches: &ArgMatches, spec: &OptionSpec) -> Option<u64> {
    match matches.get_one::<Value>(spec.name)? {
        Value::Bytes(bytes) => Some(*bytes),
        _ => unreachable!("{} is a size", spec.name),
    }
}

pub(super) fn path(matches: &ArgMatches, spec: &OptionSpec) -> Option<PathBuf> {
    match matches.get_one::<Value>(spec.name)? {
        Value::Path(path) => Some(path.clone()),
        _ => unreachable!("{} is a path", spec.name),
    }
}

pub(super) fn time(matches: &ArgMatches, spec: &OptionSpec) -> Duration {
    match matches.get_one::<Value>(spec.name) {
        Some(Value::Time(time)) => *time,
        _ => unreachable!("{} is a time, and has a default", spec.name),
    }
}

/// Where the figures go, if anywhere.
pub(super) fn stats(matches: &ArgMatches) -> Option<PathBuf> {
    let to_stderr = matches.get_flag(STATS_JSON.name).then(|| "-".into());
    to_stderr.or_else(|| path(matches, &STATS))
}

/// The mode, if the command line or the environment sets one.
pub(super) fn mode(matches: &ArgMatches) -> Result<Option<Mode>, clap::Error> {
    match matches.value_source(MODE.name) {
        None | Some(ValueSource::DefaultValue) => Ok(None),
        Some(_) => word(matches, &MODE).parse().map(Some).map_err(unread),
    }
}

pub(super) fn unread(_: impl std::fmt::Debug) -> clap::Error {
    clap::Error::raw(ErrorKind::InvalidValue, "a checked value was refused\n")
}

impl FromArgMatches for IoSettings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let block_bytes = bytes(matches, &BLOCK_SIZE).unwrap_or(1 << 20);
        Ok(Self {
            mode: mode(matches)?,
            config: path(matches, &CONFIG),
            window_bytes: bytes(matches, &WINDOW),
            request_bytes: bytes(matches, &REQUEST),
            strategy: word(matches, &STRATEGY).parse().map_err(unread)?,
            block_bytes: usize::try_from(block_bytes).map_err(unread)?,
            io_priority: word(matches, &IO_PRIORITY).parse().map_err(unread)?,
            stats: stats(matches),
            trace: path(matches, &TRACE),
            progress: match word(matches, &PROGRESS) {
                "always" => When::Always,
                "never" => When::Never,
                _ => When::Auto,
            },
            quiet: matches.get_flag(QUIET.name),
            voice: Voice::default(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl FromArgMatches for WriteEnd {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self {
            sync: !matches.get_flag(NO_SYNC.name),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

pub(super) fn add(command: Command, specs: &[&'static OptionSpec]) -> Command {
    specs
        .iter()
        .fold(command, |command, spec| command.arg(spec.arg()))
}

impl Args for IoSettings {
    fn augment_args(command: Command) -> Command {
        add(command, &TRANSFER).mut_arg(STATS_JSON.name, |arg| arg.conflicts_with(STATS.name))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl Args for WriteEnd {
    fn augment_args(command: Command) -> Command {
        add(command, &WRITE_END)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
