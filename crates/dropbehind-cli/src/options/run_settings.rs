//! The values of the options of `run`.

use super::Value;
use super::settings::{add, bytes, mode, path, stats, time, unread, word};
use super::table::{
    BEST_EFFORT, CONFIG, EXCEPT, IO_PRIORITY, MAX_DIRTY, NO_READS, ONLY, READS, REQUEST, RUN,
    SETTLE, SOURCE, STATS, STATS_JSON, TRACE, VERBOSE, WINDOW,
};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use dropbehind::Mode;
use dropbehind_linux::IoPriority;
use std::path::PathBuf;
use std::time::Duration;

/// How the program's opens become known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenSource {
    /// Whichever is possible.
    Auto,
    Fanotify,
    Seccomp,
}

impl std::str::FromStr for OpenSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "fanotify" => Ok(Self::Fanotify),
            "seccomp" => Ok(Self::Seccomp),
            _ => Err("is neither auto nor fanotify nor seccomp".to_owned()),
        }
    }
}

/// The values of [`RUN`].
#[derive(Clone, Debug)]
pub(crate) struct RunSettings {
    /// `None` takes the disk's, or else the default.
    pub(crate) mode: Option<Mode>,
    pub(crate) config: Option<PathBuf>,
    pub(crate) window_bytes: Option<u64>,
    pub(crate) request_bytes: Option<u64>,
    pub(crate) max_dirty_bytes: Option<u64>,
    pub(crate) io_priority: IoPriority,
    pub(crate) reads: bool,
    pub(crate) only: Vec<String>,
    pub(crate) except: Vec<String>,
    pub(crate) settle: Duration,
    pub(crate) stats: Option<PathBuf>,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) source: OpenSource,
    pub(crate) best_effort: bool,
    pub(crate) verbose: bool,
}

fn patterns(matches: &ArgMatches, name: &str) -> Vec<String> {
    let values = matches.get_many::<Value>(name).unwrap_or_default();
    values
        .filter_map(|value| match value {
            Value::Word(word) => Some(word.clone()),
            _ => None,
        })
        .collect()
}

impl FromArgMatches for RunSettings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self {
            mode: mode(matches)?,
            config: path(matches, &CONFIG),
            window_bytes: bytes(matches, &WINDOW),
            request_bytes: bytes(matches, &REQUEST),
            max_dirty_bytes: bytes(matches, &MAX_DIRTY),
            io_priority: word(matches, &IO_PRIORITY).parse().map_err(unread)?,
            reads: !matches.get_flag(NO_READS.name),
            only: patterns(matches, ONLY.name),
            except: patterns(matches, EXCEPT.name),
            settle: time(matches, &SETTLE),
            stats: stats(matches),
            trace: path(matches, &TRACE),
            source: word(matches, &SOURCE).parse().map_err(unread)?,
            best_effort: matches.get_flag(BEST_EFFORT.name),
            verbose: matches.get_flag(VERBOSE.name),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for RunSettings {
    fn augment_args(command: Command) -> Command {
        add(command, &RUN)
            // The last one given counts.
            .mut_arg(READS.name, |arg| arg.overrides_with(NO_READS.name))
            .mut_arg(NO_READS.name, |arg| arg.overrides_with(READS.name))
            .mut_arg(STATS_JSON.name, |arg| arg.conflicts_with(STATS.name))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
