//! Reading, at the position or at an offset.

use std::io::{self, IoSliceMut};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use dropbehind_linux::{AccessMode, IoFlags, Operation};
use dropbehind_policy::{ByteRange, Mode};

use super::File;
use super::native::may_be_refusal;
use dropbehind_flusher::lock;

/// A longer read at an offset is split into pieces, to bound how much is cached ahead of it.
const READ_PIECE_BYTES: usize = 2 << 20;
/// The kernel reads at most this much in one call.
const READ_MAX_BYTES: usize = 0x7fff_f000;

fn length(bufs: &[IoSliceMut<'_>]) -> usize {
    bufs.iter().map(|buf| buf.len()).sum()
}

impl File {
    pub(crate) fn read_pieces(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: Option<u64>,
        mode: Mode,
    ) -> io::Result<usize> {
        match offset {
            Some(offset)
                if length(bufs) > READ_PIECE_BYTES && mode.drops() && self.shared.applies =>
            {
                self.read_long(bufs, offset, mode)
            }
            // At the position, others may read between two pieces: only a single call gets bytes
            // that follow each other.
            _ => self.read_once(bufs, offset, mode),
        }
    }

    fn read_long(
        &self,
        mut bufs: &mut [IoSliceMut<'_>],
        offset: u64,
        mode: Mode,
    ) -> io::Result<usize> {
        let mut done = 0;
        while done < READ_MAX_BYTES && !bufs.is_empty() {
            let most = READ_PIECE_BYTES.min(READ_MAX_BYTES - done);
            let at = Some(offset + done as u64);
            let (wanted, result) = if bufs[0].len() > most {
                let piece = &mut [IoSliceMut::new(&mut bufs[0][..most])];
                (most, self.read_once(piece, at, mode))
            } else {
                let mut sum = 0;
                let fits = |buf: &&IoSliceMut<'_>| {
                    sum += buf.len();
                    sum <= most
                };
                let whole = bufs.iter().take_while(fits).count();
                let piece = &mut bufs[..whole];
                (length(piece), self.read_once(piece, at, mode))
            };
            match result {
                Ok(count) => {
                    done += count;
                    if count < wanted {
                        break;
                    }
                    IoSliceMut::advance_slices(&mut bufs, count);
                }
                // As with a single call, an error after some bytes is left to the next call.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn read_once(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: Option<u64>,
        mode: Mode,
    ) -> io::Result<usize> {
        let wanted = length(bufs).min(READ_MAX_BYTES);
        let drops = mode.drops() && wanted > 0 && self.shared.applies;
        let natively = drops && self.native_wanted(Operation::Read);
        if natively && let Some(result) = self.read_native(bufs, offset) {
            return result;
        }
        let result = self.read_emulated(bufs, offset, wanted, drops);
        if natively {
            self.learn_refusal(&result, Operation::Read);
        }
        result
    }

    fn read_emulated(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: Option<u64>,
        wanted: usize,
        drops: bool,
    ) -> io::Result<usize> {
        if !drops {
            return self.read_plain(bufs, offset);
        }
        let Some(handle) = self.make_line() else {
            let result = self.read_plain(bufs, offset);
            self.was_unattended(&result);
            return result;
        };
        if self.shared.facts.flags.access == AccessMode::ReadWrite {
            handle.look_before_read(self.file().as_fd());
        }
        // A read that begins before another one has moved the position looks in the wrong place,
        // and what it brings in stays. The kernel, too, lets only one at a time move it.
        let _turn = offset.is_none().then(|| lock(&handle.turns));
        let start = offset.unwrap_or_else(|| self.position());
        let range = ByteRange::new(start, start.saturating_add(wanted as u64));
        let fd = self.file().as_fd();
        let prepared = lock(&handle.reader).before_read(fd, &handle, range);
        prepared.wait(fd, &handle);
        let result = self.read_plain(bufs, offset);
        let end = start + *result.as_ref().unwrap_or(&0) as u64;
        lock(&handle.reader).after_read(fd, &handle, prepared, end);
        result
    }

    fn read_plain(&self, bufs: &mut [IoSliceMut<'_>], offset: Option<u64>) -> io::Result<usize> {
        let result = match (bufs, offset) {
            ([only], Some(offset)) => dropbehind_linux::pread(self.file().as_fd(), only, offset),
            ([only], None) => dropbehind_linux::read(self.file().as_fd(), only),
            (many, offset) => {
                dropbehind_linux::preadv2(self.file().as_fd(), many, offset, IoFlags::NONE)
            }
        };
        self.was_read(&result, offset);
        result
    }

    /// Reads with `RWF_DONTCACHE`; `None` if the file system may not support it.
    fn read_native(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: Option<u64>,
    ) -> Option<io::Result<usize>> {
        let result =
            dropbehind_linux::preadv2(self.file().as_fd(), bufs, offset, IoFlags::DONTCACHE);
        if may_be_refusal(&result) {
            return None;
        }
        self.was_read(&result, offset);
        Some(result)
    }

    fn was_read(&self, result: &io::Result<usize>, offset: Option<u64>) {
        if let Ok(count) = result {
            let bytes = *count as u64;
            self.shared.bytes_read.fetch_add(bytes, Ordering::Relaxed);
        }
        self.moved(result, offset);
    }
}
