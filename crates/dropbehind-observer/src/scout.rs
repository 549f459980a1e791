//! Looks at files before they are opened: the neighbours of those that were.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Instant;

use dropbehind_linux::{TIME_SLICE_MIN, set_thread_time_slice};
use rustix::fs::{Mode, OFlags};

use crate::looked::{Looked, quietly};

/// No more files of a directory are looked at, some microseconds each.
const FILES_OF_DIRECTORY: usize = 4096;
/// No more directories are remembered as done.
const DIRECTORIES: usize = 1 << 14;

/// Looks at the files of directories, in a thread of its own.
#[derive(Debug)]
pub(crate) struct Scout {
    directories: mpsc::Sender<(PathBuf, OsString)>,
    /// Directories of which a file was opened, and whether all were looked at.
    asked: HashMap<PathBuf, bool>,
}

impl Scout {
    /// `root` leads to where the paths begin.
    pub(crate) fn start(looked: Looked, root: PathBuf) -> std::io::Result<Scout> {
        let (directories, asked) = mpsc::channel::<(PathBuf, OsString)>();
        std::thread::Builder::new()
            .name("dropbehind-look".into())
            .spawn(move || {
                let _ = set_thread_time_slice(TIME_SLICE_MIN);
                for (directory, opened) in asked {
                    let inside = directory.strip_prefix("/").unwrap_or(&directory);
                    look_at_directory(&looked, &root.join(inside), Some(&opened), None);
                }
            })?;
        Ok(Scout {
            directories,
            asked: HashMap::new(),
        })
    }

    /// This file of this directory was opened, and was not cached. When it is not
    /// the first, its neighbours may be next.
    pub(crate) fn opened_in(&mut self, directory: &Path, name: &OsStr) {
        match self.asked.get_mut(directory) {
            Some(true) => {}
            Some(done) => {
                *done = true;
                // The thread ends with this sender only.
                let _ = self
                    .directories
                    .send((directory.to_owned(), name.to_owned()));
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

/// Looks at the files of a directory, as far as it comes until the deadline: first
/// at those listed behind the one that was opened, as most programs go on so.
pub(crate) fn look_at_directory(
    looked: &Looked,
    directory: &Path,
    opened: Option<&OsStr>,
    deadline: Option<Instant>,
) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    let files = entries
        .flatten()
        .take(FILES_OF_DIRECTORY)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let mut names: Vec<OsString> = files.map(|entry| entry.file_name()).collect();
    if let Some(at) = names
        .iter()
        .position(|name| Some(name.as_os_str()) == opened)
    {
        names.rotate_left(at);
    }
    let Ok(directory) = File::open(directory) else {
        return;
    };
    for name in names {
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return;
        }
        let flags = quietly() | OFlags::NOFOLLOW;
        if let Ok(file) = rustix::fs::openat(&directory, &name, flags, Mode::empty()) {
            looked.look(file.as_fd());
        }
    }
}
