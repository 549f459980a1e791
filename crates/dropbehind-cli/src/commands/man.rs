//! `dropbehind man`: the man pages.

use super::{Cli, print, report};
use crate::error::{Doing, Exit, Failure};
use clap::{Args, CommandFactory};
use clap_mangen::Man;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// The command that the page is about; all of dropbehind, unless given
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    command: Option<String>,
    /// Write all pages into this directory, for packaging
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

pub(super) fn run(args: &ManArgs) -> Exit {
    let mut root = Cli::command();
    root.build();
    if let Some(dir) = &args.dir {
        return match clap_mangen::generate_to(Cli::command(), dir) {
            Ok(()) => Exit::Done,
            Err(error) => report(&Failure::io(
                Doing::Create,
                &dir.join("dropbehind.1"),
                &error,
            )),
        };
    }
    let page = match &args.command {
        None => Some(root),
        Some(name) => root.find_subcommand(name).cloned(),
    };
    let Some(page) = page else {
        return report(&Failure::new(format!(
            "there is no command {}. `dropbehind --help` lists them.",
            crate::error::shown(Path::new(args.command.as_deref().unwrap_or_default()))
        )));
    };
    let mut text = Vec::new();
    match Man::new(page).render(&mut text) {
        Ok(()) => print(&text),
        Err(error) => report(&Failure::new(format!("cannot make the man page: {error}."))),
    }
}
