//! What enters the cache before it is reported, and so must not be dropped yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use dropbehind_linux::{ArrivalMark, KernelInode, TraceView, page_size};
use dropbehind_policy::{ByteRange, RangeSet};

use crate::lock;

/// The trace, and how far the observer has reported it.
#[derive(Clone, Debug)]
pub struct ReportedTrace {
    view: TraceView,
    /// All that came earlier was reported. `None` before the first report.
    reported: Arc<Mutex<Option<ArrivalMark>>>,
}

impl ReportedTrace {
    /// Nothing has been reported so far.
    #[must_use]
    pub fn new(view: TraceView) -> ReportedTrace {
        let reported = Arc::default();
        ReportedTrace { view, reported }
    }

    /// The place that the trace has reached now.
    #[must_use]
    pub fn mark(&self) -> ArrivalMark {
        self.view.mark()
    }

    /// [`Observed::brought`](crate::Observed::brought) has reported all that entered the cache
    /// before this mark.
    pub fn reported_until(&self, mark: ArrivalMark) {
        *lock(&self.reported) = Some(mark);
    }

    /// What enters the cache of these files without being reported yet. Whoever asks must read
    /// the reports after this call, so that nothing falls between the two.
    #[must_use]
    pub fn unreported(&self, inodes: impl IntoIterator<Item = KernelInode>) -> Arrivals {
        let none = |inode| (inode, RangeSet::new());
        Arrivals {
            view: self.view.clone(),
            mark: lock(&self.reported).clone(),
            pages: inodes.into_iter().map(none).collect(),
        }
    }
}

/// What enters the cache of some files from some moment on. Others may have brought it in,
/// perhaps in place of pages of ours that were evicted.
#[derive(Debug)]
pub struct Arrivals {
    view: TraceView,
    /// `None` once more than what is known here may have entered the cache.
    mark: Option<ArrivalMark>,
    pages: HashMap<KernelInode, RangeSet>,
}

impl Arrivals {
    /// What of these parts of a file has not arrived by now.
    pub fn without(&mut self, inode: KernelInode, parts: &[ByteRange]) -> Vec<ByteRange> {
        let Arrivals { view, mark, pages } = self;
        let Some(place) = mark else {
            return Vec::new();
        };
        let all_known = view.arrived(place, |inode, range| {
            if let Some(pages) = pages.get_mut(&inode) {
                let bytes = |page: u64| page.saturating_mul(page_size());
                pages.insert(ByteRange::new(bytes(range.start), bytes(range.end)));
            }
        });
        match pages.get(&inode).filter(|_| all_known) {
            Some(arrived) => {
                let parts = parts.iter();
                parts.flat_map(|part| arrived.gaps_of(*part)).collect()
            }
            None => {
                *mark = None;
                Vec::new()
            }
        }
    }
}
