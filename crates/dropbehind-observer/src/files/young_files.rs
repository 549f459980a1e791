//! Files that were just made, and are not closed yet.
//!
//! Most are small, and closed in the next moment: then they need not be looked
//! after one by one.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use dropbehind_linux::FileId;

use super::file_event::FileEvent;
use super::first_use::FirstUse;

/// A file just made is looked after by itself when it is still open after this
/// time.
const YOUNG: Duration = Duration::from_millis(5);
/// A file that was closed is told of within this time.
const CLOSE_IS_TOLD: Duration = Duration::from_millis(500);

/// The young files, with what was told of each first.
#[derive(Debug, Default)]
pub(super) struct YoungFiles {
    files: HashMap<FileId, (Instant, FileEvent)>,
}

impl YoungFiles {
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// What an event makes the first use of its file; `None` while the file is
    /// young.
    pub(super) fn first_use(&mut self, event: FileEvent) -> Option<FirstUse> {
        let mut first = FirstUse {
            opened: event.opened(),
            closed: event.closed(),
            wrote: event.wrote(),
            event,
        };
        if let Some((since, made)) = self.files.remove(&first.event.info.id) {
            if !first.event.closed_by_writer() {
                // Somebody reads it; who made it is not done.
                self.files.insert(made.info.id, (since, made));
                return None;
            }
            let others = first.event.process != made.process || first.opened;
            let still_open = others && made.opener_writes().is_some();
            first.opened |= still_open;
            first.closed = !still_open;
            first.event.fresh = made.fresh;
            first.event.before = made.before;
            first.event.process = made.process;
        }
        if first.event.fresh && first.opened && !first.closed {
            let id = first.event.info.id;
            self.files.insert(id, (Instant::now(), first.event));
            return None;
        }
        Some(first)
    }

    /// Takes out those that were made a while ago and are still open.
    pub(super) fn grown_up(&mut self) -> Vec<FirstUse> {
        let grown = self.files.extract_if(|_, (since, made)| {
            // Who does not have it open any more has closed it, of which the
            // event is on its way.
            let age = since.elapsed();
            age >= YOUNG && (age >= CLOSE_IS_TOLD || made.opener_writes().is_some())
        });
        grown
            .map(|(_, (_, made))| {
                let wrote = made.closed_by_writer() || made.opener_writes().unwrap_or(false);
                FirstUse::still_open(made, wrote)
            })
            .collect()
    }

    /// Takes all out.
    pub(super) fn take_all(&mut self) -> Vec<FirstUse> {
        self.files
            .drain()
            .map(|(_, (_, made))| {
                let wrote = made.opener_writes().unwrap_or(false);
                FirstUse::still_open(made, wrote)
            })
            .collect()
    }
}
