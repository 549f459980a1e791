//! A file that the program reads and writes by itself, such as through a ring.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use dropbehind_flusher::Stats;
use dropbehind_flusher::own_file::OwnFile;
use dropbehind_policy::{ByteRange, Mode};

use crate::control::{DropOutcome, operations};
use crate::facts::{Facts, UNATTENDED};
use crate::settings::FileSettings;

/// A file that the program reads and writes by itself: with io_uring, through another library,
/// or by calls of its own.
///
/// The program reports what it did; the flusher writes back and drops as for a
/// [`File`](crate::File). Nothing is done with the descriptor itself but to ask about the file.
/// What is not reported is left alone: it stays cached, and the kernel writes it.
///
/// All methods can be called by several threads at once. In the child of a fork they do
/// nothing.
pub struct Attached<F: AsFd> {
    /// `Some` until it is detached.
    file: Option<F>,
    facts: Facts,
    /// `None` if the mode has no effect here.
    handle: Option<Arc<OwnFile>>,
}

impl<F: AsFd> fmt::Debug for Attached<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attached")
            .field("mode", &self.facts.mode)
            .finish_non_exhaustive()
    }
}

/// A read that was announced. It keeps the flusher from dropping pages of its range until it is
/// [done](Attached::read_done), or the file is detached.
#[derive(Debug)]
#[must_use = "pages of its range are not dropped before `Attached::read_done`"]
pub struct Reading {
    range: ByteRange,
    absent: Vec<ByteRange>,
}

impl<F: AsFd> Attached<F> {
    pub(crate) fn new(file: F, settings: FileSettings) -> io::Result<Attached<F>> {
        let facts = Facts::of(file.as_fd(), settings)?;
        let handle = match facts.without_effect {
            None => facts.new_handle(file.as_fd(), facts.size_bytes),
            Some(_) => None,
        };
        if let Some(handle) = &handle {
            handle.look_before(file.as_fd(), facts.mode);
        }
        Ok(Attached {
            file: Some(file),
            facts,
            handle,
        })
    }

    /// The file.
    pub fn get_ref(&self) -> &F {
        self.file.as_ref().expect("only detach takes it")
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.get_ref().as_fd()
    }

    /// Its mode.
    pub fn mode(&self) -> Mode {
        self.facts.mode
    }

    /// Why the mode has no effect on this file, or `None` if it has one.
    pub fn without_effect(&self) -> Option<&'static str> {
        let unattended = self.handle.is_none().then_some(UNATTENDED);
        self.facts.without_effect.or(unattended)
    }

    fn handle(&self) -> Option<&Arc<OwnFile>> {
        self.handle.as_ref().filter(|handle| handle.is_ours())
    }

    /// A write of `length` bytes at `offset` has completed. With `O_APPEND`, the offset doesn't
    /// matter: all that the file has grown by counts as appended by this program. A few atomic operations, and a wake-up of the flusher for each batch; it never
    /// waits.
    ///
    /// Returns true if so much is unwritten that the program should submit no more before
    /// [`Attached::wait_for_room`]. If it goes on, more than two windows are dirty, which is
    /// all that happens.
    pub fn wrote(&self, offset: u64, length: u64) -> bool {
        let Some(handle) = self.handle().filter(|_| !self.facts.mode.is_buffered()) else {
            return false;
        };
        let mode = self.facts.effective(self.facts.mode);
        if self.facts.flags.append {
            handle.tell_only_append(self.fd(), length, mode);
        } else {
            let range = ByteRange::new(offset, offset.saturating_add(length));
            handle.tell_written(self.fd(), range, length, mode);
        }
        handle.is_over_limit()
    }

    /// Waits until [`Attached::wrote`] would return false.
    pub fn wait_for_room(&self) {
        if let Some(handle) = self.handle() {
            handle.wait_for_room();
        }
    }

    /// A read of `length` bytes at `offset` is about to be submitted. Finds out what of it is
    /// cached (cachestat(2), and mincore(2) if a part is): the rest is what the read brings in.
    ///
    /// The kernel may read ahead of it, which nobody reports, so those pages stay. Attach the
    /// file with [`OpenOptions::random`](crate::OpenOptions::random) to prevent that.
    pub fn will_read(&self, offset: u64, length: u64) -> Reading {
        let page_bytes = dropbehind_linux::page_size();
        let range = ByteRange::new(offset, offset.saturating_add(length));
        let range = range.page_aligned_outward(page_bytes);
        let handle = self.handle().filter(|_| self.facts.mode.drops());
        Reading {
            range,
            absent: handle.map_or_else(Vec::new, |handle| handle.will_read(self.fd(), range)),
        }
    }

    /// The read has completed, or failed, or was not submitted after all. What it brought in is
    /// dropped.
    pub fn read_done(&self, reading: Reading) {
        if let Some(handle) = self.handle().filter(|_| self.facts.mode.drops()) {
            handle.read_done(self.fd(), reading.range, reading.absent);
        }
    }

    /// Drops the clean pages of a range that were not cached before, and reports what stayed.
    ///
    /// # Errors
    /// Those of [`File::drop_behind`](crate::File::drop_behind).
    pub fn drop_behind(&self, range: Range<u64>) -> io::Result<DropOutcome> {
        operations::drop_behind(self.fd(), self.facts.mode, self.handle(), range.into())
    }

    /// An `fsync` or `fdatasync` by the program has returned this. Call it for each one: after a
    /// failed one, nothing of the file is dropped. Returns the same.
    ///
    /// # Errors
    /// As said.
    pub fn synced(&self, result: io::Result<()>) -> io::Result<()> {
        operations::synced(self.fd(), self.handle(), &result);
        result
    }

    /// What was done for the file.
    pub fn stats(&self) -> Stats {
        self.handle()
            .map_or_else(Stats::default, |handle| handle.stats())
    }

    /// Waits until all that was reported is clean and dropped. Returns false if `timeout` passes
    /// first, or at once if the file could not be opened again for the flusher, or no thread could be
    /// started: the kernel then keeps its pages. Syncs nothing.
    pub fn settle(&self, timeout: Duration) -> bool {
        match self.handle() {
            Some(handle) => handle.settle(self.fd(), timeout),
            None => self.handle.is_some() || self.facts.without_effect.is_some(),
        }
    }

    /// Ends it, and returns the file. The flusher finishes what was reported. Dropping it does
    /// the same.
    pub fn detach(mut self) -> F {
        self.end();
        self.file.take().expect("only detach takes it")
    }

    fn end(&self) {
        if let (Some(handle), Some(file)) = (self.handle(), &self.file) {
            handle.give_back(file.as_fd());
        }
    }
}

impl<F: AsFd> Drop for Attached<F> {
    fn drop(&mut self) {
        self.end();
    }
}
