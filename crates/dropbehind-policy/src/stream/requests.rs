//! A stream's requests: to be sent, and then under way until counts find them written.

use alloc::collections::VecDeque;

use super::context::Context;
use super::request::Request;
use crate::action::Counted;
use crate::pace::POLL_MAX_NS;
use crate::range::ByteRange;
use crate::range_counts::RangeCounts;
use crate::reason::Reason;

/// If pages of a range keep being written, by others' writes, we stop waiting for it once the
/// disk has written this many times what is missing: ours must have been among that.
const CHURN: u64 = 4;
/// The most ranges on their way at once. Each is a request in the disk's queue, which usually
/// holds 256 (`nr_requests`). A call that finds it full waits inside, while clean pages could
/// be dropped.
const RANGES_UNDER_WAY: usize = 192;
/// A count of scattered pages visits each of them, so the next one waits this many times as
/// long as it took, up to the longest pause between polls.
const COUNT_SHARE: u64 = 8;

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Asked {
    request: Request,
    /// Bytes already seen clean.
    clean_bytes: u64,
    /// Bytes under writeback at the last count.
    writeback_bytes: u64,
    /// Bytes that left writeback between counts, summed over all counts.
    churn_bytes: u64,
}

impl Asked {
    /// Records a count. Returns how many bytes are newly clean.
    fn counted(&mut self, counted: Counted) -> u64 {
        let written_bytes = self.writeback_bytes.saturating_sub(counted.writeback_bytes);
        self.churn_bytes = self.churn_bytes.saturating_add(written_bytes);
        self.writeback_bytes = counted.writeback_bytes;
        let clean_bytes = self.request.bytes.saturating_sub(counted.unwritten_bytes());
        let newly_clean_bytes = clean_bytes.saturating_sub(self.clean_bytes);
        self.clean_bytes += newly_clean_bytes;
        newly_clean_bytes
    }

    fn missing_bytes(&self) -> u64 {
        self.request.bytes - self.clean_bytes
    }

    /// Returns whether nothing is under writeback any more, or only what others have written.
    fn is_over(&self) -> bool {
        let missing_bytes = self.missing_bytes();
        let others_bytes = self.churn_bytes.saturating_sub(self.clean_bytes);
        let churned = missing_bytes > 0 && others_bytes > missing_bytes.saturating_mul(CHURN);
        self.writeback_bytes == 0 || churned
    }
}

/// What a count of the oldest request under way found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) newly_clean_bytes: u64,
    /// The request, if it is over: what is still dirty of it is not on its way.
    pub(super) over: Option<Request>,
}

/// The requests of one stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    to_send: VecDeque<Request>,
    to_send_bytes: u64,
    asked: VecDeque<Asked>,
    /// Excluding what was already seen clean.
    asked_bytes: u64,
    /// Ranges in `asked`.
    asked_ranges: usize,
    /// The ranges of `to_send` and `asked`.
    covered: RangeCounts,
    next_count_ns: u64,
    /// When the count under way was started.
    count_begun_ns: u64,
}

impl Requests {
    pub(super) fn is_empty(&self) -> bool {
        self.to_send.is_empty() && self.asked.is_empty()
    }

    /// Bytes to be sent, or requested and not seen clean.
    pub(super) fn bytes(&self) -> u64 {
        self.to_send_bytes + self.asked_bytes
    }

    /// Bytes requested and not seen clean.
    pub(super) fn asked_bytes(&self) -> u64 {
        self.asked_bytes
    }

    /// The parts of `range` that are to be sent or under way.
    pub(super) fn parts_of(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        self.covered.overlaps_of(range)
    }

    /// Returns whether anything from `offset` on is to be sent or under way.
    pub(super) fn reach_beyond(&self, offset: u64) -> bool {
        let beyond = ByteRange::new(offset, u64::MAX);
        self.covered.overlaps_of(beyond).next().is_some()
    }

    /// The reason for the next request to be sent, if there is one.
    pub(super) fn to_send(&self) -> Option<Reason> {
        self.to_send.front().map(|request| request.reason)
    }

    /// Returns whether another request may be sent, with at most `most_bytes` on their way.
    pub(super) fn have_room(&self, most_bytes: u64) -> bool {
        self.asked.is_empty()
            || self.asked_bytes < most_bytes && self.asked_ranges < RANGES_UNDER_WAY
    }

    /// Returns whether only parts of the last request are ours.
    pub(super) fn last_has_gaps(&self) -> bool {
        self.asked
            .back()
            .is_some_and(|asked| asked.request.has_gaps())
    }

    /// Queues a request behind those to be sent.
    pub(super) fn send(&mut self, request: Request) {
        if !request.range.is_empty() {
            self.covered.add(request.range);
            self.to_send_bytes += request.bytes;
            self.to_send.push_back(request);
        }
    }

    /// Queues a last request for these parts.
    pub(super) fn send_last(&mut self, parts: &[ByteRange]) {
        if let Some(request) = Request::last_one(parts, Reason::Age) {
            self.send(request);
        }
    }

    /// Takes the first call's worth of what is to be sent.
    pub(super) fn take_to_send(&mut self, request_bytes: u64) -> Option<Request> {
        let next = self.to_send.pop_front()?;
        let (first, rest) = next.split(request_bytes);
        self.covered.remove(next.range);
        self.to_send_bytes -= first.bytes;
        if let Some(rest) = rest {
            self.covered.add(rest.range);
            self.to_send.push_front(rest);
        }
        Some(first)
    }

    /// The request is under way.
    pub(super) fn ask(&mut self, context: &Context, request: Request) {
        if self.asked.is_empty() {
            self.next_count_ns = context.now_ns + context.poll_ns();
        }
        self.covered.add(request.range);
        self.push(request);
    }

    fn push(&mut self, request: Request) {
        self.asked_bytes += request.bytes;
        self.asked_ranges += request.ranges;
        self.asked.push_back(Asked {
            request,
            clean_bytes: 0,
            writeback_bytes: 0,
            churn_bytes: 0,
        });
    }

    /// The program's own fsync wrote everything that was to be sent, and `more`. Count it at
    /// once.
    pub(super) fn synced(&mut self, now_ns: u64, more: impl IntoIterator<Item = Request>) {
        let by_program = |request| Request {
            reason: Reason::Sync,
            by_program: true,
            ..request
        };
        while let Some(request) = self.to_send.pop_front() {
            self.push(by_program(request));
        }
        self.to_send_bytes = 0;
        for request in more {
            self.covered.add(request.range);
            self.push(by_program(request));
        }
        self.next_count_ns = now_ns;
    }

    /// When to count the oldest request under way, if there is one.
    pub(super) fn count_due_ns(&self) -> Option<u64> {
        (!self.asked.is_empty()).then_some(self.next_count_ns)
    }

    /// Starts counting the oldest request under way. If no answer comes, it is not due again
    /// at once.
    pub(super) fn begin_count(&mut self, context: &Context) -> ByteRange {
        self.count_begun_ns = context.now_ns;
        self.next_count_ns = context.now_ns + context.poll_ns();
        let front = self.asked.front();
        front.map(|front| front.request.range).unwrap_or_default()
    }

    /// Takes the count of `range`, which is that of the oldest request under way; `None` if
    /// another request is the oldest by now.
    pub(super) fn counted(
        &mut self,
        context: &Context,
        range: ByteRange,
        counted: Counted,
    ) -> Option<Progress> {
        let front = self.asked.front_mut();
        let front = front.filter(|front| front.request.range == range)?;
        let newly_clean_bytes = front.counted(counted);
        let front = *front;
        self.asked_bytes -= newly_clean_bytes;
        if !front.is_over() {
            let cost_ns = context.now_ns.saturating_sub(self.count_begun_ns);
            let cost_ns = cost_ns.saturating_mul(COUNT_SHARE).min(POLL_MAX_NS);
            let pause_ns = context.poll_ns().max(cost_ns);
            self.next_count_ns = context.now_ns + pause_ns;
            return Some(Progress {
                newly_clean_bytes,
                over: None,
            });
        }
        self.asked.pop_front();
        self.asked_ranges -= front.request.ranges;
        self.covered.remove(range);
        self.next_count_ns = context.now_ns;
        let missing_bytes = front.missing_bytes();
        self.asked_bytes -= missing_bytes;
        Some(Progress {
            newly_clean_bytes: newly_clean_bytes
                + missing_bytes.saturating_sub(counted.unwritten_bytes()),
            over: Some(front.request),
        })
    }

    /// Cancels all requests.
    pub(super) fn clear(&mut self) {
        self.to_send.clear();
        self.to_send_bytes = 0;
        self.asked.clear();
        self.asked_bytes = 0;
        self.asked_ranges = 0;
        self.covered.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::DiskConfig;
    use crate::pace::Pace;
    use crate::stream::context::Flight;
    use alloc::vec::Vec;

    const PAGE: u64 = 4096;

    fn context(now_ns: u64) -> Context {
        Context {
            now_ns,
            page_bytes: PAGE,
            pace: Pace::new(),
            default_window_bytes: 16 << 20,
            request_bytes: 1 << 20,
            busy_streams: 1,
            asked_bytes: 0,
            beside_readers: false,
            flight: Flight::at(&Pace::new(), &DiskConfig::default()),
            waiting_streams: 0,
            idle: false,
        }
    }

    fn pages(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start * PAGE, end * PAGE)
    }

    fn writeback(pages: u64) -> Counted {
        Counted {
            writeback_bytes: pages * PAGE,
            ..Counted::default()
        }
    }

    #[test]
    fn what_is_long_is_asked_for_in_parts_and_counted_as_it_gets_clean() {
        let mut requests = Requests::default();
        requests.send(Request::whole(pages(3, 20), Reason::Dontcache));
        let first = requests.take_to_send(8 * PAGE).unwrap();
        assert_eq!(first.range, pages(3, 8), "aligned from then on");
        requests.ask(&context(0), first);
        assert_eq!(requests.bytes(), 17 * PAGE);
        assert_eq!(requests.asked_bytes(), 5 * PAGE);

        assert_eq!(requests.begin_count(&context(1)), pages(3, 8));
        let progress = requests.counted(&context(1), pages(3, 8), writeback(2));
        let progress = progress.unwrap();
        assert_eq!(progress.newly_clean_bytes, 3 * PAGE);
        assert!(progress.over.is_none());
        assert_eq!(requests.asked_bytes(), 2 * PAGE);

        let progress = requests.counted(&context(2), pages(3, 8), writeback(0));
        let progress = progress.unwrap();
        assert_eq!(progress.newly_clean_bytes, 2 * PAGE);
        assert!(progress.over.is_some());
        assert_eq!(requests.bytes(), 12 * PAGE, "the rest is to be sent");
        let parts: Vec<ByteRange> = requests.parts_of(ByteRange::WHOLE).collect();
        assert_eq!(parts, [pages(8, 20)]);
        let next = requests.take_to_send(8 * PAGE).unwrap();
        assert_eq!(next.range, pages(8, 16));
    }

    #[test]
    fn what_others_write_again_and_again_is_not_waited_for() {
        let mut requests = Requests::default();
        let request = Request::whole(pages(0, 2), Reason::Dontcache);
        requests.ask(&context(0), request);
        let mut turns = 0;
        for under_writeback in [2, 1].into_iter().cycle() {
            let counted = writeback(under_writeback);
            let progress = requests.counted(&context(turns), request.range, counted);
            if progress.unwrap().over.is_some() {
                break;
            }
            turns += 1;
            assert!(turns < 100, "it never ends");
        }
        assert!(turns > 2 * CHURN, "{turns}");
        assert!(requests.is_empty());
        assert_eq!(requests.bytes(), 0);
    }

    #[test]
    fn a_count_of_another_request_says_nothing() {
        let mut requests = Requests::default();
        requests.ask(&context(0), Request::whole(pages(0, 2), Reason::Age));
        let progress = requests.counted(&context(0), pages(2, 4), writeback(0));
        assert!(progress.is_none());
        assert_eq!(requests.asked_bytes(), 2 * PAGE);
    }
}
