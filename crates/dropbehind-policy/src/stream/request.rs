//! Dirty ranges that are sent with one call.

use crate::range::ByteRange;
use crate::reason::Reason;

/// How many times a range that is dirty again after its writeback is requested at once. After
/// that, it waits for its next count.
const ASK_TRIES: u8 = 3;

/// A call for writeback.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// The span of the call.
    pub(super) range: ByteRange,
    /// How much of it was dirty.
    pub(super) bytes: u64,
    /// How many ranges those bytes are in.
    pub(super) ranges: usize,
    pub(super) reason: Reason,
    /// Calls so far that did not clean it.
    pub(super) tries: u8,
    /// Written by the program's own fsync, not requested by us.
    pub(super) by_program: bool,
}

impl Request {
    /// A request for all of `range`.
    pub(super) fn whole(range: ByteRange, reason: Reason) -> Request {
        Request::scattered(range, range.len(), 1, reason)
    }

    /// A request for this many bytes of `range`, in this many parts.
    pub(super) fn scattered(
        range: ByteRange,
        bytes: u64,
        ranges: usize,
        reason: Reason,
    ) -> Request {
        Request {
            range,
            bytes,
            ranges,
            reason,
            tries: 0,
            by_program: false,
        }
    }

    /// A request for these ascending parts, which are not requested again after it.
    pub(super) fn last_one(parts: &[ByteRange], reason: Reason) -> Option<Request> {
        let (first, last) = (parts.first()?, parts.last()?);
        let bytes = parts.iter().map(|part| part.len()).sum();
        let span = ByteRange::new(first.start, last.end);
        Some(Request {
            tries: ASK_TRIES,
            ..Request::scattered(span, bytes, parts.len(), reason)
        })
    }

    /// The same request again, unless it was repeated often enough.
    pub(super) fn again(self) -> Option<Request> {
        (self.tries < ASK_TRIES).then_some(Request {
            tries: self.tries + 1,
            by_program: false,
            ..self
        })
    }

    /// Returns whether only parts of the range were requested.
    pub(super) fn has_gaps(self) -> bool {
        self.bytes < self.range.len()
    }

    /// The first call's worth, and the rest. Too long a call may block for long on a full
    /// queue.
    pub(super) fn split(self, request_bytes: u64) -> (Request, Option<Request>) {
        // With gaps, nobody knows how many of the bytes are in which part.
        if self.range.len() <= request_bytes || self.has_gaps() {
            return (self, None);
        }
        let part = |range: ByteRange| Request {
            range,
            bytes: range.len(),
            ..self
        };
        let first = self.range.first_request(request_bytes);
        let rest = ByteRange::new(first.end, self.range.end);
        (part(first), Some(part(rest)))
    }
}
