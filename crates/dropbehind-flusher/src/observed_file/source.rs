//! A disk thread's state for an observed file.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};

use dropbehind_linux::{Description, KernelInode, file_stat};
use dropbehind_policy::{ByteRange, Counted, Disk, ObservedStream, Pages, Stats};

use super::mailbox::Mailbox;
use super::{BrakePlace, Notice, NoticeSink, ObservedState};
use crate::arrivals::{Arrivals, ReportedTrace};
use crate::failed_writeback::WritebackSign;
use crate::{lock, residency};
use dropbehind_linux::processor_time;

/// A disk thread's state for an observed file.
#[derive(Debug)]
pub(crate) struct ObservedSource {
    pub(crate) stream: ObservedStream,
    pub(crate) mailbox: Mailbox,
    pub(crate) state: Arc<Mutex<ObservedState>>,
    /// Holds the file's writers.
    pub(crate) brake: BrakePlace,
    pub(crate) writeback_sign: Option<WritebackSign>,
    pub(crate) key: u64,
    pub(crate) notices: NoticeSink,
    /// `None` without a trace.
    pub(crate) unreported: Option<Unreported>,
    /// The time under which the queue of looks has it.
    pub(crate) queued_ns: u64,
    /// The part of its pages that is included in the disk's sums.
    pub(crate) accounted: Counted,
}

/// What has entered the file's cache and was not reported: others may have brought it in.
#[derive(Debug)]
pub(crate) struct Unreported {
    trace: ReportedTrace,
    inode: KernelInode,
    arrivals: RefCell<Arrivals>,
}

impl Unreported {
    pub(super) fn new(trace: ReportedTrace, inode: KernelInode) -> Unreported {
        let arrivals = RefCell::new(trace.unreported([inode]));
        Unreported {
            trace,
            inode,
            arrivals,
        }
    }
}

impl ObservedSource {
    /// Returns whether nothing is left to do and no search is under way.
    pub(crate) fn is_settled(&self, disk: &Disk) -> bool {
        let stream = disk.stream(self.stream.id());
        !self.stream.is_searching() && stream.is_none_or(|stream| stream.is_settled())
    }

    /// Publishes the file's state.
    pub(crate) fn publish(&self, counters: Stats) {
        let brake = self.brake.get().and_then(Option::as_ref);
        let waits = brake.map(|brake| brake.waits()).unwrap_or_default();
        *lock(&self.state) = ObservedState {
            counts: self.stream.counts(),
            counters: self.stream.counters_of(counters),
            waits,
        };
    }

    /// Begins a drop. Returns false if there are reports to read before that: they may change
    /// whose the pages are.
    pub(crate) fn begin_drop(&mut self) -> bool {
        let Some(unreported) = &mut self.unreported else {
            return true;
        };
        // The mailbox is read after this, so that nothing falls between the two.
        unreported.arrivals = RefCell::new(unreported.trace.unreported([unreported.inode]));
        self.mailbox.is_empty()
    }

    /// What of these cached parts may be dropped now.
    pub(crate) fn droppable(&self, cached: &[ByteRange]) -> Vec<ByteRange> {
        match &self.unreported {
            None => cached.to_vec(),
            Some(unreported) => {
                let mut arrivals = unreported.arrivals.borrow_mut();
                arrivals.without(unreported.inode, cached)
            }
        }
    }

    /// Tells the observer that the stream has ended.
    pub(crate) fn finish(self, description: &Description) {
        let mut state = *lock(&self.state);
        state.counts = self.stream.final_counts();
        if let Some(brake) = self.brake.get_or_init(|| None) {
            brake.stop();
            state.waits = brake.waits();
        }
        let all = residency::whole(state.counts.size_bytes);
        let counted = description.open().and_then(|file| {
            // A deleted file's cached pages go when its last description is closed.
            match file_stat(file.as_fd())?.links {
                0 => Ok(Counted::default()),
                _ => residency::count_observed(file.as_fd(), all),
            }
        });
        // If that cannot be known now, what the last look found stands.
        if let Ok(counted) = counted {
            state.counts.counted = counted;
        }
        *lock(&self.state) = state;
        self.notices.tell(Notice::Finished {
            key: self.key,
            state: Box::new(state),
        });
    }
}

/// The pages of an observed file, through its description.
pub(crate) struct DescriptionPages<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    /// Whether cachestat(2) sees them.
    pub(crate) seen: bool,
    pub(crate) now_ns: &'a dyn Fn() -> u64,
}

impl Pages for DescriptionPages<'_> {
    fn size_bytes(&self) -> Option<u64> {
        dropbehind_linux::size_bytes(self.fd).ok()
    }

    fn count(&self, range: ByteRange) -> Option<Counted> {
        match self.seen {
            true => residency::count_seen(self.fd, range).ok(),
            false => residency::count_observed(self.fd, range).ok(),
        }
    }

    fn is_deleted(&self) -> bool {
        file_stat(self.fd).is_ok_and(|stat| stat.links == 0)
    }

    fn now_ns(&self) -> u64 {
        (self.now_ns)()
    }

    fn processor_ns(&self) -> u64 {
        u64::try_from(processor_time().as_nanos()).unwrap_or(u64::MAX)
    }
}
