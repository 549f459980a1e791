//! Hands the slots' contents to the policy, and publishes its answers.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use dropbehind_policy::StreamId;
use dropbehind_slot::NOBODY;

use super::{DiskThread, Source};

impl DiskThread {
    pub(super) fn drain_kicked(&mut self) {
        let mut number = self.shared.bell.take_list();
        while number != NOBODY {
            if !self.entries.contains_key(&number) {
                // The slot was queued after it was attached, so the message is in the inbox
                // by now.
                self.read_inbox();
            }
            let Some(own) = self.own(number) else {
                // The sweep finds the slots behind it in the list.
                self.drain_all();
                return;
            };
            let file = std::sync::Arc::clone(&own.file);
            let next = self.shared.bell.delist(&file.slot.queued);
            self.drain(number);
            number = next;
        }
    }

    pub(super) fn drain_all(&mut self) {
        // The list stays as it is: a slot removed while still linked would be linked to
        // itself by the next kick.
        let numbers: Vec<u32> = self.entries.keys().copied().collect();
        for number in numbers {
            self.drain(number);
        }
    }

    pub(super) fn drain(&mut self, number: u32) {
        let now_ns = self.now_ns();
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        if let Source::Own(own) = &mut entry.source
            && let Ok(file) = entry.description.open()
        {
            let fd = file.as_fd();
            self.incomplete |= !own.drain(now_ns, fd, &mut self.disk, &mut self.told);
            // Also later: once all was done, the policy takes what comes then as not flushed.
            if own.is_awaited() || !self.drains.is_empty() {
                self.disk.flush(now_ns, StreamId(number.into()));
            }
            self.publish(number);
        }
    }

    pub(super) fn publish(&mut self, number: u32) {
        if let Some(speed) = self.disk.bytes_per_second() {
            self.shared.bytes_per_second.store(speed, Ordering::Relaxed);
            let window_bytes = self.disk.window_bytes();
            self.shared
                .window_bytes
                .store(window_bytes, Ordering::Relaxed);
        }
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        match &mut entry.source {
            Source::Own(own) => own.publish(&self.disk),
            Source::Observed(observed) => {
                if let Some(stream) = self.disk.stream(StreamId(number.into())) {
                    observed.publish(stream.counters());
                }
            }
        }
    }
}
