//! Copies one file.

use super::Copying;
use super::attributes::Attributes;
use super::backups::shown_path;
use super::choices::{Making, Preserve, Reflink, Sparse};
use super::existing::Way;
use super::making::metadata_of;
use super::original::Original;
use super::verification::done_bytes;
use crate::destination::{Destination, Wanted};
use crate::error::{Doing, Failure, quoted, reason, shown, so_far};
use crate::input::{Identity, Input, is_cached_kind};
use crate::output::Output;
use crate::place::Place;
use crate::progress::Counters;
use crate::size;
use crate::sparse::copy_sparse;
use crate::transfer::{Buffer, TransferError, copy};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::Relaxed;

/// How often something may take the name of a copy between its removal and the next attempt.
const ATTEMPTS: usize = 8;

impl Copying<'_> {
    /// Copies the data of a regular file, a block device, or anything else that can be read.
    pub(super) fn file(
        &mut self,
        original: Original,
        source: &Place<'_>,
        target: &Place<'_>,
        is_named: bool,
    ) -> Result<(), Failure> {
        if self.choices.verify && !is_cached_kind(&original.metadata) {
            return Err(Failure::new(format!(
                "cannot verify a copy of {}: it cannot be read twice. Leave out --verify.",
                shown(source.path)
            )));
        }
        let metadata = &original.metadata;
        if !original.is_readable && metadata.is_file() && self.stays(source, metadata, target) {
            return match self.way(source, metadata, target, is_named)? {
                Way::Skip | Way::Newer => Ok(()),
                _ => Err(target.was_replaced()),
            };
        }
        // A pipe's writer may keep us waiting as long as it likes.
        let waited = self.interruption.wait(!is_cached_kind(&original.metadata));
        let copied = self.readable(original, source, target, is_named);
        self.interruption.wait(waited);
        copied
    }

    fn readable(
        &mut self,
        original: Original,
        source: &Place<'_>,
        target: &Place<'_>,
        is_named: bool,
    ) -> Result<(), Failure> {
        let mut input = self.input(original, source)?;
        input.stop_by(self.interruption.flag());
        let attributes = Attributes::of(input.as_fd(), input.metadata.clone())
            .map_err(|errno| Failure::io(Doing::Open, &input.path, &errno.into()))?;
        let Some(destination) = self.destination(&input, &attributes, source, target, is_named)?
        else {
            return Ok(());
        };
        let waits = !is_cached_kind(&input.metadata) || !destination.output.is_cached();
        self.interruption.wait(waits);
        let backup = self.backup.as_deref();
        let backup = backup.map(|backup| shown_path(target, backup));
        self.announce(&input.path, target.path, backup.as_deref());
        if self.has_more_names(&input.metadata, is_named)
            && let Ok(stat) = rustix::fs::fstat(destination.output.as_fd())
        {
            let copy = (stat.st_dev, stat.st_ino);
            self.links.remember(&input.metadata, target.path, copy);
        }
        self.transfer(input, destination, &attributes, target)
    }

    fn input(&self, original: Original, source: &Place<'_>) -> Result<Input, Failure> {
        let ends_at_first_size = self.choices.recursive;
        if !original.metadata.is_file() {
            return Input::open(&self.session, source);
        }
        let opened = if original.is_readable {
            (original.file, original.metadata)
        } else {
            let opened = Input::open_regular(source)?;
            if Identity::of(&opened.1) != Identity::of(&original.metadata) {
                return Err(source.was_replaced());
            }
            opened
        };
        Input::adopt(&self.session, opened, source.path, ends_at_first_size)
    }

    /// Makes the file that the copy goes into, or opens the one that is there; `None` if that
    /// is to stay as it is.
    fn destination(
        &mut self,
        input: &Input,
        attributes: &Attributes,
        source: &Place<'_>,
        target: &Place<'_>,
        is_named: bool,
    ) -> Result<Option<Destination>, Failure> {
        let permissions = self.first_permissions(attributes);
        let wanted = Wanted {
            append: false,
            permissions,
            keeps_data: self.choices.making == Making::Attributes || self.choices.resume,
            bytes: input.len(),
            source: (&input.path, Identity::of(&input.metadata)),
        };
        for _ in 0..ATTEMPTS {
            if !self.choices.atomic {
                let made = Destination::make_new(&self.session, target, permissions)?;
                if made.is_some() {
                    return Ok(made);
                }
            }
            match self.way(source, &input.metadata, target, is_named)? {
                Way::Skip | Way::Newer => return Ok(None),
                Way::Clear if self.choices.atomic => {
                    let made = Destination::make_unnamed(&self.session, target, permissions)?;
                    return Ok(Some(made));
                }
                Way::Into(existing) if self.choices.atomic && existing.is_file() => {
                    let mut made = Destination::make_unnamed(&self.session, target, permissions)?;
                    keep_attributes(target, made.output.as_fd())?;
                    made.is_new = false;
                    return Ok(Some(made));
                }
                Way::Clear => {}
                Way::ThroughLink => {
                    let made = Destination::make_through_link(&self.session, target, permissions)?;
                    return Ok(Some(made));
                }
                Way::Into(existing) => {
                    if !is_cached_kind(&existing) {
                        if self.choices.verify {
                            return Err(Failure::new(format!(
                                "cannot verify a copy in {}: it cannot be read back. Leave out \
                                 --verify.",
                                shown(target.path)
                            )));
                        }
                        // As may a pipe's reader.
                        self.interruption.wait(true);
                        if self.interruption.signal().is_some() {
                            return Ok(None);
                        }
                    }
                    let session = &self.session;
                    match Destination::open_existing(session, target, &wanted, &existing)? {
                        Ok(opened) => return Ok(Some(opened)),
                        Err(_) if self.choices.force => {
                            let (directory, name) = (target.directory, target.name);
                            rustix::fs::unlinkat(directory, name, AtFlags::empty()).map_err(
                                |errno| Failure::io(Doing::Remove, target.path, &errno.into()),
                            )?;
                            if self.choices.verbose {
                                self.tell(&format!("removed {}", quoted(target.path)));
                            }
                        }
                        Err(failure) => return Err(failure),
                    }
                }
            }
        }
        Err(target.was_replaced())
    }

    fn transfer(
        &mut self,
        mut input: Input,
        mut destination: Destination,
        attributes: &Attributes,
        target: &Place<'_>,
    ) -> Result<(), Failure> {
        let bytes = input.end().or_else(|| input.len());
        let counters = self.session.progress.counters();
        let written_before = counters.written.load(Relaxed);
        let result = match self.choices.making {
            Making::Copies => self.data(&mut input, &mut destination),
            _ => Ok(None),
        };
        let counters = self.session.progress.counters();
        let is_read = matches!(result, Err(Failed::Transfer(TransferError::Read(_))));
        let is_unread = match &result {
            Err(Failed::Transfer(TransferError::Write(error))) => {
                error.kind() == io::ErrorKind::BrokenPipe && destination.output.is_stdout()
            }
            _ => false,
        };
        let result = result.map_err(|error| {
            let written = counters.written.load(Relaxed) - written_before;
            let so_far = so_far(written, bytes);
            match error {
                Failed::Transfer(TransferError::Read(error)) => {
                    Failure::after(Doing::Read, &input.path, &error, &so_far)
                }
                Failed::Transfer(TransferError::Write(error)) => {
                    let reason = reason(&error);
                    Failure::after(Doing::Write, &destination.path, &error, &so_far).like_cp(
                        format!("error writing {}: {reason}", quoted(&destination.path)),
                    )
                }
                Failed::Resume(failure) => failure,
                Failed::Clone(errno) => not_cloned(&input, &destination, errno),
            }
        });
        let is_complete = result.is_ok();
        if is_complete {
            self.end_backup(target, true);
        } else {
            self.links.forget(&input.metadata);
        }
        let is_kept = self.choices.resume;
        let is_stopped = self.interruption.signal().is_some();
        let result = result.map_err(|failure| match failure {
            _ if is_stopped => taken_back(&destination, target, is_kept),
            // What could be read of a failing disk may be all that can be had.
            failure if is_read || is_kept => failure,
            failure => without_half(failure, destination.is_new, &destination.output, target),
        });
        let result = result.and_then(|moved| {
            if let Some(moved) = moved {
                self.note_change(&input, bytes, moved);
            }
            // A file of another kind is not ours to change.
            if !destination.is_regular {
                return Ok(());
            }
            let mode = match destination.is_new {
                true => self.final_mode(attributes),
                false => None,
            };
            let (from, to) = (input.as_fd(), destination.output.as_fd());
            let wanted = self.choices.preserve;
            attributes.preserve(from, to, &destination.path, wanted, mode)
        });
        self.finishing
            .add(&mut self.session, input, destination, is_complete);
        if is_unread {
            self.session.broken_pipe();
            return Ok(());
        }
        result
    }

    /// Brings the data of a file into its copy, which is empty. Returns how much it was, unless
    /// it is shared.
    fn data(
        &mut self,
        input: &mut Input,
        destination: &mut Destination,
    ) -> Result<Option<u64>, Failed> {
        let is_regular = input.is_regular() && destination.is_regular;
        let mut start = 0;
        if self.choices.resume && is_regular && !destination.is_new {
            let copy = destination.output.as_fd();
            start = done_bytes(input, copy, &destination.path).map_err(Failed::Resume)?;
        }
        if self.choices.resume && destination.is_regular {
            let cut = destination.output.set_len(start);
            cut.map_err(|error| Failed::Transfer(TransferError::Write(error)))?;
        }
        let (sparse, reflink) = (self.choices.sparse, self.choices.reflink);
        if is_regular && sparse == Sparse::Auto && reflink != Reflink::Never {
            match self.share(input, destination) {
                Ok(()) => {
                    self.debug("reflink: yes");
                    let counters = self.session.progress.counters();
                    counters.skipped.fetch_add(input.metadata.len(), Relaxed);
                    return Ok(None);
                }
                Err(errno) if reflink == Reflink::Always => return Err(Failed::Clone(errno)),
                Err(_) => self.debug("reflink: no"),
            }
        } else if reflink == Reflink::Always {
            return Err(Failed::Clone(Errno::INVAL));
        }
        let counters = self.session.progress.counters();
        let (buffer, output) = (&mut self.session.buffer, &mut destination.output);
        let makes_holes = sparse == Sparse::Always && destination.is_regular;
        let moved = if is_regular && sparse != Sparse::Never {
            copy_sparse(input, output, buffer, counters, makes_holes, start)
        } else {
            copy_from(start, input, output, buffer, counters, makes_holes)
        };
        let moved = moved.map_err(Failed::Transfer)?;
        if makes_holes {
            let sized = output.set_len(moved).map_err(TransferError::Write);
            sized.map_err(Failed::Transfer)?;
        }
        Ok(Some(moved))
    }

    /// Shares the data of a file with its copy (`FICLONE`). Nothing of either enters the cache.
    fn share(&mut self, input: &Input, destination: &Destination) -> Result<(), Errno> {
        let from = input.metadata.dev();
        let to = rustix::fs::fstat(destination.output.as_fd())?.st_dev;
        if self.cannot_share.contains(&(from, to)) {
            return Err(Errno::OPNOTSUPP);
        }
        let shared = rustix::fs::ioctl_ficlone(destination.output.as_fd(), input.as_fd());
        if let Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::XDEV) = shared {
            self.cannot_share.insert((from, to));
        }
        shared
    }

    /// Says how a file was copied, if asked to.
    fn debug(&self, line: &str) {
        if self.choices.debug {
            self.tell(line);
        }
    }

    /// Notes that a file shrank while it was read: the copy is no state that it ever had.
    fn note_change(&self, input: &Input, expected: Option<u64>, moved: u64) {
        let Some(expected) = expected.filter(|&expected| moved < expected) else {
            return;
        };
        // The files of /proc and /sys show a size that has nothing to do with what is in them.
        if input.metadata.blocks() == 0 && expected <= 4096 {
            return;
        }
        self.session.note(&format!(
            "{} shrank while it was copied: {} instead of {} are in the copy.",
            shown(&input.path),
            size::show(moved),
            size::show(expected),
        ));
    }
}

/// Why the data is not in the copy.
enum Failed {
    /// What is there already cannot be compared.
    Resume(Failure),
    Transfer(TransferError),
    Clone(Errno),
}

/// Gives a file that is to take another's place what that would keep if its data were
/// overwritten.
fn keep_attributes(target: &Place<'_>, copy: BorrowedFd<'_>) -> Result<(), Failure> {
    let failed = |errno: Errno| Failure::io(Doing::Look, target.path, &errno.into());
    let old = target.pin().map_err(failed)?;
    let attributes = Attributes::of(old.as_fd(), metadata_of(&old, target)?).map_err(failed)?;
    let kept = Preserve {
        mode: true,
        ownership: true,
        xattrs: true,
        ..Preserve::default()
    };
    attributes.preserve(old.as_fd(), copy, target.path, kept, None)?;
    // The kernel takes capabilities away from whatever is written.
    match rustix::fs::fremovexattr(copy, "security.capability") {
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) | Ok(()) => Ok(()),
        Err(errno) => Err(failed(errno)),
    }
}

/// Copies all from a place on, and returns how long the copy is then.
fn copy_from(
    start: u64,
    input: &mut Input,
    output: &mut Output,
    buffer: &mut Buffer,
    counters: &Counters,
    makes_holes: bool,
) -> Result<u64, TransferError> {
    if start > 0 {
        input.seek(start).map_err(TransferError::Read)?;
        output.seek(start).map_err(TransferError::Write)?;
        counters.skipped.fetch_add(start, Relaxed);
    }
    let end = |input: &Input| input.end().map(|end| end.saturating_sub(start));
    let copied = copy(input, output, buffer, end, counters, makes_holes)?;
    Ok(start + copied)
}

/// Removes a file that a signal left half copied, and says so; a file that was there before holds
/// only a part of its source.
fn taken_back(destination: &Destination, target: &Place<'_>, is_kept: bool) -> Failure {
    let name = shown(target.path);
    if destination.unnamed.is_some() {
        return Failure::new(format!("{name} was half copied, and is as it was before."));
    }
    match !is_kept && destination.is_new && is_removed(&destination.output, target) {
        true => Failure::new(format!("{name} was half copied, and is removed.")),
        false => Failure::new(format!(
            "{name} holds only a part of its source now. {}.",
            match is_kept {
                true => "Run the command again to go on with it",
                false => "Copy it again",
            }
        )),
    }
}

/// Removes a new file that the disk had no room for, say: an update would take it for a copy that
/// is newer than its source.
pub(super) fn without_half(
    mut failure: Failure,
    is_new: bool,
    half: impl AsFd,
    target: &Place<'_>,
) -> Failure {
    if is_new && is_removed(half, target) {
        failure.add("The half copy is removed.");
    }
    failure
}

/// Removes what has this name, if it is this file.
fn is_removed(file: impl AsFd, target: &Place<'_>) -> bool {
    let inode = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    let ours = rustix::fs::fstat(file).map(inode);
    let there = target.pin().and_then(rustix::fs::fstat).map(inode);
    ours.is_ok()
        && ours == there
        && rustix::fs::unlinkat(target.directory, target.name, AtFlags::empty()).is_ok()
}

fn not_cloned(input: &Input, destination: &Destination, errno: Errno) -> Failure {
    let reason = reason(&errno.into());
    Failure::new(format!(
        "cannot share the data of {} with {}: {reason}. It takes btrfs, xfs or another file \
         system that can, and both on the same one; use --reflink=auto to copy otherwise.",
        shown(&input.path),
        shown(&destination.path)
    ))
    .like_cp(format!(
        "failed to clone {} from {}: {reason}",
        quoted(&destination.path),
        quoted(&input.path)
    ))
}
