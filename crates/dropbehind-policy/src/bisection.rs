//! Finding parts of a range by halving it.
//!
//! The kernel counts the cached pages of a range. Repeated halving and counting finds where
//! they are.

use crate::range::ByteRange;
use crate::range::round_up;

/// Visits `range`, and then its halves from left to right wherever `visit` returns true and
/// the part is longer than `finest_bytes`. Parts are cut at multiples of `finest_bytes`, so
/// that they meet where folios do.
///
/// # Errors
/// The first error of `visit`, which ends the search.
pub fn bisect<E>(
    range: ByteRange,
    finest_bytes: u64,
    visit: &mut impl FnMut(ByteRange) -> Result<bool, E>,
) -> Result<(), E> {
    if range.is_empty() || !visit(range)? || range.len() <= finest_bytes {
        return Ok(());
    }
    let middle = range.start + round_up(range.len() / 2, finest_bytes);
    let middle = middle - middle % finest_bytes;
    bisect(ByteRange::new(range.start, middle), finest_bytes, visit)?;
    bisect(ByteRange::new(middle, range.end), finest_bytes, visit)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::convert::Infallible;

    use super::*;

    /// The finest parts of `range` that touch one of `places`, and the number of visits.
    fn found(range: ByteRange, places: &[u64]) -> (Vec<ByteRange>, u32) {
        let (mut found, mut visits) = (Vec::new(), 0);
        let Ok(()) = bisect(range, 10, &mut |part| {
            visits += 1;
            let touches = places.iter().any(|at| part.start <= *at && *at < part.end);
            if touches && part.len() <= 10 {
                found.push(part);
            }
            Ok::<bool, Infallible>(touches)
        });
        (found, visits)
    }

    #[test]
    fn parts_are_found_from_left_to_right_and_aligned() {
        let (parts, visits) = found(ByteRange::new(3, 164), &[3, 70, 163]);
        let expected = [(3, 10), (70, 80), (160, 164)].map(|(from, to)| ByteRange::new(from, to));
        assert_eq!(parts, expected);
        assert!(visits < 20, "{visits}");
        assert_eq!(found(ByteRange::new(0, 1000), &[]), (Vec::new(), 1));
        assert_eq!(found(ByteRange::new(5, 5), &[5]), (Vec::new(), 0));
    }

    #[test]
    fn an_error_ends_the_search() {
        let mut visits = 0;
        let result = bisect(ByteRange::new(0, 64), 1, &mut |part| {
            visits += 1;
            if part.len() <= 16 {
                Err(part)
            } else {
                Ok(true)
            }
        });
        assert_eq!((result, visits), (Err(ByteRange::new(0, 16)), 3));
    }
}
