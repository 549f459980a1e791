//! What was in the cache, as far as somebody looked in time.
//!
//! An event comes after the open, and the program may have read by then. So
//! files that are likely to be opened next are looked at before: those that the
//! program was given as arguments, and those beside a file that was opened.
//! A look is true whenever it was made: pages that were absent then and are
//! there later came in between.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Instant;

use dropbehind::CacheMap;
use dropbehind_linux::{FileId, FileKind, cachestat, file_stat, page_size};

use crate::file_path::path_of;
use crate::overlay;

/// No more looks than this are remembered; beyond, all are forgotten, and files
/// opened next count as not looked at.
const MOST: usize = 1 << 16;
/// No more files of a directory are looked at, 5 µs each.
const FILES_OF_DIRECTORY: usize = 4096;
/// No more directories are remembered as done.
const DIRECTORIES: usize = 1 << 14;
/// A file that has more than this in the cache is mapped only when it is opened.
const MAPPED_BYTES: u64 = 256 << 20;

/// Looks at files not opened yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looked {
    maps: Arc<Mutex<HashMap<FileId, CacheMap>>>,
}

impl Looked {
    fn maps(&self) -> MutexGuard<'_, HashMap<FileId, CacheMap>> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The look at this file, which is not needed any more.
    pub(crate) fn take(&self, id: FileId) -> Option<CacheMap> {
        self.maps().remove(&id)
    }

    /// Remembers a look, unless there is one that has less in it: that was made
    /// sooner.
    pub(crate) fn keep(&self, id: FileId, map: CacheMap) {
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
        let Ok(metadata) = path.metadata() else {
            return;
        };
        if !metadata.is_file() || metadata.len() == 0 {
            return;
        }
        let opened = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOATIME)
            .open(path);
        if let Ok(file) = opened {
            self.look(file.as_fd());
        }
    }

    fn look(&self, file: BorrowedFd<'_>) {
        let Ok(info) = file_stat(file) else { return };
        if info.kind != FileKind::Regular || self.maps().contains_key(&info.id) {
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
        let file = below.as_ref().map_or(file, |below| below.as_fd());
        match cachestat(file, 0, 0) {
            Ok(counted) if counted.cached_pages == 0 => self.keep(info.id, CacheMap::empty()),
            Ok(counted) if counted.cached_pages * page_size() <= MAPPED_BYTES => {
                self.keep(info.id, CacheMap::now(file));
            }
            _ => {}
        }
    }
}

/// Looks at the files of directories, in a thread of its own.
#[derive(Debug)]
pub(crate) struct Scout {
    directories: mpsc::Sender<PathBuf>,
    /// Directories of which a file was opened, and whether all were looked at.
    asked: HashMap<PathBuf, bool>,
}

impl Scout {
    /// `root` leads to where the paths begin.
    pub(crate) fn start(looked: Looked, root: PathBuf) -> std::io::Result<Scout> {
        let (directories, asked) = mpsc::channel::<PathBuf>();
        std::thread::Builder::new()
            .name("dropbehind-look".into())
            .spawn(move || {
                for directory in asked {
                    let inside = directory.strip_prefix("/").unwrap_or(&directory);
                    look_at_directory(&looked, &root.join(inside), None);
                }
            })?;
        Ok(Scout {
            directories,
            asked: HashMap::new(),
        })
    }

    /// A file of this directory was opened that was not cached. When it is not
    /// the first, its neighbours may be next.
    pub(crate) fn opened_in(&mut self, directory: &Path) {
        match self.asked.get_mut(directory) {
            Some(true) => {}
            Some(done) => {
                *done = true;
                // The thread ends with this sender only.
                let _ = self.directories.send(directory.to_owned());
            }
            None => {
                if self.asked.len() >= DIRECTORIES {
                    self.asked.clear();
                }
                self.asked.insert(directory.to_owned(), false);
            }
        }
    }
}

/// Looks at the files of a directory, as far as it comes until the deadline.
pub(crate) fn look_at_directory(looked: &Looked, directory: &Path, deadline: Option<Instant>) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten().take(FILES_OF_DIRECTORY) {
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            looked.look_at(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
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
        let looked = Looked::default();
        for looks in [[now.clone(), CacheMap::empty()], [CacheMap::empty(), now]] {
            for look in looks {
                looked.keep(id, look);
            }
            assert_eq!(looked.take(id).unwrap().cached_bytes(), 0);
        }
    }
}
