//! Looks at observed files, in the order in which they are due.

use std::os::fd::AsFd;
use std::sync::Arc;

use dropbehind_linux::file_stat;
use dropbehind_policy::stream::Stream;
use dropbehind_policy::{Brought, StreamId};

use super::{DiskThread, Source};
use crate::lock;
use crate::observed_file::Notice;
use crate::observed_file::mailbox::Mail;
use crate::observed_file::source::{DescriptionPages, ObservedSource};

/// The limit on separate page ranges remembered as still to be dropped. A program that reads
/// every second page of sparse files makes 200,000 a second, and they take our memory.
const RANGES: usize = 1 << 17;
/// The ranges are counted again after this many new ones.
const RECOUNT: usize = 1 << 12;
/// The most time for looks at once. Users can have any number of files due.
const LOOKS_NS: u64 = 10_000_000;

impl DiskThread {
    /// Looks at the observed files that are due, for a while. What else there is to do gets as
    /// much time before the next look. Returns when that one is due.
    pub(super) fn look_around(&mut self) -> Option<u64> {
        let began_ns = self.now_ns();
        let mut now_ns = began_ns;
        while self.next_look_ns()? <= now_ns && now_ns - began_ns < LOOKS_NS {
            let &(_, number) = self.looks.first()?;
            self.look_at(number);
            now_ns = self.now_ns();
        }
        if now_ns > began_ns {
            self.looks_from_ns = now_ns + (now_ns - began_ns);
        }
        self.next_look_ns()
    }

    pub(super) fn look_is_due(&self) -> bool {
        self.next_look_ns()
            .is_some_and(|due_ns| due_ns <= self.now_ns())
    }

    fn next_look_ns(&self) -> Option<u64> {
        let &(due_ns, _) = self.looks.first()?;
        Some(due_ns.max(self.looks_from_ns))
    }

    /// Looks at a file now.
    pub(super) fn look_at(&mut self, number: u32) {
        let now_ns = || super::now_ns(self.started);
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        let Source::Observed(observed) = &mut entry.source else {
            return;
        };
        let Ok(file) = entry.description.open() else {
            // Another process may keep a lease on it for ever.
            observed.stream.not_looked(now_ns());
            return self.queue_look(number);
        };
        let pages = DescriptionPages {
            fd: file.as_fd(),
            seen: entry.description.cachestat_sees(file.as_fd()),
            now_ns: &now_ns,
        };
        if observed.stream.look(&mut self.disk, &pages) {
            let key = observed.key;
            observed.notices.tell(Notice::Idle { key });
        }
        let counts = observed.stream.counts();
        lock(&self.shared.observed).change(observed.accounted, counts.ours);
        observed.accounted = counts.ours;
        if let Some(Some(brake)) = observed.brake.get() {
            let unwritten_bytes = counts.counted.unwritten_bytes();
            let stream = self.disk.stream(observed.stream.id());
            let written_behind = stream.is_some_and(Stream::is_written_behind);
            self.shared
                .saw_unwritten(brake, unwritten_bytes, written_behind);
        }
        self.queue_look(number);
        self.publish(number);
    }

    /// Changes an observed file in a way that may bring its next look forward.
    pub(super) fn with_observed(&mut self, number: u32, change: impl FnOnce(&mut ObservedSource)) {
        if let Some(observed) = self.observed(number) {
            change(observed);
            self.queue_look(number);
        }
    }

    /// A program opens an observed file, which may have been closed before.
    pub(super) fn reopened(&mut self, now_ns: u64, number: u32) {
        if let Some(entry) = self.entries.get_mut(&number)
            && let Source::Observed(observed) = &mut entry.source
        {
            observed.stream.reopened(now_ns, &mut self.disk);
            self.queue_look(number);
        }
    }

    fn queue_look(&mut self, number: u32) {
        let Some(observed) = self.observed(number) else {
            return;
        };
        let due_ns = observed.stream.next_look_ns();
        let queued_ns = std::mem::replace(&mut observed.queued_ns, due_ns);
        self.looks.remove(&(queued_ns, number));
        self.looks.insert((due_ns, number));
    }

    /// Reads what the kernel's trace has reported of an observed file.
    pub(super) fn read_mailbox(&mut self, now_ns: u64, number: u32) {
        let Some(observed) = self.observed(number) else {
            return;
        };
        let told = observed.mailbox.take();
        let mut brought = Vec::new();
        for told in told {
            match told {
                Mail::Brought(pages) => brought.push(pages),
                Mail::Decided { range, stays } => {
                    self.brought(now_ns, number, std::mem::take(&mut brought));
                    let id = StreamId(number.into());
                    self.disk.decided(now_ns, id, range, stays);
                }
                Mail::Changed { mode, reads } => {
                    self.brought(now_ns, number, std::mem::take(&mut brought));
                    self.with_observed(number, |observed| observed.stream.change(mode, reads));
                }
                Mail::Advised { random } => {
                    let id = StreamId(number.into());
                    self.disk.advised(now_ns, id, random);
                }
                Mail::Emptied => {
                    self.brought(now_ns, number, std::mem::take(&mut brought));
                    // The next look sees its size.
                    self.disk.resized(now_ns, StreamId(number.into()), 0);
                    self.with_observed(number, |observed| observed.stream.emptied());
                }
            }
        }
        self.brought(now_ns, number, brought);
        self.queue_look(number);
    }

    fn brought(&mut self, now_ns: u64, number: u32, mut brought: Vec<Brought>) {
        for piece in brought.chunks_mut(RECOUNT) {
            if self.has_too_many_ranges(piece.len()) {
                for brought in &mut *piece {
                    brought.ours = false;
                }
            }
            let entry = self.entries.get_mut(&number);
            if let Some(Source::Observed(observed)) = entry.map(|entry| &mut entry.source) {
                let piece = piece.iter().copied();
                observed.stream.brought(now_ns, &mut self.disk, piece);
            }
        }
    }

    /// Returns whether there would be too many ranges to remember with `more` new ones.
    fn has_too_many_ranges(&mut self, more: usize) -> bool {
        self.new_ranges += more;
        if self.new_ranges >= RECOUNT {
            let observed = self
                .entries
                .values()
                .filter_map(|entry| match &entry.source {
                    Source::Observed(observed) => Some(observed.stream.range_count()),
                    Source::Own(_) => None,
                });
            // Ranges that are to be dropped are in both.
            self.ranges = self.disk.range_count().max(observed.sum());
            self.new_ranges = 0;
        }
        let too_many = self.ranges + self.new_ranges > RANGES;
        if too_many {
            self.shared.note(
                "so many pages far from each other entered the cache at once that some of them \
                 stay"
                    .to_owned(),
            );
        }
        too_many
    }

    /// Handles the close by an observed file's last user.
    pub(super) fn left(&mut self, number: u32) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        if let Source::Observed(observed) = &mut entry.source {
            let file = entry.description.open();
            let stat = file.and_then(|file| file_stat(file.as_fd()));
            let deleted = stat.is_ok_and(|stat| stat.links == 0);
            observed.stream.closed(deleted);
            // After this look, its mount can be unmounted. A deleted file could not be opened
            // again, and is done with soon anyway.
            let description = Arc::clone(&entry.description);
            self.look_at(number);
            if !deleted {
                description.release();
            }
        }
    }

    /// Removes the file from the queue of looks and from the sums.
    pub(super) fn unqueue(&mut self, number: u32, observed: &ObservedSource) {
        self.looks.remove(&(observed.queued_ns, number));
        let shared = Arc::clone(&self.shared);
        lock(&shared.observed).change(observed.accounted, Default::default());
    }
}
