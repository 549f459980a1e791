//! Files that were just made, and are not closed yet.
//!
//! Most are small, and closed in the next moment: then they need not be looked
//! after one by one.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use dropbehind::CacheMap;
use dropbehind_linux::{FileId, OpenFile, open_files, size_bytes};

use super::file_event::FileEvent;
use super::first_use::FirstUse;
use crate::overlay;
use crate::small_files::SMALL_BYTES;

/// A file just made is looked after by itself when it is still open after this
/// time, or is too large to be looked after as a small one: a writer that does not
/// wait for the disk has 10 MiB in it by then.
const YOUNG: Duration = Duration::from_millis(5);
/// A file that was closed is told of within this time.
const CLOSE_IS_TOLD: Duration = Duration::from_millis(500);

/// The young files.
#[derive(Debug, Default)]
pub(super) struct YoungFiles {
    files: HashMap<FileId, YoungFile>,
}

/// A file that was just made.
#[derive(Debug)]
struct YoungFile {
    since: Instant,
    /// What was told of it first: somebody opened it.
    opened: FileEvent,
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
        let id = first.event.info.id;
        if let Some(young) = self.files.remove(&id) {
            let by_opener = first.event.process == young.opened.process;
            if !first.event.closed_by_writer() {
                if by_opener && first.closed && young.opened.opener_writes().is_none() {
                    return Some(young.grown_up(true, None));
                }
                // Somebody reads it; who made it is not done.
                self.files.insert(id, young);
                return None;
            }
            let others = !by_opener || first.opened;
            let still_open = others && young.opened.opener_writes().is_some();
            first.opened |= still_open;
            first.closed = !still_open;
            first.event.fresh = young.opened.fresh;
            first.event.before = young.opened.before;
            first.event.process = young.opened.process;
        }
        if first.event.fresh && first.opened && !first.closed {
            let young = YoungFile {
                since: Instant::now(),
                opened: first.event,
            };
            self.files.insert(id, young);
            return None;
        }
        Some(first)
    }

    /// Takes out those that were made a while ago and are still open.
    pub(super) fn take_grown_up(&mut self) -> Vec<FirstUse> {
        // A process is asked once: many of its files may be old enough when there was
        // no time for them before.
        let mut asked: HashMap<i32, Vec<OpenFile>> = HashMap::new();
        let grown: Vec<(FileId, Option<bool>)> = self
            .files
            .iter()
            .filter_map(|(id, young)| {
                let age = young.since.elapsed();
                let old_enough = age >= YOUNG || young.is_large();
                // Who does not have it open any more has closed it, of which the
                // event is on its way. Asked once: closed before a second answer,
                // what its maker wrote would pass for somebody else's.
                let process = young.opened.process;
                let writes = old_enough.then(|| {
                    let open = asked
                        .entry(process)
                        .or_insert_with(|| open_files(process).unwrap_or_default());
                    young.opened.writes_among(open)
                });
                let writes = writes.flatten();
                (writes.is_some() || age >= CLOSE_IS_TOLD).then_some((*id, writes))
            })
            .collect();
        grown
            .into_iter()
            .filter_map(|(id, writes)| Some(self.files.remove(&id)?.grown_up(false, writes)))
            .collect()
    }

    /// Takes all out.
    pub(super) fn take_all(&mut self) -> Vec<FirstUse> {
        let all = self.files.drain();
        all.map(|(_, young)| {
            let writes = young.opened.opener_writes();
            young.grown_up(false, writes)
        })
        .collect()
    }
}

impl YoungFile {
    fn is_large(&self) -> bool {
        size_bytes(self.opened.file.as_fd()).is_ok_and(|bytes| bytes > SMALL_BYTES)
    }

    /// `writes` is whether its opener has it open for writing, if at all.
    fn grown_up(self, closed: bool, writes: Option<bool>) -> FirstUse {
        let mut event = self.opened;
        let wrote = event.closed_by_writer() || writes == Some(true);
        let only_read = !wrote && (closed || writes == Some(false));
        if only_read && !overlay::is_overlay(&event.file) {
            // Somebody else made it, and what is cached is that writer's: held
            // for the reader, too, it would be written for nobody after it was
            // deleted.
            event.before = Some(CacheMap::now(event.file.as_fd()));
        }
        FirstUse {
            event,
            opened: true,
            closed,
            wrote,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::atomic::{AtomicBool, Ordering};

    use dropbehind_linux::{EventMask, file_stat};
    use dropbehind_testbed::Scratch;

    use super::*;

    #[test]
    fn a_file_that_grows_fast_is_not_young_for_long() {
        let scratch = Scratch::new().unwrap();
        let opened = |name, bytes| {
            let path = scratch.file(name);
            let writer = File::create(&path).unwrap();
            writer.set_len(bytes).unwrap();
            let opened = FileEvent {
                file: File::open(&path).unwrap().into(),
                info: file_stat(writer.as_fd()).unwrap(),
                mask: EventMask::OPEN,
                process: i32::try_from(std::process::id()).unwrap(),
                before: None,
                fresh: true,
            };
            (writer, opened)
        };
        let mut young = YoungFiles::default();
        let (_small, small) = opened("small", SMALL_BYTES);
        let (_large, large) = opened("large", SMALL_BYTES + 1);
        let large_id = large.info.id;
        // Not even 5 ms old when the test is kept waiting for as long.
        let since = Instant::now() + Duration::from_secs(3600);
        for opened in [small, large] {
            young
                .files
                .insert(opened.info.id, YoungFile { since, opened });
        }
        let grown = young.take_grown_up();
        let grown: Vec<_> = grown.iter().map(|first| first.event.info.id).collect();
        assert_eq!(grown, [large_id]);
        assert!(!young.is_empty());
    }

    #[test]
    fn who_closes_a_young_file_in_this_moment_wrote_it() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.file("young");
        let info = file_stat(File::create(&path).unwrap().as_fd()).unwrap();
        let done = AtomicBool::new(false);
        // About as long as it takes to look what a process has open.
        let pause = || std::thread::sleep(Duration::from_micros(10));
        let wrote: Vec<bool> = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let file = File::create(&path).unwrap();
                    pause();
                    drop(file);
                    pause();
                }
            });
            let mut young = YoungFiles::default();
            let wrote = (0..4000).flat_map(|_| {
                let opened = FileEvent {
                    // The descriptor of an event is no matter here.
                    file: std::io::pipe().unwrap().0.into(),
                    info,
                    mask: EventMask::OPEN,
                    process: i32::try_from(std::process::id()).unwrap(),
                    before: None,
                    fresh: true,
                };
                let begun = Instant::now();
                let since = begun.checked_sub(YOUNG).unwrap();
                young.files.insert(info.id, YoungFile { since, opened });
                let grown = young.take_grown_up();
                // Kept waiting for so long, its close should have been told.
                let stalled = begun.elapsed() >= CLOSE_IS_TOLD / 2;
                grown.into_iter().filter(move |_| !stalled)
            });
            let wrote = wrote.map(|first| first.wrote).collect();
            done.store(true, Ordering::Relaxed);
            wrote
        });
        assert!(!wrote.is_empty(), "it was never seen open");
        assert!(wrote.iter().all(|wrote| *wrote));
    }
}
