//! One file's copy.

use super::{Copying, Sparse, attributes};
use crate::destination::{Destination, Wanted};
use crate::error::{Doing, Failure, shown, so_far};
use crate::input::{Identity, Input};
use crate::size;
use crate::sparse::copy_sparse;
use crate::transfer::{TransferError, copy};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

impl Copying<'_> {
    /// Copies a file's data: a regular file, a block device, or what else can
    /// be read.
    pub(super) fn file(&mut self, source: &Path, target: &Path) -> Result<(), Failure> {
        let input = Input::open(&self.session, source)?;
        let identity = Identity::of(&input.metadata);
        self.refuse_overwriting_a_copy(source, target)?;
        let bytes = input.len();
        let source_mode = input.metadata.permissions().mode();
        let wanted = Wanted {
            append: false,
            // Nobody else may open the copy before it has its owner.
            permissions: if self.args.preserve {
                source_mode & 0o700
            } else {
                source_mode & 0o777
            },
            force: self.args.force,
            bytes,
            source: (source, identity),
        };
        let destination = Destination::open(&self.session, target, &wanted)?;
        self.announce(source, target);
        if destination.is_regular
            && let Ok(metadata) = target.metadata()
        {
            self.written.insert(Identity::of(&metadata));
        }
        self.transfer(input, destination, bytes)
    }

    fn transfer(
        &mut self,
        mut input: Input,
        mut destination: Destination,
        bytes: Option<u64>,
    ) -> Result<(), Failure> {
        let counters = self.session.progress.counters();
        let written_before = counters.written.load(Relaxed);
        let buffer = &mut self.session.buffer;
        let output = &mut destination.output;
        let has_holes =
            self.args.sparse == Sparse::Auto && input.is_regular() && destination.is_regular;
        let moved = if has_holes {
            copy_sparse(&mut input, output, buffer, counters)
        } else {
            copy(&mut input, output, buffer, None, counters)
        };
        let moved = moved.map_err(|error| {
            let written = counters.written.load(Relaxed) - written_before;
            let so_far = so_far(written, bytes);
            match error {
                TransferError::Read(error) => {
                    Failure::after(Doing::Read, &input.path, &error, &so_far)
                }
                TransferError::Write(error) => {
                    Failure::after(Doing::Write, &destination.path, &error, &so_far)
                }
            }
        });
        let result = moved.and_then(|moved| {
            self.note_change(&input, bytes, moved);
            // A file of another kind is not ours to change.
            if self.args.preserve && destination.is_regular {
                attributes::preserve(&destination, &input.metadata)
            } else {
                Ok(())
            }
        });
        self.finishing
            .add(&mut self.session, input, destination, result.is_ok());
        result
    }

    /// A file that changed while it was read was not copied as it ever was.
    fn note_change(&self, input: &Input, expected: Option<u64>, moved: u64) {
        let Some(expected) = expected.filter(|&expected| moved < expected) else {
            return;
        };
        self.session.note(&format!(
            "{} shrank while it was copied: {} instead of {} are in the copy.",
            shown(&input.path),
            size::show(moved),
            size::show(expected),
        ));
    }

    /// Two sources of the same name would leave only the second one's data.
    pub(super) fn refuse_overwriting_a_copy(
        &self,
        source: &Path,
        target: &Path,
    ) -> Result<(), Failure> {
        match target.metadata() {
            Ok(metadata) if self.written.contains(&Identity::of(&metadata)) => {
                Err(Failure::new(format!(
                    "cannot copy {} to {}: that is the copy of another source just made. Copy it \
                     under another name.",
                    shown(source),
                    shown(target)
                )))
            }
            _ => Ok(()),
        }
    }
}
