//! What the programs' side tells: files that come and go, and wishes.

use std::os::fd::AsFd;
use std::sync::Arc;

use dropbehind_linux::file_stat;
use dropbehind_policy::{Brought, StreamId};

use super::{Attachment, DiskThread, Entry};
use crate::flusher::{Message, look};
use crate::handle::lock;

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
                    if let Some(entry) = self.entries.get_mut(&number) {
                        entry.closed = true;
                    }
                    self.disk.closed(now_ns, StreamId(number.into()));
                }
                Message::Synced(number) => {
                    self.drain(number);
                    self.disk.synced(now_ns, StreamId(number.into()));
                }
                Message::Resized(number, size_bytes) => {
                    self.drain(number);
                    if let Some(entry) = self.entries.get_mut(&number) {
                        entry.size_bytes = size_bytes;
                    }
                    self.disk
                        .resized(now_ns, StreamId(number.into()), size_bytes);
                }
                Message::Flush(number) => self.flush(now_ns, number),
                Message::Touched(number) => self.touched(now_ns, number),
                Message::Left(number) => self.left(number),
                Message::Told(number) => self.told(now_ns, number),
                Message::WasRead(number) => {
                    if let Some(watch) = self.watch_of(number) {
                        watch.was_read = true;
                    }
                }
                Message::Brought(number, range, answer) => {
                    self.drain(number);
                    let stream = self.disk.stream(StreamId(number.into()));
                    let ours = stream.map(|stream| stream.brought_in(range));
                    // Who asked may have lost patience.
                    let _ = answer.send(ours.unwrap_or_default());
                }
                Message::FlushAll(done) => {
                    self.drains.push(done);
                    let numbers: Vec<u32> = self.entries.keys().copied().collect();
                    for number in numbers {
                        self.flush(now_ns, number);
                    }
                }
            }
        }
    }

    fn attach(&mut self, now_ns: u64, attachment: Attachment) {
        let Attachment {
            handle,
            description,
            sharing,
            before,
            watch,
        } = attachment;
        let number = handle.number;
        let config = handle.config();
        let id = StreamId(number.into());
        self.disk.opened(now_ns, id, config, before);
        handle.slot.attend();
        let observed = watch.is_some();
        lock(&self.shared.totals)
            .open
            .insert(number, Arc::clone(&handle));
        self.entries.insert(
            number,
            Entry {
                handle,
                description,
                sharing,
                size_bytes: config.size_bytes,
                written_total: 0,
                read_total: 0,
                seen_totals: (0, 0),
                active_ns: now_ns,
                quiet: false,
                settle_asked: false,
                closed: false,
                watch,
            },
        );
        if observed {
            self.touched(now_ns, number);
        } else {
            self.drain(number);
        }
    }

    fn touched(&mut self, now_ns: u64, number: u32) {
        let Some(watch) = self.watch_of(number) else {
            return;
        };
        watch.interval_ns = 0;
        watch.changed_ns = now_ns;
        watch.idle_told = false;
        // Who opens a file does not close it in the next moment, mostly; what
        // happens at once is seen a little later in one look.
        let due_ns = now_ns + look::LOOK_MIN_NS / 2;
        if watch.next_look_ns <= now_ns || watch.next_look_ns > due_ns {
            self.queue_look(number, due_ns);
        }
    }

    /// Somebody said who brought in what; what of it was written, the next look finds.
    fn told(&mut self, now_ns: u64, number: u32) {
        let Some(watch) = self.watch_of(number) else {
            return;
        };
        let told = std::mem::take(&mut *lock(&watch.told));
        for &Brought { range, ours } in &told {
            watch.fronts.withdraw(range);
            match ours {
                true => {
                    watch.fresh.insert(range);
                    watch.uncounted.insert(range);
                }
                false => {
                    watch.fresh.remove(range);
                }
            }
        }
        let drops = watch.options.mode.drops();
        let id = StreamId(number.into());
        for Brought { range, ours } in told {
            match ours {
                true if drops => self.disk.brought(now_ns, id, range),
                true => {}
                false => self.disk.taken_over(now_ns, id, range),
            }
        }
        self.touched(now_ns, number);
    }

    /// A user of an observed file closed it.
    fn left(&mut self, number: u32) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        let Some(watch) = &mut entry.watch else {
            return;
        };
        watch.closed = true;
        // What nobody can open again is let go of, and need not be found first.
        let deleted = file_stat(entry.description.as_fd()).is_ok_and(|stat| stat.links == 0);
        self.look_at(number, !deleted);
    }

    fn flush(&mut self, now_ns: u64, number: u32) {
        self.drain(number);
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        entry.settle_asked = true;
        if let Some(watch) = &mut entry.watch {
            watch.flushed = true;
            return self.look_at(number, true);
        }
        self.disk.flush(now_ns, StreamId(number.into()));
        self.publish(number);
    }
}
