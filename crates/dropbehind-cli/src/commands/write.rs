//! `dropbehind write`: standard input to a file.

use super::report;
use crate::destination::{Destination, Wanted};
use crate::error::{Doing, Exit, Failure, shown, so_far};
use crate::input::{Identity, Input};
use crate::options::{IoSettings, WriteEnd};
use crate::output::sync_directory;
use crate::progress::take_question;
use crate::report_file::InUse;
use crate::session::Session;
use crate::size;
use crate::transfer::{TransferError, copy};
use clap::Args;
use rustix::fs::{FallocateFlags, fallocate, fstat, ftruncate};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

#[derive(Debug, Args)]
pub(super) struct WriteArgs {
    /// The file or block device to write; a file that does not exist is created
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Append to the file instead of replacing its contents
    #[arg(short, long)]
    append: bool,
    /// Start writing at this offset, and keep the rest of the file
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = size::parse, conflicts_with = "append")]
    seek: Option<u64>,
    /// Write at most this much of standard input; all of it, unless given
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = size::parse)]
    count: Option<u64>,
    /// Reserve space for this much before anything is written (fallocate); what is left of it
    /// at the end is freed
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = size::parse, conflicts_with = "append")]
    size: Option<u64>,
    #[command(flatten)]
    settings: IoSettings,
    #[command(flatten)]
    end: WriteEnd,
}

pub(super) fn run(args: &WriteArgs) -> Exit {
    take_question();
    let in_use = vec![InUse::Stdin, InUse::File(args.file.clone())];
    let mut session = match Session::start(&args.settings, in_use) {
        Ok(session) => session,
        Err(failure) => return report(&failure),
    };
    if let Err(failure) = write(&mut session, args) {
        session.fail(&failure);
    }
    session.finish()
}

fn write(session: &mut Session, args: &WriteArgs) -> Result<(), Failure> {
    if args.file == Path::new("-") {
        return Err(Failure::new(
            "cannot write -: `write` copies standard input into a file, and - names none. Name a file; one \
             that is called - is ./- here.",
        ));
    }
    let mut input = Input::stdin(session)?;
    let size = args.size.filter(|&bytes| bytes > 0);
    let total = match (input.remaining(), args.count) {
        (Some(left), Some(count)) => Some(left.min(count)),
        (left, count) => left.or(count).or(size),
    };
    let wanted = Wanted {
        append: args.append,
        permissions: 0o666,
        // The old contents stay until there is room for the new ones.
        keeps_data: args.seek.is_some() || size.is_some(),
        bytes: total.map(|total| total.saturating_add(args.seek.unwrap_or(0))),
        source: (Path::new("standard input"), Identity::of(&input.metadata)),
    };
    let mut destination = Destination::open(session, &args.file, &wanted)?;
    session.progress.set_total(total.unwrap_or(0));
    prepare(&mut destination, args.seek, size).inspect_err(|_| {
        if destination.is_new {
            // It is empty.
            let _ = std::fs::remove_file(&destination.path);
        }
    })?;
    let moved = copy(
        &mut input,
        &mut destination.output,
        &mut session.buffer,
        |_| args.count,
        session.progress.counters(),
        false,
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
    if size.is_some() {
        give_back(&destination);
    }
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

/// Goes to where writing begins, and reserves room there.
fn prepare(
    destination: &mut Destination,
    seek: Option<u64>,
    size: Option<u64>,
) -> Result<(), Failure> {
    let failed = |error| Failure::io(Doing::Write, &destination.path, &error);
    if let Some(seek) = seek {
        destination.output.seek(seek).map_err(|error| {
            Failure::new(format!(
                "cannot begin writing {} at {seek}: {error}. Choose another --seek.",
                shown(&destination.path)
            ))
        })?;
    }
    let Some(bytes) = size else {
        return Ok(());
    };
    let start = seek.unwrap_or(0);
    reserve(destination, start, bytes, "Nothing was written.")
        .inspect_err(|_| give_back(destination))?;
    if seek.is_none() && !destination.is_new {
        // This gives up the room that was just reserved, too.
        destination.output.set_len(0).map_err(failed)?;
        reserve(destination, 0, bytes, "It is empty now.")
            .inspect_err(|_| give_back(destination))?;
    }
    Ok(())
}

/// Reserves room from `start` on. The file's size stays. If that fails, the message ends with
/// `otherwise`.
fn reserve(
    destination: &Destination,
    start: u64,
    bytes: u64,
    otherwise: &str,
) -> Result<(), Failure> {
    let path = &destination.path;
    if !destination.is_regular {
        return Err(Failure::new(format!(
            "cannot reserve room in {}: it is no regular file. Leave out --size.",
            shown(path)
        )));
    }
    let file = destination.output.as_fd();
    let reserved = fallocate(file, FallocateFlags::KEEP_SIZE, start, bytes);
    reserved.map_err(|errno| {
        let mut failure = Failure::io(Doing::Write, path, &errno.into());
        if errno == Errno::OPNOTSUPP {
            failure.add("Nothing can be reserved there: leave out --size.");
        } else {
            failure.add(otherwise);
        }
        failure
    })
}

/// Gives room behind the end of the file back. It takes setting the file's size, so it is not for
/// files that others may append to: what they add after we asked for the size would be cut off.
fn give_back(destination: &Destination) {
    let file = destination.output.as_fd();
    if let Ok(stat) = fstat(file) {
        let _ = ftruncate(file, u64::try_from(stat.st_size).unwrap_or(0));
    }
}
