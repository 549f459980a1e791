//! A disk thread's state for one of this process's files, and how it drains the slot.

use std::cell::Cell;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dropbehind_linux::{Askable, Sharing, futex_wake, page_size, prepare_to_ask, writeback_error};
use dropbehind_policy::{ByteRange, Disk, Found, StreamId, Write};
use dropbehind_slot::Drained;

use super::{OwnFile, Settled};
use crate::failed_files::remembers_failure;
use crate::residency;

/// A slot in which nothing was found for this long is at rest.
const REST_NS: u64 = 200_000_000;
/// Writers wait long before they have written so much in a row. So a longer range is that of one
/// huge write, or far more than was written: a thread moved the position that others write at.
/// Passing all of it could take hours.
const WIDE_BYTES: u64 = 64 << 20;

/// Why no page of a file is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// Its pages look clean, but the disk may not have them.
    WritebackFailed,
    /// There is no way to ask whether that is so.
    NotAskable,
}

impl Keeping {
    pub(crate) fn note(self) -> &'static str {
        match self {
            Keeping::WritebackFailed => {
                "writing back a file failed: its pages stay cached, since the disk does not have \
                 them"
            }
            Keeping::NotAskable => {
                "a file cannot be asked whether writing it back failed: what is written to it \
                 stays cached"
            }
        }
    }
}

/// Adds what may have been written of `write` to `told`.
fn tell(fd: BorrowedFd<'_>, write: Write, told: &mut Vec<Write>) {
    if write.range.len() <= WIDE_BYTES {
        told.push(write);
    } else {
        let parts = residency::cached_parts(fd, write.range).into_iter();
        told.extend(parts.map(|range| Write { range, ..write }));
    }
}

/// A disk thread's state for one of this process's files.
#[derive(Debug)]
pub(crate) struct OwnSource {
    pub(crate) file: Arc<OwnFile>,
    pub(crate) sharing: Sharing,
    askable: Cell<Askable>,
    /// Pages have been counted since the file was last asked.
    counted: Cell<bool>,
    /// Permanent. Asking once more would take the error from files opened later.
    keeping: Cell<Option<Keeping>>,
    /// The writers' and readers' totals up to which all ranges have been handed to the
    /// policy.
    written_total: u64,
    read_total: u64,
    /// Writes whose earlier ones were still being pushed.
    held: Vec<Write>,
    /// The slot's totals at the last drain, handed on or not.
    seen_totals: (u64, u64),
    /// When the last write or read was found in the slot.
    active_ns: u64,
    quiet: bool,
    /// At the last drain, a thread was appending. So what was appended before is not handed on yet.
    appending: bool,
    /// Who waits until it is settled.
    pub(crate) settling: Vec<Settled>,
    pub(crate) closed: bool,
    /// It was flushed once closed, for its descriptor.
    pub(crate) finishing: bool,
}

impl OwnSource {
    /// `fd` is the flusher's own description if `sharing` says so.
    pub(crate) fn new(file: Arc<OwnFile>, fd: BorrowedFd<'_>, sharing: Sharing) -> OwnSource {
        OwnSource {
            file,
            sharing,
            askable: Cell::new(match sharing {
                Sharing::Own => prepare_to_ask(fd),
                // This is the program's description: its errors are not ours to ask for.
                Sharing::Shared => Askable::NotThisFile,
            }),
            counted: Cell::new(false),
            keeping: Cell::new(None),
            written_total: 0,
            read_total: 0,
            held: Vec::new(),
            seen_totals: (0, 0),
            active_ns: 0,
            quiet: false,
            appending: false,
            settling: Vec::new(),
            closed: false,
            finishing: false,
        }
    }

    /// Hands the slot's contents to the policy. Returns false if a push was under way. `told`
    /// is scratch space, reused.
    pub(crate) fn drain(
        &mut self,
        now_ns: u64,
        fd: BorrowedFd<'_>,
        disk: &mut Disk,
        told: &mut Vec<Write>,
    ) -> bool {
        let file = Arc::clone(&self.file);
        let id = StreamId(file.number.into());
        file.slot.attend();
        self.quiet = false;

        let read_total = file.slot.reads.total();
        let reads = file
            .slot
            .reads
            .drain(|run| disk.read(now_ns, id, run.range()));
        debug_assert_eq!(reads.lost, None, "a reader asks for room");
        if reads.complete {
            self.read_total = read_total;
        }

        let written_total = file.slot.writes.total();
        if self.seen_totals != (written_total, read_total) {
            self.seen_totals = (written_total, read_total);
            self.active_ns = now_ns;
        }
        told.append(&mut self.held);
        let writes = file.slot.writes.drain(|run| tell(fd, run.write(), told));
        match writes.complete {
            // Runs don't come in the order of the writes.
            true => told.sort_by_key(|write| write.found),
            false => self.held.append(told),
        }
        let cached_from = told.partition_point(|write| write.found < Found::Cached);
        let appends = file.try_place_appends(fd);
        self.appending = appends.is_none();
        // Writers look before they write, so the map that decides about these writes is there.
        if let Some(before) = file.take_before() {
            disk.was_cached(now_ns, id, before);
        }
        disk.wrote_all(now_ns, id, told.drain(..cached_from));
        if let Some(Some(placed)) = &appends {
            if let Some(size_bytes) = placed.truncated {
                disk.resized(now_ns, id, size_bytes);
            }
            disk.wrote(now_ns, id, placed.range, placed.mode);
        }
        if let Some((span, modes)) = writes.lost {
            let parts = residency::cached_parts(fd, span);
            for mode in Drained::lost_modes(modes) {
                disk.wrote_all(now_ns, id, parts.iter().map(|part| Write::new(*part, mode)));
            }
        }
        disk.wrote_all(now_ns, id, told.drain(..));
        if writes.complete {
            self.written_total = written_total;
            disk.written_until(now_ns, id, written_total);
        }
        writes.complete && reads.complete && !self.appending
    }

    /// Notes that pages of the file were counted, and may look clean from now on.
    pub(crate) fn counted(&self) {
        self.counted.set(true);
    }

    /// Why nothing of the file may be dropped, if that is so. Call it after `range` was
    /// counted as clean: `just_now`, or in the policy's last count of it.
    ///
    /// # Errors
    /// If the file cannot be asked now; `WouldBlock` if the range is dirty again.
    pub(crate) fn keeping(
        &self,
        fd: BorrowedFd<'_>,
        range: ByteRange,
        just_now: bool,
    ) -> io::Result<Option<Keeping>> {
        if self.keeping.get().is_none() {
            self.keeping.set(self.ask(fd, range, just_now)?);
        }
        Ok(self.keeping.get())
    }

    fn ask(
        &self,
        fd: BorrowedFd<'_>,
        range: ByteRange,
        just_now: bool,
    ) -> io::Result<Option<Keeping>> {
        if remembers_failure(fd) {
            return Ok(Some(Keeping::WritebackFailed));
        }
        // A file that is only read is not changed by us, so nothing is asked.
        if !self.file.was_written() {
            return Ok(None);
        }
        match self.askable.get() {
            Askable::Yes | Askable::InInode => {}
            Askable::NotThisFile => return Ok(Some(Keeping::NotAskable)),
            Askable::NotThere => return Ok(None),
        }
        if !just_now {
            if !self.counted.get() {
                return Ok(None);
            }
            let page = ByteRange::new(range.start, range.start + page_size());
            // If it is dirty again, asking would wait for it.
            if residency::count_own(fd, page).is_ok_and(|counted| counted.unwritten_bytes() > 0) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        if self.askable.get() == Askable::InInode {
            match prepare_to_ask(fd) {
                Askable::InInode => return Ok(None),
                outgrown => self.askable.set(outgrown),
            }
            return self.ask(fd, range, just_now);
        }
        match writeback_error(fd, range.start) {
            // The file ends before it, so there is nothing to keep, and nothing was asked.
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            answered => {
                let error = answered?;
                self.counted.set(false);
                Ok(error.map(|_| Keeping::WritebackFailed))
            }
        }
    }

    /// Publishes the policy's answers in the slot: how much is done, and the writers' pace.
    pub(crate) fn publish(&mut self, disk: &Disk) {
        let id = StreamId(self.file.number.into());
        let Some(stream) = disk.stream(id) else {
            return;
        };
        let slot = &self.file.slot;
        slot.publish_reads_done(self.read_total.saturating_sub(stream.droppable_bytes()));
        self.file.store_counters(&stream.counters());
        let more_room = slot.publish_pace(
            disk.limit_bytes(id),
            disk.batch_bytes(id),
            disk.share_bytes_per_second().unwrap_or(0),
        );
        if slot.publish_done(stream.done_bytes()) || more_room {
            let _ = futex_wake(slot.wait_word(), u32::MAX >> 1);
        }
        if !self.settling.is_empty() && self.is_settled(disk) {
            self.announce_settled();
        }
    }

    /// Returns whether nothing is left to do and no write waits to be drained.
    pub(crate) fn is_settled(&self, disk: &Disk) -> bool {
        let stream = disk.stream(StreamId(self.file.number.into()));
        stream.is_none_or(|stream| stream.is_settled())
            && self.file.slot.outstanding_bytes() == 0
            && !self.appending
    }

    /// Returns whether the slot may fill without a kick.
    pub(crate) fn fills_silently(&self) -> bool {
        !self.quiet
    }

    /// Marks the slot quiet if nothing is left to do, so that its next write kicks. Returns
    /// true if a write came in between.
    ///
    /// Not right after activity: more will probably follow, and each small write would kick.
    pub(crate) fn quiet_down(&mut self, now_ns: u64, disk: &Disk) -> bool {
        let active = now_ns.saturating_sub(self.active_ns) < REST_NS;
        if self.quiet || self.closed || active || !self.is_settled(disk) {
            return false;
        }
        // The totals that were handed on, not the current ones: a write in between found the
        // slot attended and did not kick.
        self.quiet = self
            .file
            .slot
            .try_quiet(self.written_total, self.read_total);
        !self.quiet
    }

    /// Returns whether somebody still waits until it is settled.
    pub(crate) fn is_awaited(&mut self) -> bool {
        self.settling.retain(|waiter| Arc::strong_count(waiter) > 1);
        !self.settling.is_empty()
    }

    /// Ends the waits of [`OwnFile::settle`].
    pub(crate) fn announce_settled(&mut self) {
        for waiter in self.settling.drain(..) {
            waiter.store(1, Ordering::SeqCst);
            let _ = futex_wake(&waiter, 1);
        }
    }

    /// Ends all waits for the disk's flusher, which has failed.
    pub(crate) fn abandon(&self) {
        self.file.slot.abandon();
        let _ = futex_wake(self.file.slot.wait_word(), u32::MAX >> 1);
    }
}
