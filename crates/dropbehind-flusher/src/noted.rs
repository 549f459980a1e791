//! Pages noted before the trace is read, so that only these are dropped afterwards.

use std::io;
use std::os::fd::BorrowedFd;

use dropbehind_linux::resident_in_ranges;
use dropbehind_policy::{ByteRange, RangeSet};

use crate::residency;

/// The pages of some ranges that were cached before the trace was read.
///
/// The kernel traces a folio before it is up to date. So whoever has read the trace since knows
/// who brought in the pages that were up to date before. A folio that was not is still being
/// read, and then it is locked and cannot be dropped; or only some of its blocks were ever
/// written.
#[derive(Debug, Default)]
pub struct Noted {
    up_to_date: RangeSet,
    /// Ranges of which more was cached than that.
    partial: RangeSet,
}

impl Noted {
    /// Notes what is cached of the ranges.
    ///
    /// # Errors
    /// Those of mincore and cachestat.
    pub fn of(fd: BorrowedFd<'_>, ranges: &[ByteRange]) -> io::Result<Noted> {
        let up_to_date = up_to_date(fd, ranges)?;
        let mut partial = RangeSet::new();
        for range in ranges {
            let bytes = up_to_date.bytes_of(*range);
            if bytes < range.len() && residency::cached_bytes(fd, *range)? > bytes {
                partial.insert(*range);
            }
        }
        Ok(Noted {
            up_to_date,
            partial,
        })
    }

    /// What of `range` may be dropped now.
    pub fn droppable(&self, fd: BorrowedFd<'_>, range: ByteRange) -> Vec<ByteRange> {
        if !self.partial.touches(range) {
            return self.up_to_date.overlaps_of(range).collect();
        }
        let Ok(now) = up_to_date(fd, &[range]) else {
            return Vec::new();
        };
        let mut droppable = RangeSet::new();
        droppable.insert(range);
        // Others may have read what has become up to date meanwhile.
        for new in now.iter().flat_map(|part| self.up_to_date.gaps_of(part)) {
            droppable.remove(new);
        }
        droppable.iter().collect()
    }
}

/// What is cached and up to date (mincore(2) shows no other page).
fn up_to_date(fd: BorrowedFd<'_>, ranges: &[ByteRange]) -> io::Result<RangeSet> {
    let ranges = ranges.iter().map(|range| range.start..range.end);
    let mut up_to_date = RangeSet::new();
    for part in resident_in_ranges(fd, ranges)? {
        up_to_date.insert(part.into());
    }
    Ok(up_to_date)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use dropbehind_linux::{Access, advise_access, drop_clean, page_size};
    use dropbehind_testbed::{Need, Scratch, need};

    use super::*;

    #[test]
    fn what_has_come_since_stays() {
        need!(Need::Cachestat);
        let scratch = Scratch::new().unwrap();
        let page = page_size();
        std::fs::write(scratch.file("read"), vec![1; 8 * page as usize]).unwrap();
        let file = File::open(scratch.file("read")).unwrap();
        file.sync_all().unwrap();
        let fd = file.as_fd();
        drop_clean(fd, 0, 0).unwrap();
        advise_access(fd, Access::Random).unwrap();
        let read = |number: u64| file.read_exact_at(&mut [0], number * page).unwrap();
        let pages = |start: u64, end: u64| ByteRange::new(start * page, end * page);
        read(0);
        read(5);
        let noted = Noted::of(fd, &[pages(0, 2), pages(4, 8)]).unwrap();
        read(1);
        read(6);
        assert_eq!(noted.droppable(fd, pages(0, 2)), [pages(0, 1)]);
        assert_eq!(noted.droppable(fd, pages(4, 8)), [pages(5, 6)]);
        assert_eq!(Noted::default().droppable(fd, pages(0, 8)), []);
    }
}
