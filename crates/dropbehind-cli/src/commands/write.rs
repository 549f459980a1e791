//! `dropbehind write`: standard input to a file.

use super::report;
use crate::destination::{Destination, Wanted};
use crate::error::{Doing, Exit, Failure, so_far};
use crate::input::{Identity, Input};
use crate::options::{IoSettings, WriteEnd};
use crate::output::sync_directory;
use crate::progress::take_question;
use crate::session::Session;
use crate::transfer::{TransferError, copy};
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

#[derive(Debug, Args)]
pub(super) struct WriteArgs {
    /// The file or block device to write; a file is made if it is not there
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Write at the end of the file, instead of in place of what it holds
    #[arg(short, long)]
    append: bool,
    #[command(flatten)]
    settings: IoSettings,
    #[command(flatten)]
    end: WriteEnd,
}

pub(super) fn run(args: &WriteArgs) -> Exit {
    let mut session = match Session::start(&args.settings) {
        Ok(session) => session,
        Err(failure) => return report(&failure),
    };
    if let Err(failure) = write(&mut session, args) {
        session.fail(&failure);
    }
    session.finish()
}

fn write(session: &mut Session, args: &WriteArgs) -> Result<(), Failure> {
    let mut input = Input::stdin(session)?;
    let total = input.remaining();
    let wanted = Wanted {
    take_question();
        append: args.append,
        permissions: 0o666,
        keeps_data: false,
        bytes: total,
        source: (Path::new("standard input"), Identity::of(&input.metadata)),
    };
    let mut destination = Destination::open(session, &args.file, &wanted)?;
    session.progress.set_total(total.unwrap_or(0));
    let moved = copy(
        &mut input,
        &mut destination.output,
        &mut session.buffer,
        |_| None,
        session.progress.counters(),
    );
    let path = &destination.path;
    let moved = moved.map_err(|error| {
        let written = session.progress.counters().written.load(Relaxed);
        let so_far = so_far(written, total);
        match error {
            TransferError::Read(error) => Failure::after(Doing::Read, &input.path, &error, &so_far),
            TransferError::Write(error) => Failure::after(Doing::Write, path, &error, &so_far),
        }
    });
    let synced = match moved {
        Ok(_) if args.end.sync => destination.output.sync(path).and_then(|()| {
            if !destination.is_new {
                return Ok(());
            }
            sync_directory(path.parent().unwrap_or(Path::new(".")))
        }),
        Ok(_) => Ok(()),
        Err(failure) => Err(failure),
    };
    input.finish(session, false);
    let is_clean = synced.is_ok() && args.end.sync;
    let closed = destination.output.finish(session, path, is_clean);
    // Of several errors, the first says most.
    synced.and(closed)
}
