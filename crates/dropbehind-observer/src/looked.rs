//! What was in the cache, as far as somebody looked in time.
//!
//! An event comes after the open, and the program may have read by then. So
//! files that are likely to be opened next are looked at before: those that the
//! program was given as arguments, and those beside a file that was opened.
//! A look stays true until somebody else uses the file, which a mark on it tells:
//! pages that were absent then and are there later were brought in by those
//! observed.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dropbehind::CacheMap;
use dropbehind_linux::{
    EventMask, Fanotify, FileId, FileKind, MarkOptions, MarkTarget, cachestat, file_stat, page_size,
};
use rustix::fs::{Mode, OFlags};

use crate::file_path::path_of;
use crate::overlay;

/// No more looks than this are remembered; beyond, all are forgotten, and files
/// opened next count as not looked at.
const MOST: usize = 1 << 16;
/// A file that has more than this in the cache is mapped only when it is opened.
const MAPPED_BYTES: u64 = 256 << 20;

/// What tells of others' use of a file that those observed have open: their own
/// reads, perhaps millions, are not to be told of.
const OPENS: EventMask = EventMask::OPEN;
/// And of one that nobody is known to have open: somebody may have it all the same.
const USES: EventMask = EventMask::OPEN.union(EventMask::ACCESS);

/// Looks at files not opened yet, or done with.
#[derive(Clone, Debug)]
pub(crate) struct Looked {
    maps: Arc<Mutex<HashMap<FileId, CacheMap>>>,
    /// Told when anybody uses a file that was looked at; none where everybody's
    /// opens are told of as it is.
    openers: Option<Arc<Fanotify>>,
}

impl Looked {
    pub(crate) fn new(openers: Option<Arc<Fanotify>>) -> Looked {
        Looked {
            maps: Arc::default(),
            openers,
        }
    }

    /// Asks to be told when others use this file from now on, as long as it has
    /// pages. False when nobody would tell: then no look is to be kept.
    fn asks_for_users(&self, file: BorrowedFd<'_>, events: EventMask) -> bool {
        let target = MarkTarget::Inode(file);
        let openers = self.openers.as_ref();
        openers.is_none_or(|openers| {
            openers
                .add_mark(target, events, MarkOptions::WANTED_EVICTABLE)
                .is_ok()
        })
    }

    fn maps(&self) -> MutexGuard<'_, HashMap<FileId, CacheMap>> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The look at this file, which is not needed any more.
    pub(crate) fn take(&self, file: BorrowedFd<'_>, id: FileId) -> Option<CacheMap> {
        let map = self.maps().remove(&id)?;
        self.was_read(file);
        Some(map)
    }

    /// Who has read a file may do so again, which need not be told each time.
    pub(crate) fn was_read(&self, file: BorrowedFd<'_>) {
        if let Some(openers) = &self.openers {
            let target = MarkTarget::Inode(file);
            let _ = openers.remove_mark(target, EventMask::ACCESS, MarkOptions::WANTED);
        }
    }

    /// Remembers a look, at a file that those observed have open.
    pub(crate) fn keep(&self, file: BorrowedFd<'_>, id: FileId, map: CacheMap) {
        if self.asks_for_users(file, OPENS) {
            self.insert(id, map);
        }
    }

    /// Remembers what was cached of a file before those observed used it; they are
    /// done with it.
    pub(crate) fn keep_for_later(&self, file: BorrowedFd<'_>, id: FileId, map: CacheMap) {
        if self.asks_for_users(file, USES) {
            self.insert(id, map);
        }
    }

    /// Remembers that nothing is cached, if that is so, of a file that those observed
    /// have just opened.
    pub(crate) fn keep_empty(&self, file: BorrowedFd<'_>, id: FileId) {
        let has = |maps: MutexGuard<'_, HashMap<FileId, CacheMap>>| maps.contains_key(&id);
        if !has(self.maps())
            && self.asks_for_users(file, OPENS)
            && cachestat(file, 0, 0).is_ok_and(|counted| counted.cached_pages == 0)
        {
            self.insert(id, CacheMap::empty());
        }
    }

    /// Unless there is one that has less in it: that was made sooner.
    fn insert(&self, id: FileId, map: CacheMap) {
        let mut maps = self.maps();
        if maps.len() >= MOST {
            maps.clear();
        }
        let kept = maps.entry(id).or_insert_with(|| map.clone());
        if map.cached_bytes() < kept.cached_bytes() {
            *kept = map;
        }
    }

    /// Looks at a file by its path. Opening it must not matter, so only regular
    /// files are opened.
    pub(crate) fn look_at(&self, path: &Path) {
        if path.metadata().is_ok_and(|metadata| metadata.is_file())
            && let Ok(file) = rustix::fs::open(path, quietly(), Mode::empty())
        {
            self.look(file.as_fd());
        }
    }

    /// Looks at an open file, unless that has been done.
    pub(crate) fn look(&self, file: BorrowedFd<'_>) {
        let Ok(info) = file_stat(file) else { return };
        let looked_at = || self.maps().contains_key(&info.id);
        if info.kind != FileKind::Regular || info.size_bytes == 0 || looked_at() {
            return;
        }
        let below = if overlay::is_overlay(file) {
            match overlay::file_below(file, &path_of(file)) {
                Some(below) => Some(below),
                None => return,
            }
        } else {
            None
        };
        // Whoever uses it while it is looked at is told of.
        if !self.asks_for_users(file, USES) {
            return;
        }
        let file = below.as_ref().map_or(file, |below| below.as_fd());
        match cachestat(file, 0, 0) {
            Ok(counted) if counted.cached_pages == 0 => self.insert(info.id, CacheMap::empty()),
            Ok(counted) if counted.cached_pages * page_size() <= MAPPED_BYTES => {
                self.insert(info.id, CacheMap::now(file));
            }
            _ => {}
        }
    }
}

/// How to open a file that nobody is to notice: one that is not regular after all
/// is not waited for.
pub(crate) fn quietly() -> OFlags {
    OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOATIME | OFlags::CLOEXEC
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use dropbehind_testbed::Scratch;

    use super::*;

    #[test]
    fn a_later_look_does_not_replace_an_earlier_one() {
        let scratch = Scratch::new().unwrap();
        std::fs::write(scratch.file("written"), [0; 10_000]).unwrap();
        let file = File::open(scratch.file("written")).unwrap();
        let id = file_stat(file.as_fd()).unwrap().id;
        let now = CacheMap::now(file.as_fd());
        assert!(now.cached_bytes() > 0);
        let looked = Looked::new(None);
        for looks in [[now.clone(), CacheMap::empty()], [CacheMap::empty(), now]] {
            for look in looks {
                looked.keep(file.as_fd(), id, look);
            }
            assert_eq!(looked.take(file.as_fd(), id).unwrap().cached_bytes(), 0);
        }
    }
}
