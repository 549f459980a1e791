//! Messages from other threads: files that come and go, and requests.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dropbehind_policy::{ByteRange, StreamId};

use super::{Attachment, DiskThread, Source};
use crate::disk_handle::Message;
use crate::totals::OpenFile;
use crate::{lock, residency};

impl DiskThread {
    pub(super) fn read_inbox(&mut self) {
        loop {
            let Some(message) = lock(&self.shared.inbox).messages.pop_front() else {
                return;
            };
            let now_ns = self.now_ns();
            match message {
                Message::Attach(attachment) => self.attach(now_ns, *attachment),
                Message::Closed(number) => {
                    self.drain(number);
                    if let Some(own) = self.own(number) {
                        own.closed = true;
                    }
                    self.disk.closed(now_ns, StreamId(number.into()));
                }
                Message::Synced(number) => {
                    self.drain(number);
                    self.disk.synced(now_ns, StreamId(number.into()));
                }
                Message::Resized(number, size_bytes) => {
                    let id = StreamId(number.into());
                    // The slot may have writes of before and of after it. After it, what others had
                    // cached is gone.
                    self.disk.resized(now_ns, id, size_bytes);
                    self.drain(number);
                    self.disk.resized(now_ns, id, size_bytes);
                }
                Message::Flush(number, settled) => {
                    if let Some(own) = self.own(number) {
                        own.settling.push(settled);
                    }
                    self.drain(number);
                }
                Message::Read(number, range) => {
                    self.disk.read(now_ns, StreamId(number.into()), range);
                }
                Message::FoundCached(number, ranges) => {
                    self.drain(number);
                    self.count_kept(number, ranges);
                }
                Message::Reopened(number) => self.reopened(now_ns, number),
                Message::LastClosed(number) => self.left(number),
                Message::Traced(number) => self.read_mailbox(now_ns, number),
                Message::WasRead(number) => {
                    self.with_observed(number, |observed| observed.stream.was_read());
                }
                Message::WasWritten(number) => {
                    self.with_observed(number, |observed| observed.stream.was_written());
                }
                Message::Brought(number, range, answer) => {
                    self.drain(number);
                    // The asking thread may have given up waiting.
                    let _ = answer.send(self.droppable(number, range));
                }
                Message::FlushAll(done) => {
                    self.drains.push(done);
                    let numbers: Vec<u32> = self.entries.keys().copied().collect();
                    for number in numbers {
                        self.flush(number);
                    }
                }
                Message::SubmitAll(done) => {
                    self.submissions.push(done);
                    self.drain_all();
                    for number in self.entries.keys() {
                        self.disk.submit(now_ns, StreamId((*number).into()));
                    }
                }
            }
        }
    }

    /// Writes and drops what waits of closed files, if their descriptors are needed.
    pub(super) fn finish_closed_files(&mut self) {
        if !self.shared.lacks_descriptors.swap(false, Ordering::SeqCst) {
            return;
        }
        let now_ns = self.now_ns();
        for (number, entry) in &mut self.entries {
            if let Source::Own(own) = &mut entry.source
                && own.closed
                && !std::mem::replace(&mut own.finishing, true)
            {
                self.disk.flush(now_ns, StreamId((*number).into()));
            }
        }
    }

    /// Counts what is still cached of these ranges as kept, unless it is ours after all.
    fn count_kept(&mut self, number: u32, ranges: Vec<ByteRange>) {
        let (now_ns, id) = (self.now_ns(), StreamId(number.into()));
        let Some(entry) = self.entries.get(&number) else {
            return;
        };
        let Ok(file) = entry.description.open() else {
            return;
        };
        for range in ranges {
            for cached in residency::resident_in(file.as_fd(), range).unwrap_or_default() {
                self.disk.read_cached(now_ns, id, cached);
            }
        }
    }

    fn attach(&mut self, now_ns: u64, attachment: Attachment) {
        let Attachment {
            number,
            config,
            before,
            entry,
        } = attachment;
        let id = StreamId(number.into());
        self.disk.opened(id, config, before);
        let open = match &entry.source {
            Source::Own(own) => OpenFile::Own(Arc::clone(&own.file)),
            Source::Observed(observed) => OpenFile::Observed(Arc::clone(&observed.state)),
        };
        lock(&self.shared.totals).open(number, open);
        self.entries.insert(number, entry);
        self.drain(number);
        self.with_observed(number, |observed| observed.stream.touched(now_ns));
    }

    fn flush(&mut self, number: u32) {
        self.drain(number);
        if let Some(observed) = self.observed(number) {
            observed.stream.flush();
            self.look_at(number);
        }
    }
}
