//! One disk, as shared by its files and its thread.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use dropbehind_linux::{DiskInfo, IoPriority, futex_wake, set_thread_io_priority};
use dropbehind_policy::ByteRange;
use dropbehind_policy::write_behind::DEFAULT_WINDOW_BYTES;
use dropbehind_slot::Doorbell;

use crate::observed_file::{Brakes, ExcessSink, ObservedPages};
use crate::own_file::Settled;
use crate::own_file::fetchers::Fetchers;
use crate::totals::Totals;
use crate::{disk_thread, keeper, lock};

/// What other threads tell a disk's thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// The keeper has opened a description of this file.
    Attach(Box<disk_thread::Attachment>),
    Closed(u32),
    Synced(u32),
    Resized(u32, u64),
    /// Write and drop everything of the file, and say so.
    Flush(u32, Settled),
    /// A finished read of a file brought in this range, and the file's ring is full.
    Read(u32, ByteRange),
    /// These ranges of a file were cached before it was read.
    FoundCached(u32, Vec<ByteRange>),
    /// A program has opened an observed file.
    Reopened(u32),
    /// The last user of an observed file closed it.
    LastClosed(u32),
    /// The trace has named pages of an observed file.
    Traced(u32),
    /// Another process has read an observed file.
    WasRead(u32),
    /// An observed process has written to an observed file.
    WasWritten(u32),
    /// Which parts of a range did this file bring in?
    Brought(u32, ByteRange, mpsc::Sender<Vec<ByteRange>>),
    /// Write and drop everything; the thread then drops the sender.
    FlushAll(mpsc::Sender<()>),
    /// The process ends: request all that is to be written; the thread then drops the sender.
    SubmitAll(mpsc::Sender<()>),
}

/// One disk, as shared by its files and its thread.
#[derive(Debug)]
pub(crate) struct DiskHandle {
    pub(crate) bell: Doorbell,
    pub(crate) disk: DiskInfo,
    io_priority: IoPriority,
    pub(crate) inbox: Mutex<Inbox>,
    pub(crate) numbers: AtomicU32,
    pub(crate) dead: AtomicBool,
    /// The keeper finds no descriptor: the thread is to finish its closed files.
    pub(crate) lacks_descriptors: AtomicBool,
    pub(crate) totals: Mutex<Totals>,
    pub(crate) notes: Mutex<Vec<String>>,
    /// Pages of the observed files.
    pub(crate) observed: Mutex<ObservedPages>,
    /// What holds back the files' writers.
    pub(crate) brakes: Brakes,
    /// Receives a report while too much of its observed files is unwritten.
    pub(crate) excess: Option<ExcessSink>,
    /// Measured speed of writeback, 0 until known.
    pub(crate) bytes_per_second: AtomicU64,
    /// The window derived from that speed.
    pub(crate) window_bytes: Arc<AtomicU64>,
    /// How many flushers share that window, including ourselves.
    pub(crate) flushers: AtomicU64,
    /// How long writeback has yielded to the disk's readers.
    pub(crate) yielded_ns: AtomicU64,
    /// The threads that read ahead for the readers of its files.
    pub(crate) fetchers: Arc<Fetchers>,
}

/// How far the kernel reads ahead in a file that is opened now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadAhead {
    /// The most in one call for it.
    pub(crate) call_bytes: u64,
    /// The most of its own accord.
    pub(crate) own_bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(crate) messages: VecDeque<Message>,
    pub(crate) thread_runs: bool,
}

impl DiskHandle {
    pub(crate) fn new(
        disk: DiskInfo,
        io_priority: IoPriority,
        excess: Option<ExcessSink>,
    ) -> DiskHandle {
        DiskHandle {
            excess,
            io_priority,
            bell: Doorbell::new(),
            disk,
            inbox: Mutex::default(),
            numbers: AtomicU32::new(0),
            dead: AtomicBool::new(false),
            lacks_descriptors: AtomicBool::new(false),
            totals: Mutex::default(),
            notes: Mutex::default(),
            observed: Mutex::default(),
            brakes: Brakes::default(),
            bytes_per_second: AtomicU64::new(0),
            window_bytes: Arc::new(DEFAULT_WINDOW_BYTES.into()),
            flushers: AtomicU64::new(1),
            yielded_ns: AtomicU64::new(0),
            fetchers: Arc::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.disk.name
    }

    /// Hands a file to the disk's thread, and starts the thread if there is none.
    ///
    /// # Errors
    /// If it cannot be started, or has panicked: nobody would read the inbox.
    pub(crate) fn attach(self: &Arc<Self>, attachment: disk_thread::Attachment) -> io::Result<()> {
        if self.is_dead() {
            return Err(io::Error::other("its last one has failed"));
        }
        let mut inbox = lock(&self.inbox);
        inbox
            .messages
            .push_back(Message::Attach(Box::new(attachment)));
        if !inbox.thread_runs {
            let own = Arc::clone(self);
            let name = format!("dropbehind/{}", self.disk.name);
            let run = move || {
                // The threads that it starts inherit it.
                if let Err(error) = set_thread_io_priority(own.io_priority) {
                    let priority = own.io_priority;
                    own.note(format!(
                        "no I/O priority {priority} for writeback ({error})"
                    ));
                }
                disk_thread::run(own);
            };
            if let Err(error) = keeper::spawn(&name, run) {
                inbox.messages.pop_back();
                return Err(error);
            }
            inbox.thread_runs = true;
        }
        drop(inbox);
        self.wake();
        Ok(())
    }

    pub(crate) fn next_number(&self) -> u32 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// How far the kernel reads ahead, as set now.
    pub(crate) fn read_ahead(&self) -> ReadAhead {
        // A virtual disk's figures are made up, so take the kernel's default.
        const DEFAULT_BYTES: u64 = 128 << 10;
        let set_bytes = self.disk.current_read_ahead_bytes();
        let larger_bytes = set_bytes.max(self.disk.request_bytes).max(DEFAULT_BYTES);
        ReadAhead {
            call_bytes: match self.disk.virtual_ {
                true => DEFAULT_BYTES,
                false => larger_bytes,
            },
            // btrfs reads 4 MiB, whatever the disk's setting (fs/btrfs/disk-io.c).
            own_bytes: set_bytes.max(4 << 20),
        }
    }

    /// The current window of a file without a window of its own.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.window_bytes.load(Ordering::Relaxed)
    }

    /// The measured speed of writeback; 0 until known.
    pub(crate) fn bytes_per_second(&self) -> u64 {
        self.bytes_per_second.load(Ordering::Relaxed)
    }

    /// Returns whether the disk's thread has panicked: its files go on as plain buffered
    /// ones.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Asks the thread for [`Message::FlushAll`] or [`Message::SubmitAll`]; the receiver is
    /// disconnected when that is done. `None` if there is no thread, and so nothing to do.
    pub(crate) fn ask(
        &self,
        message: impl FnOnce(mpsc::Sender<()>) -> Message,
    ) -> Option<mpsc::Receiver<()>> {
        let (done, answered) = mpsc::channel();
        let mut inbox = lock(&self.inbox);
        if !inbox.thread_runs {
            return None;
        }
        inbox.messages.push_back(message(done));
        drop(inbox);
        self.wake();
        Some(answered)
    }

    /// Sends the disk's thread a message.
    pub(crate) fn post(&self, message: Message) {
        lock(&self.inbox).messages.push_back(message);
        self.wake();
    }

    /// Has the thread finish its closed files, for their descriptors.
    pub(crate) fn finish_closed_files(&self) {
        self.lacks_descriptors.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        if self.bell.ring() == Some(true) {
            let _ = futex_wake(self.bell.word(), 1);
        }
    }

    pub(crate) fn note(&self, note: String) {
        let mut notes = lock(&self.notes);
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use dropbehind_linux::file_info;
    use dropbehind_policy::{Mode, StreamConfig};
    use dropbehind_testbed::Scratch;

    use super::*;
    use crate::flusher::Flusher;
    use crate::own_file::{CachedBefore, OwnFile};

    /// Its inbox would hold their descriptors for good.
    #[test]
    fn a_thread_that_has_failed_gets_no_files() {
        let scratch = Scratch::new().unwrap();
        let file = File::create_new(scratch.file("data")).unwrap();
        let fd = file.as_fd();
        let flusher = Flusher::builder().build().unwrap();
        let id = file_info(fd).unwrap().id;
        let own = OwnFile::new(flusher, fd, id.device, id, StreamConfig::default());
        let own = Arc::new(own.unwrap());
        lock(&own.disk.inbox).thread_runs = true;
        own.disk.dead.store(true, Ordering::SeqCst);
        let range = ByteRange::new(0, 4096);
        let due = own.wrote(fd, range, 4096, Mode::DONTCACHE, CachedBefore::default());
        own.slow_down(due, 4096);
        // Waits for the keeper's answer.
        own.close(fd);
        assert!(lock(&own.disk.inbox).messages.is_empty());
        let notes = lock(&own.disk.notes);
        assert!(
            notes.iter().any(|note| note.contains("has failed")),
            "{notes:?}"
        );
    }
}
