//! Small files that were written and closed: tens of thousands a second, when
//! an archive is unpacked.
//!
//! They wait, by the same rules as the library's small files
//! (`policy/grace.rs`): what is deleted within the grace is never written
//! because of us, and beyond the budget the oldest half is written in one go,
//! counted once it should be clean, and dropped.
//!
//! They do not go through the flusher, which has these rules, too, but looks
//! after each file by itself: a slot, a place in several queues, a search for
//! what was written, a look every few milliseconds. Of a small closed file all of
//! that is known: its few pages are dirty, all of them new. An archive of 20,000
//! files of 8 KiB took 0.7 to 1.1 s of the observer's CPU this way, and 13 s as
//! observed files, with three to five times the pages cached; a third of them and
//! more were still to be dropped when the wait for that was over.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use dropbehind::{GRACE, IoPriority, SMALL_FILES_BYTES};
use dropbehind_linux::{FileId, cachestat, drop_clean, file_stat, page_size, start_writeback};

/// Larger files are looked after one by one.
pub(crate) const SMALL_BYTES: u64 = 256 << 10;
/// No more files wait, since each holds a descriptor.
const SMALL_FILES: usize = 1024;
/// Writeback of a batch is looked after so long after it was started, and again
/// at the same interval.
const LOOK: Duration = Duration::from_millis(20);
/// So often; then the file is left to the kernel.
const LOOKS: u32 = 250;
/// Clean pages are dropped at so many looks; the kernel holds some for a moment,
/// as when a CPU has them in a batch of its own.
const DROPS: u32 = 10;
/// Files that come within this time are taken together, since to be woken costs more
/// than to take one.
const GATHER: Duration = Duration::from_millis(2);

/// Sums over all small files.
#[derive(Debug, Default)]
pub(crate) struct SmallTotals {
    pub(crate) files: AtomicU64,
    /// Bytes of pages that waited at some time.
    pub(crate) brought_bytes: AtomicU64,
    pub(crate) dropped_bytes: AtomicU64,
    pub(crate) left_bytes: AtomicU64,
    /// Deleted before they were written.
    pub(crate) deleted_bytes: AtomicU64,
    /// Bytes for which writeback was started.
    pub(crate) writeback_bytes: AtomicU64,
    /// Bytes that wait now, and the most there were.
    pub(crate) waiting_bytes: AtomicU64,
    pub(crate) peak_bytes: AtomicU64,
}

/// A small file that was written and closed.
#[derive(Debug)]
pub(crate) struct SmallFile {
    pub(crate) id: FileId,
    pub(crate) file: OwnedFd,
    pub(crate) bytes: u64,
    /// To be dropped, not only written.
    pub(crate) drops: bool,
    /// Others may have it open: it is not dropped before [`SmallFiles::users_of`].
    pub(crate) users_unknown: bool,
}

enum Message {
    File(SmallFile),
    /// Whether others use this file.
    Users(FileId, bool),
    /// Everything is to go now; answered when it has.
    Flush(mpsc::Sender<()>),
}

#[derive(Debug)]
struct Waiting {
    small: SmallFile,
    since: Instant,
    looks: u32,
    /// At how many looks it was clean, and dropped.
    dropped: u32,
}

/// The small files of an observer, and the thread that looks after them.
#[derive(Clone, Debug)]
pub(crate) struct SmallFiles {
    messages: mpsc::Sender<Message>,
    totals: Arc<SmallTotals>,
}

impl SmallFiles {
    pub(crate) fn start(io_priority: IoPriority) -> std::io::Result<SmallFiles> {
        let (messages, inbox) = mpsc::channel();
        let totals = Arc::new(SmallTotals::default());
        let mut shelf = Shelf {
            totals: Arc::clone(&totals),
            closed: VecDeque::new(),
            written: VecDeque::new(),
            closed_bytes: 0,
        };
        std::thread::Builder::new()
            .name("dropbehind-smal".into())
            .spawn(move || {
                // Where it is refused the flusher has said so.
                let _ = dropbehind_linux::set_thread_io_priority(io_priority);
                shelf.serve(&inbox);
            })?;
        Ok(SmallFiles { messages, totals })
    }

    /// A file was written and closed.
    pub(crate) fn closed(&self, mut small: SmallFile) {
        small.bytes = small.bytes.next_multiple_of(page_size());
        let bytes = small.bytes;
        let totals = &self.totals;
        totals.files.fetch_add(1, Ordering::Relaxed);
        totals.brought_bytes.fetch_add(bytes, Ordering::Relaxed);
        let waiting = totals.waiting_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        totals.peak_bytes.fetch_max(waiting, Ordering::Relaxed);
        let _ = self.messages.send(Message::File(small));
    }

    /// Others use a file, in which case it is kept, or nobody else does.
    pub(crate) fn users_of(&self, id: FileId, others: bool) {
        let _ = self.messages.send(Message::Users(id, others));
    }

    /// Writes and drops what waits; false when `timeout` passed first.
    pub(crate) fn flush(&self, timeout: Duration) -> bool {
        let (done, flushed) = mpsc::channel();
        let _ = self.messages.send(Message::Flush(done));
        flushed.recv_timeout(timeout).is_ok()
    }

    pub(crate) fn totals(&self) -> &SmallTotals {
        &self.totals
    }
}

struct Shelf {
    totals: Arc<SmallTotals>,
    closed: VecDeque<Waiting>,
    closed_bytes: u64,
    written: VecDeque<Waiting>,
}

impl Shelf {
    fn serve(&mut self, inbox: &mpsc::Receiver<Message>) {
        let mut flushing: Vec<mpsc::Sender<()>> = Vec::new();
        loop {
            let timeout = self.next_due();
            match inbox.recv_timeout(timeout) {
                Ok(message) => {
                    self.take(message, &mut flushing);
                    // All that is there, before anything is done about it.
                    while let Ok(message) = inbox.try_recv() {
                        self.take(message, &mut flushing);
                        if self.is_over_budget() {
                            break;
                        }
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            self.write_what_is_due(!flushing.is_empty());
            self.drop_what_is_clean();
            if self.closed.is_empty() && self.written.is_empty() {
                for done in flushing.drain(..) {
                    let _ = done.send(());
                }
            }
            if flushing.is_empty() {
                std::thread::sleep(GATHER);
            }
        }
    }

    fn take(&mut self, message: Message, flushing: &mut Vec<mpsc::Sender<()>>) {
        match message {
            Message::File(small) => {
                self.closed_bytes += small.bytes;
                self.closed.push_back(Waiting {
                    small,
                    since: Instant::now(),
                    looks: 0,
                    dropped: 0,
                });
            }
            Message::Users(id, others) => {
                for waiting in self.closed.iter_mut().chain(&mut self.written) {
                    if waiting.small.id == id {
                        waiting.small.users_unknown = false;
                        waiting.small.drops &= !others;
                    }
                }
            }
            Message::Flush(done) => flushing.push(done),
        }
    }

    fn is_over_budget(&self) -> bool {
        self.closed.len() > SMALL_FILES || self.closed_bytes > SMALL_FILES_BYTES
    }

    fn next_due(&self) -> Duration {
        let due = |first: Option<&Waiting>, after: Duration| {
            first.map(|first| after.saturating_sub(first.since.elapsed()))
        };
        let closed = due(self.closed.front(), GRACE);
        let written = due(self.written.front(), LOOK);
        let next = closed.into_iter().chain(written).min();
        next.unwrap_or(Duration::from_secs(3600))
    }

    /// Starts writeback of those whose grace is over; of half of them when there
    /// are too many.
    fn write_what_is_due(&mut self, all: bool) {
        let crowded = self.is_over_budget();
        let (files, bytes) = (SMALL_FILES / 2, SMALL_FILES_BYTES / 2);
        while let Some(first) = self.closed.front() {
            let too_many = crowded && (self.closed.len() > files || self.closed_bytes > bytes);
            if !all && !too_many && first.since.elapsed() < GRACE {
                return;
            }
            let Some(mut waiting) = self.closed.pop_front() else {
                return;
            };
            self.closed_bytes -= waiting.small.bytes;
            if file_stat(waiting.small.file.as_fd()).is_ok_and(|stat| stat.links == 0) {
                // The kernel frees the pages unwritten with the last descriptor.
                let deleted = &self.totals.deleted_bytes;
                deleted.fetch_add(waiting.small.bytes, Ordering::Relaxed);
                self.gone(waiting.small.bytes, waiting.small.bytes);
                continue;
            }
            if start_writeback(waiting.small.file.as_fd(), 0, 0).is_ok() {
                let started = &self.totals.writeback_bytes;
                started.fetch_add(waiting.small.bytes, Ordering::Relaxed);
            }
            waiting.since = Instant::now();
            self.written.push_back(waiting);
        }
    }

    fn drop_what_is_clean(&mut self) {
        // Each once: what is not clean goes to the end.
        for _ in 0..self.written.len() {
            match self.written.front() {
                Some(first) if first.since.elapsed() >= LOOK => {}
                _ => return,
            }
            let Some(mut waiting) = self.written.pop_front() else {
                return;
            };
            let Ok(counted) = cachestat(waiting.small.file.as_fd(), 0, 0) else {
                self.gone(waiting.small.bytes, 0);
                continue;
            };
            waiting.looks += 1;
            let given_up = waiting.looks > LOOKS;
            if !counted.is_clean() && !given_up {
                if counted.writeback_pages == 0 {
                    // Locked when it was asked for, or written again.
                    let _ = start_writeback(waiting.small.file.as_fd(), 0, 0);
                }
                waiting.since = Instant::now();
                self.written.push_back(waiting);
                continue;
            }
            if waiting.small.users_unknown && !given_up {
                waiting.since = Instant::now();
                self.written.push_back(waiting);
                continue;
            }
            let drops = waiting.small.drops && !waiting.small.users_unknown;
            let mut left = counted.cached_pages;
            if counted.is_clean() && drops && left > 0 {
                waiting.dropped += 1;
                let _ = drop_clean(waiting.small.file.as_fd(), 0, waiting.small.bytes);
                left = cachestat(waiting.small.file.as_fd(), 0, 0)
                    .map_or(left, |now| now.cached_pages);
            }
            if left > 0 && drops && !given_up && waiting.dropped < DROPS {
                waiting.since = Instant::now();
                self.written.push_back(waiting);
                continue;
            }
            let left_bytes = (left * page_size()).min(waiting.small.bytes);
            self.gone(waiting.small.bytes, waiting.small.bytes - left_bytes);
        }
    }

    /// A file waits no more; so much of it was dropped.
    fn gone(&self, bytes: u64, dropped_bytes: u64) {
        let totals = &self.totals;
        totals.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        totals
            .dropped_bytes
            .fetch_add(dropped_bytes, Ordering::Relaxed);
        totals
            .left_bytes
            .fetch_add(bytes - dropped_bytes, Ordering::Relaxed);
    }
}
