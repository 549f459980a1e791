//! What is dirty or on its way to the disk, of one file.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use dropbehind_linux::{file_stat, page_size};
use dropbehind_policy::ByteRange;

use crate::residency;

/// What was found unwritten of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unwritten {
    /// Where it is.
    pub(super) within: ByteRange,
    pub(super) bytes: u64,
}

/// Counts what is unwritten of one file, again and again.
#[derive(Debug)]
pub(super) struct UnwrittenCounter {
    description: OwnedFd,
}

impl UnwrittenCounter {
    pub(super) fn new(description: OwnedFd) -> UnwrittenCounter {
        UnwrittenCounter { description }
    }

    /// Counts; `None` for a deleted file, of which nothing is to be written.
    pub(super) fn count(&self) -> Option<Unwritten> {
        let fd = self.description.as_fd();
        let stat = file_stat(fd).ok().filter(|stat| stat.links > 0)?;
        let within = residency::whole(stat.size_bytes);
        let bytes = unwritten_bytes(fd, within);
        Some(Unwritten { within, bytes })
    }
}

impl AsFd for UnwrittenCounter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.description.as_fd()
    }
}

fn unwritten_bytes(fd: BorrowedFd<'_>, range: ByteRange) -> u64 {
    residency::count(fd, range).map_or(0, |counted| counted.unwritten_bytes())
}

/// The page of a range before which there are this many unwritten bytes; its last
/// one, where there are not so many.
pub(super) fn place_of(fd: BorrowedFd<'_>, within: ByteRange, mut bytes_before: u64) -> u64 {
    let page_bytes = page_size();
    let mut range = within;
    while range.len() > page_bytes {
        let middle = range.start + (range.len() / 2).next_multiple_of(page_bytes);
        let left = ByteRange::new(range.start, middle.min(range.end));
        if left.end == range.end {
            break;
        }
        let unwritten = unwritten_bytes(fd, left);
        if bytes_before < unwritten {
            range = left;
        } else {
            bytes_before -= unwritten;
            range = ByteRange::new(left.end, range.end);
        }
    }
    range.start
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
    fn a_deleted_file_has_nothing_to_be_written() {
        let scratch = Scratch::new().unwrap();
        let file = File::create_new(scratch.file("deleted")).unwrap();
        write(&file, 0, MIB);
        let description = File::open(scratch.file("deleted")).unwrap();
        let counter = UnwrittenCounter::new(description.into());
        assert!(counter.count().is_some());
        std::fs::remove_file(scratch.file("deleted")).unwrap();
        assert_eq!(counter.count(), None);
    }
}
