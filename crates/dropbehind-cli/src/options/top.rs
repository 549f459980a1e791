//! The values of `top`'s options.

use super::settings::{path, time};
use super::table::{INTERVAL, JSON, ONCE, SOCKET, TOP};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use std::path::PathBuf;
use std::time::Duration;

/// The values of [`TOP`].
#[derive(Clone, Debug)]
pub(crate) struct TopSettings {
    pub(crate) socket: Option<PathBuf>,
    pub(crate) interval: Duration,
    pub(crate) json: bool,
    pub(crate) once: bool,
}

impl FromArgMatches for TopSettings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self {
            socket: path(matches, &SOCKET),
            interval: time(matches, &INTERVAL),
            json: matches.get_flag(JSON.name),
            once: matches.get_flag(ONCE.name),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for TopSettings {
    fn augment_args(command: Command) -> Command {
        let args = TOP.iter().map(|spec| spec.arg().help_heading(None));
        args.fold(command, Command::arg)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
