//! Dirty ranges that are asked for in one call.

use crate::range::ByteRange;
use crate::reason::Reason;

/// How often a range that is dirty again after its writeback is asked for at once;
/// then it is asked for when it is counted next.
const ASK_TRIES: u8 = 3;

/// A call for writeback.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// The span of the call.
    pub(super) range: ByteRange,
    /// What of it was dirty.
    pub(super) bytes: u64,
    /// How many ranges `bytes` are in.
    pub(super) ranges: usize,
    pub(super) reason: Reason,
    /// Calls for it so far that did not do.
    pub(super) tries: u8,
    /// Written by the program's own fsync: we have not asked for it.
    pub(super) by_program: bool,
}

impl Request {
    /// A request for all of `range`.
    pub(super) fn whole(range: ByteRange, reason: Reason) -> Request {
        Request::scattered(range, range.len(), 1, reason)
    }

    /// A request for so many bytes of `range`, in so many parts.
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

    /// A request for these parts, which ascend; after it they are not asked for again.
    pub(super) fn last_one(parts: &[ByteRange], reason: Reason) -> Option<Request> {
        let (first, last) = (parts.first()?, parts.last()?);
        let bytes = parts.iter().map(|part| part.len()).sum();
        let span = ByteRange::new(first.start, last.end);
        Some(Request {
            tries: ASK_TRIES,
            ..Request::scattered(span, bytes, parts.len(), reason)
        })
    }

    /// The same once more, unless that was done often enough.
    pub(super) fn again(self) -> Option<Request> {
        (self.tries < ASK_TRIES).then_some(Request {
            tries: self.tries + 1,
            by_program: false,
            ..self
        })
    }

    /// Only parts of the range were asked for.
    pub(super) fn has_gaps(self) -> bool {
        self.bytes < self.range.len()
    }

    /// The first call's worth, and the rest. A call that is too long may block
    /// for as long on a full queue.
    pub(super) fn split(self, request_bytes: u64) -> (Request, Option<Request>) {
        // Nobody knows how much of what has gaps is in which part.
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
