//! Finding by counting where pages are in a file.

use alloc::vec::Vec;
use core::convert::Infallible;

use super::Pages;
use crate::action::Counted;
use crate::bisection::bisect;
use crate::range::ByteRange;

/// The precision to which pages are found.
const PIECE_BYTES: u64 = 128 << 10;
/// The most counts in one search: 20 ms if each has a thousand pages to walk. The next search
/// continues where this one ended.
const COUNTS: u32 = 2048;
/// The most counts in a thorough search: enough for a gigabyte of which every second page was
/// cached before.
const THOROUGH_COUNTS: u32 = 1 << 18;
/// Finds the pieces of a file that contain pages of interest.
pub(super) struct Search<'a, P> {
    pages: &'a P,
    of_interest: fn(Counted) -> u64,
    /// Counts that may still be made.
    pub(super) counts: u32,
    /// What was found, and how many bytes of each piece are of interest.
    pub(super) found: Vec<(ByteRange, u64)>,
}

impl<'a, P: Pages> Search<'a, P> {
    pub(super) fn new(pages: &'a P, thorough: bool, of_interest: fn(Counted) -> u64) -> Self {
        Search {
            pages,
            of_interest,
            counts: match thorough {
                true => THOROUGH_COUNTS,
                false => COUNTS,
            },
            found: Vec::new(),
        }
    }

    pub(super) fn descend(&mut self, range: ByteRange) {
        let Ok(()) = bisect(
            range,
            PIECE_BYTES,
            &mut |part| -> Result<bool, Infallible> { Ok(self.visit(part)) },
        );
    }

    /// Returns whether the halves of this part are to be visited.
    fn visit(&mut self, part: ByteRange) -> bool {
        if self.counts == 0 {
            return false;
        }
        self.counts -= 1;
        let bytes = self.pages.count(part).map_or(0, self.of_interest);
        if bytes == 0 || bytes < part.len() && part.len() > PIECE_BYTES {
            return bytes > 0;
        }
        match self.found.last_mut() {
            Some((last, found_bytes)) if last.end == part.start => {
                last.end = part.end;
                *found_bytes += bytes;
            }
            _ => self.found.push((part, bytes)),
        }
        false
    }
}
