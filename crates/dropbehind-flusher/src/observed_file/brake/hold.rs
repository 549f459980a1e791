//! Holds the writers of a file by reading what they have written.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dropbehind_linux::{DirectReader, monotonic_ns, page_size, processor_time};
use dropbehind_policy::ByteRange;
use dropbehind_policy::brake::COUNT_MIN_NS;

use super::apart::ReaderApart;
use super::{Brake, pause};
use crate::lock;
use crate::observed_file::unwritten::{Found, place_of, unwritten_bytes};

/// The most that one read waits for. A writer that is killed or stopped waits no longer than
/// the disk takes for this much.
const STEP_BYTES: u64 = 8 << 20;
/// The search for it goes in parts of at most this.
const PART_MAX_BYTES: u64 = DirectReader::RANGE_MAX_BYTES / 4;
/// A read that took less than this had nothing to wait for: the unwritten pages are gone, or
/// cannot be written.
const EMPTY_READ: Duration = Duration::from_micros(200);
/// After holding writers, the thread stays this long, to hold them again at once. They come
/// back within a few milliseconds, and starting a thread takes as long when all processors
/// are busy.
const STAY: Duration = Duration::from_millis(30);

/// The right to hold the writers of a file, for one thread at a time.
#[derive(Debug)]
pub(in crate::observed_file) struct Taken {
    pub(super) brake: Arc<Brake>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.brake.held.store(false, Ordering::SeqCst);
    }
}

impl Taken {
    /// Holds the writers whenever too much is unwritten, until that has not been so for a
    /// while.
    ///
    /// # Errors
    /// If they cannot be held, now or at all.
    pub(in crate::observed_file) fn hold(self) -> io::Result<()> {
        let result = self.hold_and_stay();
        if let Err(error) = &result
            && lock(&self.brake.failures).is_final(monotonic_ns(), may_pass(error))
        {
            self.brake.failed.store(true, Ordering::SeqCst);
        }
        result
    }

    fn hold_and_stay(&self) -> io::Result<()> {
        let brake = &self.brake;
        let Some(reader) = brake.reader()? else {
            return Ok(());
        };
        let mut held = Instant::now();
        while held.elapsed() < STAY {
            let before = processor_time();
            if brake.count().is_none() {
                break;
            }
            let cost = processor_time() - before;
            let load = brake.load();
            if load.is_beyond() {
                self.hold_down_to(&reader, load.release_bytes())?;
                held = Instant::now();
            } else {
                std::thread::sleep(pause(cost, load.room_ns(), load.is_near()));
            }
        }
        Ok(())
    }

    fn hold_down_to(&self, reader: &ReaderApart, release_bytes: u64) -> io::Result<()> {
        let mut length = Duration::ZERO;
        lock(&self.brake.waits).begun += 1;
        let held = self.hold_in_steps(reader, release_bytes, &mut length);
        lock(&self.brake.waits).end(length);
        held
    }

    fn hold_in_steps(
        &self,
        reader: &ReaderApart,
        release_bytes: u64,
        length: &mut Duration,
    ) -> io::Result<()> {
        let brake = &self.brake;
        let mut cursor = 0;
        while brake.is_limited()
            && let Some(mut found) = brake.count()
            && found.bytes > release_bytes
        {
            // A count visits each page that the file has in the cache. So what was read is
            // taken off, and all is counted again when enough has been read.
            while found.bytes > release_bytes && brake.is_limited() {
                let step_bytes = (found.bytes - release_bytes).clamp(page_size(), STEP_BYTES);
                let Some(next) = next(reader.as_fd(), found, cursor, step_bytes) else {
                    std::thread::sleep(Duration::from_nanos(COUNT_MIN_NS));
                    break;
                };
                cursor = next.within.end;
                let took = reader.write_range(next.within)?;
                lock(&brake.waits).add(took);
                *length += took;
                lock(&brake.failures).succeeded();
                if took < EMPTY_READ {
                    std::thread::sleep(Duration::from_nanos(COUNT_MIN_NS));
                    break;
                }
                found.bytes = found.bytes.saturating_sub(next.bytes);
            }
        }
        Ok(())
    }
}

/// `EIO` is a disk error, or a page that was written through a mapping at the wrong moment.
/// Both pass: pages that could not be written are clean afterwards, and the program's fsync
/// fails as it would have. `ENOSPC` and others would come again.
fn may_pass(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EIO | libc::ENOMEM | libc::EAGAIN | libc::EINTR | libc::EMFILE | libc::ENFILE)
    )
}

/// The next range from `cursor` on that has some `step_bytes` unwritten bytes, and how many it has;
/// `None` if nothing is unwritten any more.
///
/// Pages are mostly written in the order of their offsets, so once a range is written, what lies
/// before it is, too.
fn next(fd: BorrowedFd<'_>, found: Found, cursor: u64, step_bytes: u64) -> Option<Found> {
    let Found { within, bytes } = found;
    // If the unwritten pages are spread evenly, four parts have so much.
    let parts = 4 * u128::from(bytes.max(1));
    let len = u128::from(within.len()) * u128::from(step_bytes) / parts;
    let len = u64::try_from(len).unwrap_or(u64::MAX);
    let len = len.clamp(1, PART_MAX_BYTES).next_multiple_of(page_size());
    let start = match within.start < cursor && cursor < within.end {
        true => cursor,
        false => within.start,
    };
    let from_start = ByteRange::new(start, within.end);
    let before = ByteRange::new(within.start, start);
    next_in(fd, from_start, len, step_bytes).or_else(|| next_in(fd, before, len, step_bytes))
}

fn next_in(fd: BorrowedFd<'_>, all: ByteRange, part_bytes: u64, step_bytes: u64) -> Option<Found> {
    let mut next: Option<Found> = None;
    let (mut start, mut len) = (all.start, part_bytes);
    while start < all.end {
        let part = ByteRange::new(start, all.end.min(start.saturating_add(len)));
        let there = unwritten_bytes(fd, part);
        if there == 0 {
            // A sparse file may be empty for exabytes.
            (start, len) = (part.end, len.saturating_mul(2));
            continue;
        }
        if len > part_bytes {
            (start, len) = (place_of(fd, part, 0), part_bytes);
            continue;
        }
        let first = next.map_or(start, |next| next.within.start);
        let before = next.map_or(0, |next| next.bytes);
        if before + there > 2 * step_bytes {
            // At least a page: others may have been written between the two searches.
            let end = place_of(fd, part, step_bytes - before).max(start + page_size());
            return Some(readable(fd, first, end, step_bytes));
        }
        let so_far = readable(fd, first, part.end, before + there);
        if so_far.bytes >= step_bytes / 2 {
            return Some(so_far);
        }
        next = Some(so_far);
        start = part.end;
    }
    next
}

/// A range that a read can cover, with these unwritten bytes. Of a longer one it is the end: before
/// that, there may be a header that is written again and again.
fn readable(fd: BorrowedFd<'_>, start: u64, end: u64, bytes: u64) -> Found {
    let longest_start = end.saturating_sub(DirectReader::RANGE_MAX_BYTES);
    let within = ByteRange::new(start.max(longest_start), end);
    let bytes = match start < longest_start {
        true => unwritten_bytes(fd, within),
        false => bytes,
    };
    Found { within, bytes }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::process::Command;

    use dropbehind_linux::Description;
    use dropbehind_testbed::{Fs, MountedFs, Need, Scratch, need};

    use super::super::WriterLimit;
    use super::super::tests::{LIMIT_BYTES, MIB, brake, new_file};
    use super::*;
    use crate::observed_file::unwritten::UnwrittenCounter;
    use crate::residency;

    fn write(file: &File, start: u64, bytes: u64) {
        file.write_all_at(&vec![1; bytes as usize], start).unwrap();
    }

    #[test]
    fn what_is_beyond_the_limit_is_written_before_writers_go_on() {
        let scratch = Scratch::new().unwrap();
        let file = new_file(&scratch, "written");
        let brake = brake(&scratch.file("written"), &Arc::default());
        write(&file, 0, LIMIT_BYTES / 2);
        brake.count();
        assert!(!brake.load().is_beyond());
        write(&file, 0, LIMIT_BYTES + 32 * MIB);
        let before = brake.count().unwrap();
        if before.bytes <= LIMIT_BYTES {
            // Something else had it written.
            return;
        }
        assert!(brake.load().is_beyond());
        brake.try_take().unwrap().hold().unwrap();
        assert!(brake.count().unwrap().bytes <= LIMIT_BYTES / 4 * 3);
        assert_eq!(brake.waits().begun, 1);
    }

    /// The policy may see that the writes are random while they are held.
    #[test]
    fn who_is_not_written_behind_any_more_is_not_held_any_more() {
        let scratch = Scratch::new().unwrap();
        let file = new_file(&scratch, "random");
        let description = Description::held(File::open(scratch.file("random")).unwrap().into());
        let (limit, window_bytes) = (WriterLimit::TwoWindows, Arc::new(MIB.into()));
        let counter = UnwrittenCounter::new(Arc::new(description));
        let sum = Arc::default();
        let brake = Arc::new(Brake::new(counter, limit, window_bytes, sum, Vec::new()));
        for (is_behind, is_held) in [(false, false), (true, true)] {
            write(&file, 0, 8 * MIB);
            let before = brake.count().unwrap().bytes;
            brake.is_written_behind(is_behind);
            let reader = brake.reader().unwrap().unwrap();
            let taken = brake.try_take().unwrap();
            taken.hold_down_to(&reader, 0).unwrap();
            let waited = brake.waits().ns > 0;
            assert_eq!(waited, is_held && before > 0, "{is_behind}");
        }
    }

    fn found(file: &File, bytes: u64) -> Found {
        let within = residency::whole(file.metadata().unwrap().len());
        Found { within, bytes }
    }

    #[test]
    fn a_page_written_again_and_again_does_not_hide_what_lies_far_behind() {
        let scratch = Scratch::new().unwrap();
        let file = new_file(&scratch, "sparse");
        let far = 4 * DirectReader::RANGE_MAX_BYTES;
        write(&file, 0, page_size());
        write(&file, far, STEP_BYTES);
        let all = found(&file, STEP_BYTES + page_size());
        let next = next(file.as_fd(), all, 0, STEP_BYTES).unwrap().within;
        assert!(next.start > 0 && next.len() <= DirectReader::RANGE_MAX_BYTES);
        let counted = residency::count(file.as_fd(), next).unwrap();
        assert!(counted.unwritten_bytes() >= STEP_BYTES - page_size());
    }

    #[test]
    fn pages_that_are_spread_evenly_are_taken_in_turn() {
        let scratch = Scratch::new().unwrap();
        let file = new_file(&scratch, "spread");
        for page in 0..1024 {
            write(&file, 4 * page * page_size(), page_size());
        }
        let bytes = 1024 * page_size();
        let all = found(&file, bytes);
        let mut cursor = 0;
        let mut taken_bytes = 0;
        while taken_bytes < bytes {
            let next = next(file.as_fd(), all, cursor, bytes / 8).unwrap();
            assert_eq!(next.within.start, cursor);
            assert!((bytes / 16..=bytes / 4).contains(&next.bytes), "{next:?}");
            taken_bytes += next.bytes;
            cursor = next.within.end;
        }
        assert_eq!(taken_bytes, bytes);
        // From the end on, it begins again.
        let first = next(file.as_fd(), all, cursor, bytes / 8).unwrap();
        assert_eq!(first.within.start, 0);
    }

    #[test]
    fn of_many_pages_side_by_side_the_first_are_taken() {
        let scratch = Scratch::new().unwrap();
        let file = new_file(&scratch, "behind");
        // Something else may have it written at once.
        let attempts = (0..8).find_map(|_| {
            write(&file, 256 * MIB, 64 * MIB);
            // As if there were less, so that one part has too much for a step.
            next(file.as_fd(), found(&file, STEP_BYTES), 0, STEP_BYTES)
        });
        let next = attempts.expect("unwritten pages");
        // The kernel may write some by itself.
        let before = ByteRange::new(0, next.within.start);
        assert_eq!(unwritten_bytes(file.as_fd(), before), 0);
        assert!((STEP_BYTES / 2..=2 * STEP_BYTES).contains(&next.bytes));
        assert!(unwritten_bytes(file.as_fd(), next.within) <= next.bytes);
    }

    /// A part at a time, it would take years.
    #[test]
    fn what_lies_at_the_end_of_the_longest_file_is_found() {
        need!(all MountedFs::needs(Fs::Xfs));
        let mounted = MountedFs::new(Fs::Xfs, 512 * MIB).unwrap();
        let file = File::create_new(mounted.file("sparse")).unwrap();
        let end = (8 << 60) - MIB;
        write(&file, 0, page_size());
        write(&file, end - STEP_BYTES, STEP_BYTES);
        let all = found(&file, STEP_BYTES + page_size());
        let next = next(file.as_fd(), all, 0, STEP_BYTES).unwrap();
        assert_eq!(next.within.end, end);
        let counted = residency::count(file.as_fd(), next.within).unwrap();
        assert_eq!(next.bytes, counted.unwritten_bytes());
    }

    #[test]
    fn where_nothing_is_unwritten_there_is_no_next_range() {
        let scratch = Scratch::new().unwrap();
        let file = new_file(&scratch, "written");
        write(&file, 0, MIB);
        file.sync_all().unwrap();
        assert_eq!(next(file.as_fd(), found(&file, MIB), 0, STEP_BYTES), None);
    }

    #[test]
    fn an_error_of_the_disk_may_pass_and_a_full_one_does_not() {
        let passes = |errno| may_pass(&io::Error::from_raw_os_error(errno));
        assert!(
            [libc::EIO, libc::ENOMEM, libc::EAGAIN]
                .into_iter()
                .all(passes)
        );
        let lasting = [libc::ENOSPC, libc::EDQUOT, libc::EOPNOTSUPP, libc::EINVAL];
        assert!(!lasting.into_iter().any(passes));
    }

    #[test]
    fn who_panics_holds_nobody_any_more() {
        let scratch = Scratch::new().unwrap();
        new_file(&scratch, "one");
        let brake = brake(&scratch.file("one"), &Arc::default());
        let taken = brake.try_take().unwrap();
        assert!(brake.try_take().is_none());
        let holder = std::thread::spawn(move || {
            let _taken = taken;
            panic!("as a fault would");
        });
        assert!(holder.join().is_err());
        assert!(brake.try_take().is_some());
    }

    /// Data in the journal is read through the page cache even by direct reads, so writers
    /// would not wait.
    #[test]
    fn a_file_without_direct_reads_is_left_alone() {
        need!(all MountedFs::needs(Fs::Ext4));
        need!(Need::Tool("mount"), Need::Tool("umount"));
        let mounted = MountedFs::new(Fs::Ext4, 64 * MIB).unwrap();
        let again = "umount \"$1\" && mount -o data=journal \"$0\" \"$1\"";
        let status = Command::new("sh")
            .args(["-c", again])
            .args([mounted.device(), mounted.path()])
            .status();
        assert!(status.unwrap().success());
        let path = mounted.file("journaled");
        File::create_new(&path).unwrap();
        let brake = brake(&path, &Arc::default());
        let error = brake.try_take().unwrap().hold().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
        assert!(brake.try_take().is_none());
        assert!(brake.count().is_some());
    }
}
