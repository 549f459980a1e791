//! The loop that moves bytes: one thread, one buffer. Reading and writing still overlap, through
//! the kernel's readahead on one side and the flusher on the other.

use crate::input::Input;
use crate::output::Output;
use crate::progress::Counters;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

/// The least that can be a hole: a block of most file systems.
const HOLE_BYTES: usize = 4096;

/// Which side failed.
#[derive(Debug)]
pub(crate) enum TransferError {
    /// Reading the source.
    Read(io::Error),
    /// Writing the destination.
    Write(io::Error),
}

/// Memory of one block, aligned to a page: copying to and from whole pages is
/// fastest.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// A buffer for `len` bytes.
    pub(crate) fn new(len: usize) -> Self {
        let page = usize::try_from(dropbehind_linux::page_size()).unwrap_or(4096);
        let memory = vec![0; len + page];
        // An offset that cannot be had is huge, and alignment is only a wish.
        let start = memory.as_ptr().align_offset(page).min(page);
        Self { memory, start, len }
    }

    /// All of it.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// Moves bytes until the source ends, but at most `limit`, which is asked before each block.
/// With `makes_holes`, blocks of zeroes are left out, so that they become holes of an empty file;
/// the caller sets its length. Returns how many bytes of the source that was.
pub(crate) fn copy(
    input: &mut Input,
    output: &mut Output,
    buffer: &mut Buffer,
    limit: impl Fn(&Input) -> Option<u64>,
    counters: &Counters,
    makes_holes: bool,
) -> Result<u64, TransferError> {
    let write = if makes_holes { write_data } else { write_all };
    let mut done = 0;
    loop {
        let left = limit(input).map_or(u64::MAX, |limit| limit.saturating_sub(done));
        let block = buffer.bytes();
        let wanted = usize::try_from(left).map_or(block.len(), |left| left.min(block.len()));
        if wanted == 0 {
            return Ok(done);
        }
        let got = match input.read(&mut block[..wanted]) {
            Ok(0) => return Ok(done),
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(TransferError::Read(error)),
        };
        counters.read.fetch_add(got as u64, Relaxed);
        write(output, &block[..got], counters).map_err(TransferError::Write)?;
        done += got as u64;
    }
}

/// Like [`io::Write::write_all`], but counts what was written before an error.
fn write_all(output: &mut Output, mut bytes: &[u8], counters: &Counters) -> io::Result<()> {
    while !bytes.is_empty() {
        match output.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                counters.written.fetch_add(written as u64, Relaxed);
                bytes = &bytes[written..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes what is not zero, and goes on behind what is.
fn write_data(output: &mut Output, bytes: &[u8], counters: &Counters) -> io::Result<()> {
    let is_zero = |block: &[u8]| block.iter().all(|&byte| byte == 0);
    let mut rest = bytes;
    while !rest.is_empty() {
        let zero = is_zero(&rest[..rest.len().min(HOLE_BYTES)]);
        let blocks = rest.chunks(HOLE_BYTES);
        let run = blocks.take_while(|block| is_zero(block) == zero);
        let (now, later) = rest.split_at(run.map(<[u8]>::len).sum());
        if zero {
            output.skip(now.len() as u64)?;
            counters.skipped.fetch_add(now.len() as u64, Relaxed);
        } else {
            write_all(output, now, counters)?;
        }
        rest = later;
    }
    Ok(())
}
