//! What is in the page cache, found in the cheapest way that is exact.

use std::io;
use std::os::fd::BorrowedFd;

use dropbehind_linux::{
    CacheStat, cached_pages, cachestat, count_own_pages, drop_clean, page_size, resident_ranges,
};
use dropbehind_policy::bisection::bisect;
use dropbehind_policy::residency::ResidencyMap;
use dropbehind_policy::{ByteRange, Counted, Dropped, RangeSet};

/// A range up to this long is mapped with mincore at once (one byte per page). Longer ones
/// are first halved with cachestat, which skips empty parts: on a sparse file of 2 TB, 9 ms
/// instead of 37 s.
const MAP_BYTES: u64 = 64 << 20;
/// The most counts used to find single pages in such a range; a thousand take less than a
/// millisecond.
const COUNTS: u32 = 4096;
/// The precision where single pages don't matter.
const PIECE_BYTES: u64 = 1 << 20;
/// Ranges lost to a full ring are found again with maps of this much: some ten calls, instead
/// of the thirty that halving down to pieces takes.
const LOST_BYTES: u64 = 16 << 20;

/// Counts a range through any description.
///
/// # Errors
/// Those of [`dropbehind_linux::count_pages`]; `ENOSYS` before Linux 6.5.
pub fn count(fd: BorrowedFd<'_>, range: ByteRange) -> io::Result<Counted> {
    count_by(dropbehind_linux::count_pages, fd, range)
}

/// Counts a range of a file whose pages [`cachestat()`] sees.
///
/// # Errors
/// Those of [`cachestat()`].
pub fn count_seen(fd: BorrowedFd<'_>, range: ByteRange) -> io::Result<Counted> {
    count_by(cachestat, fd, range)
}

/// Counts a range through a description of our own, on all kernels.
///
/// # Errors
/// Those of [`count_own_pages`]; `ENOSYS` where only the cached pages can be counted.
pub fn count_own(fd: BorrowedFd<'_>, range: ByteRange) -> io::Result<Counted> {
    count_by(count_own_pages, fd, range)
}

/// Counts a range of an observed file, through a description of our own. Where it cannot be
/// told which pages are to be written, none counts as such: a drop starts their writeback and
/// leaves them, and is tried again.
///
/// # Errors
/// Those of [`count_own`] but `ENOSYS`.
pub fn count_observed(fd: BorrowedFd<'_>, range: ByteRange) -> io::Result<Counted> {
    match count_own(fd, range) {
        Err(error) if is_missing(&error) => Ok(Counted {
            cached_bytes: cached_bytes(fd, range)?,
            ..Counted::default()
        }),
        counted => counted,
    }
}

/// Returns whether [`count_own`] can tell what is still to be written.
pub fn tells_unwritten(fd: BorrowedFd<'_>, range: ByteRange) -> bool {
    !count_own(fd, range).is_err_and(|error| is_missing(&error))
}

/// The cached bytes of a range, on all kernels, through any description.
///
/// # Errors
/// Those of [`cached_pages`].
pub fn cached_bytes(fd: BorrowedFd<'_>, range: ByteRange) -> io::Result<u64> {
    if range.is_empty() {
        return Ok(0);
    }
    Ok(cached_pages(fd, range.start, range.len())? * page_size())
}

/// The cached bytes of several ranges.
///
/// # Errors
/// Those of [`cached_bytes`].
pub fn cached_bytes_of(fd: BorrowedFd<'_>, ranges: &[ByteRange]) -> io::Result<u64> {
    ranges.iter().map(|range| cached_bytes(fd, *range)).sum()
}

fn count_by(
    call: impl FnOnce(BorrowedFd<'_>, u64, u64) -> io::Result<CacheStat>,
    fd: BorrowedFd<'_>,
    range: ByteRange,
) -> io::Result<Counted> {
    if range.is_empty() {
        return Ok(Counted::default());
    }
    let (pages, page_bytes) = (call(fd, range.start, range.len())?, page_size());
    Ok(Counted {
        cached_bytes: pages.cached_pages * page_bytes,
        dirty_bytes: pages.dirty_pages * page_bytes,
        writeback_bytes: pages.writeback_pages * page_bytes,
    })
}

/// All pages of a file of `size_bytes`.
pub fn whole(size_bytes: u64) -> ByteRange {
    ByteRange::new(
        0,
        size_bytes
            .checked_next_multiple_of(page_size())
            .unwrap_or(size_bytes),
    )
}

/// The cached parts of a file of `size_bytes` before any of our I/O.
///
/// What cannot be determined is unknown, and so kept. Beyond the end of the file nothing can
/// be resident.
pub fn map_of_file(fd: BorrowedFd<'_>, size_bytes: u64) -> ResidencyMap {
    let mut map = ResidencyMap::unknown();
    let inside = whole(size_bytes);
    map.truncated(inside.end);
    if let Ok(resident) = resident_in(fd, inside) {
        map.observed(inside, resident);
    }
    map
}

/// The resident parts of `range`, ascending.
///
/// # Errors
/// Those of cachestat and mincore; `EPERM` if the kernel does not report residency to us.
pub fn resident_in(fd: BorrowedFd<'_>, range: ByteRange) -> io::Result<Vec<ByteRange>> {
    let mut found = Vec::new();
    descend(fd, range, MAP_BYTES, &mut |part, whole| {
        if whole {
            found.push(part);
            return Ok(());
        }
        map_part(fd, part, &mut found)
    })?;
    Ok(found)
}

/// The parts of `range` that are not resident, ascending. If that is unknown, there are none:
/// nothing counts as ours, and all is kept.
pub(crate) fn absent_in(fd: BorrowedFd<'_>, range: ByteRange) -> Vec<ByteRange> {
    let Ok(resident) = resident_in(fd, range) else {
        return Vec::new();
    };
    let resident: RangeSet = resident.into_iter().collect();
    resident.gaps_of(range).collect()
}

/// The resident pages of a range that has some, to the page.
///
/// Tries repeated halving and counting first. That needs no mapping, which would take a
/// readable descriptor and change the file's access time.
fn map_part(fd: BorrowedFd<'_>, part: ByteRange, found: &mut Vec<ByteRange>) -> io::Result<()> {
    let before = found.len();
    let mut counts = COUNTS;
    if count_pages(fd, part, &mut counts, found)? {
        return Ok(());
    }
    found.truncate(before);
    match resident_ranges(fd, part.start, part.len()) {
        Ok(ranges) => found.extend(ranges.into_iter().map(ByteRange::from)),
        Err(_) => {
            counts = u32::MAX;
            count_pages(fd, part, &mut counts, found)?;
        }
    }
    Ok(())
}

/// Halves a range down to parts that are wholly cached or not at all. Returns false if that
/// takes more than `counts`.
fn count_pages(
    fd: BorrowedFd<'_>,
    range: ByteRange,
    counts: &mut u32,
    found: &mut Vec<ByteRange>,
) -> io::Result<bool> {
    let most = *counts;
    let searched = bisect(range, page_size(), &mut |part| {
        if *counts == 0 {
            return Err(None);
        }
        *counts -= 1;
        let cached_bytes = match count(fd, part) {
            Ok(counted) => counted.cached_bytes,
            // Before 6.5, leave it to mincore.
            Err(error) if is_missing(&error) && most <= COUNTS => return Err(None),
            Err(error) => return Err(Some(error)),
        };
        let whole = cached_bytes >= part.len();
        if whole {
            found.push(part);
        }
        Ok(cached_bytes > 0 && !whole)
    });
    match searched {
        Ok(()) => Ok(true),
        Err(None) => Ok(false),
        Err(Some(error)) => Err(error),
    }
}

/// The cached parts of ranges in which `cached_bytes` were counted. Others may bring in the rest
/// at any moment, so a drop of an observed file must leave it out.
///
/// # Errors
/// Those of [`resident_in`].
pub fn cached_of(
    fd: BorrowedFd<'_>,
    ranges: &[ByteRange],
    cached_bytes: u64,
) -> io::Result<Vec<ByteRange>> {
    let is_all = cached_bytes >= ranges.iter().map(|range| range.len()).sum();
    // mincore, which is left then, does not see a page of which only some blocks were written.
    let is_unseen = || ranges.iter().any(|range| count(fd, *range).is_err());
    if is_all || is_unseen() {
        return Ok(ranges.to_vec());
    }
    // The set joins parts that touch: a folio is only dropped if it is in one of them.
    let mut parts = RangeSet::new();
    for range in ranges {
        for part in resident_in(fd, *range)? {
            parts.insert(part);
        }
    }
    Ok(parts.iter().collect())
}

/// The cached parts of `range`, exact to the page where a map can be made.
pub fn cached_parts(fd: BorrowedFd<'_>, range: ByteRange) -> Vec<ByteRange> {
    let mut parts = Vec::new();
    let asked = descend(fd, range, LOST_BYTES, &mut |part, whole| {
        if whole {
            parts.push(part);
        } else if let Some(mapped) = map_of_all(fd, part) {
            parts.extend(mapped);
        } else {
            parts.extend(cached_pieces(fd, part));
        }
        Ok(())
    });
    match asked {
        Ok(()) => parts,
        // Then all of it: starting writeback of clean pages does no harm.
        Err(_) => vec![range],
    }
}

/// The resident parts of `range`. `None` if the map lacks something that was counted, such as
/// a page of which only some blocks were written.
fn map_of_all(fd: BorrowedFd<'_>, range: ByteRange) -> Option<Vec<ByteRange>> {
    let counted_bytes = cached_bytes(fd, range).ok()?;
    let mapped = resident_ranges(fd, range.start, range.len()).ok()?;
    let mapped: Vec<ByteRange> = mapped.into_iter().map(ByteRange::from).collect();
    let mapped_bytes: u64 = mapped.iter().map(|part| part.len()).sum();
    (mapped_bytes >= counted_bytes).then_some(mapped)
}

/// Pieces of `range` in which something is cached, not exact to the page.
pub fn cached_pieces(fd: BorrowedFd<'_>, range: ByteRange) -> Vec<ByteRange> {
    let mut pieces = Vec::new();
    let asked = descend(fd, range, PIECE_BYTES, &mut |part, _| {
        pieces.push(part);
        Ok(())
    });
    match asked {
        Ok(()) => pieces,
        // Then all of it: starting writeback of clean pages does no harm.
        Err(_) => vec![range],
    }
}

/// Halves `range` until a part is empty, wholly cached, or at most `smallest_bytes` long.
/// Calls `visit` with the parts that are not empty, and whether they are wholly cached.
fn descend(
    fd: BorrowedFd<'_>,
    range: ByteRange,
    smallest_bytes: u64,
    visit: &mut impl FnMut(ByteRange, bool) -> io::Result<()>,
) -> io::Result<()> {
    bisect(range, smallest_bytes, &mut |part| {
        let last = part.len() <= smallest_bytes;
        let cached_bytes = match count(fd, part) {
            Ok(counted) => counted.cached_bytes,
            // Before 6.5, leave all of it to mincore.
            Err(error) if is_missing(&error) => {
                return if last {
                    visit(part, false).map(|()| false)
                } else {
                    Ok(true)
                };
            }
            Err(error) => return Err(error),
        };
        let whole = cached_bytes == part.len();
        if cached_bytes > 0 && (whole || last) {
            visit(part, whole)?;
        }
        Ok(cached_bytes > 0 && !whole)
    })
}

fn is_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOSYS)
}

/// Drops parts of cached ranges, which were counted as clean, and counts those again. What has
/// entered the cache beside them meanwhile is not this drop's.
pub fn drop_counted(
    fd: BorrowedFd<'_>,
    cached: &[ByteRange],
    parts: &[ByteRange],
    before_bytes: u64,
    count: impl Fn(ByteRange) -> io::Result<Counted>,
) -> io::Result<Dropped> {
    drop_all(fd, parts)?;
    let counts = cached.iter().map(|part| Ok(count(*part)?.cached_bytes));
    Ok(Dropped::Tried {
        before_bytes: Some(before_bytes),
        after_bytes: counts.sum::<io::Result<u64>>()?,
    })
}

fn drop_all(fd: BorrowedFd<'_>, parts: &[ByteRange]) -> io::Result<()> {
    let mut parts = parts.iter();
    parts.try_for_each(|part| drop_clean(fd, part.start, part.len()))
}

/// Drops the parts of a range that is believed to be clean, and counts only afterwards. Pages
/// that are dirty after all get written back.
pub fn drop_short(
    fd: BorrowedFd<'_>,
    parts: &[ByteRange],
    count: impl FnOnce() -> io::Result<Counted>,
) -> io::Result<Dropped> {
    drop_all(fd, parts)?;
    let after = count()?;
    if after.unwritten_bytes() > 0 {
        return Ok(Dropped::NotClean);
    }
    Ok(Dropped::Tried {
        before_bytes: None,
        after_bytes: after.cached_bytes,
    })
}

/// The same for short ranges in one span, of a file whose pages [`cachestat()`] sees: if nothing of
/// the span is cached then, a single count shows that all are gone.
pub fn drop_short_run(
    fd: BorrowedFd<'_>,
    span: ByteRange,
    ranges: &[ByteRange],
) -> io::Result<Vec<(ByteRange, Dropped)>> {
    drop_all(fd, ranges)?;
    let all_gone = count_seen(fd, span)?.cached_bytes == 0;
    let outcome = |range: &ByteRange| {
        let count = || match all_gone {
            true => Ok(Counted::default()),
            false => count_seen(fd, *range),
        };
        Ok((*range, drop_short(fd, &[], count)?))
    };
    ranges.iter().map(outcome).collect()
}

/// Drops parts of cached ranges where it cannot be told whether their pages are clean, only that
/// they were waited for.
pub fn drop_mapped(
    fd: BorrowedFd<'_>,
    cached: &[ByteRange],
    parts: &[ByteRange],
) -> io::Result<Dropped> {
    let before_bytes = cached_bytes_of(fd, cached)?;
    drop_all(fd, parts)?;
    Ok(Dropped::Tried {
        before_bytes: Some(before_bytes),
        after_bytes: cached_bytes_of(fd, cached)?,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use dropbehind_testbed::{Need, Scratch, need};

    use super::*;

    #[test]
    fn what_is_cached_of_a_range_is_found_without_its_gaps() {
        let scratch = Scratch::new().unwrap();
        let file = File::create_new(scratch.file("strides")).unwrap();
        let page_bytes = page_size();
        // Partly cached, not cached at all, and wholly cached.
        let (strided, empty) = (LOST_BYTES + PIECE_BYTES, 2 * LOST_BYTES);
        let mut written: Vec<ByteRange> = (0..strided)
            .step_by(3 * page_bytes as usize)
            .map(|start| ByteRange::new(start, start + page_bytes))
            .collect();
        let start = (strided + empty).next_multiple_of(LOST_BYTES);
        written.push(ByteRange::new(start, start + LOST_BYTES));
        for range in &written {
            let page = vec![1; range.len() as usize];
            file.write_all_at(&page, range.start).unwrap();
        }
        drop(file);
        let file = File::open(scratch.file("strides")).unwrap();
        let all = ByteRange::new(0, start + LOST_BYTES);
        assert_eq!(cached_parts(file.as_fd(), all), written);
    }

    #[test]
    fn what_is_cached_of_a_file_of_unknown_size_is_others() {
        let scratch = Scratch::new().unwrap();
        let file = File::create_new(scratch.file("unsized")).unwrap();
        file.write_all_at(&[1; 5000], 0).unwrap();
        let map = map_of_file(file.as_fd(), u64::MAX);
        assert_eq!(map.brought(ByteRange::new(0, 5000)).next(), None);
    }

    /// A drop passes over folios that lie in two of its parts.
    #[test]
    fn cached_parts_that_touch_are_one() {
        need!(Need::Cachestat);
        let scratch = Scratch::new().unwrap();
        let file = File::create_new(scratch.file("hole")).unwrap();
        let pages = |first: u64, end: u64| ByteRange::new(first * page_size(), end * page_size());
        let written = pages(1, 8);
        let bytes = vec![1; written.len() as usize];
        file.write_all_at(&bytes, written.start).unwrap();
        let cached = cached_of(file.as_fd(), &[pages(0, 4), pages(4, 9)], written.len());
        assert_eq!(cached.unwrap(), [written]);
    }

    #[test]
    fn a_run_of_short_ranges_says_what_stays_of_each() {
        need!(Need::Cachestat);
        let scratch = Scratch::new().unwrap();
        let file = File::create_new(scratch.file("run")).unwrap();
        let page = |page: u64| ByteRange::new(page * page_size(), (page + 1) * page_size());
        let write = |range: ByteRange| {
            let bytes = vec![1; range.len() as usize];
            file.write_all_at(&bytes, range.start).unwrap();
        };
        let ranges = [page(0), page(2), page(6)];
        let span = ByteRange::new(0, ranges[2].end);
        let others = page(4);
        for range in ranges.into_iter().chain([others]) {
            write(range);
        }
        file.sync_all().unwrap();
        write(ranges[1]);
        let dropped = drop_short_run(file.as_fd(), span, &ranges).unwrap();
        let gone = Dropped::Tried {
            before_bytes: None,
            after_bytes: 0,
        };
        assert_eq!(
            (dropped[0], dropped[2]),
            ((ranges[0], gone), (ranges[2], gone))
        );
        // The second is being written, or its writeback has ended by now.
        assert_ne!(dropped[1].1, gone);
        assert_eq!(
            count_seen(file.as_fd(), others).unwrap().cached_bytes,
            page_size()
        );
    }
}
