//! The stages of a stream's life: synced, flushed, closed, submitted, cancelled.

use super::phase::Phase;
use super::request::Request;
use super::{Context, Stream};
use crate::drop_planner::DropPlanner;
use crate::grace::SMALL_FILE_BYTES;
use crate::mode::Writeback;
use crate::range::ByteRange;
use crate::reason::Reason;
use crate::write_behind::{CloseKind, WriteBehind};

impl Stream {
    /// The program's own fsync returned: count at once, and request nothing.
    ///
    /// This includes what another thread wrote during the fsync. The count finds that dirty,
    /// and then it is requested.
    pub(crate) fn synced(&mut self, context: &Context) {
        let request_bytes = context.request_bytes(&self.config);
        let unsent = self.window.take_unsent();
        let dirty = self.sweep.take_all(unsent, request_bytes, Reason::Sync);
        self.requests.synced(context.now_ns, dirty);
        self.lazy.synced(context.now_ns);
    }

    /// Everything pending is to be written and dropped now.
    pub(crate) fn flush(&mut self) {
        let is_new = !core::mem::replace(&mut self.flush, true);
        for range in self.ownership.held_of(ByteRange::WHOLE) {
            self.decided(range, false);
        }
        self.try_stuck_again();
        let tail = self.window.take_unsent();
        self.requests.send(Request::whole(tail, Reason::Sync));
        // A caller waits, and the kernel may take half a minute. What is still dirty after that is
        // requested at each look.
        if is_new {
            for range in self.lazy.take().iter() {
                self.requests.send(Request::whole(range, Reason::Sync));
            }
        }
    }

    /// The program closed the file.
    pub(crate) fn closed(&mut self, context: &Context) {
        if self.phase.is_closed() {
            // Reported once more: nothing was written since, and the grace has been running
            // all the time.
            return;
        }
        self.try_stuck_again();
        self.send_tail(context);
        let dirty_bytes = self.sweep.bytes();
        let small = dirty_bytes < SMALL_FILE_BYTES && !self.config.block_device;
        self.phase = Phase::Closed {
            at_ns: context.now_ns,
            small_bytes: (small && dirty_bytes > 0).then_some(dirty_bytes),
        };
        self.update_done();
    }

    /// The file is open again.
    pub(crate) fn reopened(&mut self) {
        if matches!(self.phase, Phase::Closed { .. }) {
            self.phase = Phase::Open;
            self.ownership.reopened();
        }
    }

    /// The program ends, which closes its files: what we are to write is to be requested now. Not
    /// what threads that still run write from now on, or they would keep the program from ending.
    pub(crate) fn submit(&mut self, context: &Context) {
        self.send_tail(context);
        self.submit_bytes = self.unsent_bytes();
    }

    /// Bytes that are to be requested and have not been.
    fn unsent_bytes(&self) -> u64 {
        let to_send_bytes = self.requests.bytes() - self.requests.asked_bytes();
        self.sweep.bytes() + to_send_bytes
    }

    /// Returns whether [`Disk::submit`](crate::Disk::submit) leaves something to request. Files
    /// without a name are gone when the program is.
    pub fn has_to_submit(&self) -> bool {
        self.submit_bytes > 0 && !self.inspection.unlinked
    }

    fn send_tail(&mut self, context: &Context) {
        let tail = self.window.unsent();
        let kind = CloseKind {
            o_append: self.config.o_append,
            new_file: self.config.size_bytes == 0,
            at_end: self.last_write_end >= self.size_bytes,
            appending_only: self.window_mode.writeback == Writeback::BehindAppending,
        };
        let window_bytes = context.window_bytes(&self.config);
        let request_bytes = context.request_bytes(&self.config);
        match self.window.closed(kind, window_bytes, request_bytes) {
            Some(send) => self.requests.send(Request::whole(send, Reason::Close)),
            None => self.leave_to_kernel(context, tail, self.window_mode),
        }
    }

    fn try_stuck_again(&mut self) {
        for range in self.ownership.take_stuck(ByteRange::WHOLE) {
            self.passed(range);
        }
    }

    /// Nothing else is left to do for a closed file: stuck pages are tried together, for the
    /// last time.
    pub(crate) fn try_stuck_at_last(&mut self) {
        // What a flush cannot drop may be mapped, and whoever mapped it has yet to close it.
        if self.ownership.has_stuck() && self.phase.is_closed() && self.is_settled() {
            self.try_stuck_again();
            self.ownership.tried_stuck();
        }
    }

    /// Cancels everything pending.
    pub(super) fn cancel(&mut self) {
        self.ownership.cancel();
        self.sweep.clear();
        self.phase.end_grace();
        self.window = WriteBehind::default();
        self.requests.clear();
        self.lazy.clear();
        self.planner = DropPlanner::default();
        self.update_done();
    }

    /// Ends a requested flush once everything is settled, or requested.
    pub(crate) fn end_flush_if_settled(&mut self) {
        if self.flush && self.is_settled() {
            self.flush = false;
        }
        if self.submit_bytes > 0 {
            let pending_bytes = self.unsent_bytes();
            self.submit_bytes = match self.has_to_submit() {
                true => self.submit_bytes.min(pending_bytes),
                false => 0,
            };
        }
    }
}
