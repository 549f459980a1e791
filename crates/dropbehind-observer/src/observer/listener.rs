//! The listener: reads events as they come, and looks at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use dropbehind::CacheMap;
use dropbehind_linux::{
    Event, EventBuffer, EventMask, Fanotify, FileKind, FileStat, Interest, PollEntry, cachestat,
    file_stat, page_size, poll,
};

use super::worker::Input;
use super::{Shared, own_process};
use crate::board::lock;
use crate::files::FileEvent;
use crate::looked::Looked;
use crate::overlay;
use crate::source::{Marks, Source};

/// Events are read so many at a time; each opens a descriptor.
const EVENTS: usize = 256;
/// Up to so many events a second are read as they come; beyond, they are left
/// to gather for a while, in which the kernel merges those of one file.
const EVENTS_PER_SECOND: u64 = 5_000;
/// How long.
const GATHER: Duration = Duration::from_millis(2);
/// Where the machine is observed, nobody's reads are to be forestalled, and the
/// time between reads grows until events take no more than a twentieth of it.
const GATHER_MAX: Duration = Duration::from_millis(200);
const LISTENER_SHARE: u32 = 20;
/// A file of which more is cached when it is opened is mapped later, by the
/// worker: the map takes a byte a page.
const MAP_AT_ONCE_BYTES: u64 = 64 << 20;
/// A file made no longer ago than this and written by those observed was made by
/// them; an event may be read as late as that on a busy machine.
const FRESH: Duration = Duration::from_millis(500);

pub(super) struct Listener {
    shared: Arc<Shared>,
    fanotify: Arc<Fanotify>,
    openers: Option<Arc<Fanotify>>,
    marks: Marks,
    input: mpsc::Sender<Input>,
    looked: Looked,
    own: i32,
    /// When observing began, since the epoch.
    since: Duration,
}

/// What a [`Listener`] is made from.
pub(super) struct Parts {
    pub(super) shared: Arc<Shared>,
    pub(super) fanotify: Arc<Fanotify>,
    /// Opens by anybody, of the files that had been there before.
    pub(super) openers: Option<Arc<Fanotify>>,
    pub(super) marks: Marks,
    pub(super) input: mpsc::Sender<Input>,
    pub(super) looked: Looked,
}

impl Listener {
    pub(super) fn new(parts: Parts) -> Listener {
        Listener {
            shared: parts.shared,
            fanotify: parts.fanotify,
            openers: parts.openers,
            marks: parts.marks,
            input: parts.input,
            looked: parts.looked,
            own: own_process(),
            since: coarse_time(),
        }
    }

    pub(super) fn run(mut self) {
        let mut buffer = EventBuffer::new(EVENTS);
        let mut users = EventBuffer::new(EVENTS);
        let mut second = (Instant::now(), 0_u64);
        while !self.shared.stopping.load(Ordering::SeqCst) {
            if self.wait() {
                let mut notes = Vec::new();
                let _ = self.marks.refresh(&self.fanotify, &mut notes);
                for note in notes {
                    self.note(note);
                }
            }
            let started = Instant::now();
            let read = self.read_all(&mut buffer, &mut users);
            self.shared.rounds.fetch_add(1, Ordering::SeqCst);
            if second.0.elapsed() >= Duration::from_secs(1) {
                second = (Instant::now(), 0);
            }
            second.1 += read;
            let flood = second.1 > EVENTS_PER_SECOND;
            if self.shared.source == Source::Machine {
                let pause = (started.elapsed() * LISTENER_SHARE).min(GATHER_MAX);
                if flood {
                    std::thread::sleep(pause.max(GATHER));
                }
            } else if flood {
                std::thread::sleep(GATHER);
            }
        }
    }

    fn note(&self, note: String) {
        lock(&self.shared.reporter.board).note(note);
    }

    /// Waits for something to happen; true when mounts have changed.
    fn wait(&self) -> bool {
        let mut entries = vec![
            PollEntry::new(self.fanotify.as_fd(), Interest::Readable),
            PollEntry::new(self.marks.watch(), Interest::Urgent),
            PollEntry::new(self.shared.wake.as_fd(), Interest::Readable),
        ];
        if let Some(openers) = &self.openers {
            entries.push(PollEntry::new(openers.as_fd(), Interest::Readable));
        }
        if poll(&mut entries, None).is_err() {
            return false;
        }
        if entries[2].is_ready() {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.shared.wake, &mut count);
        }
        entries[1].is_ready()
    }

    fn read_all(&self, buffer: &mut EventBuffer, users: &mut EventBuffer) -> u64 {
        let mut read = 0;
        let mut used = self.read_events(buffer, &mut read);
        loop {
            let by_anybody = self.read_openers(users);
            // Among them are those observed, whose own events are there by now; of who
            // has ended since then nothing else tells.
            let next = match by_anybody.is_empty() {
                true => Vec::new(),
                false => self.read_events(buffer, &mut read),
            };
            // Whoever else used one of these files before they did is told first:
            // then what was seen of it before is not true any more.
            self.tell_users(by_anybody, used.iter().chain(&next));
            for event in used {
                let _ = self.input.send(Input::Used(Box::new(event)));
            }
            used = next;
            if used.is_empty() {
                used = self.read_events(buffer, &mut read);
                if used.is_empty() {
                    return read;
                }
            }
        }
    }

    /// The next events that matter; none when there are no more.
    fn read_events(&self, buffer: &mut EventBuffer, read: &mut u64) -> Vec<FileEvent> {
        loop {
            let events = match self.fanotify.read(buffer) {
                Ok(events) => events,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Vec::new(),
                Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                    self.note("out of descriptors: some files are left to the kernel".into());
                    std::thread::sleep(GATHER);
                    continue;
                }
                // That of a single event's file.
                Err(_) => continue,
            };
            let before = *read;
            let used: Vec<FileEvent> = events
                .inspect(|_| *read += 1)
                .filter_map(|event| self.look(event))
                .collect();
            if !used.is_empty() || *read == before {
                return used;
            }
        }
    }

    /// Tells of those who used files that were looked at. Among them are those
    /// observed, and by `used` they are known, even if they are gone by then.
    fn tell_users<'a>(&self, users: Vec<Event>, used: impl Iterator<Item = &'a FileEvent>) {
        if users.is_empty() {
            return;
        }
        // A block device is marked itself, so that everybody's use is told.
        let observed =
            used.filter(|event| event.is_by_observed() && event.info.kind != FileKind::Block);
        let inside = observed.map(|event| event.process).collect();
        let _ = self.input.send(Input::Inside(inside));
        let _ = self.input.send(Input::UsedByAnybody(users));
    }

    /// An event, and what of its file is cached in this moment.
    fn look(&self, event: Event) -> Option<FileEvent> {
        let reporter = &self.shared.reporter;
        if event.process != self.own {
            reporter.events.fetch_add(1, Ordering::Relaxed);
        }
        if event.overflow {
            reporter.overflows.fetch_add(1, Ordering::Relaxed);
            let _ = self.input.send(Input::Overflow);
            return None;
        }
        if is_own(self.own, event.process, event.mask) || event.mask.contains(EventMask::ON_DIR) {
            return None;
        }
        let file = event.file?;
        let info = file_stat(file.as_fd()).ok()?;
        if info.kind == FileKind::Other {
            return None;
        }
        let fresh = is_fresh(&info, self.since);
        let opened = event.mask.contains(EventMask::OPEN);
        // An overlay's own inode has no pages: the worker looks at the file below.
        let before = if fresh || !opened || overlay::is_overlay(&file) {
            None
        } else {
            look_at_open(file.as_fd(), info.size_bytes)
        };
        if info.size_bytes > 0
            && let Some(before) = &before
            && before.cached_bytes() == 0
        {
            // The first look counts: the next event of this file comes later.
            self.looked.keep_empty(file.as_fd(), info.id);
        }
        Some(FileEvent {
            fresh,
            file,
            info,
            mask: event.mask,
            process: event.process,
            before,
        })
    }

    fn read_openers(&self, buffer: &mut EventBuffer) -> Vec<Event> {
        let mut opened = Vec::new();
        let Some(openers) = &self.openers else {
            return opened;
        };
        while let Ok(events) = openers.read(buffer) {
            let before = opened.len();
            opened.extend(events.filter(|event| event.process != self.own));
            if opened.len() == before {
                break;
            }
        }
        opened
    }
}

/// What this process, `own`, did itself. A file is closed by whoever lets go of it last,
/// and to look what a program has open is to hold that for a moment: its end is told as
/// ours then.
fn is_own(own: i32, process: i32, mask: EventMask) -> bool {
    let closed_for_another =
        mask.contains(EventMask::CLOSE_WRITE) && !mask.contains(EventMask::OPEN);
    process == own && !closed_for_another
}

/// What others had of a file that was opened a moment ago. `None` leaves it to
/// the worker to map what is there.
fn look_at_open(file: BorrowedFd<'_>, size_bytes: u64) -> Option<CacheMap> {
    if size_bytes == 0 {
        return Some(CacheMap::empty());
    }
    let cached_bytes = cachestat(file, 0, 0).ok()?.cached_pages * page_size();
    match cached_bytes {
        0 => Some(CacheMap::empty()),
        1..=MAP_AT_ONCE_BYTES => Some(CacheMap::now_without_reads_under_way(file)),
        _ => None,
    }
}

/// True for a file made a moment ago, and after `since`.
///
/// Files are dated by the coarse clock, which is some milliseconds behind, or by
/// the exact one where somebody has just asked for a date (multigrain
/// timestamps, since Linux 6.13): so `since` is of the one, and now of the other.
fn is_fresh(info: &FileStat, since: Duration) -> bool {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    info.born
        .is_some_and(|born| since <= born && born <= now && now - born < FRESH)
}

/// The time of the coarse clock, since the epoch.
fn coarse_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_whose_file_we_let_go_of_last_has_closed_it() {
        let written = EventMask::CLOSE_WRITE;
        assert!(!is_own(1, 1, written));
        for ours in [
            EventMask::OPEN,
            EventMask::CLOSE_NOWRITE,
            EventMask::OPEN | written,
        ] {
            assert!(is_own(1, 1, ours), "{ours:?}");
            assert!(!is_own(1, 2, ours), "{ours:?}");
        }
        assert!(!is_own(1, 2, written));
    }
}
