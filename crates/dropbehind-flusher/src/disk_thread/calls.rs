//! Carries out the policy's actions with system calls.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use dropbehind_linux::{FsKind, Sharing, file_stat, filesystem, has_cachestat};
use dropbehind_policy::drop_planner::SHORT_BYTES;
use dropbehind_policy::{Action, ByteRange, Counted, Dropped, Inspected, StreamId};

use super::{DiskThread, Entry, Source};
use crate::failed_files::remember_failure;
use crate::failed_writeback::WritebackSign;
use crate::own_file::source::Keeping;
use crate::trace::{Begun, Deed, DropReason};
use crate::{lock, residency};

/// Counts that may fail in a row before the thread waits instead: a writer may be waiting for
/// the result.
const COUNT_PATIENCE: u32 = 100;

/// Without cachestat: if a request stays as it is for so long, neither it nor those after it are
/// waited for, until one becomes clean.
const UNMOVED_NS: u64 = 2_000_000_000;

/// What was last counted of a stream's request, and since when that has not changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unmoved {
    seen: (ByteRange, u64),
    since_ns: u64,
}

impl DiskThread {
    pub(super) fn execute(&mut self, action: Action) {
        let number = u32::try_from(action.stream().0).unwrap_or(u32::MAX);
        match action {
            Action::StartWriteback {
                range,
                bytes,
                reason,
                ..
            } => {
                let deed = Deed::Writeback(reason);
                self.start_writeback(number, range, deed, bytes);
            }
            Action::Count { range, .. } => self.count(number, range),
            Action::Drop { ranges, .. } => self.drop_ranges(number, ranges),
            Action::Inspect { .. } => self.inspect(number),
            Action::Forget { .. } => return self.forget(number),
        }
        self.publish(number);
    }

    fn start_writeback(&mut self, number: u32, range: ByteRange, deed: Deed, bytes: u64) {
        let Some(entry) = self.entries.get(&number) else {
            return;
        };
        // If it cannot be opened now, a later count still finds it dirty.
        let Ok(file) = entry.description.open() else {
            return;
        };
        let fd = file.as_fd();
        let begun = Begun::now();
        // Where the call would see no pages.
        let is_overlay =
            !entry.description.cachestat_sees(fd) && matches!(filesystem(fd), Ok(FsKind::Overlay));
        if !self.no_sync_file_range && !is_overlay {
            let started = dropbehind_linux::start_writeback(fd, range.start, range.len());
            begun.made(deed, &entry.label, fd, range, bytes);
            match started {
                Err(error) if is_missing(&error) => {
                    self.no_sync_file_range = true;
                    self.shared.note(format!(
                        "no sync_file_range ({error}): posix_fadvise starts writeback instead"
                    ));
                }
                // Writeback errors are kept in the file's error state, and the program's own
                // fsync reports them.
                _ => return,
            }
        }
        if dropbehind_linux::drop_clean(fd, range.start, range.len()).is_err() {
            self.disk.failed(self.now_ns(), StreamId(number.into()));
        }
    }

    fn count(&mut self, number: u32, range: ByteRange) {
        let Some(entry) = self.entries.get(&number) else {
            return;
        };
        let is_observed = matches!(entry.source, Source::Observed(_));
        let stream = self.disk.stream(StreamId(number.into()));
        let is_lazy = stream.is_some_and(|stream| stream.is_counting_lazy());
        let counted = match entry.description.open() {
            // Its writeback cannot have been started either: it is tried again, and then again
            // later and later.
            Err(_) => {
                let dirty = Counted {
                    dirty_bytes: range.len(),
                    ..Counted::default()
                };
                Some(if is_lazy { in_doubt(dirty) } else { dirty })
            }
            Ok(file) => match count_entry(entry, file.as_fd(), range) {
                Ok(counted) => {
                    self.count_failures = 0;
                    Some(self.on_its_way(number, file.as_fd(), range, counted))
                }
                Err(error) if !is_observed && is_failure(&error) => {
                    self.failed_to_write(entry);
                    None
                }
                Err(error)
                    if !is_observed
                        && (is_missing(&error) || self.count_failures >= COUNT_PATIENCE) =>
                {
                    let waited = self.wait_instead(number, range);
                    let instead = match waited {
                        Some(_) => "it is waited for, and writers with it",
                        None => "pages of files where it cannot be waited for stay cached",
                    };
                    self.shared.note(format!(
                        "what is still to be written cannot be counted ({error}): {instead}"
                    ));
                    waited
                }
                // Interrupted or out of memory: ask again at the next poll.
                Err(_) => {
                    self.count_failures += 1;
                    Some(Counted {
                        writeback_bytes: range.len(),
                        ..Counted::default()
                    })
                }
            },
        };
        // Pages written before the count must not look like leftovers of it.
        self.drain(number);
        if let Some(own) = self.own(number) {
            own.counted();
        }
        let now_ns = self.now_ns();
        let id = StreamId(number.into());
        match counted {
            Some(counted) => self.disk.counted(now_ns, id, range, counted),
            None => self.disk.failed(now_ns, id),
        }
    }

    /// Without cachestat, pages that are dirty cannot be told from those under writeback. What
    /// was requested counts as under way until it is clean, and is requested again each time:
    /// the kernel skips what is on its way already. If nothing of it becomes clean for a while,
    /// it counts as dirty: the kernel may be unable to write it.
    fn on_its_way(
        &mut self,
        number: u32,
        fd: BorrowedFd<'_>,
        range: ByteRange,
        counted: Counted,
    ) -> Counted {
        if has_cachestat() {
            return counted;
        }
        let stream = self.disk.stream(StreamId(number.into()));
        if stream.is_none_or(|stream| stream.is_counting_lazy()) {
            return in_doubt(counted);
        }
        if counted.dirty_bytes == 0 {
            self.unmoved.remove(&number);
            return counted;
        }
        let now_ns = self.now_ns();
        let seen = (range, counted.dirty_bytes);
        let unmoved = self.unmoved.entry(number).or_insert(Unmoved {
            seen,
            since_ns: now_ns,
        });
        let is_stuck = now_ns - unmoved.since_ns > UNMOVED_NS;
        if unmoved.seen != seen && !is_stuck {
            unmoved.since_ns = now_ns;
        }
        unmoved.seen = seen;
        if is_stuck {
            return counted;
        }
        let _ = dropbehind_linux::start_writeback(fd, range.start, range.len());
        Counted {
            dirty_bytes: 0,
            writeback_bytes: counted.dirty_bytes,
            ..counted
        }
    }

    /// Where it cannot be told what is still to be written: waits for the range. The error
    /// stays where fsync(2) finds it.
    fn wait_instead(&self, number: u32, range: ByteRange) -> Option<Counted> {
        let entry = self.entries.get(&number)?;
        let Source::Own(own) = &entry.source else {
            return None;
        };
        if own.sharing != Sharing::Own {
            return None;
        }
        let file = entry.description.open().ok()?;
        let waited =
            dropbehind_linux::write_and_wait_unseen(file.as_fd(), range.start, range.len());
        match waited {
            Ok(()) => Some(Counted::default()),
            Err(error) => {
                if is_failure(&error) {
                    self.failed_to_write(entry);
                }
                None
            }
        }
    }

    /// Notes that writeback of an own file failed: pages that look clean from now on are not on
    /// the disk.
    ///
    /// The record covers all of this process's files of that inode, including those opened later. If one
    /// of them asked the kernel, it would find the inode's flags clear, and take the error from files
    /// opened later.
    fn failed_to_write(&self, entry: &Entry) {
        if let Source::Own(_) = &entry.source {
            if let Ok(file) = entry.description.open() {
                remember_failure(file.as_fd());
            }
            self.shared.note(Keeping::WritebackFailed.note().into());
        }
    }

    fn drop_ranges(&mut self, number: u32, ranges: Vec<ByteRange>) {
        let id = StreamId(number.into());
        if let Some(observed) = self.observed(number)
            && !observed.begin_drop()
        {
            let now_ns = self.now_ns();
            let outcomes = ranges.into_iter().map(|range| (range, Dropped::Unreported));
            self.disk.dropped(now_ns, id, outcomes);
            return self.read_mailbox(now_ns, number);
        }
        let Some(entry) = self.entries.get(&number) else {
            return;
        };
        let mut outcomes = Vec::with_capacity(ranges.len());
        for run in self.runs_of(number, entry, &ranges) {
            if run.len() > 1
                && let Some(dropped) = drop_run(entry, run)
            {
                outcomes.extend(dropped);
                continue;
            }
            for &range in run {
                match self.drop_range(entry, range) {
                    Ok(Ok(dropped)) => outcomes.push((range, dropped)),
                    Ok(Err(keeping)) => return self.keep_all(number, keeping),
                    Err(error) if is_missing(&error) => {
                        self.shared
                            .note(format!("clean pages cannot be dropped ({error})"));
                        return self.disk.failed(self.now_ns(), id);
                    }
                    // No outcome: the range stayed, and is tried again.
                    Err(_) => {}
                }
            }
        }
        self.disk.dropped(self.now_ns(), id, outcomes);
    }

    /// Divides the ranges of a drop into runs: short ranges of an own file with nothing of ours
    /// cached between them, as far as is known.
    fn runs_of<'a>(
        &self,
        number: u32,
        entry: &Entry,
        ranges: &'a [ByteRange],
    ) -> impl Iterator<Item = &'a [ByteRange]> + use<'a> {
        let is_own = matches!(entry.source, Source::Own(_));
        let stream = self.disk.stream(StreamId(number.into()));
        let busy = match (ranges, stream) {
            ([first, .., last], Some(stream)) if is_own && first.end <= last.start => {
                stream.busy_in(ByteRange::new(first.start, last.end))
            }
            _ => vec![ByteRange::WHOLE],
        };
        ranges.chunk_by(move |before, after| {
            let gap = ByteRange::new(before.end, after.start.max(before.end));
            let is_short = before.len().max(after.len()) <= SHORT_BYTES;
            let next = busy.partition_point(|busy| busy.end <= gap.start);
            let is_busy = busy.get(next).is_some_and(|busy| busy.start < gap.end);
            is_short && before.end <= after.start && !is_busy
        })
    }

    /// Stops dropping anything of the file.
    fn keep_all(&mut self, number: u32, keeping: Keeping) {
        if let Some(entry) = self.entries.get_mut(&number) {
            match (&mut entry.source, keeping) {
                // The observer reports it, and names the file.
                (Source::Observed(observed), _) => observed.stream.keep_all(&self.disk),
                (Source::Own(_), Keeping::WritebackFailed) => {
                    let entry = &self.entries[&number];
                    self.failed_to_write(entry);
                }
                (Source::Own(_), _) => self.shared.note(keeping.note().into()),
            }
        }
        self.disk.failed(self.now_ns(), StreamId(number.into()));
    }

    /// The result of dropping the range, or why nothing of the file may be dropped.
    ///
    /// Counts the pages first, and then asks whether the file's writeback has failed: the
    /// kernel records a failure before it takes the pages for clean.
    fn drop_range(&self, entry: &Entry, range: ByteRange) -> io::Result<Result<Dropped, Keeping>> {
        let _dropping = match &entry.source {
            Source::Own(own) => match own.file.claims.begin_drop(range) {
                // A reader is about to read it, so try later.
                None => return Ok(Ok(Dropped::NotClean)),
                dropping => dropping,
            },
            Source::Observed(_) => None,
        };
        let Ok(file) = entry.description.open() else {
            return Ok(Ok(Dropped::NotClean));
        };
        let fd = file.as_fd();
        // For a range this short, counting first costs as much as dropping. An own file is asked
        // about what the policy counted last (`own.keeping`).
        let is_own = matches!(entry.source, Source::Own(_));
        let is_short = is_own && range.len() <= SHORT_BYTES;
        let before = (!is_short).then(|| count_entry(entry, fd, range));
        match &before {
            Some(Err(error)) if is_own && is_failure(error) => {
                return Ok(Err(Keeping::WritebackFailed));
            }
            Some(Ok(before)) if before.unwritten_bytes() > 0 => return Ok(Ok(Dropped::NotClean)),
            Some(Ok(before)) if before.cached_bytes == 0 => {
                return Ok(Ok(Dropped::Tried {
                    before_bytes: Some(0),
                    after_bytes: 0,
                }));
            }
            _ => {}
        }
        let cached = match (&entry.source, &before) {
            (Source::Own(_), _) => vec![range],
            (_, Some(Ok(before))) => residency::cached_of(fd, &[range], before.cached_bytes)?,
            _ => residency::cached_of(fd, &[range], 0)?,
        };
        let keeping = match &entry.source {
            Source::Own(own) => match own.keeping(fd, range, before.is_some()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Ok(Dropped::NotClean));
                }
                keeping => keeping?,
            },
            Source::Observed(observed) => {
                let asked = observed.writeback_sign.as_ref().zip(cached.first());
                match asked.map_or(Ok(false), |(sign, cached)| sign.has_failed_for(*cached)) {
                    Ok(failed) => failed.then_some(Keeping::WritebackFailed),
                    Err(_) => return Ok(Ok(Dropped::NotClean)),
                }
            }
        };
        if let Some(keeping) = keeping {
            return Ok(Err(keeping));
        }
        let parts = match &entry.source {
            Source::Own(_) => cached.clone(),
            Source::Observed(observed) => observed.droppable(&cached),
        };
        let begun = Begun::now();
        let count = |part| match entry.description.cachestat_sees(fd) {
            true => residency::count_seen(fd, part),
            false => residency::count_observed(fd, part),
        };
        let mut dropped = match before {
            None => residency::drop_short(fd, &parts, || count(range)),
            Some(Ok(before)) => {
                residency::drop_counted(fd, &cached, &parts, before.cached_bytes, count)
            }
            Some(Err(error)) if is_missing(&error) => residency::drop_mapped(fd, &cached, &parts),
            Some(Err(error)) => Err(error),
        };
        if let (Source::Observed(observed), Ok(Dropped::Tried { after_bytes, .. })) =
            (&entry.source, &dropped)
            && *after_bytes > 0
            && !residency::tells_unwritten(fd, range)
        {
            // What was dirty stayed, and is being written.
            let waited = dropbehind_linux::write_and_wait_unseen(fd, range.start, range.len());
            let still = residency::cached_of(fd, &cached, *after_bytes)?;
            let asked = observed.writeback_sign.as_ref().zip(still.first());
            let failed = |(sign, still): (&WritebackSign, &ByteRange)| {
                sign.has_failed_for(*still).unwrap_or(true)
            };
            if waited.is_err_and(|error| is_failure(&error)) || asked.is_some_and(failed) {
                return Ok(Err(Keeping::WritebackFailed));
            }
            dropped = residency::drop_mapped(fd, &still, &observed.droppable(&still));
        }
        if let Ok(Dropped::Tried {
            before_bytes,
            after_bytes,
        }) = dropped
        {
            let bytes = before_bytes.unwrap_or(range.len());
            let bytes = bytes.saturating_sub(after_bytes);
            let deed = Deed::Drop(DropReason::Done);
            begun.made(deed, &entry.label, fd, range, bytes);
            if after_bytes > 0 && parts != cached {
                return Ok(Ok(Dropped::Unreported));
            }
        }
        dropped.map(Ok)
    }

    /// The parts of `range` that an own file brought in and that its program may drop.
    pub(super) fn droppable(&mut self, number: u32, range: ByteRange) -> Vec<ByteRange> {
        let stream = self.disk.stream(StreamId(number.into()));
        let ours = stream.map_or(Vec::new(), |stream| stream.brought_in(range));
        let Some(entry) = self.entries.get(&number) else {
            return ours;
        };
        let Source::Own(own) = &entry.source else {
            return ours;
        };
        // The program may have taken care of writeback itself.
        own.counted();
        let Ok(file) = entry.description.open() else {
            return Vec::new();
        };
        let asked = ours
            .iter()
            .find_map(|part| own.keeping(file.as_fd(), *part, false).ok());
        match asked {
            Some(None) => ours,
            Some(Some(keeping)) => {
                self.keep_all(number, keeping);
                Vec::new()
            }
            // What looks clean may be what the disk never got.
            None => Vec::new(),
        }
    }

    fn inspect(&mut self, number: u32) {
        let Some(entry) = self.entries.get(&number) else {
            return;
        };
        // If this fails, the file counts as one that still has a name.
        let stat = entry
            .description
            .open()
            .and_then(|file| file_stat(file.as_fd()));
        let in_use = match &entry.source {
            Source::Own(own) => self
                .own_sources()
                .filter(|user| user.file.file_id == own.file.file_id)
                .any(|user| user.file.was_given_back() || own.closed && !user.closed),
            Source::Observed(_) => false,
        };
        let unlinked = !in_use && stat.is_ok_and(|stat| stat.links == 0);
        let id = StreamId(number.into());
        self.disk
            .inspected(self.now_ns(), id, Inspected { unlinked });
    }

    fn forget(&mut self, number: u32) {
        let Some(entry) = self.entries.remove(&number) else {
            return;
        };
        self.unmoved.remove(&number);
        // What was decided last, and what is left, was published to nobody yet.
        if let Some(counters) = self.disk.forgotten(StreamId(number.into())) {
            match &entry.source {
                Source::Own(own) => own.file.store_counters(counters),
                Source::Observed(observed) => observed.publish(*counters),
            }
        }
        lock(&self.shared.totals).close(number);
        match entry.source {
            Source::Own(mut own) => own.announce_settled(),
            Source::Observed(observed) => {
                self.unqueue(number, &observed);
                observed.finish(&entry.description);
            }
        }
    }
}

/// Some of what is dirty may be under writeback, where nobody can tell: one byte counts as such, or the
/// policy would soon take all of it for what the kernel never writes.
fn in_doubt(counted: Counted) -> Counted {
    let doubted_bytes = counted.dirty_bytes.min(1);
    Counted {
        dirty_bytes: counted.dirty_bytes - doubted_bytes,
        writeback_bytes: counted.writeback_bytes + doubted_bytes,
        ..counted
    }
}

/// Counts a range of the entry's file, as exactly as its kind needs it.
fn count_entry(entry: &Entry, fd: BorrowedFd<'_>, range: ByteRange) -> io::Result<Counted> {
    match &entry.source {
        _ if entry.description.cachestat_sees(fd) => residency::count_seen(fd, range),
        Source::Own(_) => residency::count_own(fd, range),
        Source::Observed(_) => residency::count_observed(fd, range),
    }
}

/// Drops short ranges of an own file that ascend, and counts them all at once: mostly nothing is
/// cached between them. `None` if they are to be dropped one by one, which finds out why.
fn drop_run(entry: &Entry, run: &[ByteRange]) -> Option<Vec<(ByteRange, Dropped)>> {
    let (Source::Own(own), [first, .., last]) = (&entry.source, run) else {
        return None;
    };
    let span = ByteRange::new(first.start, last.end);
    let _dropping = own.file.claims.begin_drop(span)?;
    let file = entry.description.open().ok()?;
    let fd = file.as_fd();
    if !entry.description.cachestat_sees(fd) || !matches!(own.keeping(fd, *first, false), Ok(None))
    {
        return None;
    }
    let begun = Begun::now();
    let dropped = residency::drop_short_run(fd, span, run).ok()?;
    let gone_bytes = |(range, dropped): &(ByteRange, Dropped)| match dropped {
        Dropped::Tried { after_bytes, .. } => range.len().saturating_sub(*after_bytes),
        _ => 0,
    };
    let bytes = dropped.iter().map(gone_bytes).sum();
    begun.made(Deed::Drop(DropReason::Done), &entry.label, fd, span, bytes);
    Some(dropped)
}

/// Errors that say that writeback of the file has failed.
fn is_failure(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EIO | libc::ENOSPC | libc::EDQUOT)
    )
}

/// Errors that trying again won't fix: the call is missing or not permitted.
fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ENOSYS
                | libc::EPERM
                | libc::EACCES
                | libc::EOPNOTSUPP
                | libc::EBADF
                | libc::ESPIPE
                | libc::EINVAL
        )
    )
}
