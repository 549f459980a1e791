//! Reads and writes at an offset.

use std::io::{self, IoSlice, IoSliceMut};

use dropbehind_policy::Mode;

use crate::file::File;

impl File {
    /// Reads at an offset; the position doesn't change.
    ///
    /// # Errors
    /// Those of `pread(2)`.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at_with(buf, offset, self.mode())
    }

    /// Reads at an offset, in a mode for this call only.
    ///
    /// # Errors
    /// Those of `pread(2)`.
    pub fn read_at_with(&self, buf: &mut [u8], offset: u64, mode: Mode) -> io::Result<usize> {
        self.read_pieces(&mut [IoSliceMut::new(buf)], Some(offset), mode)
    }

    /// Reads into several buffers at an offset; the position doesn't change.
    ///
    /// # Errors
    /// Those of `preadv(2)`.
    pub fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.read_pieces(bufs, Some(offset), self.mode())
    }

    /// Writes at an offset; the position doesn't change. With `O_APPEND`, Linux appends
    /// regardless of the offset.
    ///
    /// # Errors
    /// Those of `pwrite(2)`.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.write_at_with(buf, offset, self.mode())
    }

    /// Writes at an offset, in a mode for this call only.
    ///
    /// # Errors
    /// Those of `pwrite(2)`.
    pub fn write_at_with(&self, buf: &[u8], offset: u64, mode: Mode) -> io::Result<usize> {
        self.write_once(&[IoSlice::new(buf)], Some(offset), mode)
    }

    /// Writes several buffers at an offset; the position doesn't change.
    ///
    /// # Errors
    /// Those of `pwritev(2)`.
    pub fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.write_once(bufs, Some(offset), self.mode())
    }
}
