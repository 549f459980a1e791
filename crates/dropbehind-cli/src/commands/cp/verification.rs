//! Reads copies back from the disk, and compares them with their sources: to verify them, and to
//! go on with those that are half there.

use crate::error::{Doing, Failure, shown};
use crate::input::Input;
use crate::place::proc_path;
use crate::transfer::Buffer;
use dropbehind_linux::{cachestat, drop_clean, page_size};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How much is compared at once: whole blocks of any disk.
const BLOCK_BYTES: usize = 1 << 20;

/// Checks that the disk holds what the source does. The copy must be synced.
pub(super) fn verify(input: &mut Input, copy: BorrowedFd<'_>, path: &Path) -> Result<(), Failure> {
    // Many file systems read through the cache at times, even if asked not to.
    let drop_copy = || {
        // Pages that somebody else reads just now cannot be dropped.
        let _ = drop_clean(copy, 0, 0);
    };
    drop_copy();
    let common = common(input, copy, path);
    drop_copy();
    match common? {
        (_, true) => Ok(()),
        (same, false) => Err(Failure::new(format!(
            "{} is not what was copied: it differs from {} at byte {same}. If nobody changed the \
             source meanwhile, do not trust the disk; look at the kernel's log (dmesg).",
            shown(path),
            shown(&input.path)
        ))),
    }
}

/// How much of its source a copy that is half there holds already, in whole pages.
pub(super) fn done_bytes(
    input: &mut Input,
    copy: BorrowedFd<'_>,
    path: &Path,
) -> Result<u64, Failure> {
    // Where reading brings pages in nevertheless, they are dropped, unless some were there.
    let had_pages = cachestat(copy, 0, 0).map_or(true, |state| state.cached_pages > 0);
    let common = common(input, copy, path);
    if !had_pages {
        let _ = drop_clean(copy, 0, 0);
    }
    let (same, _) = common?;
    // A file that is cut off inside of a page has that page in the cache.
    Ok(same - same % page_size())
}

/// How many bytes a copy has in common with its source from the beginning on, and whether that is
/// all of the source.
fn common(input: &mut Input, copy: BorrowedFd<'_>, path: &Path) -> Result<(u64, bool), Failure> {
    let (mut ours, mut theirs) = (Buffer::new(BLOCK_BYTES), Buffer::new(BLOCK_BYTES));
    let unread = |error: io::Error| Failure::io(Doing::Read, path, &error);
    let copy = open_around_cache(copy).map_err(|errno| unread(errno.into()))?;
    let failed = |error: &io::Error, input: &Input| Failure::io(Doing::Read, &input.path, error);
    input.seek(0).map_err(|error| failed(&error, input))?;
    let end = input.end().unwrap_or(u64::MAX);
    let mut at = 0;
    loop {
        let wanted = ours.bytes().len() as u64;
        let wanted = usize::try_from(wanted.min(end - at)).unwrap_or(0);
        let got = read_full(&mut ours.bytes()[..wanted], |bytes, _| input.read(bytes))
            .map_err(|error| failed(&error, input))?;
        // Reads around the cache are of whole blocks; the last one ends where the file does.
        let read = |bytes: &mut [u8], done: usize| copy.read_at(bytes, at + done as u64);
        let there = read_full(theirs.bytes(), read).map_err(unread)?;
        let (source, copied) = (&ours.bytes()[..got], &theirs.bytes()[..there.min(got)]);
        if source != copied {
            let mut pairs = source.iter().zip(copied);
            let same = pairs.position(|(one, other)| one != other);
            return Ok((at + same.unwrap_or(copied.len()) as u64, false));
        }
        at += got as u64;
        if got < wanted || got == 0 || at >= end {
            return Ok((at, true));
        }
    }
}

/// Opens a file again for reading, around the cache where the file system has such reads.
fn open_around_cache(copy: BorrowedFd<'_>) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let open = |more| rustix::fs::open(proc_path(copy), flags | more, Mode::empty());
    match open(OFlags::DIRECT) {
        Err(Errno::INVAL) => open(OFlags::empty()).map(File::from),
        opened => opened.map(File::from),
    }
}

/// Fills as much of a buffer as there is.
fn read_full(
    bytes: &mut [u8],
    mut read: impl FnMut(&mut [u8], usize) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match read(&mut bytes[done..], done) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Beyond the unaligned end of a file there is nothing.
            Err(error) if done % 512 != 0 && error.kind() == ErrorKind::InvalidInput => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
