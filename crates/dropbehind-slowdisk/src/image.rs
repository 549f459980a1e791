//! The disk's content, in memory.

use std::ops::Range;

/// Memory is taken in pieces of this size, when they are written to.
const CHUNK_BYTES: usize = 256 << 10;

/// A sparse file without a file, so that writing to the disk is never held up
/// by another disk or by the limits on dirty pages.
#[derive(Debug)]
pub(crate) struct Image {
    /// Pieces that were never written to read as zeroes.
    chunks: Vec<Option<Box<[u8]>>>,
    length: usize,
}

impl Image {
    pub(crate) fn new(size_bytes: u64) -> Self {
        let length = usize::try_from(size_bytes).unwrap_or(usize::MAX);
        let mut chunks = Vec::new();
        chunks.resize_with(length.div_ceil(CHUNK_BYTES), || None);
        Self { chunks, length }
    }

    /// The bytes from `offset` on, fewer at the end of the disk.
    pub(crate) fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let range = self.within(offset, length);
        let mut bytes = Vec::with_capacity(range.len());
        for (index, part) in parts(range) {
            match &self.chunks[index] {
                Some(chunk) => bytes.extend_from_slice(&chunk[part]),
                None => bytes.resize(bytes.len() + part.len(), 0),
            }
        }
        bytes
    }

    /// Writes `data`, as far as it fits, and returns how far that is.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> usize {
        let range = self.within(offset, data.len() as u64);
        let mut rest = &data[..range.len()];
        let written = rest.len();
        for (index, part) in parts(range) {
            let (now, later) = rest.split_at(part.len());
            let empty = || vec![0; CHUNK_BYTES].into_boxed_slice();
            self.chunks[index].get_or_insert_with(empty)[part].copy_from_slice(now);
            rest = later;
        }
        written
    }

    /// Turns a range into zeroes, and gives whole pieces of it back.
    pub(crate) fn discard(&mut self, offset: u64, length: u64) {
        for (index, part) in parts(self.within(offset, length)) {
            if part.len() == CHUNK_BYTES {
                self.chunks[index] = None;
            } else if let Some(chunk) = &mut self.chunks[index] {
                chunk[part].fill(0);
            }
        }
    }

    fn within(&self, offset: u64, length: u64) -> Range<usize> {
        let cut =
            |position: u64| usize::try_from(position).map_or(self.length, |p| p.min(self.length));
        cut(offset)..cut(offset.saturating_add(length))
    }
}

/// The pieces that a range touches, and which part of each.
fn parts(range: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let start = at % CHUNK_BYTES;
        let end = CHUNK_BYTES.min(start + range.end - at);
        let index = at / CHUNK_BYTES;
        at += end - start;
        Some((index, start..end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = CHUNK_BYTES as u64;

    #[test]
    fn what_is_written_is_read_across_pieces() {
        let mut image = Image::new(4 * CHUNK);
        let data: Vec<u8> = (0..2 * CHUNK).map(|byte| byte as u8 | 1).collect();
        assert_eq!(image.write(CHUNK / 2, &data), data.len());
        assert_eq!(image.read(CHUNK / 2, 2 * CHUNK), data);
        assert!(image.read(0, CHUNK / 2).iter().all(|&byte| byte == 0));
        let tail = image.read(2 * CHUNK + CHUNK / 2, 9 * CHUNK);
        assert_eq!(tail, vec![0; CHUNK_BYTES * 3 / 2]);
    }

    #[test]
    fn discards_leave_zeroes_and_neighbours() {
        let mut image = Image::new(3 * CHUNK);
        image.write(0, &vec![7; 3 * CHUNK_BYTES]);
        image.discard(4000, 2 * CHUNK);
        assert!(image.read(0, 4000).iter().all(|&byte| byte == 7));
        assert!(image.read(4000, 2 * CHUNK).iter().all(|&byte| byte == 0));
        assert!(image.chunks[1].is_none());
        let rest = image.read(4000 + 2 * CHUNK, CHUNK);
        assert_eq!(rest, vec![7; CHUNK_BYTES - 4000]);
    }

    #[test]
    fn nothing_lies_past_the_end() {
        let mut image = Image::new(8192);
        assert_eq!(image.write(8190, &[1; 5]), 2);
        assert_eq!(image.read(8000, 1000).len(), 192);
        assert_eq!(image.read(u64::MAX, 1), [0_u8; 0]);
    }
}
