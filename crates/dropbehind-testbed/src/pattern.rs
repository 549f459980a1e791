//! Data that can be recognised: every byte follows from a seed and its offset
//! in the file, so that any range can be written, and any range checked, in
//! any order and by anyone.

use std::fmt;

const WORD_BYTES: u64 = 8;

/// The first byte that is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Where in the file.
    pub offset: u64,
    /// What should be there.
    pub expected: u8,
    /// What is there.
    pub found: u8,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            offset,
            expected,
            found,
        } = self;
        write!(
            f,
            "at offset {offset}: {found:#04x} instead of {expected:#04x}"
        )
    }
}

impl std::error::Error for Mismatch {}

/// Fills `data`, which belongs at `offset`, with the pattern of `seed`.
pub fn fill(seed: u64, offset: u64, data: &mut [u8]) {
    let mut position = offset;
    let mut rest = data;
    while !rest.is_empty() {
        let word = word(seed, position / WORD_BYTES);
        let skipped = (position % WORD_BYTES) as usize;
        let length = rest.len().min(word.len() - skipped);
        let (now, later) = rest.split_at_mut(length);
        now.copy_from_slice(&word[skipped..skipped + length]);
        position += length as u64;
        rest = later;
    }
}

/// A buffer of `length` bytes that holds the pattern.
pub fn filled(seed: u64, offset: u64, length: usize) -> Vec<u8> {
    let mut data = vec![0; length];
    fill(seed, offset, &mut data);
    data
}

/// Checks that `data`, read at `offset`, is the pattern of `seed`.
pub fn check(seed: u64, offset: u64, data: &[u8]) -> Result<(), Mismatch> {
    let expected = filled(seed, offset, data.len());
    // One comparison of memory in the good case, which is nearly always.
    if expected == data {
        return Ok(());
    }
    let mut pairs = (offset..).zip(expected.iter().zip(data));
    pairs
        .find(|(_, (expected, found))| expected != found)
        .map_or(Ok(()), |(offset, (&expected, &found))| {
            Err(Mismatch {
                offset,
                expected,
                found,
            })
        })
}

/// One step of splitmix64: neighbouring inputs give unrelated outputs.
fn word(seed: u64, index: u64) -> [u8; 8] {
    let mut z = (seed.rotate_left(32) ^ index)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_gives_the_same_bytes() {
        let whole = filled(7, 0, 100);
        for start in 0..20 {
            for end in start..100 {
                assert_eq!(filled(7, start as u64, end - start), whole[start..end]);
            }
        }
    }

    #[test]
    fn a_wrong_byte_is_found() {
        let mut data = filled(7, 1 << 40, 5000);
        assert_eq!(check(7, 1 << 40, &data), Ok(()));
        data[4001] ^= 1;
        let mismatch = check(7, 1 << 40, &data).unwrap_err();
        assert_eq!(mismatch.offset, (1 << 40) + 4001);
        assert_eq!(mismatch.found, mismatch.expected ^ 1);
    }

    #[test]
    fn seeds_and_offsets_differ() {
        let data = filled(1, 0, 4096);
        assert!(check(2, 0, &data).is_err());
        assert!(check(1, 8, &data).is_err());
        assert!(check(1, 0, &[0; 4096]).is_err());
    }
}
