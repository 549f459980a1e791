//! What enters the cache between the note of a file's pages and their drop.

use std::collections::HashMap;

use dropbehind_linux::{ArrivalMark, KernelInode, TraceView, page_size};
use dropbehind_policy::{ByteRange, RangeSet};

/// What has entered the cache of some files since their pages were noted. Others may have
/// brought it in, in place of what was noted and has been evicted since.
#[derive(Debug)]
pub struct Arrivals {
    view: TraceView,
    mark: ArrivalMark,
    pages: HashMap<KernelInode, RangeSet>,
    /// All that could have arrived is known.
    complete: bool,
}

impl Arrivals {
    /// Begins now, which must be after the pages were noted and before the observer is asked
    /// who brought them in: it knows of all that came before.
    #[must_use]
    pub fn of(view: &TraceView, inodes: impl IntoIterator<Item = KernelInode>) -> Arrivals {
        let none = |inode| (inode, RangeSet::new());
        Arrivals {
            view: view.clone(),
            mark: view.mark(),
            pages: inodes.into_iter().map(none).collect(),
            complete: true,
        }
    }

    /// What of these parts of a file has not arrived since.
    pub fn without(&mut self, inode: KernelInode, parts: Vec<ByteRange>) -> Vec<ByteRange> {
        let Arrivals {
            view,
            mark,
            pages,
            complete,
        } = self;
        *complete = *complete
            && view.arrived(mark, |inode, range| {
                if let Some(pages) = pages.get_mut(&inode) {
                    let bytes = |page: u64| page.saturating_mul(page_size());
                    pages.insert(ByteRange::new(bytes(range.start), bytes(range.end)));
                }
            });
        match pages.get(&inode).filter(|_| *complete) {
            Some(arrived) => {
                let parts = parts.iter();
                parts.flat_map(|part| arrived.gaps_of(*part)).collect()
            }
            None => Vec::new(),
        }
    }
}
