//! What has entered the page cache since a moment, for threads that do not read the trace.

use super::{HEAD, INODE, LOST, OWNER, PAGES, Written};
use crate::cache_trace::KernelInode;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;

/// The rings of a trace, for any thread to look into. Whoever reads the trace is not affected.
#[derive(Clone, Debug)]
pub struct TraceView(pub(super) Arc<Written>);

/// A moment in a trace.
#[derive(Clone, Debug)]
pub struct ArrivalMark {
    rings: Vec<Place>,
    misses: u64,
}

/// How far one ring was filled.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The number of the last run, and how much of it there was.
    run: u64,
    pages: u64,
    lost: u64,
}

impl TraceView {
    /// This moment: all that entered the cache earlier lies before the mark.
    #[must_use]
    pub fn mark(&self) -> ArrivalMark {
        let place = |ring| {
            let written = &self.0;
            let run = written.rings.word(ring, HEAD).load(Acquire).max(1) - 1;
            Place {
                run,
                pages: written.of_run(ring, run, PAGES),
                lost: written.rings.word(ring, LOST).load(Relaxed),
            }
        };
        ArrivalMark {
            rings: (0..self.0.count).map(place).collect(),
            misses: self.0.program.misses().unwrap_or(u64::MAX),
        }
    }

    /// Passes on which pages of which inode have entered the cache since the mark, and moves
    /// the mark. Folios that are still locked may be missing. Takes a microsecond, and some
    /// nanoseconds for each run.
    ///
    /// Returns false if others may have entered: records were lost, or overwritten since the
    /// mark, or the trace has ended. Then the mark is of no more use.
    #[must_use]
    pub fn arrived(
        &self,
        mark: &mut ArrivalMark,
        mut take: impl FnMut(KernelInode, Range<u64>),
    ) -> bool {
        let written = &self.0;
        for (ring, place) in mark.rings.iter_mut().enumerate() {
            // Acquire: see what was written before the head was moved.
            let head = written.rings.word(ring, HEAD).load(Acquire);
            let from = *place;
            for run in from.run..head {
                let pages = written.of_run(ring, run, PAGES);
                let seen = if run == from.run { from.pages } else { 0 };
                if pages > seen {
                    let inode = KernelInode {
                        device: written.of_run(ring, run, OWNER) as u32,
                        number: written.of_run(ring, run, INODE),
                    };
                    let first = written.of_run(ring, run, super::FIRST_PAGE);
                    take(inode, first + seen..first + pages);
                }
                (place.run, place.pages) = (run, pages);
            }
            // What was read before this was read before the head, too.
            fence(Acquire);
            let head = written.rings.word(ring, HEAD).load(Relaxed);
            // The program writes a run before it moves the head.
            let overwrites = head >= from.run + written.capacity;
            if overwrites || written.rings.word(ring, LOST).load(Relaxed) != from.lost {
                return false;
            }
        }
        written
            .program
            .misses()
            .is_ok_and(|misses| misses == mark.misses)
            && !written.ended.load(Acquire)
    }
}

#[cfg(test)]
mod tests {
    use crate::{CacheTrace, KernelDevices, page_size};
    use dropbehind_testbed::{Need, need};
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_enters_after_the_mark_has_arrived() {
        need!(Need::Root);
        let trace = CacheTrace::open(1 << 22).unwrap();
        let view = trace.view();
        let file = tempfile::tempfile_in(".").unwrap();
        let inode = KernelDevices::new().inode_of(file.as_fd()).unwrap();
        let write = |file: &File, pages: std::ops::Range<u64>| {
            for page in pages {
                file.write_all_at(&[1], page * page_size()).unwrap();
            }
        };
        let mut mark = view.mark();
        let mut arrived = || {
            let mut pages = Vec::new();
            let all = view.arrived(&mut mark, |of, range| {
                if of == inode {
                    pages.extend(range);
                }
            });
            pages.sort_unstable();
            all.then_some(pages)
        };
        assert_eq!(arrived(), Some(vec![]));
        write(&file, 0..20);
        assert_eq!(arrived(), Some((0..20).collect()));
        // These may grow a run that is known already.
        write(&file, 10..25);
        assert_eq!(arrived(), Some((20..25).collect()));
        assert_eq!(arrived(), Some(vec![]));
        drop(trace);
        assert_eq!(arrived(), None);
    }

    #[test]
    fn what_did_not_fit_may_have_arrived() {
        need!(Need::Root);
        let mut trace = CacheTrace::open(0).unwrap();
        let view = trace.view();
        let file = tempfile::tempfile_in(".").unwrap();
        // Two runs fit, and the last is the one that is known.
        for reads in [false, true] {
            let mut mark = view.mark();
            for page in 0..8 {
                let offset = 2 * page_size() * (page + 8 * u64::from(reads));
                file.write_all_at(&[1], offset).unwrap();
                if reads {
                    trace.gather(|_, _| {});
                }
            }
            assert!(!view.arrived(&mut mark, |_, _| {}), "{reads}");
        }
    }
}
