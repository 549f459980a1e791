//! What a stream needs done next, and how that starts.

use super::phase::Phase;
use super::request::Request;
use super::{Context, Stream};
use crate::action::{Action, StreamId};
use crate::drop_planner::STEP_BYTES;
use crate::grace::{AGE_NS, GRACE_NS};
use crate::range::ByteRange;
use crate::reason::Reason;

/// With this many clean bytes waiting to be dropped, drops go before new requests. (Writers
/// have less room by then: see [`Stream::limit_bytes`].)
const CROWDED_BYTES: u64 = 2 * STEP_BYTES;
/// With less than this on its way, drops and requests take turns instead: disks finish in
/// lumps, and one that has just finished everything would idle during all of the drops.
const BUSY_BYTES: u64 = 2 * STEP_BYTES;
/// How often to check whether a closed file that is being written was deleted: an fstat takes
/// well below a microsecond.
const NAME_NS: u64 = 5_000_000;

/// What the stream needs done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    StartWriteback(Reason),
    /// Counts the oldest request under way.
    CountAsked,
    /// Counts a piece of what is left to the kernel.
    CountLazy,
    Drop,
    Inspect,
    Forget,
}

impl Stream {
    /// The next task and when it is due: the most urgent one that is due, or else the
    /// earliest.
    pub(crate) fn task(&self, context: &Context) -> Option<(u64, Task)> {
        if self.phase == Phase::Forgotten {
            return None;
        }
        let mut best: Option<(u64, Task)> = None;
        let mut offer = |due_ns: u64, task: Task| {
            // Offered in order of urgency: a later one wins only if it is due when the
            // earlier is not.
            let due_ns = due_ns.max(1);
            let better =
                best.is_none_or(|(best_ns, _)| best_ns > context.now_ns && due_ns < best_ns);
            if better {
                best = Some((due_ns, task));
            }
        };
        if let Some(due_ns) = self.name_due_ns(context) {
            offer(due_ns, Task::Inspect);
        }
        if let Some(due_ns) = self.requests.count_due_ns() {
            offer(due_ns, Task::CountAsked);
        }
        let submission = self.submission(context);
        let drop = self.drop_due();
        let (first, second) = if self.drops_first(context) {
            (drop, submission)
        } else {
            (submission, drop)
        };
        for (due_ns, task) in first.into_iter().chain(second) {
            offer(due_ns, task);
        }
        if let Some(due_ns) = self.lazy.count_due_ns() {
            // If it was deleted since, it need not be written, and only our descriptor holds
            // its blocks.
            let inspect = self.phase.is_closed()
                && !self.config.block_device
                && self.inspection.at_ns < Some(due_ns);
            let count = if inspect {
                Task::Inspect
            } else {
                Task::CountLazy
            };
            offer(due_ns, count);
        }
        if self.phase.is_closed() && self.is_settled() {
            offer(context.now_ns, Task::Forget);
        }
        best
    }

    fn drop_due(&self) -> Option<(u64, Task)> {
        let due_ns = self.planner.due_ns(self.is_awaited(), STEP_BYTES)?;
        Some((due_ns, Task::Drop))
    }

    /// When to check whether a closed file still has a name. A deleted one need not be
    /// written. Only our descriptor still holds its blocks, and its programs may want those
    /// for the next file.
    fn name_due_ns(&self, context: &Context) -> Option<u64> {
        let closed_ns = self.phase.closed_ns()?;
        let waits = !self.planner.is_empty() || self.ownership.has_held();
        let busy = self.outstanding_bytes() > 0 || waits;
        if !busy || self.config.block_device {
            return None;
        }
        if self.phase.small_bytes().is_some() {
            // What is small may be the rest of a large file. The checks become less and less
            // frequent, so that its blocks are held no more than twice as long as its
            // programs left the file there.
            let seen_ns = self.inspection.at_ns.unwrap_or(0).max(closed_ns);
            return Some(seen_ns + (seen_ns - closed_ns).max(NAME_NS));
        }
        match self.inspection.at_ns {
            // If calls are slow, at least every other one does some work.
            Some(at_ns) if at_ns >= closed_ns => self
                .inspection
                .worked
                .then_some(at_ns.saturating_add(NAME_NS)),
            _ => Some(context.now_ns),
        }
    }

    /// A disk that waits for its next request costs more than pages that stay a little
    /// longer, but only up to a point.
    fn drops_first(&self, context: &Context) -> bool {
        let crowded = self.planner.ready_bytes() >= CROWDED_BYTES;
        let drops_turn = self.sent_since_drop;
        crowded && (drops_turn || context.asked_bytes >= BUSY_BYTES)
    }

    fn submission(&self, context: &Context) -> Option<(u64, Task)> {
        if self.submit_bytes > 0 {
            return self.last_submission(context);
        }
        if !self.has_own_room(context)
            || !context.has_room_for(&self.config)
            || self.sweep_would_overlap()
        {
            return None;
        }
        let to_send = self.requests.to_send();
        let (due_ns, reason) = match to_send {
            Some(reason) => (context.now_ns, reason),
            None if self.sweep.is_empty() => return None,
            None => self.sweep_due(context),
        };
        let send = Task::StartWriteback(reason);
        if self.config.block_device {
            return Some((due_ns, send));
        }
        let window_bytes = match context.window_bytes(&self.config) {
            0 => context.flight_bytes(&self.config),
            window_bytes => window_bytes,
        };
        let scratch =
            self.inspection.unlinked && !self.flush && self.outstanding_bytes() < window_bytes;
        match self.inspection.at_ns {
            None => Some((due_ns, Task::Inspect)),
            // A nameless file may get a name (O_TMPFILE, linkat), so it is checked again;
            // while it is small, it need not be written.
            Some(at_ns) if scratch => Some((due_ns.max(at_ns + AGE_NS), Task::Inspect)),
            // Closed small files wait for their grace; a check just before the write finds
            // those deleted since.
            at_ns if self.phase.small_bytes().is_some() && to_send.is_none() => {
                let fresh_ns = if reason == Reason::Close {
                    Some(due_ns)
                } else {
                    self.phase.closed_ns()
                };
                let task = if at_ns < fresh_ns {
                    Task::Inspect
                } else {
                    send
                };
                Some((due_ns, task))
            }
            Some(_) => Some((due_ns, send)),
        }
    }

    /// The program ends, and nothing is waited for but the calls themselves.
    fn last_submission(&self, context: &Context) -> Option<(u64, Task)> {
        if !self.has_to_submit() {
            return None;
        }
        let checked_ns = self.inspection.at_ns;
        let checked = checked_ns.is_some() && checked_ns >= self.phase.closed_ns();
        let task = match checked || self.config.block_device {
            true => Task::StartWriteback(self.requests.to_send().unwrap_or(Reason::Close)),
            false => Task::Inspect,
        };
        Some((context.now_ns, task))
    }

    /// Returns whether it has something to send, and waits only for room on the disk.
    pub(crate) fn waits_for_room(&self, context: &Context) -> bool {
        self.submit_bytes == 0
            && !context.has_room_for(&self.config)
            && self.has_own_room(context)
            && (self.requests.to_send().is_some() || !self.sweep.is_empty())
    }

    /// Returns whether its own requests leave room for another.
    fn has_own_room(&self, context: &Context) -> bool {
        let most_bytes = match self.config.window_bytes {
            Some(fixed) if fixed > 0 => context.flight_bytes(&self.config),
            _ => u64::MAX,
        };
        self.requests.have_room(most_bytes)
    }

    /// What lies in the gaps of a request counts as part of it. So the sweep over the file
    /// does not reach into what is still under way.
    fn sweep_would_overlap(&self) -> bool {
        let sweeps = self.requests.to_send().is_none() && self.requests.last_has_gaps();
        sweeps
            && self
                .sweep
                .next()
                .is_some_and(|next| self.requests.reach_beyond(next.start))
    }

    fn sweep_due(&self, context: &Context) -> (u64, Reason) {
        if self.flush {
            return (context.now_ns, Reason::Sync);
        }
        let batch_bytes = context.batch_bytes(&self.config);
        let batch_due = self.sweep.batch_due(context.now_ns, batch_bytes);
        match (self.phase, batch_due) {
            (Phase::Closed { at_ns, small_bytes }, batch_due) => match (small_bytes, batch_due) {
                (Some(_), _) if self.place.over_budget => (context.now_ns, Reason::Budget),
                (Some(_), _) => (at_ns.saturating_add(GRACE_NS), Reason::Close),
                (None, Some(due)) => due,
                (None, None) => (context.now_ns, Reason::Close),
            },
            (_, Some(due)) => due,
            (_, None) => (self.sweep.age_due_ns(), Reason::Age),
        }
    }

    /// Starts the task: what is answered next is its result.
    ///
    /// Whatever the answer is, and even without one, the same task is not due again at once.
    pub(crate) fn begin(&mut self, context: &Context, stream: StreamId, task: Task) -> Action {
        self.inspection.worked = task != Task::Inspect;
        match task {
            Task::StartWriteback(reason) => {
                self.sent_since_drop = true;
                let request = self.take_request(context, reason);
                let request = request.unwrap_or(Request::whole(ByteRange::default(), reason));
                Action::StartWriteback {
                    stream,
                    range: request.range,
                    bytes: request.bytes,
                    reason: request.reason,
                }
            }
            Task::CountAsked => {
                self.counting_lazy = false;
                let range = self.requests.begin_count(context);
                Action::Count { stream, range }
            }
            Task::CountLazy => {
                self.counting_lazy = true;
                let range = self.lazy.begin_count(context.now_ns);
                Action::Count { stream, range }
            }
            Task::Drop => {
                self.sent_since_drop = false;
                let flush = self.is_awaited();
                let ranges = self.planner.take(context.now_ns, flush, STEP_BYTES);
                Action::Drop { stream, ranges }
            }
            Task::Forget => {
                self.phase = Phase::Forgotten;
                self.ownership.leave_all();
                Action::Forget { stream }
            }
            Task::Inspect => {
                self.inspection.at_ns = Some(context.now_ns);
                Action::Inspect { stream }
            }
        }
    }

    /// The next request, which is under way from now on.
    fn take_request(&mut self, context: &Context, reason: Reason) -> Option<Request> {
        let request_bytes = context.next_request_bytes(&self.config);
        let to_send = self.requests.take_to_send(request_bytes);
        let request = match to_send {
            Some(request) => request,
            None => {
                let batch_bytes = context.batch_bytes(&self.config);
                let now_ns = context.now_ns;
                let taken = self
                    .sweep
                    .take(now_ns, request_bytes, batch_bytes, reason)?;
                if self.sweep.is_empty() {
                    self.phase.end_grace();
                }
                taken
            }
        };
        self.writeback_bytes[request.reason] += request.bytes;
        self.submit_bytes = self.submit_bytes.saturating_sub(request.bytes);
        self.requests.ask(context, request);
        Some(request)
    }
}
