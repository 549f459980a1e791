//! `dropbehind read`: a file to standard output.

use super::report;
use crate::error::{Doing, Exit, Failure, shown};
use crate::input::Input;
use crate::options::IoSettings;
use crate::output::Output;
use crate::place::Place;
use crate::progress::take_question;
use crate::report_file::InUse;
use crate::session::Session;
use crate::size;
use crate::transfer::{TransferError, copy};
use clap::Args;
use rustix::fs::OFlags;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct ReadArgs {
    /// The file or block device to read; - is standard input
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// The offset to start reading at
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = size::parse, default_value = "0")]
    offset: u64,
    /// Read at most this much; to the end of the file, unless given
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = size::parse)]
    length: Option<u64>,
    #[command(flatten)]
    settings: IoSettings,
}

pub(super) fn run(args: &ReadArgs) -> Exit {
    take_question();
    let source = match args.file == Path::new("-") {
        true => InUse::Stdin,
        false => InUse::File(args.file.clone()),
    };
    let mut session = match Session::start(&args.settings, vec![source, InUse::Stdout]) {
        Ok(session) => session,
        Err(failure) => return report(&failure),
    };
    if let Err(failure) = read(&mut session, args) {
        session.fail(&failure);
    }
    session.finish()
}

fn read(session: &mut Session, args: &ReadArgs) -> Result<(), Failure> {
    let mut input = match args.file == Path::new("-") {
        true => Input::stdin(session)?,
        false => Input::open(session, &Place::typed(&args.file))?,
    };
    if args.offset > 0 {
        input.seek(args.offset).map_err(|error| {
            Failure::new(format!(
                "cannot begin reading {} at {}: {error}. Leave out --offset, or name a file that \
                 has such a place.",
                shown(&args.file),
                args.offset
            ))
        })?;
    }
    if let Some(left) = input.remaining() {
        let total = args.length.map_or(left, |length| length.min(left));
        session.progress.set_total(total);
        if let Some(len) = input.len().filter(|&len| len > 0 && len < args.offset) {
            session.note(&format!(
                "{} ends at {}, before {}, where reading was to begin.",
                shown(&args.file),
                size::show(len),
                size::show(args.offset)
            ));
        }
    }
    let stdout = Path::new("standard output");
    let mut output = Output::stdout().map_err(|error| Failure::io(Doing::Write, stdout, &error))?;
    if args.length.is_none() && ends_nowhere(&input, &output, args.offset) {
        return Err(Failure::new(format!(
            "{} is standard output, too: reading would never come to its end. Write to another \
             file, or give --length.",
            shown(&args.file)
        )));
    }
    if let Some(file) = input.file() {
        session.progress.attach(file);
    }
    let moved = copy(
        &mut input,
        &mut output,
        &mut session.buffer,
        |_| args.length,
        session.progress.counters(),
        false,
    );
    input.finish(session, true);
    match moved {
        Ok(moved) => {
            if let Some(length) = args.length.filter(|&length| moved < length) {
                session.note(&format!(
                    "{} ended after {} of {}.",
                    shown(&args.file),
                    size::show(moved),
                    size::show(length)
                ));
            }
            output.finish(session, stdout, false)
        }
        Err(TransferError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            session.broken_pipe();
            Ok(())
        }
        Err(TransferError::Write(error)) => Err(Failure::io(Doing::Write, stdout, &error)),
        Err(TransferError::Read(error)) => Err(Failure::io(Doing::Read, &args.file, &error)),
    }
}

/// Returns whether what is written is read again.
fn ends_nowhere(input: &Input, output: &Output, offset: u64) -> bool {
    let Ok(stat) = rustix::fs::fstat(output) else {
        return false;
    };
    let is_same = (stat.st_dev, stat.st_ino) == (input.metadata.dev(), input.metadata.ino());
    let appends = rustix::fs::fcntl_getfl(output).is_ok_and(|flags| flags.contains(OFlags::APPEND));
    let writes_behind = || rustix::fs::tell(output).is_ok_and(|written| written > offset);
    is_same && input.metadata.is_file() && (appends || writes_behind())
}
