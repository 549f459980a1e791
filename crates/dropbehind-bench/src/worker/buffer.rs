//! Memory as `O_DIRECT` wants it, full of bytes that do not compress.

/// What every disk's sectors divide.
const ALIGNMENT: usize = 4096;

/// A buffer that begins at a multiple of [`ALIGNMENT`].
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    pub(super) fn new(length: usize, seed: u64) -> Self {
        let mut bytes = vec![0; length + ALIGNMENT];
        // Marsaglia's xorshift64: good enough against compression.
        let mut state = seed | 1;
        for chunk in bytes.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
        }
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Self {
            bytes,
            start,
            length,
        }
    }

    pub(super) fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    pub(super) fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_and_full() {
        for length in [512, 4096, 1 << 20] {
            let mut buffer = Buffer::new(length, 7);
            assert_eq!(buffer.get().as_ptr() as usize % ALIGNMENT, 0);
            assert_eq!(buffer.get().len(), length);
            let zeroes = buffer.get().iter().filter(|&&byte| byte == 0).count();
            assert!(zeroes < length / 64, "{zeroes} of {length}");
            assert_eq!(buffer.get_mut().len(), length);
        }
    }
}
