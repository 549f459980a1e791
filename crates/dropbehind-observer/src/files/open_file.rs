//! One file that observed programs use.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dropbehind_flusher::WritebackSign;
use dropbehind_flusher::{CacheMap, Observed};
use dropbehind_linux::{Description, FileId, file_stat};
use dropbehind_policy::RangeSet;

use crate::names::Stamp;
use crate::rules::Settings;

/// Of so many processes that use one file it is remembered what they are to have done.
const USERS: usize = 64;

/// A process that uses a file.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) process: i32,
    /// Which process it is, and which program, if that is known.
    pub(super) stamp: Option<Stamp>,
    /// The path by which it, or who passed it on, opened the file: empty where that makes no
    /// difference, and `None` where it is not known.
    pub(super) path: Option<Arc<Path>>,
    /// What the rules say of its use; `None`: nothing of it is to be observed.
    pub(super) settings: Option<Settings>,
    /// Whether it has the file open to write, where that was looked for since its open.
    pub(super) writes: Option<bool>,
}

/// Whether a file has no name any more.
pub(super) fn is_deleted(open: &OpenFile) -> bool {
    let stat = open.file.open().and_then(|file| file_stat(file.as_fd()));
    stat.is_ok_and(|stat| stat.links == 0)
}

/// One file that observed programs use.
#[derive(Debug)]
pub(super) struct OpenFile {
    /// What programs call it. A file of an overlay is another one than that below it, and
    /// both have the same pages.
    pub(super) ids: Vec<FileId>,
    /// The file that has the pages.
    pub(super) file: Arc<Description>,
    /// The file of an overlay that programs use, where the pages are in another one
    /// below it.
    pub(super) overlay: Option<Arc<OwnedFd>>,
    /// The number of the device that has the pages.
    pub(super) device: u64,
    /// Empty where no rule asks for it and nobody has looked.
    pub(super) path: PathBuf,
    /// What does for all its users; of the window and the request, what the first of
    /// them asks for.
    pub(super) settings: Settings,
    pub(super) opened_size_bytes: u64,
    /// What was cached when it was opened, where the kernel does not tell who brought
    /// in what, or of which of two files.
    pub(super) before: Option<CacheMap>,
    /// What the trace named of it, where another file may have the same inode number.
    pub(super) named: RangeSet,
    /// The round in which it became known.
    pub(super) round: u64,
    /// Somebody who could write has closed it.
    pub(super) written: bool,
    /// Somebody has read it, or may have: what is clean was read then.
    read: bool,
    /// No event tells of its close.
    pub(super) close_unseen: bool,
    /// Counted as written before the trace named these pages, which still may.
    pub(super) early_bytes: u64,
    /// Counted as one of those in which something was brought in.
    pub(super) counted: bool,
    /// Tells whether its writeback failed, where that can be known.
    pub(super) writeback_sign: Option<WritebackSign>,
    /// Its stream, while there is one.
    pub(super) observed: Option<Observed>,
    /// Its writers are held beyond this.
    pub(super) max_dirty_bytes: Option<u64>,
    /// Bytes that were to be dropped, and stayed.
    pub(super) left_bytes: u64,
    users: Vec<User>,
}

impl OpenFile {
    /// Of `bytes` written, those that were counted already.
    pub(super) fn take_early(&mut self, bytes: u64) -> u64 {
        let early_bytes = self.early_bytes.min(bytes);
        self.early_bytes -= early_bytes;
        early_bytes
    }

    pub(super) fn new(
        id: FileId,
        file: Description,
        overlay: Option<OwnedFd>,
        path: PathBuf,
        settings: Settings,
    ) -> OpenFile {
        OpenFile {
            ids: vec![id],
            file: Arc::new(file),
            overlay: overlay.map(Arc::new),
            device: 0,
            path,
            settings,
            opened_size_bytes: 0,
            before: None,
            named: RangeSet::new(),
            round: 0,
            written: false,
            read: false,
            close_unseen: false,
            early_bytes: 0,
            counted: false,
            writeback_sign: None,
            observed: None,
            max_dirty_bytes: None,
            left_bytes: 0,
            users: Vec::new(),
        }
    }

    /// The file that programs use, whose marks tell what they do. The kernel tells
    /// nobody of what an overlay does to the file below.
    pub(super) fn used(&self) -> io::Result<Arc<OwnedFd>> {
        match &self.overlay {
            Some(overlay) => Ok(Arc::clone(overlay)),
            None => self.file.open(),
        }
    }

    /// Its pages stay, and for nobody.
    pub(super) fn has_failed_writeback(&self) -> bool {
        let sign = self.writeback_sign.as_ref();
        sign.is_some_and(WritebackSign::has_failed)
    }

    /// Somebody has read it, or may have.
    pub(super) fn was_read(&mut self) {
        self.read = true;
        if let Some(observed) = &self.observed {
            observed.was_read();
        }
    }

    /// The file has a stream from now on.
    pub(super) fn begin(&mut self, observed: Observed) {
        if self.read {
            observed.was_read();
        }
        if let Some(max_dirty_bytes) = self.max_dirty_bytes {
            observed.hold_writers(max_dirty_bytes);
        }
        self.observed = Some(observed);
    }

    /// What is known of a process.
    pub(super) fn user(&self, process: i32) -> Option<&User> {
        self.users.iter().find(|user| user.process == process)
    }

    /// The same, to be changed.
    pub(super) fn user_mut(&mut self, process: i32) -> Option<&mut User> {
        self.users.iter_mut().find(|user| user.process == process)
    }

    /// Those of whom something is known.
    pub(super) fn users(&self) -> &[User] {
        &self.users
    }

    /// Remembers this, in the place of what is known of the process.
    pub(super) fn remember(&mut self, user: User) {
        self.users.retain(|known| known.process != user.process);
        if self.users.len() >= USERS {
            // Pages of one that is not known any more stay, as those of one that no rule means.
            let unwanted = self.users.iter().position(|known| known.settings.is_none());
            self.users.remove(unwanted.unwrap_or(0));
        }
        self.users.push(user);
    }
}
