//! Copying a file without filling its holes.

use crate::input::{Data, Input};
use crate::output::Output;
use crate::progress::Counters;
use crate::transfer::{Buffer, TransferError, copy};
use std::sync::atomic::Ordering::Relaxed;

/// Copies the data of a file from `start` on into one that ends there, leaving holes where the source has them, and
/// with `makes_holes` where it has blocks of zeroes. Returns the length of the copy.
///
/// Ends where reading ends, or at the [end](Input::end) of the source, not where the size once
/// was: files grow and shrink meanwhile, and those of `/proc` have no size at all.
pub(crate) fn copy_sparse(
    input: &mut Input,
    output: &mut Output,
    buffer: &mut Buffer,
    counters: &Counters,
    makes_holes: bool,
    start: u64,
) -> Result<u64, TransferError> {
    let mut at = start;
    counters.skipped.fetch_add(start, Relaxed);
    let mut last_write_end = 0;
    loop {
        let (start, limit) = match input.next_data(at) {
            Data::Range(start, end) => (start, Some(end - start)),
            Data::NoMore => (input.len().map_or(at, |len| len.max(at)), None),
            Data::Unknown => (at, None),
        };
        let end = input.end().unwrap_or(u64::MAX);
        let start = start.min(end).max(at);
        let limit = match limit {
            None if end == u64::MAX => None,
            limit => Some(limit.unwrap_or(u64::MAX).min(end - start)),
        };
        input.seek(start).map_err(TransferError::Read)?;
        output.seek(start).map_err(TransferError::Write)?;
        counters.skipped.fetch_add(start - at, Relaxed);
        // A file that was empty may get its first size while it is copied.
        let limited = |input: &Input| limit.or_else(|| input.end());
        let copied = copy(input, output, buffer, limited, counters, makes_holes)?;
        at = start + copied;
        if copied > 0 && !makes_holes {
            last_write_end = at;
        }
        // Less than promised: the source was truncated.
        if limit != Some(copied) || at >= end {
            break;
        }
    }
    if at > last_write_end {
        output.set_len(at).map_err(TransferError::Write)?;
    }
    Ok(at)
}
