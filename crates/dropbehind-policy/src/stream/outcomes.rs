//! Results of what a stream has requested: counts, drops and inspections.

use alloc::vec::Vec;

use super::phase::Phase;
use super::request::Request;
use super::{Context, Stream};
use crate::action::{Counted, Dropped, Inspected};
use crate::drop_planner::{DropPlanner, Verdict};
use crate::range::ByteRange;
use crate::range_list::{gaps_between, intersections};

impl Stream {
    /// Returns the bytes newly seen clean, for the disk's pace.
    pub(crate) fn counted(
        &mut self,
        context: &Context,
        range: ByteRange,
        counted: Counted,
    ) -> Option<u64> {
        if self.counting_lazy {
            self.counted_lazy(context, range, counted);
            return None;
        }
        let progress = self.requests.counted(context, range, counted)?;
        if let Some(request) = progress.over {
            if counted.unwritten_bytes() > 0 {
                self.still_dirty(context, request, counted.unwritten_bytes());
            } else {
                self.lazy.progressed();
            }
            self.now_clean(range);
        }
        self.update_done();
        Some(progress.newly_clean_bytes)
    }

    /// Requested pages are dirty and not on their way: written again, or skipped by the
    /// kernel because they were locked.
    fn still_dirty(&mut self, context: &Context, request: Request, unwritten_bytes: u64) {
        let range = request.range;
        let window_bytes = self.window.unsent().intersection(range).len();
        let requested_bytes: u64 = self.requests.parts_of(range).map(ByteRange::len).sum();
        let expected_bytes = self.sweep.bytes_of(range) + window_bytes + requested_bytes;
        // The kernel counts whole folios, so a small part of one that was written again may
        // show as much more. That is requested in its own time. One more request is enough
        // for what the kernel may have skipped besides.
        let expected =
            unwritten_bytes <= expected_bytes || (expected_bytes > 0 && request.tries > 0);
        // Only the program has requested these, and perhaps too early.
        if expected && !request.by_program {
            return;
        }
        match request.again() {
            Some(again) => self.requests.send(again),
            None if self.ownership.is_ours(range) => self.lazy.leave_again(context.now_ns, range),
            None => {}
        }
    }

    /// Hands over to be dropped what is ours and no longer under way.
    pub(super) fn now_clean(&mut self, range: ByteRange) {
        // If ranges are scattered, most of our pages in their span were already clean, and
        // looking each of them up takes more time than everything else. Pages brought in
        // between the ranges of a request are still to be passed.
        let pending = self.pending_parts(range);
        let unsorted = self.ownership.unsorted_of(range);
        let idle = gaps_between(range, pending.chain(unsorted).collect());
        for part in intersections(&idle, &self.ownership.ours_of(range)) {
            self.ready(part);
        }
    }

    /// The parts of `range` that are busy, or wait to be dropped.
    fn pending_parts(&self, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
        let ready = self.planner.ready_parts(range);
        self.busy_parts(range).chain(ready)
    }

    fn counted_lazy(&mut self, context: &Context, piece: ByteRange, counted: Counted) {
        if counted.unwritten_bytes() == 0 {
            self.lazy.counted_clean(piece);
            self.now_clean(piece);
            return;
        }
        let requests = self.eager || self.flush;
        self.lazy
            .counted_dirty(requests && counted.writeback_bytes == 0);
        if self.is_awaited() && self.lazy.is_overdue() {
            for part in self.lazy.take().iter() {
                self.ownership.leave(part);
                self.planner.withdraw(part);
            }
        } else if requests && counted.dirty_bytes > 0 {
            self.ask_once_more(context, piece);
        }
    }

    /// Pages that are still dirty may have been written meanwhile, by a process that reports nothing,
    /// and the kernel would take half a minute.
    fn ask_once_more(&mut self, context: &Context, piece: ByteRange) {
        let request_bytes = context.request_bytes(&self.config);
        let mut near: Vec<ByteRange> = Vec::new();
        for part in self.lazy.take_parts(piece) {
            let start = near.first().map_or(part.start, |first| first.start);
            if part.end - start > request_bytes {
                self.requests.send_last(&near);
                near.clear();
            }
            near.push(part);
        }
        self.requests.send_last(&near);
    }

    pub(crate) fn dropped(&mut self, context: &Context, range: ByteRange, dropped: Dropped) {
        let (mut verdict, after_bytes) = match dropped {
            Dropped::Tried {
                before_bytes,
                after_bytes,
            } => {
                let gone_bytes =
                    before_bytes.map_or(0, |before_bytes| before_bytes.saturating_sub(after_bytes));
                let planner = &mut self.planner;
                let verdict = planner.verified(context.now_ns, range, gone_bytes, after_bytes);
                (verdict, after_bytes)
            }
            Dropped::Unreported => {
                self.planner.unreported(context.now_ns, range);
                (Verdict::Again, 0)
            }
            Dropped::NotClean => {
                self.planner.not_clean(range);
                for part in self.ownership.ours_of(range) {
                    self.lazy.leave(context.now_ns, part);
                }
                return;
            }
        };
        // A folio that straddles the border is dropped only together with the other part.
        if let Verdict::GivenUp { tries } = verdict
            && self.planner.may_wait_for_neighbours(tries)
            && self.is_busy_next_to(context, range)
        {
            self.planner
                .wait_for_neighbours(context.now_ns, range, tries);
            verdict = Verdict::Again;
        }
        let stayed_bytes = match verdict {
            Verdict::Again => {
                // What was given up or truncated since need not be tried again.
                for part in self.ownership.not_ours_of(range) {
                    self.planner.withdraw(part);
                }
                return;
            }
            Verdict::Gone => 0,
            Verdict::GivenUp { .. } if self.ownership.hold_stuck(range) => return,
            Verdict::GivenUp { .. } => after_bytes,
        };
        // What was written since is dropped after its own writeback, and what a read brought
        // in again by another drop. Mostly there is none of either, and checking is cheaper
        // than making a list.
        if self.ownership.has_held() || self.pending_parts(range).next().is_some() {
            let held = self.ownership.held_of(range);
            let gone = gaps_between(range, self.pending_parts(range).chain(held).collect());
            self.ownership.dropped(&gone, stayed_bytes);
        } else {
            self.ownership.dropped(&[range], stayed_bytes);
        }
    }

    /// Returns whether we are writing or dropping the page before or after, where a folio may
    /// straddle the border.
    fn is_busy_next_to(&self, context: &Context, range: ByteRange) -> bool {
        let folios = DropPlanner::folios_of(range);
        let before = range.start.saturating_sub(context.page_bytes);
        let after = range.end.saturating_add(context.page_bytes);
        let before = ByteRange::new(before.max(folios.start), range.start);
        let after = ByteRange::new(range.end, after.min(folios.end));
        [before, after]
            .into_iter()
            .filter(|page| !page.is_empty())
            .any(|page| self.planner.is_waiting(page) || self.busy_parts(page).next().is_some())
    }

    /// The next action is being asked for, so a drop without an answer did nothing.
    pub(crate) fn not_answered(&mut self, context: &Context) {
        while let Some(range) = self.planner.unanswered() {
            let nothing = Dropped::Tried {
                before_bytes: None,
                after_bytes: range.len(),
            };
            self.dropped(context, range, nothing);
        }
    }

    pub(crate) fn inspected(&mut self, context: &Context, inspected: Inspected) {
        self.inspection.at_ns = Some(context.now_ns);
        self.inspection.unlinked = inspected.unlinked;
        if inspected.unlinked && self.phase.is_closed() {
            // Nobody can open it again: the kernel frees the pages unwritten once the last
            // descriptor, perhaps ours, is closed. Who else has one is not known. A look before
            // that finds them again, but nothing should hold them for it.
            self.phase = Phase::Deleted;
            self.ownership.freed_all();
            self.cancel();
        }
    }

    /// A call for this stream failed for good: everything is left as it is.
    pub(crate) fn failed(&mut self) {
        self.ownership.leave_all();
        self.cancel();
    }
}
