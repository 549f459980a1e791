//! One file that is looked after.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use dropbehind::{CacheMap, Observed, ObservedState};
use dropbehind_linux::{
    EventMask, Fanotify, FileId, MarkOptions, MarkTarget, cachestat, page_size,
};

use super::file_event::WAKE;
use crate::rules::Settings;

/// A file that is done with and has more pages than it should is looked after
/// anew so often; ext4 keeps some marked dirty for ever.
const ROUNDS: u32 = 3;

/// What is known of a file, from one time that it is looked after to the next.
#[derive(Debug)]
pub(super) struct FileFacts {
    pub(super) id: FileId,
    pub(super) path: PathBuf,
    pub(super) settings: Settings,
    /// What was in the cache before the observed programs' I/O.
    pub(super) before: CacheMap,
    /// Made by those observed: nobody else uses it.
    pub(super) fresh: bool,
    /// Open since before the program was there.
    pub(super) inherited: bool,
    /// The file of an overlay that is used, where the pages are in another one
    /// below it.
    pub(super) overlay: Option<OwnedFd>,
    /// Opened and not closed, as far as events tell; they merge.
    pub(super) open: i64,
    /// How often it was looked after anew when it was done with.
    pub(super) rounds: u32,
}

impl FileFacts {
    /// The file that programs use, whose marks tell what they do. The kernel tells
    /// nobody of what an overlay does to the file below.
    pub(super) fn used<'file>(&'file self, description: &'file OwnedFd) -> BorrowedFd<'file> {
        self.overlay.as_ref().unwrap_or(description).as_fd()
    }
}

/// A file that is looked after.
#[derive(Debug)]
pub(super) struct TrackedFile {
    pub(super) facts: FileFacts,
    pub(super) observed: Observed,
    /// A descriptor of the same file.
    pub(super) description: OwnedFd,
    /// Idle, and marked to be told of the next access.
    pub(super) marked: bool,
    /// Marked to be told of the first read.
    pub(super) awaits_read: bool,
}

impl TrackedFile {
    fn mark_target(&self) -> MarkTarget<'_> {
        MarkTarget::Inode(self.facts.used(&self.description))
    }

    /// Asks to be told of the next access.
    pub(super) fn mark(&mut self, fanotify: &Fanotify) {
        if !self.marked {
            let target = self.mark_target();
            let marked = fanotify.add_mark(target, WAKE, MarkOptions::WANTED);
            self.marked = marked.is_ok();
        }
    }

    /// Does so no more; true when it was marked.
    pub(super) fn unmark(&mut self, fanotify: &Fanotify) -> bool {
        let was_marked = std::mem::take(&mut self.marked);
        if was_marked {
            let target = self.mark_target();
            let _ = fanotify.remove_mark(target, WAKE, MarkOptions::WANTED);
            if self.awaits_read {
                self.await_read(fanotify);
            }
        }
        was_marked
    }

    /// Asks to be told when somebody reads.
    pub(super) fn await_read(&mut self, fanotify: &Fanotify) {
        // What is read of the file below without the overlay would not be told.
        self.awaits_read = self.facts.overlay.is_none()
            && fanotify
                .add_mark(self.mark_target(), EventMask::ACCESS, MarkOptions::WANTED)
                .is_ok();
        if !self.awaits_read {
            // Nobody would tell.
            self.observed.was_read();
        }
    }

    /// Somebody has read.
    pub(super) fn was_read(&mut self, fanotify: &Fanotify) {
        self.observed.was_read();
        if std::mem::take(&mut self.awaits_read) && !self.marked {
            let target = self.mark_target();
            let _ = fanotify.remove_mark(target, EventMask::ACCESS, MarkOptions::WANTED);
        }
    }

    /// Nobody uses it any more.
    pub(super) fn close(&mut self) {
        self.facts.open = 0;
        self.observed.closed();
    }

    /// True when somebody closed it after the flusher had already let go, which
    /// so reached nobody: `state` is what the flusher left behind.
    pub(super) fn missed_a_close(&self, state: &ObservedState) -> bool {
        let facts = &self.facts;
        facts.open == 0
            && !state.shared
            && facts.rounds < ROUNDS
            && cachestat(self.description.as_fd(), 0, 0).is_ok_and(|now| {
                let more = now.cached_pages * page_size() > state.counted.cached_bytes;
                !now.is_clean() || facts.settings.mode.drops() && more
            })
    }
}
