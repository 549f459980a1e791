//! Writing, at the position and at an offset.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use dropbehind_linux::{IoFlags, Operation};
use dropbehind_policy::{ByteRange, Mode};

use super::File;
use super::native::may_be_refusal;
use dropbehind_flusher::lock;

impl File {
    pub(crate) fn write_once(
        &self,
        bufs: &[IoSlice<'_>],
        offset: Option<u64>,
        mode: Mode,
    ) -> io::Result<usize> {
        let line = if !mode.is_buffered() {
            self.make_line()
        } else {
            // The flusher has to keep pages that were written buffered into a file that
            // drops.
            self.line()
        };
        let Some(handle) = line else {
            let result = self.write_plain(bufs, offset);
            if mode.drops() {
                self.was_unattended(&result);
            }
            if let Ok(count) = result {
                let written = &self.shared.bytes_written;
                written.fetch_add(count as u64, Ordering::Relaxed);
            }
            return result;
        };
        let position = || self.shared.position.load(Ordering::Relaxed);
        let operation = self.write_operation(offset.unwrap_or_else(position));
        let natively = mode == Mode::DONTCACHE && self.native_wanted(operation);
        if natively && let Some(result) = self.write_native(bufs, offset) {
            return result;
        }
        handle.look_before(self.file().as_fd(), mode);
        let effective = self.shared.facts.effective(mode);
        if self.shared.facts.flags.append {
            return handle.append(self.file().as_fd(), effective, offset.is_none(), || {
                self.write_emulated(bufs, offset, natively.then_some(operation))
            });
        }
        // The kernel, too, lets only one write at a time move the position.
        let turn = offset.is_none().then(|| lock(&handle.turns));
        let start = offset.unwrap_or_else(|| self.position());
        let length: usize = bufs.iter().map(|buf| buf.len()).sum();
        let wanted = ByteRange::new(start, start.saturating_add(length as u64));
        let cached = handle.will_write(self.file().as_fd(), wanted, mode);
        let result = self.write_emulated(bufs, offset, natively.then_some(operation));
        let end = position();
        let done = *result.as_ref().unwrap_or(&0) as u64;
        if done < length as u64 {
            let rest = ByteRange::new(wanted.start + done, wanted.end);
            handle.fell_short(self.file().as_fd(), rest, effective, &cached);
        }
        if let Ok(count) = result
            && count > 0
        {
            let bytes = count as u64;
            let range = match offset {
                Some(offset) => ByteRange::new(offset, offset + bytes),
                // A read that drops nothing takes no turn, and may have moved it: then the write lies
                // between where it was before and where it is now.
                None => ByteRange::new(start.min(end.saturating_sub(bytes)), end),
            };
            let due = handle.wrote(self.file().as_fd(), range, bytes, effective, cached);
            drop(turn);
            handle.slow_down(due, bytes);
        } else {
            handle.end_write(&cached);
        }
        result
    }

    /// `refused` is what the file system may not do with `RWF_DONTCACHE`.
    fn write_emulated(
        &self,
        bufs: &[IoSlice<'_>],
        offset: Option<u64>,
        refused: Option<Operation>,
    ) -> io::Result<usize> {
        let result = self.write_plain(bufs, offset);
        if let Some(operation) = refused {
            self.learn_refusal(&result, operation);
        }
        result
    }

    fn write_plain(&self, bufs: &[IoSlice<'_>], offset: Option<u64>) -> io::Result<usize> {
        let result = match (bufs, offset) {
            ([only], Some(offset)) => dropbehind_linux::pwrite(self.file().as_fd(), only, offset),
            ([only], None) => dropbehind_linux::write(self.file().as_fd(), only),
            (many, offset) => {
                dropbehind_linux::pwritev2(self.file().as_fd(), many, offset, IoFlags::NONE)
            }
        };
        self.moved(&result, offset);
        result
    }

    /// Writes with `RWF_DONTCACHE`; `None` if the file system may not support it.
    fn write_native(&self, bufs: &[IoSlice<'_>], offset: Option<u64>) -> Option<io::Result<usize>> {
        let result =
            dropbehind_linux::pwritev2(self.file().as_fd(), bufs, offset, IoFlags::DONTCACHE);
        if may_be_refusal(&result) {
            return None;
        }
        self.moved(&result, offset);
        if let Ok(count) = result {
            let written = &self.shared.bytes_written;
            written.fetch_add(count as u64, Ordering::Relaxed);
        }
        Some(result)
    }
}
