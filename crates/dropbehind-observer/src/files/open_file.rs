//! One file that observed programs use.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use dropbehind_flusher::WritebackSign;
use dropbehind_flusher::{CacheMap, Observed};
use dropbehind_linux::{Description, FileId};
use dropbehind_policy::RangeSet;

use crate::rules::Settings;

/// More processes that use one file are not remembered.
const USERS: usize = 64;

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
    /// A program of the rules writes to it, so its writers may be held.
    pub(super) has_own_writer: bool,
    /// Bytes that were to be dropped, and stayed.
    pub(super) left_bytes: u64,
    /// Whose pages are to go, where that is asked of each process.
    users: Vec<(i32, bool)>,
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
            has_own_writer: false,
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
        if self.has_own_writer {
            observed.hold_writers();
        }
        self.observed = Some(observed);
    }

    /// What is known of a process: whether its pages are to go.
    pub(super) fn is_ours(&self, process: i32) -> Option<bool> {
        let known = self.users.iter().find(|(user, _)| *user == process);
        known.map(|&(_, ours)| ours)
    }

    /// Those of whom something is known.
    pub(super) fn users(&self) -> impl Iterator<Item = i32> {
        self.users.iter().map(|&(user, _)| user)
    }

    /// Remembers that.
    pub(super) fn remember(&mut self, process: i32, ours: bool) {
        if self.users.len() >= USERS {
            self.users.clear();
        }
        self.users.push((process, ours));
    }

    /// The rules are others now.
    pub(super) fn forget_users(&mut self) {
        self.users.clear();
    }
}
