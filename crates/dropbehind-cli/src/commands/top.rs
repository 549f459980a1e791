//! `dropbehind top`: what observers do, live.
//!
//! [`choice`] finds the observer; [`lines`] prints samples, [`live`] shows them in the terminal.
//! [`view`] and [`table`] decide what is shown, and know no terminal; [`draw`] only lays it out.

mod choice;
mod columns;
mod draw;
mod events;
mod filter;
mod header;
mod history;
mod lines;
mod live;
mod order;
mod screen;
mod speeds;
mod table;
#[cfg(test)]
mod tests;
mod view;

use crate::error::Exit;
use crate::options::TopSettings;
use clap::Args;

/// At the end of the long help.
pub(super) const AFTER_HELP: &str = "\
Without --json and --once, figures are shown in the terminal until q is pressed; ? lists the other \
keys. Without --socket, top prefers a watch, and tab goes to the next observer. --json and --once \
require --socket when there are several runs and no watch.

Exit codes:
  0    ended by q, or because the observer ended
  1    no observer runs, or standard output is no terminal (see --json)
  2    the command line is wrong
  3    an observer runs, and answers its owner and root only
  141  whoever read standard output went away (as a shell shows it for cat)";

#[derive(Debug, Args)]
pub(super) struct TopArgs {
    #[command(flatten)]
    settings: TopSettings,
}

pub(super) fn run(args: &TopArgs) -> Exit {
    let settings = &args.settings;
    let done = if settings.json || settings.once {
        lines::run(settings)
    } else {
        live::run(settings)
    };
    done.unwrap_or_else(|failure| super::report(&failure))
}
