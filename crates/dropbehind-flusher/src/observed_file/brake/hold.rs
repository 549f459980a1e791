//! Holds the writers of a file by reading what they have written.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dropbehind_linux::{DirectReader, monotonic_ns, page_size};
use dropbehind_policy::ByteRange;
use dropbehind_policy::brake::COUNT_MIN_NS;

use super::Brake;
use super::apart::ReaderApart;
use crate::lock;
use crate::observed_file::unwritten::{Found, place_of, unwritten_bytes};

/// The most that one read waits for. A writer that is killed or stopped waits no longer than
/// the disk takes for this much.
const STEP_BYTES: u64 = 8 << 20;
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
    brake: Arc<Brake>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.brake.held.store(false, Ordering::SeqCst);
    }
}

impl Taken {
    pub(super) fn of(brake: Arc<Brake>) -> Taken {
        Taken { brake }
    }

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
        while held.elapsed() < STAY && brake.count().is_some() {
            if brake.load().is_beyond() {
                self.hold_down_to(&reader, brake.load().release_bytes())?;
                held = Instant::now();
            } else {
                std::thread::sleep(Duration::from_nanos(brake.load().room_ns()));
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
        while let Some(found) = brake.count()
            && found.bytes > release_bytes
        {
            let step_bytes = (found.bytes - release_bytes).min(STEP_BYTES);
            let spread = spread(reader.as_fd(), found, cursor, step_bytes);
            let range = spread.unwrap_or_else(|| oldest(reader.as_fd(), found.within, step_bytes));
            cursor = range.end;
            let took = reader.write_range(range)?;
            lock(&brake.waits).add(took);
            *length += took;
            lock(&brake.failures).succeeded();
            if took < EMPTY_READ {
                std::thread::sleep(Duration::from_nanos(COUNT_MIN_NS));
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

/// A range from `cursor` on that has some `bytes` unwritten bytes, if they are spread evenly, as
/// after random writes. Searching all of such a file for its first unwritten pages visits each
/// page that it has in the cache, several times over.
fn spread(fd: BorrowedFd<'_>, found: Found, cursor: u64, bytes: u64) -> Option<ByteRange> {
    let Found { within, bytes: all } = found;
    let len = u128::from(within.len()) * u128::from(bytes) / u128::from(all.max(1));
    let len = u64::try_from(len).ok()?.next_multiple_of(page_size());
    let room = within.start..=within.end.saturating_sub(len);
    let start = if room.contains(&cursor) {
        cursor
    } else {
        within.start
    };
    let range = ByteRange::new(start, start + len);
    let is_readable = len <= DirectReader::RANGE_MAX_BYTES;
    let there = is_readable.then(|| unwritten_bytes(fd, range))?;
    (bytes / 2..=bytes * 2).contains(&there).then_some(range)
}

/// The range of the first `bytes` unwritten bytes. Pages are mostly written in the order of
/// their offsets, so once the last of these is written, the others are.
fn oldest(fd: BorrowedFd<'_>, within: ByteRange, bytes: u64) -> ByteRange {
    let start = place_of(fd, within, 0);
    read_range(start, place_of(fd, within, bytes))
}

/// The range to read for the pages from `start` to `end`. It is at least one page, since
/// another one before them may have been written between the two searches, and at most as
/// long as a read can be. Of a longer range it is the end: before that, there may be a header
/// that is written again and again.
fn read_range(start: u64, end: u64) -> ByteRange {
    let end = end.max(start + page_size());
    let longest_start = end.saturating_sub(DirectReader::RANGE_MAX_BYTES);
    ByteRange::new(start.max(longest_start), end)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::process::Command;

    use dropbehind_testbed::{Fs, MountedFs, Need, Scratch, need};

    use super::super::tests::{LIMIT_BYTES, MIB, brake, new_file};
    use super::*;
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

    #[test]
    fn a_page_written_again_and_again_does_not_hide_what_lies_far_behind() {
        let scratch = Scratch::new().unwrap();
        let file = new_file(&scratch, "sparse");
        let far = 4 * DirectReader::RANGE_MAX_BYTES;
        write(&file, 0, page_size());
        write(&file, far, STEP_BYTES);
        let all = residency::whole(far + STEP_BYTES);
        let range = oldest(file.as_fd(), all, STEP_BYTES);
        assert!(range.start > 0 && range.len() <= DirectReader::RANGE_MAX_BYTES);
        let found = residency::count(file.as_fd(), range).unwrap();
        assert_eq!(found.unwritten_bytes(), STEP_BYTES - page_size());
    }

    #[test]
    fn pages_that_are_spread_evenly_are_taken_in_turn() {
        let scratch = Scratch::new().unwrap();
        let file = new_file(&scratch, "spread");
        for page in 0..1024 {
            write(&file, 4 * page * page_size(), page_size());
        }
        let within = residency::whole(4096 * page_size());
        let bytes = 1024 * page_size();
        let found = Found { within, bytes };
        let first = spread(file.as_fd(), found, 0, bytes / 8).unwrap();
        assert_eq!(first, ByteRange::new(0, within.len() / 8));
        let second = spread(file.as_fd(), found, first.end, bytes / 8).unwrap();
        assert_eq!((second.start, second.len()), (first.end, first.len()));
        let last = spread(file.as_fd(), found, within.end, bytes / 8);
        assert_eq!(last, Some(first));
        write(&file, 4096 * page_size(), bytes);
        let within = residency::whole(8192 * page_size());
        let uneven = Found {
            within,
            bytes: 2 * bytes,
        };
        let beyond_all = spread(file.as_fd(), uneven, 6144 * page_size(), bytes / 8);
        assert_eq!(beyond_all, None);
    }

    #[test]
    fn a_page_written_to_between_two_searches_is_no_harm() {
        let page_bytes = page_size();
        let range = read_range(10 * page_bytes, 2 * page_bytes);
        assert_eq!((range.start, range.len()), (10 * page_bytes, page_bytes));
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
