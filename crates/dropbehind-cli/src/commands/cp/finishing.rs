//! How copies end: synced, dropped from the cache, and closed.
//!
//! Large files end one by one, small ones in batches: writeback of all is started before the
//! first is waited for, and the file system commits them together. Syncing one after the other
//! would cost each of them a turn of the disk.

use super::descent;
use super::small::{Small, Synced, sync_and_drop, sync_together};
use super::verification::verify;
use crate::destination::Destination;
use crate::input::Input;
use crate::output::{sync_directory, sync_open_directory};
use crate::session::Session;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;

/// Files larger than this are finished at once: their sync costs nothing beside the copy.
const LARGE_BYTES: u64 = 8 << 20;
/// The most bytes that wait, so that the cache stays as small as promised.
const BATCH_BYTES: u64 = 24 << 20;
/// The most files that wait: more would not make a commit any cheaper per file.
const BATCH_FILES: u64 = 128;
/// Descriptors that a waiting copy may hold: both sides are open.
const COPY_DESCRIPTORS: u64 = 2;
/// The most small files of a batch, of which two may wait: one for the disk. Commits of more
/// files take as long for each.
const SMALL_FILES: u64 = 4096;
/// Descriptors for the rest of the process, among them the way down on both sides.
const OTHER_DESCRIPTORS: u64 = 16 + 2 * descent::DESCRIPTORS;

/// A copy that is not finished.
struct Copied {
    input: Input,
    destination: Destination,
}

/// The copies that wait to be finished.
pub(super) struct Finishing {
    sync: bool,
    verify: bool,
    batch: Vec<Copied>,
    batch_bytes: u64,
    batch_files: usize,
    small: Vec<Small>,
    small_bytes: u64,
    small_files: usize,
    /// The small files that are being synced.
    syncing: Option<JoinHandle<Synced>>,
    syncing_bytes: u64,
    /// The file system that the last batch was synced with: all that was made there before it.
    synced_device: Option<u64>,
    /// Directories that are full, to be synced after the files.
    full: Vec<(File, PathBuf)>,
    /// Directories that the user typed, in which names were made.
    typed: BTreeSet<PathBuf>,
}

/// How many copies and how many small ones may wait, given the limit on open files.
fn batch_files() -> (usize, usize) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let room = limit.unwrap_or(u64::MAX).saturating_sub(OTHER_DESCRIPTORS);
    let files = (room / 2 / COPY_DESCRIPTORS).min(BATCH_FILES);
    let small = (room / 4).min(SMALL_FILES);
    let number = |files: u64| usize::try_from(files).unwrap_or(1);
    (number(files), number(small))
}

impl Finishing {
    pub(super) fn new(sync: bool, verify: bool) -> Self {
        let (batch_files, small_files) = batch_files();
        Self {
            sync,
            verify,
            small: Vec::new(),
            small_bytes: 0,
            small_files,
            syncing: None,
            syncing_bytes: 0,
            synced_device: None,
            batch: Vec::new(),
            batch_bytes: 0,
            batch_files,
            full: Vec::new(),
            typed: BTreeSet::new(),
        }
    }

    /// Takes a copy. A failed one is only closed, since the reason is known.
    pub(super) fn add(
        &mut self,
        session: &mut Session,
        input: Input,
        destination: Destination,
        is_complete: bool,
    ) {
        let copied = Copied { input, destination };
        if !is_complete {
            let Copied { input, destination } = copied;
            input.finish(session, false);
            let closed = destination.output.finish(session, &destination.path, false);
            if let Err(failure) = closed {
                session.fail(&failure);
            }
            return;
        }
        let bytes = copied.input.len().unwrap_or(u64::MAX);
        if self.sync && bytes < LARGE_BYTES {
            copied.destination.output.start_writeback();
        }
        self.batch.push(copied);
        self.batch_bytes = self.batch_bytes.saturating_add(bytes);
        if self.batch_bytes >= BATCH_BYTES || self.is_full() || bytes >= LARGE_BYTES {
            self.flush(session);
        }
    }

    /// Takes a small copy.
    pub(super) fn add_small(&mut self, session: &mut Session, small: Small, bytes: u64) {
        self.small.push(small);
        self.small_bytes += bytes;
        if self.small.len() >= self.small_files || self.small_bytes >= BATCH_BYTES {
            self.flush_small(session);
        }
    }

    /// Has the small copies synced, once those before them are.
    fn flush_small(&mut self, session: &mut Session) {
        self.end_small(session);
        // What was made since that sync began may not be on the disk.
        self.synced_device = None;
        self.syncing_bytes = std::mem::take(&mut self.small_bytes);
        let batch = std::mem::take(&mut self.small);
        if batch.is_empty() {
            return;
        }
        let thread = std::thread::Builder::new().name("sync".to_owned());
        let shared = std::sync::Arc::new(batch);
        let theirs = std::sync::Arc::clone(&shared);
        match thread.spawn(move || sync_and_drop(&theirs)) {
            Ok(thread) => self.syncing = Some(thread),
            Err(_) => self.take_synced(session, sync_and_drop(&shared)),
        }
    }

    /// Waits for the small copies that are being synced.
    fn end_small(&mut self, session: &mut Session) {
        if let Some(thread) = self.syncing.take() {
            match thread.join() {
                Ok(synced) => self.take_synced(session, synced),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    }

    fn take_synced(&mut self, session: &mut Session, synced: Synced) {
        self.synced_device = synced.device;
        session.stats.left_bytes += synced.left_bytes;
        let counters = session.progress.counters();
        counters.unsynced.fetch_sub(self.syncing_bytes, Relaxed);
        for failure in synced.failures {
            session.fail(&failure);
        }
    }

    /// Takes a directory of the destination that is complete.
    pub(super) fn add_directory(&mut self, session: &mut Session, directory: File, path: PathBuf) {
        if !self.sync {
            return;
        }
        self.full.push((directory, path));
        if self.full.len() >= self.batch_files {
            self.flush(session);
        }
    }

    fn is_full(&self) -> bool {
        self.batch.len() >= self.batch_files
    }

    /// Notes a directory that the user typed, in which names were made.
    pub(super) fn filled(&mut self, directory: &Path) {
        if self.sync {
            self.typed.insert(directory.to_owned());
        }
    }

    /// Finishes all that waits.
    pub(super) fn flush(&mut self, session: &mut Session) {
        self.batch_bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        if self.sync {
            // Each file still tells of its own errors below, but hardly waits for the disk.
            let copies = batch.iter().map(|copied| copied.destination.output.as_fd());
            sync_together(copies);
        }
        let mut synced = Vec::with_capacity(batch.len());
        for copied in &batch {
            let mut is_clean = self.sync;
            if self.sync {
                let destination = &copied.destination;
                if let Err(failure) = destination.output.sync(&destination.path) {
                    session.fail(&failure);
                    is_clean = false;
                }
            }
            synced.push(is_clean);
        }
        for (copied, is_clean) in batch.into_iter().zip(synced) {
            let Copied {
                mut input,
                mut destination,
            } = copied;
            let mut is_clean = is_clean;
            if self.verify
                && is_clean
                && destination.output.is_cached()
                && let Err(failure) =
                    verify(&mut input, destination.output.as_fd(), &destination.path)
            {
                session.fail(&failure);
                is_clean = false;
            }
            input.finish(session, false);
            if is_clean && let Err(failure) = destination.publish() {
                session.fail(&failure);
            }
            let closed = destination
                .output
                .finish(session, &destination.path, is_clean);
            if let Err(failure) = closed {
                session.fail(&failure);
            }
        }
        // One sync of the file system covers them, too.
        self.flush_small(session);
        self.end_small(session);
        for (directory, path) in std::mem::take(&mut self.full) {
            let device = directory.metadata().ok().map(|metadata| metadata.dev());
            if device.is_some() && device == self.synced_device {
                continue;
            }
            if let Err(failure) = sync_open_directory(&directory, &path) {
                session.fail(&failure);
            }
        }
    }

    /// Finishes what waits, and syncs the directories that the user typed.
    pub(super) fn end(&mut self, session: &mut Session) {
        self.flush(session);
        for directory in std::mem::take(&mut self.typed) {
            if let Err(failure) = sync_directory(&directory) {
                session.fail(&failure);
            }
        }
    }
}
