//! When requests are answered.
//!
//! The disk transfers one request at a time, in order of arrival, at the
//! speed of its kind; after its transfer a request waits for its latency, side
//! by side with others. Both are recomputed when settings change, so that a
//! disk that hangs goes on where it was.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::clock::now_ns;
use crate::request::Request;
use crate::settings::DiskSettings;

/// Sends an answer: success, or EIO.
pub(crate) type Answer = Box<dyn FnOnce(bool) + Send>;

pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    settings: DiskSettings,
    /// In order of arrival; the first is being transferred.
    waiting: VecDeque<Waiting>,
    /// Transferred, and waiting for their latency.
    transferred: VecDeque<Transferred>,
    /// Up to when the disk's work has been accounted for.
    worked_until_ns: u64,
    record: Vec<Request>,
}

struct Waiting {
    request: Request,
    bytes_left: f64,
    answer: Answer,
}

struct Transferred {
    request: Request,
    at_ns: u64,
    answer: Answer,
}

impl Queue {
    /// An empty queue and the thread that empties it.
    pub(crate) fn start() -> io::Result<Arc<Self>> {
        let queue = Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let worker = Arc::clone(&queue);
        thread::Builder::new()
            .name("disk".to_owned())
            .spawn(move || worker.work())?;
        Ok(queue)
    }

    /// Takes a request that just arrived. `accepted` is told whether it will
    /// succeed before anyone else's request is taken, and makes its answer.
    pub(crate) fn submit(&self, mut request: Request, accepted: impl FnOnce(bool) -> Answer) {
        let mut state = self.lock();
        request.failed = state.settings.fails(&request);
        let answer = accepted(!request.failed);
        let bytes_left = request.length as f64;
        state.waiting.push_back(Waiting {
            request,
            bytes_left,
            answer,
        });
        // A fast disk answers here, without a detour through the other thread.
        let due = state.take_due(now_ns());
        let more = state.next_due_ns().is_some();
        drop(state);
        send(due);
        if more {
            self.changed.notify_one();
        }
    }

    /// Changes settings, from this moment on.
    pub(crate) fn change(&self, change: impl FnOnce(&mut DiskSettings)) {
        let mut state = self.lock();
        state.work_until(now_ns());
        change(&mut state.settings);
        if state.settings.vanished {
            state.fail_all();
        }
        drop(state);
        self.changed.notify_one();
    }

    /// All requests, in order of arrival.
    pub(crate) fn record(&self) -> Vec<Request> {
        let state = self.lock();
        let transferred = state.transferred.iter().map(|one| &one.request);
        let waiting = state.waiting.iter().map(|one| &one.request);
        let mut all: Vec<_> = state
            .record
            .iter()
            .chain(transferred)
            .chain(waiting)
            .cloned()
            .collect();
        all.sort_by_key(|request| request.arrived_ns);
        all
    }

    pub(crate) fn forget(&self) {
        self.lock().record.clear();
    }

    fn work(&self) -> ! {
        let mut state = self.lock();
        loop {
            let now = now_ns();
            let due = state.take_due(now);
            if !due.is_empty() {
                drop(state);
                send(due);
                state = self.lock();
                continue;
            }
            let pause = state.next_due_ns().map_or(Duration::MAX, |due| {
                Duration::from_nanos(due.saturating_sub(now).max(1))
            });
            // Long enough for no one to notice, short enough for the clock.
            let pause = pause.min(Duration::from_secs(3600));
            state = self
                .changed
                .wait_timeout(state, pause)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Lets the disk work up to now.
    fn work_until(&mut self, now: u64) {
        while let Some(first) = self.waiting.front_mut() {
            let start = self.worked_until_ns.max(first.request.arrived_ns);
            let needed = self
                .settings
                .transfer_ns(first.request.kind, first.bytes_left);
            let available = now.saturating_sub(start) as f64;
            match needed {
                Some(needed) if needed <= available => {
                    self.worked_until_ns = start + needed as u64;
                    if let Some(Waiting {
                        request, answer, ..
                    }) = self.waiting.pop_front()
                    {
                        let at_ns = self.worked_until_ns;
                        self.transferred.push_back(Transferred {
                            request,
                            at_ns,
                            answer,
                        });
                    }
                }
                _ => {
                    if let Some(needed) = needed {
                        first.bytes_left *= 1.0 - available / needed;
                    }
                    self.worked_until_ns = start.max(now);
                    return;
                }
            }
        }
    }

    fn take_due(&mut self, now: u64) -> Vec<(Answer, bool)> {
        self.work_until(now);
        let mut due = Vec::new();
        let latency = self.settings.latency_ns();
        while self
            .transferred
            .front()
            .is_some_and(|one| one.at_ns.saturating_add(latency) <= now)
        {
            let Some(Transferred {
                mut request,
                answer,
                ..
            }) = self.transferred.pop_front()
            else {
                break;
            };
            request.answered_ns = Some(now);
            due.push((answer, !request.failed));
            self.record.push(request);
        }
        due
    }

    /// When there will be something to do; `None` if only a request or an
    /// order can change anything.
    fn next_due_ns(&self) -> Option<u64> {
        let latency = self.settings.latency_ns();
        let answer = self
            .transferred
            .front()
            .map(|one| one.at_ns.saturating_add(latency));
        let transfer = self.waiting.front().and_then(|one| {
            let needed = self
                .settings
                .transfer_ns(one.request.kind, one.bytes_left)?;
            Some(self.worked_until_ns.max(one.request.arrived_ns) + needed.ceil() as u64)
        });
        answer.into_iter().chain(transfer).min()
    }

    fn fail_all(&mut self) {
        let waiting = self.waiting.iter_mut().map(|one| &mut one.request);
        let transferred = self.transferred.iter_mut().map(|one| &mut one.request);
        waiting
            .chain(transferred)
            .for_each(|request| request.failed = true);
    }
}

fn send(due: Vec<(Answer, bool)>) {
    for (answer, success) in due {
        answer(success);
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::RequestKind;
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn arrive(state: &mut State, arrived_ns: u64, length: u64) {
        let request = Request {
            kind: RequestKind::Write,
            offset: 0,
            length,
            arrived_ns,
            answered_ns: None,
            failed: false,
        };
        let answer: Answer = Box::new(|_| ());
        state.waiting.push_back(Waiting {
            request,
            bytes_left: length as f64,
            answer,
        });
    }

    fn answered(state: &mut State, now: u64) -> usize {
        state.take_due(now).len()
    }

    #[test]
    fn transfers_queue_and_latencies_overlap() {
        let mut state = State::default();
        state.settings.write_bytes_per_second = Some(1000);
        state.settings.latency = Duration::from_secs(10);
        arrive(&mut state, 0, 1000);
        arrive(&mut state, 0, 2000);
        assert_eq!(answered(&mut state, 10 * SECOND), 0);
        assert_eq!(state.next_due_ns(), Some(11 * SECOND));
        assert_eq!(answered(&mut state, 11 * SECOND), 1);
        assert_eq!(answered(&mut state, 12 * SECOND), 0);
        assert_eq!(answered(&mut state, 13 * SECOND), 1);
        assert_eq!(state.next_due_ns(), None);
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut state = State::default();
        state.settings.write_bytes_per_second = Some(1000);
        arrive(&mut state, 100 * SECOND, 1000);
        assert_eq!(answered(&mut state, 100 * SECOND), 0);
        assert_eq!(answered(&mut state, 101 * SECOND), 1);
    }

    #[test]
    fn a_change_of_speed_keeps_what_was_done() {
        let mut state = State::default();
        state.settings.write_bytes_per_second = Some(1000);
        arrive(&mut state, 0, 4000);
        state.work_until(2 * SECOND);
        state.settings.write_bytes_per_second = Some(0);
        assert_eq!(answered(&mut state, 50 * SECOND), 0);
        assert_eq!(state.next_due_ns(), None);
        state.settings.write_bytes_per_second = Some(2000);
        assert_eq!(answered(&mut state, 51 * SECOND - 1000), 0);
        assert_eq!(answered(&mut state, 51 * SECOND + 1000), 1);
    }

    #[test]
    fn a_vanished_disk_answers_what_waits() {
        let mut state = State::default();
        state.settings.write_bytes_per_second = Some(0);
        arrive(&mut state, 0, 4000);
        assert_eq!(answered(&mut state, SECOND), 0);
        state.settings.vanished = true;
        state.fail_all();
        let due = state.take_due(SECOND);
        assert!(matches!(due[..], [(_, false)]));
    }
}
