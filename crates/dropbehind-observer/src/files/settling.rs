//! Files that nobody uses any more: what the flusher says of them.

use std::os::fd::OwnedFd;

use dropbehind::{Notice, ObservedState};
use dropbehind_linux::{EventMask, MarkOptions, MarkTarget};

use super::Files;
use super::file_event::WAKE;
use super::tracked_file::FileFacts;
use crate::board::lock;

impl Files {
    /// What the flusher says.
    pub(crate) fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Idle { key } => self.idle(key),
            Notice::Finished {
                key,
                description,
                state,
            } => self.finished(key, description, state),
        }
    }

    fn idle(&mut self, key: u64) {
        let Some(tracked) = self.tracked.by_key(key) else {
            return;
        };
        tracked.mark(&self.fanotify);
        lock(&self.board).set_idle(key, true);
        // Events merge, and a close may have been missed.
        self.scan.want(tracked.facts.id);
    }

    fn finished(&mut self, key: u64, description: OwnedFd, state: ObservedState) {
        let Some(tracked) = self.tracked.remove(key) else {
            return;
        };
        lock(&self.board).end(key, &state);
        let id = tracked.facts.id;
        if !tracked.facts.fresh
            && let Some(openers) = &self.openers
        {
            let target = MarkTarget::Inode(tracked.facts.used(&description));
            let _ = openers.remove_mark(target, EventMask::OPEN, MarkOptions::WANTED);
        }
        // Whoever looked meanwhile saw what was brought in.
        let _ = self.looked.take(tracked.facts.used(&description), id);
        let missed = tracked.missed_a_close(&state);
        let (mut facts, marked) = (tracked.facts, tracked.marked);
        if !missed && (facts.open == 0 || marked) {
            return self.left(&facts, &description, &state);
        }
        // Opened again in the moment it was done with. Whoever did may be reading
        // already, so what is cached now is not to be asked; what was there
        // before all of it is known.
        lock(&self.board).finished.files -= 1;
        facts.rounds += u32::from(missed);
        let closed = facts.open == 0;
        self.track(facts, description, state.shared);
        if closed && let Some(tracked) = self.tracked.by_id(id) {
            tracked.observed.closed();
        }
    }

    /// A file that is done with may be opened again, and read before anybody can
    /// look. What there was before is true for it still, until somebody else
    /// opens or reads it.
    fn left(&self, facts: &FileFacts, description: &OwnedFd, state: &ObservedState) {
        // Events merge: of two opens of one process one may have been told, and
        // the other descriptor is still used.
        let used = facts.used(description);
        let target = MarkTarget::Inode(used);
        let _ = self
            .fanotify
            .add_mark(target, WAKE, MarkOptions::WANTED_EVICTABLE);
        if self.openers.is_some() && !state.shared && facts.settings.mode.drops() {
            self.looked
                .keep_for_later(used, facts.id, facts.before.clone());
        }
    }
}
