//! An open file's line to this process's flusher.

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::File;
use dropbehind_flusher::lock;
use dropbehind_flusher::own_file::OwnFile;

/// Derefs to the handle, borrowed where possible: the write path must not touch the reference
/// count.
pub(super) enum Line<'a> {
    First(&'a Arc<OwnFile>),
    Later(Arc<OwnFile>),
}

impl Deref for Line<'_> {
    type Target = Arc<OwnFile>;

    fn deref(&self) -> &Arc<OwnFile> {
        match self {
            Line::First(handle) => handle,
            Line::Later(handle) => handle,
        }
    }
}

impl File {
    /// The line to the flusher, if there is one and it belongs to this process.
    pub(super) fn line(&self) -> Option<Line<'_>> {
        let first = self.shared.handle.get()?;
        if first.is_ours() {
            return Some(Line::First(first));
        }
        let later = self.shared.handle_after_fork.load_full();
        later.filter(|handle| handle.is_ours()).map(Line::Later)
    }

    /// The line to the flusher, made when first needed and made anew in the child of a fork.
    /// `None` if the mode has no effect or no flusher can be had: the file is then a plain
    /// buffered one.
    pub(super) fn make_line(&self) -> Option<Line<'_>> {
        match self.line() {
            Some(line) => Some(line),
            None => self.new_line(),
        }
    }

    #[cold]
    fn new_line(&self) -> Option<Line<'_>> {
        let shared = &self.shared;
        if !shared.applies {
            return None;
        }
        let first = match shared.handle.get() {
            // Another thread has made it by now, unless this is the child of a fork.
            Some(first) => first,
            None => {
                let made = self.new_handle()?;
                shared.handle.get_or_init(|| made)
            }
        };
        if first.is_ours() {
            return Some(Line::First(first));
        }
        let before = shared.handle_after_fork.load_full();
        if let Some(handle) = before.as_ref().filter(|handle| handle.is_ours()) {
            return Some(Line::Later(Arc::clone(handle)));
        }
        let made = self.new_handle()?;
        let was = shared
            .handle_after_fork
            .compare_and_swap(&before, Some(Arc::clone(&made)));
        match was.as_ref() {
            // Another thread was first.
            Some(other) if other.is_ours() => Some(Line::Later(Arc::clone(other))),
            _ => Some(Line::Later(made)),
        }
    }

    fn new_handle(&self) -> Option<Arc<OwnFile>> {
        let shared = &self.shared;
        let size_bytes = shared.size_bytes.load(Ordering::Relaxed);
        shared.facts.new_handle(self.file().as_fd(), size_bytes)
    }

    /// Tells the flusher that the file is closed or given back, if this is the last clone.
    pub(super) fn detach(&self, tell: fn(&Arc<OwnFile>, BorrowedFd<'_>)) {
        if self.file.is_none() {
            return;
        }
        let is_last = self.shared.open.fetch_sub(1, Ordering::AcqRel) == 1;
        let Some(handle) = self.line() else {
            return;
        };
        if is_last {
            lock(&handle.reader).finish(self.file().as_fd(), &handle);
            tell(&handle, self.file().as_fd());
        } else {
            handle.await_open();
        }
    }
}
