//! What stands in the slots, told to the policy, and its answers published there.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dropbehind_linux::futex_wake;
use dropbehind_policy::{ByteRange, Disk, StreamId};
use dropbehind_slot::{Drained, NOBODY};

use super::{DiskThread, Entry};
use crate::residency;

impl DiskThread {
    pub(super) fn drain_kicked(&mut self) {
        let mut number = self.shared.bell.take_list();
        while number != NOBODY {
            if !self.entries.contains_key(&number) {
                // It joined the list after it was attached: that stands in the
                // inbox by now.
                self.read_inbox();
            }
            let Some(entry) = self.entries.get(&number) else {
                // Whoever is behind it in the list is found by the sweep.
                self.drain_all();
                return;
            };
            let next = self.shared.bell.delist(&entry.handle.slot.queued);
            self.drain(number);
            number = next;
        }
    }

    pub(super) fn drain_all(&mut self) {
        // The list stays as it is: a slot taken out of it that is still linked
        // would be linked to itself by the next kick.
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
        if entry.watch.is_some() {
            return;
        }
        let id = StreamId(number.into());
        let handle = Arc::clone(&entry.handle);
        handle.slot.attend();
        entry.quiet = false;
        let disk = &mut self.disk;

        let read_total = handle.slot.reads.total();
        let reads = handle
            .slot
            .reads
            .drain(|run| disk.read(now_ns, id, run.range()));
        if let Some((span, _)) = reads.lost {
            for part in residency::cached_parts(entry.description.as_fd(), span) {
                disk.read(now_ns, id, part);
            }
        }
        if reads.complete {
            entry.read_total = read_total;
        }

        let written_total = handle.slot.writes.total();
        if entry.seen_totals != (written_total, read_total) {
            entry.seen_totals = (written_total, read_total);
            entry.active_ns = now_ns;
        }
        let mut appended = false;
        let o_append = handle.config().o_append;
        let told = &mut self.told;
        let writes = handle.slot.writes.drain(|run| {
            if o_append {
                appended = true;
            } else {
                told.push((run.range(), run.mode()));
            }
        });
        disk.wrote_all(now_ns, id, told.drain(..));
        if appended {
            Self::drain_appended(disk, now_ns, id, entry);
        }
        if let Some((span, modes)) = writes.lost {
            let parts = residency::cached_parts(entry.description.as_fd(), span);
            for mode in Drained::lost_modes(modes) {
                disk.wrote_all(now_ns, id, parts.iter().map(|part| (*part, mode)));
            }
        }
        if writes.complete {
            entry.written_total = written_total;
            disk.told(now_ns, id, written_total);
        }
        self.incomplete = !(writes.complete && reads.complete);
        self.publish(number);
    }

    /// Where an append went only the kernel knows, without a call in the
    /// writer's path: the file has grown up to there.
    fn drain_appended(disk: &mut Disk, now_ns: u64, id: StreamId, entry: &mut Entry) {
        let Ok(size_bytes) = dropbehind_linux::size_bytes(entry.description.as_fd()) else {
            return;
        };
        let range = ByteRange::new(entry.size_bytes, size_bytes);
        entry.size_bytes = size_bytes;
        let mode = entry.handle.append_mode();
        disk.wrote(now_ns, id, range, mode);
    }

    pub(in crate::flusher) fn publish(&mut self, number: u32) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        let id = StreamId(number.into());
        let slot = &entry.handle.slot;
        let Some(stream) = self.disk.stream(id) else {
            return;
        };
        slot.publish_reads_done(entry.read_total.saturating_sub(stream.droppable_bytes()));
        entry.handle.store_counters(&stream.counters());
        if let Some(speed) = self.disk.bytes_per_second() {
            self.shared.bytes_per_second.store(speed, Ordering::Relaxed);
            let window_bytes = self.disk.window_bytes();
            self.shared
                .window_bytes
                .store(window_bytes, Ordering::Relaxed);
        }
        let more_room = slot.publish_pace(
            self.disk.limit_bytes(id),
            self.disk.batch_bytes(id),
            self.disk.share_bytes_per_second().unwrap_or(0),
        );
        if slot.publish_done(stream.done_bytes()) || more_room {
            let _ = futex_wake(slot.wait_word(), u32::MAX >> 1);
        }
        if entry.settle_asked && stream.is_settled() && slot.outstanding_bytes() == 0 {
            entry.settle_asked = false;
            entry.handle.announce_settled();
        }
    }
}
