//! What is done about a file when it is used for the first time.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use dropbehind::{CacheMap, Writeback};
use dropbehind_linux::{
    EventMask, FileKind, MarkOptions, MarkTarget, cachestat, drop_clean, page_size,
};

use super::Files;
use super::file_event::FileEvent;
use super::tracked_file::FileFacts;
use crate::board::lock;
use crate::file_path::path_of;
use crate::overlay;
use crate::rules::Settings;
use crate::small_files::{SMALL_BYTES, SmallFile};

/// Where programs and their libraries are: the neighbours of one are not what is
/// read next.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt"];
/// A file smaller than this that is wholly cached is not worth looking after
/// while it is only read.
const CACHED_BYTES: u64 = 4 * SMALL_BYTES;

/// The first that is known of a file: one event, or a few put together.
#[derive(Debug)]
pub(super) struct FirstUse {
    pub(super) event: FileEvent,
    pub(super) opened: bool,
    pub(super) closed: bool,
    /// It was written, or is open for that.
    pub(super) wrote: bool,
}

impl Files {
    pub(super) fn first_used(&mut self, first: FirstUse) {
        let FirstUse {
            mut event,
            opened,
            closed,
            wrote,
        } = first;
        let size_bytes = event.info.size_bytes;
        // Somebody else may have made it, for others to read.
        let fresh = event.fresh && wrote || size_bytes == 0;
        let before = if fresh {
            Some(CacheMap::empty())
        } else {
            // Both are true; the one with less in it was made sooner.
            let looked = self.looked.take(event.file.as_fd(), event.info.id);
            let looks = looked.into_iter().chain(event.before.take());
            looks.min_by_key(CacheMap::cached_bytes)
        };
        let nothing_before = before.as_ref().is_some_and(|map| map.cached_bytes() == 0);
        // Wholly cached and small: reading brings nothing in, and should it be
        // written, that is told when it is closed. Not where its opener has just
        // begun to write a large one.
        let cached = before.as_ref().is_some_and(|map| {
            map.cached_bytes() >= size_bytes.next_multiple_of(page_size()) && size_bytes > 0
        });
        if !wrote && cached && size_bytes < CACHED_BYTES {
            let dirty = cachestat(event.file.as_fd(), 0, 0).is_ok_and(|pages| !pages.is_clean());
            if closed || !dirty || event.opener_writes() != Some(true) {
                return self.await_growth(&event, closed, before);
            }
        }
        let is_small = size_bytes <= SMALL_BYTES && event.info.kind == FileKind::Regular;
        let written_small = closed && wrote && is_small;
        let path = if written_small && !self.rules.ask_for_paths() {
            PathBuf::new()
        } else {
            path_of(event.file.as_fd())
        };
        if !wrote && !cached && !fresh && opened {
            if !event.info.executable {
                self.scout_beside(&path);
            }
            if !closed && size_bytes <= SMALL_BYTES && nothing_before {
                // Its end is told; what was there before is remembered for it.
                return self.await_growth(&event, closed, before);
            }
        }
        let file = event.file.as_fd();
        let Some(settings) = self.rules.settings_for(&path, event.process, file) else {
            return self.ignore_unwanted(&path, &event.file);
        };
        let nothing_to_do = !settings.mode.drops() && !wrote && closed;
        if nothing_to_do || self.owners.has(event.process, self.insiders.namespace()) {
            return;
        }
        if closed && !wrote && size_bytes <= SMALL_BYTES {
            if settings.reads && settings.mode.drops() && nothing_before {
                self.drop_small(&event.file, size_bytes);
            }
            return;
        }
        if written_small {
            // Where others had it in the cache, there is nothing to do.
            if nothing_before {
                self.write_small(event, fresh, settings);
            }
            return;
        }
        let id = event.info.id;
        let Some((description, overlay)) = self.file_with_pages(event.file, &path) else {
            return;
        };
        let facts = FileFacts {
            id,
            path,
            settings,
            before: before.unwrap_or_else(|| CacheMap::now(description.as_fd())),
            fresh,
            inherited: false,
            overlay,
            open: i64::from(opened && !closed),
            rounds: 0,
        };
        self.track(facts, description, false);
        if closed && let Some(tracked) = self.tracked.by_id(id) {
            tracked.observed.closed();
        }
    }

    /// A small file is left alone until it is closed or written to. Told once: an
    /// event for each write would slow down who writes to one again and again.
    fn await_growth(&self, event: &FileEvent, closed: bool, before: Option<CacheMap>) {
        if closed {
            return;
        }
        if let Some(before) = before {
            self.looked.keep(event.file.as_fd(), event.info.id, before);
        }
        let target = MarkTarget::Inode(event.file.as_fd());
        let _ = self
            .fanotify
            .add_mark(target, EventMask::MODIFY, MarkOptions::WANTED_EVICTABLE);
    }

    /// A file was opened that was not cached: its neighbours may be next.
    fn scout_beside(&mut self, path: &Path) {
        if let (Some(scout), Some(parent)) = (&mut self.scout, path.parent())
            && let Some(name) = path.file_name()
            && !SYSTEM.iter().any(|system| parent.starts_with(system))
        {
            scout.opened_in(parent, name);
        }
    }

    /// No rule wants this file now; if none ever can, the kernel need not tell of
    /// it again.
    fn ignore_unwanted(&mut self, path: &Path, file: &OwnedFd) {
        if self.rules.is_settled(path, file.as_fd()) {
            let target = MarkTarget::Inode(file.as_fd());
            let not_wanted = EventMask::OPEN | EventMask::CLOSE_WRITE | EventMask::CLOSE_NOWRITE;
            let _ = self
                .fanotify
                .add_mark(target, not_wanted, MarkOptions::IGNORED_EVICTABLE);
        }
    }

    /// Drops a small file that was read, of which nothing was cached before.
    fn drop_small(&mut self, file: &OwnedFd, size_bytes: u64) {
        let Ok(counted) = cachestat(file.as_fd(), 0, 0) else {
            return;
        };
        let mut board = lock(&self.board);
        board.finished.files += 1;
        board.finished.read_bytes += counted.cached_pages * page_size();
        if counted.is_clean() && counted.cached_pages > 0 {
            let _ = drop_clean(file.as_fd(), 0, size_bytes.next_multiple_of(page_size()));
            let after =
                cachestat(file.as_fd(), 0, 0).map_or(counted.cached_pages, |now| now.cached_pages);
            board.finished.small_dropped_bytes +=
                counted.cached_pages.saturating_sub(after) * page_size();
        }
    }

    /// Has a small file written that was made and closed.
    fn write_small(&mut self, event: FileEvent, fresh: bool, settings: Settings) {
        let eager = settings.mode.writeback == Writeback::Eager;
        if !eager || overlay::is_overlay(&event.file) {
            return;
        }
        let drops = settings.mode.drops();
        let users_unknown = drops && !fresh && self.finds_users(&event);
        self.small.closed(SmallFile {
            id: event.info.id,
            file: event.file,
            bytes: event.info.size_bytes,
            drops,
            users_unknown,
        });
    }

    /// Somebody outside may use a file that had been there before, or come to use
    /// it; false where nobody is outside.
    fn finds_users(&mut self, event: &FileEvent) -> bool {
        let Some(openers) = &self.openers else {
            return false;
        };
        let target = MarkTarget::Inode(event.file.as_fd());
        let _ = openers.add_mark(target, EventMask::OPEN, MarkOptions::WANTED_EVICTABLE);
        self.scan.want(event.info.id);
        true
    }

    /// The file that has the pages, and that of the overlay above it, if it is
    /// another one.
    pub(super) fn file_with_pages(
        &self,
        file: OwnedFd,
        path: &Path,
    ) -> Option<(OwnedFd, Option<OwnedFd>)> {
        if !overlay::is_overlay(&file) {
            return Some((file, None));
        }
        let below = overlay::file_below(file.as_fd(), path);
        if below.is_none() {
            lock(&self.board).note(format!(
                "{}: the file below the overlay cannot be seen from here, and is left to the \
                 kernel",
                path.display()
            ));
        }
        Some((below?, Some(file)))
    }
}
