//! The operations on a range of an open file.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use dropbehind_linux::{
    Askable, Sharing, SignalsBlocked, drop_clean, file_info, page_size, prepare_to_ask, reopen,
    size_bytes, start_writeback as start, thread_id, unshare_descriptor_table, writeback_error,
};
use dropbehind_policy::bisection::bisect;
use dropbehind_policy::{ByteRange, Mode, Reason};

use super::{CacheState, DropOutcome};
use dropbehind_flusher::own_file::OwnFile;
use dropbehind_flusher::residency as cache;
use dropbehind_flusher::trace::{Begun, Deed, DropReason, Label};
use dropbehind_flusher::{remember_failure, remembers_failure};

/// First pause between two counts of unwritten pages; doubles up to [`POLL_MAX`].
const POLL_MIN: Duration = Duration::from_micros(200);
const POLL_MAX: Duration = Duration::from_millis(10);
/// Writeback is started again after this many polls, since it skips locked pages.
const ASK_AGAIN: u32 = 16;
/// After this many requests (about a second) that neither cleaned a page nor put one under
/// writeback, the pages are dirty in name only.
const ASKED_IN_VAIN: u32 = 8;
/// How many times a drop is tried while pages are left.
const DROP_TRIES: u32 = 5;

pub(crate) fn residency(fd: BorrowedFd<'_>, range: ByteRange) -> io::Result<CacheState> {
    let counted = cache::count(fd, range)?;
    Ok(CacheState {
        cached_bytes: counted.cached_bytes,
        dirty_bytes: counted.dirty_bytes,
        writeback_bytes: counted.writeback_bytes,
    })
}

pub(crate) fn start_writeback(fd: BorrowedFd<'_>, range: ByteRange) -> io::Result<()> {
    if range.is_empty() {
        // The kernel takes a length of 0 as "to the end of the file".
        return Ok(());
    }
    let begun = Begun::now();
    let started = start(fd, range.start, range.len());
    let deed = Deed::Writeback(Reason::Sync);
    begun.made(deed, &Label::default(), fd, range, 0);
    started
}

pub(crate) fn wait_clean(fd: BorrowedFd<'_>, range: ByteRange) -> io::Result<()> {
    let mut pause = POLL_MIN;
    let mut polls = 0_u32;
    let mut asked_in_vain = 0_u32;
    let mut before = cache::count(fd, range)?;
    loop {
        let counted = cache::count(fd, range)?;
        if counted.unwritten_bytes() == 0 {
            return Ok(());
        }
        if counted.writeback_bytes > 0 || counted.dirty_bytes != before.dirty_bytes {
            asked_in_vain = 0;
        }
        before = counted;
        if counted.dirty_bytes > 0 && polls.is_multiple_of(ASK_AGAIN) {
            // ext4 leaves pages marked dirty after a truncation has taken all their dirty
            // blocks. Nothing ever writes those.
            if asked_in_vain == ASKED_IN_VAIN {
                return Ok(());
            }
            asked_in_vain += 1;
            start_writeback(fd, range)?;
        }
        polls += 1;
        std::thread::sleep(pause);
        pause = (pause * 2).min(POLL_MAX);
    }
}

pub(crate) fn drop_behind(
    fd: BorrowedFd<'_>,
    mode: Mode,
    handle: Option<&Arc<OwnFile>>,
    range: ByteRange,
) -> io::Result<DropOutcome> {
    let file_end = size_bytes(fd)?.next_multiple_of(page_size());
    let range = range.intersection(ByteRange::new(0, file_end));
    let ours = match handle {
        _ if !mode.drops() => vec![range],
        Some(handle) => handle.brought_in(fd, range),
        // Nobody knows what this file brought in.
        None => Vec::new(),
    };
    if remembers_failure(fd) {
        return Err(io::Error::from_raw_os_error(libc::EIO));
    }
    // In a mode that drops, the flusher has asked.
    let ask = |clean: Option<&ByteRange>| match clean {
        Some(clean) if !mode.drops() => ask_about(fd, clean.start),
        _ => Ok(()),
    };
    let mut outcome = DropOutcome::default();
    let mut at = range.start;
    for part in ours {
        outcome.kept_bytes += cache::count(fd, ByteRange::new(at, part.start))?.cached_bytes;
        let ours = handle.filter(|_| mode.drops());
        let dropping = ours.map(|handle| handle.begin_drop(part));
        match dropping {
            // A read began just now.
            Some(None) => outcome.left_bytes += cache::count(fd, part)?.cached_bytes,
            _ => drop_part(fd, part, &ask, &mut outcome)?,
        }
        at = part.end;
    }
    outcome.kept_bytes += cache::count(fd, ByteRange::new(at, range.end))?.cached_bytes;
    Ok(outcome)
}

/// The program's fsync returned this. After a failed one, nothing of the file is dropped.
pub(crate) fn synced(fd: BorrowedFd<'_>, handle: Option<&Arc<OwnFile>>, result: &io::Result<()>) {
    // `EBADF` and `EINVAL` mean that nothing was synced.
    let is_failure =
        |error: &io::Error| !matches!(error.raw_os_error(), Some(libc::EBADF | libc::EINVAL));
    if result.as_ref().is_err_and(is_failure) {
        remember_failure(fd);
    }
    if let Some(handle) = handle {
        handle.synced(fd);
    }
}

/// Fails if writeback of the file failed, since the cache may have the only copy then. `at` was
/// counted as clean before. Once it has failed, nobody asks again: that would take the error from
/// files opened later, and find none in the end.
fn ask_about(fd: BorrowedFd<'_>, at: u64) -> io::Result<()> {
    match failed_writeback(fd, at - at % page_size())? {
        Some(error) => {
            remember_failure(fd);
            Err(error)
        }
        None => Ok(()),
    }
}

/// Asks at a clean page whether writeback of the file failed.
///
/// A thread with a descriptor table of its own opens and closes the description that is asked: a
/// close in the program's table would release the program's record locks on the file.
fn failed_writeback(fd: BorrowedFd<'_>, at: u64) -> io::Result<Option<io::Error>> {
    let (caller, id) = (thread_id(), file_info(fd)?.id);
    let ask = || {
        unshare_descriptor_table()?;
        let (own, sharing) = reopen(caller, fd.as_raw_fd(), id)?;
        if sharing == Sharing::Shared || prepare_to_ask(own.as_fd()) != Askable::Yes {
            return Ok(None);
        }
        match writeback_error(own.as_fd(), at) {
            // The file ends before it by now.
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            answered => answered,
        }
    };
    std::thread::scope(|scope| {
        let _blocked = SignalsBlocked::new()?;
        let thread = std::thread::Builder::new().name("dropbehind-ask".into());
        let answer = thread.spawn_scoped(scope, ask)?.join();
        answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn drop_part(
    fd: BorrowedFd<'_>,
    range: ByteRange,
    ask: &dyn Fn(Option<&ByteRange>) -> io::Result<()>,
    outcome: &mut DropOutcome,
) -> io::Result<()> {
    let begun = Begun::now();
    let first = cache::count(fd, range)?;
    let mut now = first;
    for attempt in 0..DROP_TRIES {
        if now.cached_bytes == 0 {
            break;
        }
        if now.unwritten_bytes() > 0 {
            // On dirty pages the call would start writeback and drain every CPU's LRU
            // batches, so only the clean stretches between them are dropped.
            let clean = clean_parts(fd, range)?;
            ask(clean.first())?;
            for part in clean {
                drop_clean(fd, part.start, part.len())?;
            }
        } else {
            ask(Some(&range))?;
            drop_clean(fd, range.start, range.len())?;
        }
        let after = cache::count(fd, range)?;
        if after.cached_bytes == now.cached_bytes && attempt > 0 {
            break;
        }
        now = after;
    }
    let dropped_bytes = first.cached_bytes.saturating_sub(now.cached_bytes);
    let deed = Deed::Drop(DropReason::Asked);
    begun.made(deed, &Label::default(), fd, range, dropped_bytes);
    outcome.dropped_bytes += dropped_bytes;
    outcome.left_bytes += now.cached_bytes;
    Ok(())
}

/// The stretches of a range without unwritten pages, no finer than a drop is worth.
fn clean_parts(fd: BorrowedFd<'_>, range: ByteRange) -> io::Result<Vec<ByteRange>> {
    const FINEST_BYTES: u64 = 64 << 10;
    let mut parts = Vec::new();
    bisect(range, FINEST_BYTES, &mut |part| {
        let counted = cache::count(fd, part)?;
        let clean = counted.unwritten_bytes() == 0;
        if clean && counted.cached_bytes > 0 {
            parts.push(part);
        }
        Ok::<bool, io::Error>(!clean)
    })?;
    Ok(parts)
}
