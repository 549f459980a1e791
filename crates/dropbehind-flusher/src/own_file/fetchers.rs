//! Threads that read ahead in large folios.
//!
//! [`LargeRead`] returns only when the disk has answered, so a thread other than the reader
//! has to wait for it. A disk's threads start when there is something to read ahead, and end
//! after a while without work.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use dropbehind_linux::LargeRead;

use crate::keeper::spawn;
use crate::lock;

/// Threads for each disk, and so how many huge pages are read at once. One is enough for a
/// local disk; others have a longer way.
const THREADS: usize = 4;
/// A thread ends after this long without work.
const IDLE: Duration = Duration::from_secs(1);
/// With at most this many page faults, the page came as a large folio. Pages that are mapped
/// 16 at a time (`fault_around_bytes`) take 32.
const LARGE_FAULTS: u64 = 16;

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// The data came in one large folio, or nearly.
    Large,
    /// The data came in single pages.
    Small,
    /// The data did not come.
    Failed,
}

/// A read under way.
#[derive(Debug)]
pub(crate) struct Fetch {
    outcome: Mutex<Option<Fetched>>,
    done: Condvar,
}

impl Fetch {
    /// Waits for the end of the read.
    pub(crate) fn wait(&self) -> Fetched {
        self.wait_or(|| ())
    }

    /// Waits for the end of the read. If it failed, calls `instead`, once and before any
    /// other waiter goes on.
    pub(crate) fn wait_or(&self, instead: impl FnOnce()) -> Fetched {
        let mut outcome = lock(&self.outcome);
        loop {
            match *outcome {
                Some(Fetched::Failed) => {
                    instead();
                    *outcome = Some(Fetched::Small);
                    return Fetched::Failed;
                }
                Some(fetched) => return fetched,
                None => {}
            }
            outcome = self
                .done
                .wait(outcome)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns whether the read has ended.
    pub(crate) fn is_done(&self) -> bool {
        lock(&self.outcome).is_some()
    }

    fn finish(&self, fetched: Fetched) {
        *lock(&self.outcome) = Some(fetched);
        self.done.notify_all();
    }
}

#[derive(Debug)]
struct Job {
    read: LargeRead,
    fetch: Arc<Fetch>,
}

impl Job {
    fn run(self) {
        let fetched = match self.read.read() {
            Ok(faults) if faults <= LARGE_FAULTS => Fetched::Large,
            Ok(_) => Fetched::Small,
            Err(_) => Fetched::Failed,
        };
        // Unmaps first, since mapped pages cannot be dropped.
        drop(self.read);
        self.fetch.finish(fetched);
    }
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

/// A disk's threads, and their jobs.
#[derive(Debug, Default)]
pub(crate) struct Fetchers {
    queue: Mutex<Queue>,
    work: Condvar,
}

impl Fetchers {
    /// Reads in another thread; `None` if none can be started.
    pub(crate) fn start(self: &Arc<Self>, read: LargeRead) -> Option<Arc<Fetch>> {
        let fetch = Arc::new(Fetch {
            outcome: Mutex::new(None),
            done: Condvar::new(),
        });
        let mut queue = lock(&self.queue);
        queue.jobs.push_back(Job {
            read,
            fetch: Arc::clone(&fetch),
        });
        if queue.jobs.len() > queue.idle && queue.threads < THREADS {
            let own = Arc::clone(self);
            match spawn("dropbehind-read", move || own.serve()) {
                Ok(()) => queue.threads += 1,
                Err(_) if queue.threads == 0 => {
                    queue.jobs.pop_back();
                    return None;
                }
                Err(_) => {}
            }
        }
        drop(queue);
        self.work.notify_one();
        Some(fetch)
    }

    fn serve(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job.run();
                queue = lock(&self.queue);
                continue;
            }
            queue.idle += 1;
            let (woken, timeout) = self
                .work
                .wait_timeout(queue, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            queue.idle -= 1;
            if timeout.timed_out() && queue.jobs.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }
}
