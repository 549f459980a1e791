//! Copies one file.

use super::attributes::Attributes;
use super::{Copying, Sparse};
use crate::destination::{Destination, Wanted};
use crate::error::{Doing, Failure, shown, so_far};
use crate::input::{Identity, Input};
use crate::place::Place;
use crate::size;
use crate::sparse::copy_sparse;
use crate::transfer::{TransferError, copy};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

impl Copying<'_> {
    /// Copies the data of a regular file, a block device, or anything else that can be read.
    pub(super) fn file(&mut self, input: Input, target: &Place<'_>) -> Result<(), Failure> {
        let bytes = input.len();
        let attributes = Attributes::of(input.as_fd(), input.metadata.clone())
            .map_err(|errno| Failure::io(Doing::Open, &input.path, &errno.into()))?;
        let wanted = Wanted {
            append: false,
            permissions: self.first_permissions(&attributes),
            force: self.args.force,
            anew: self.args.preserve,
            bytes,
            source: (&input.path, Identity::of(&input.metadata)),
        };
        let destination = Destination::open(&self.session, target, &wanted)?;
        self.announce(&input.path, target.path);
        self.transfer(input, destination, &attributes)
    }

    fn transfer(
        &mut self,
        mut input: Input,
        mut destination: Destination,
        attributes: &Attributes,
    ) -> Result<(), Failure> {
        let bytes = input.end().or_else(|| input.len());
        let counters = self.session.progress.counters();
        let written_before = counters.written.load(Relaxed);
        let buffer = &mut self.session.buffer;
        let output = &mut destination.output;
        let has_holes =
            self.args.sparse == Sparse::Auto && input.is_regular() && destination.is_regular;
        let moved = if has_holes {
            copy_sparse(&mut input, output, buffer, counters)
        } else {
            copy(&mut input, output, buffer, Input::end, counters)
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
        let is_complete = moved.is_ok();
        let result = moved.and_then(|moved| {
            self.note_change(&input, bytes, moved);
            // A file of another kind is not ours to change.
            if self.args.preserve && destination.is_regular {
                attributes.preserve(destination.output.as_fd(), &destination.path)
            } else {
                Ok(())
            }
        });
        self.finishing
            .add(&mut self.session, input, destination, is_complete);
        result
    }

    /// Notes that a file shrank while it was read: the copy is no state that it ever had.
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
}
