//! Unwritten bytes (dirty or under writeback), of one file and of all.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dropbehind_linux::{Description, file_stat, page_size};
use dropbehind_policy::ByteRange;
use dropbehind_policy::bisection::bisect;

use crate::residency;
use dropbehind_linux::processor_time;

/// After a count that takes longer than this, the next ones skip what is already written: a
/// cached gigabyte in single pages takes 10 ms.
const COSTLY: Duration = Duration::from_micros(100);
/// Costly counts of all pages take at most one part in this many of the time.
const ALL_SHARE: u32 = 25;
/// A file with less than this unwritten does not count as having a writer.
const WRITER_BYTES: u64 = 1 << 20;

/// The sum over all files of a disk whose writers may be held.
#[derive(Debug, Default)]
pub(crate) struct UnwrittenSum {
    bytes: AtomicU64,
    writers: AtomicU64,
}

impl UnwrittenSum {
    /// Updates the sums after one file's unwritten bytes went from `before` to `now`.
    pub(super) fn change(&self, before: u64, now: u64) {
        let delta = |sum: &AtomicU64, before: u64, now: u64| {
            // The difference may be negative: the addition wraps.
            sum.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        };
        delta(&self.bytes, before, now);
        let writes = |bytes| u64::from(bytes >= WRITER_BYTES);
        delta(&self.writers, writes(before), writes(now));
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many files have much unwritten.
    pub(super) fn writers(&self) -> u64 {
        self.writers.load(Ordering::Relaxed)
    }
}

/// What was found unwritten in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The range that was counted.
    pub(super) within: ByteRange,
    pub(super) bytes: u64,
}

/// Counts the unwritten bytes of one file, repeatedly.
#[derive(Debug)]
pub(super) struct UnwrittenCounter {
    pub(super) description: Arc<Description>,
    /// Everything before this was written when all pages were last counted.
    from: u64,
    /// From then on, all pages are counted again.
    all_due: Instant,
}

impl UnwrittenCounter {
    pub(super) fn new(description: Arc<Description>) -> UnwrittenCounter {
        UnwrittenCounter {
            description,
            from: 0,
            all_due: Instant::now(),
        }
    }

    /// Counts. Returns `None` for a deleted file, of which nothing needs to be written.
    pub(super) fn count(&mut self) -> Option<Found> {
        let file = self.description.open().ok()?;
        let fd = file.as_fd();
        let stat = file_stat(fd).ok().filter(|stat| stat.links > 0)?;
        let all = residency::whole(stat.size_bytes);
        let (now, before) = (Instant::now(), processor_time());
        if now >= self.all_due || self.from > all.end {
            self.from = 0;
        }
        let within = ByteRange::new(self.from, all.end);
        let bytes = unwritten_bytes(fd, within);
        let cost = processor_time() - before;
        if cost >= COSTLY && self.from == 0 {
            // The search costs as much again.
            self.all_due = now + cost * ALL_SHARE;
            self.from = place_of(fd, within, 0);
        }
        Some(Found { within, bytes })
    }
}

pub(super) fn unwritten_bytes(fd: BorrowedFd<'_>, range: ByteRange) -> u64 {
    residency::count_own(fd, range).map_or(0, |counted| counted.unwritten_bytes())
}

/// The page of a range before which there are this many unwritten bytes, or its last page if
/// there are fewer.
pub(super) fn place_of(fd: BorrowedFd<'_>, within: ByteRange, mut bytes_before: u64) -> u64 {
    let last = within.end.saturating_sub(page_size()).max(within.start);
    let searched = bisect(within, page_size(), &mut |part| {
        let bytes = unwritten_bytes(fd, part);
        if bytes <= bytes_before {
            bytes_before -= bytes;
            return Ok(false);
        }
        match part.len() <= page_size() {
            true => Err(part.start),
            false => Ok(true),
        }
    });
    searched.err().unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use dropbehind_testbed::Scratch;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn write(file: &File, start: u64, bytes: u64) {
        file.write_all_at(&vec![1; bytes as usize], start).unwrap();
    }

    #[test]
    fn what_was_written_long_ago_is_not_counted_each_time() {
        let scratch = Scratch::new().unwrap();
        let file = File::create_new(scratch.file("large")).unwrap();
        write(&file, 0, 4 * MIB + 100);
        file.sync_all().unwrap();
        let description = File::open(scratch.file("large")).unwrap();
        let mut counter = UnwrittenCounter::new(Arc::new(Description::held(description.into())));
        let hour = Duration::from_secs(3600);
        (counter.from, counter.all_due) = (4 * MIB, Instant::now() + hour);
        // A page that need not be looked at, and the page in which the file ended.
        write(&file, MIB, page_size());
        write(&file, 4 * MIB + 100, 100);
        let end = counter.count().unwrap();
        assert_eq!(end.within.start, 4 * MIB);
        assert!(end.bytes >= page_size());
        // Later, all pages are counted.
        counter.all_due = Instant::now();
        let all = counter.count().unwrap();
        assert_eq!(all.within.start, 0);
        assert!(all.bytes >= end.bytes + page_size());
        // And after the file was truncated.
        (counter.from, counter.all_due) = (4 * MIB, Instant::now() + hour);
        file.set_len(3 * MIB).unwrap();
        let shorter = counter.count().unwrap();
        assert_eq!(shorter.within.start, 0);
        assert!(shorter.bytes >= page_size());
    }

    #[test]
    fn a_deleted_file_has_nothing_to_be_written() {
        let scratch = Scratch::new().unwrap();
        let file = File::create_new(scratch.file("deleted")).unwrap();
        write(&file, 0, MIB);
        let description = File::open(scratch.file("deleted")).unwrap();
        let mut counter = UnwrittenCounter::new(Arc::new(Description::held(description.into())));
        assert!(counter.count().is_some());
        std::fs::remove_file(scratch.file("deleted")).unwrap();
        assert_eq!(counter.count(), None);
    }

    #[test]
    fn a_sum_goes_up_and_down() {
        let sum = UnwrittenSum::default();
        sum.change(0, 5 * MIB);
        sum.change(0, 100);
        sum.change(5 * MIB, 3 * MIB);
        assert_eq!((sum.bytes(), sum.writers()), (3 * MIB + 100, 1));
        sum.change(3 * MIB, 0);
        assert_eq!((sum.bytes(), sum.writers()), (100, 0));
    }
}
