//! The files that are looked after, and what is done when something happens to
//! them. Owned by the observer's worker thread.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use dropbehind::{CacheMap, Flusher, Notice, ObserveOptions, Observed, ObservedState, Writeback};
use dropbehind_linux::{
    EventMask, Fanotify, FileId, FileKind, FileStat, MarkOptions, MarkTarget, cachestat, disk_of,
    drop_clean, file_stat, open_files, page_size,
};

use crate::looked::{Looked, Scout};
use crate::others::{Insiders, Scan};
use crate::overlay;
use crate::owners::Owners;
use crate::rules::{Candidate, Rules, Settings};
use crate::small_files::{SMALL_BYTES, SmallFiles};
use crate::source::USE;

/// A file just made is looked after by itself when it is still open after this
/// time; most are small, and closed in the next moment.
const YOUNG: Duration = Duration::from_millis(5);
/// A file that was closed is told of within this time.
const CLOSE_IS_TOLD: Duration = Duration::from_millis(500);
/// A pre-existing file of which less than this is brought in is not worth a
/// search for its other users.
const SHARED_BYTES: u64 = 64 << 10;
/// Where programs and their libraries are: the neighbours of one are not what is
/// read next.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt"];
/// A file that is done with and has more pages than it should is looked after
/// anew so often; ext4 keeps some marked dirty for ever.
const ROUNDS: u32 = 3;
/// What tells that somebody else uses a file that is done with: one may have had
/// it open all the while.
const LEFT: EventMask = EventMask::OPEN.union(EventMask::ACCESS);
/// What tells that an idle file is used again.
const WAKE: EventMask = EventMask::MODIFY.union(EventMask::ACCESS);

/// Something that happened to a file.
#[derive(Debug)]
pub(crate) struct Use {
    /// The event's own descriptor of it.
    pub(crate) file: OwnedFd,
    pub(crate) info: FileStat,
    pub(crate) mask: EventMask,
    pub(crate) process: i32,
    /// What was in the cache when the event was read, if that was soon enough
    /// to mean something.
    pub(crate) before: Option<CacheMap>,
    /// Made in this moment: if those observed write it, nothing of it is older.
    pub(crate) fresh: bool,
}

/// A file that is looked after.
#[derive(Debug)]
struct Tracked {
    observed: Observed,
    id: FileId,
    path: PathBuf,
    mode: String,
    /// A descriptor of the same file, to mark it by.
    description: OwnedFd,
    /// Opened and not closed, as far as events tell; they merge.
    open: i64,
    /// Idle, and marked to be told of the next access.
    marked: bool,
    fresh: bool,
    /// Open since before the program was there.
    inherited: bool,
    /// How often it was looked after anew when it was done with.
    rounds: u32,
    settings: Settings,
    before: CacheMap,
}

/// Sums over files that are finished, and over small ones never tracked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Finished {
    pub(crate) files: u64,
    pub(crate) written_bytes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) small_dropped_bytes: u64,
    pub(crate) waits: u64,
    pub(crate) wait_ns: u64,
}

/// One file, for the snapshot.
#[derive(Clone, Debug)]
pub(crate) struct FileView {
    pub(crate) path: PathBuf,
    pub(crate) disk: String,
    pub(crate) mode: String,
    pub(crate) state: ObservedState,
    pub(crate) idle: bool,
}

/// What the worker shares with those who ask for a snapshot.
#[derive(Debug, Default)]
pub(crate) struct Board {
    pub(crate) finished: Finished,
    pub(crate) notes: Vec<String>,
    /// Bytes written and read of finished files, by disk.
    pub(crate) by_disk: HashMap<String, (u64, u64)>,
    files: HashMap<u64, (PathBuf, String, Observed, bool)>,
}

impl Board {
    pub(crate) fn views(&self) -> Vec<FileView> {
        let views = self
            .files
            .values()
            .map(|(path, mode, observed, idle)| FileView {
                path: path.clone(),
                disk: observed.disk_name().to_owned(),
                mode: mode.clone(),
                state: observed.state(),
                idle: *idle,
            });
        views.collect()
    }

    pub(crate) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) && self.notes.len() < 64 {
            self.notes.push(note);
        }
    }
}

pub(crate) type SharedBoard = Arc<Mutex<Board>>;

pub(crate) fn lock(board: &SharedBoard) -> MutexGuard<'_, Board> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All files of an observer.
#[derive(Debug)]
pub(crate) struct Files {
    flusher: Flusher,
    rules: Arc<dyn Rules>,
    fanotify: Arc<Fanotify>,
    /// Opens by anybody, of the files that had been there before.
    openers: Option<Arc<Fanotify>>,
    looked: Looked,
    scout: Option<Scout>,
    small: SmallFiles,
    /// Just made, and not closed yet.
    young: HashMap<FileId, (Instant, Use)>,
    insiders: Insiders,
    owners: Owners,
    scan: Scan,
    board: SharedBoard,
    by_id: HashMap<FileId, u64>,
    tracked: HashMap<u64, Tracked>,
    disk_names: HashMap<u64, String>,
    keys: u64,
    notices: mpsc::Sender<Notice>,
}

/// What [`Files`] is made from.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) flusher: Flusher,
    pub(crate) rules: Arc<dyn Rules>,
    pub(crate) fanotify: Arc<Fanotify>,
    pub(crate) openers: Option<Arc<Fanotify>>,
    pub(crate) looked: Looked,
    pub(crate) scout: Option<Scout>,
    pub(crate) small: SmallFiles,
    pub(crate) insiders: Insiders,
    pub(crate) board: SharedBoard,
    pub(crate) notices: mpsc::Sender<Notice>,
}

impl Files {
    pub(crate) fn new(parts: Parts) -> Files {
        Files {
            flusher: parts.flusher,
            rules: parts.rules,
            fanotify: parts.fanotify,
            openers: parts.openers,
            looked: parts.looked,
            scout: parts.scout,
            small: parts.small,
            young: HashMap::new(),
            insiders: parts.insiders,
            owners: Owners::default(),
            scan: Scan::default(),
            board: parts.board,
            by_id: HashMap::new(),
            tracked: HashMap::new(),
            disk_names: HashMap::new(),
            keys: 0,
            notices: parts.notices,
        }
    }

    pub(crate) fn set_rules(&mut self, rules: Arc<dyn Rules>) {
        self.rules = rules;
        // What was not wanted before may be wanted now.
        let _ = self.fanotify.remove_inode_marks();
    }

    /// True when a look at `/proc` or at idle files may be due soon.
    pub(crate) fn is_busy(&self) -> bool {
        !self.tracked.is_empty() || !self.young.is_empty()
    }

    /// Something happened to a file.
    pub(crate) fn used(&mut self, used: Use) {
        if used.info.kind == FileKind::Block {
            // Marked itself, so that everybody's use is told.
            if !self.insiders.is_inside(used.process) {
                return self.opened_by(used.process, used.info.id);
            }
        } else if used.mask.intersects(USE) && !self.insiders.knows(used.process) {
            // Marks on files themselves tell of everybody's reads and writes.
            self.insiders.seen_inside(used.process);
        }
        let opened = used.mask.contains(EventMask::OPEN);
        let closed = used
            .mask
            .intersects(EventMask::CLOSE_WRITE | EventMask::CLOSE_NOWRITE);
        if let Some(&key) = self.by_id.get(&used.info.id) {
            return self.used_again(key, opened, closed);
        }
        if used.mask.intersects(WAKE) && !opened && !closed {
            // Marked once, and forgotten since.
            let target = MarkTarget::Inode(used.file.as_fd());
            let _ = self.fanotify.remove_mark(target, WAKE, MarkOptions::WANTED);
            if !self.insiders.is_inside(used.process) {
                return;
            }
        }
        let (used, opened, closed) = match self.young.remove(&used.info.id) {
            Some((since, first)) => {
                let others = used.process != first.process || opened;
                let still_open = others && opener_has(&first).is_some();
                if !used.mask.contains(EventMask::CLOSE_WRITE) {
                    // Somebody reads it; who made it is not done.
                    self.young.insert(first.info.id, (since, first));
                    return;
                }
                let used = Use {
                    fresh: first.fresh,
                    before: first.before,
                    process: first.process,
                    ..used
                };
                (used, opened || still_open, !still_open)
            }
            None => (used, opened, closed),
        };
        if used.fresh && opened && !closed {
            self.young.insert(used.info.id, (Instant::now(), used));
            return;
        }
        let wrote = used
            .mask
            .intersects(EventMask::CLOSE_WRITE | EventMask::MODIFY);
        self.first_used(used, opened, closed, wrote);
    }

    /// Files that were made a while ago and are still open.
    pub(crate) fn grow_up(&mut self) {
        let grown: Vec<FileId> = self
            .young
            .iter()
            .filter(|(_, (since, used))| {
                // Who does not have it open any more has closed it, of which
                // the event is on its way.
                let age = since.elapsed();
                age >= YOUNG && (age >= CLOSE_IS_TOLD || opener_has(used).is_some())
            })
            .map(|(id, _)| *id)
            .collect();
        for id in grown {
            if let Some((_, used)) = self.young.remove(&id) {
                let wrote = used.mask.contains(EventMask::CLOSE_WRITE);
                let writes = wrote || opener_has(&used).unwrap_or(false);
                self.first_used(used, true, false, writes);
            }
        }
    }

    fn used_again(&mut self, key: u64, opened: bool, closed: bool) {
        let Some(tracked) = self.tracked.get_mut(&key) else {
            return;
        };
        if tracked.marked {
            tracked.marked = false;
            let target = MarkTarget::Inode(tracked.description.as_fd());
            let _ = self.fanotify.remove_mark(target, WAKE, MarkOptions::WANTED);
            self.set_idle(key, false);
        }
        let Some(tracked) = self.tracked.get_mut(&key) else {
            return;
        };
        tracked.open += i64::from(opened) - i64::from(closed);
        if closed && tracked.open <= 0 {
            tracked.open = 0;
            if tracked.inherited {
                // Others' opens before ours were not counted: who closed it may
                // be one of them.
                tracked.open = 1;
                self.scan.want(tracked.id);
            } else {
                tracked.observed.closed();
            }
        } else {
            tracked.observed.touched();
        }
    }

    fn first_used(&mut self, used: Use, opened: bool, closed: bool, wrote: bool) {
        let size_bytes = used.info.size_bytes;
        // Somebody else may have made it, for others to read.
        let fresh = used.fresh && wrote || size_bytes == 0;
        let before = if fresh {
            Some(CacheMap::empty())
        } else {
            // Both are true; the one with less in it was made sooner.
            let looks = self
                .looked
                .take(used.info.id)
                .into_iter()
                .chain(used.before);
            looks.min_by_key(CacheMap::cached_bytes)
        };
        // Wholly cached and small: reading brings nothing in, and should it be
        // written, that is told when it is closed.
        let cached = before.as_ref().is_some_and(|map| {
            map.cached_bytes() >= size_bytes.next_multiple_of(page_size()) && size_bytes > 0
        });
        if !wrote && cached && size_bytes < SMALL_BYTES * 4 {
            return;
        }
        let path = path_of(used.file.as_fd());
        if !wrote && !cached && !fresh && opened {
            let known = before.as_ref().is_some_and(|map| map.cached_bytes() == 0);
            if let (Some(scout), Some(parent)) = (&mut self.scout, path.parent())
                && !used.info.executable
                && !SYSTEM.iter().any(|system| parent.starts_with(system))
            {
                scout.opened_in(parent);
            }
            if !closed && size_bytes <= SMALL_BYTES && known {
                // Its end is told; what was there before is remembered for it.
                self.looked.keep(used.info.id, CacheMap::empty());
                return;
            }
        }
        let Some(settings) = self.settings(&path, used.process, used.file.as_fd()) else {
            if self.is_settled(&path, used.file.as_fd()) {
                let target = MarkTarget::Inode(used.file.as_fd());
                let not_wanted =
                    EventMask::OPEN | EventMask::CLOSE_WRITE | EventMask::CLOSE_NOWRITE;
                let _ = self
                    .fanotify
                    .add_mark(target, not_wanted, MarkOptions::IGNORED_EVICTABLE);
            }
            return;
        };
        let nothing_to_do = !settings.mode.drops() && !wrote && closed;
        if nothing_to_do || self.owners.has(used.process, self.insiders.namespace()) {
            return;
        }
        if closed && !wrote && size_bytes <= SMALL_BYTES {
            let nothing_before = before.as_ref().is_some_and(|map| map.cached_bytes() == 0);
            if settings.reads && settings.mode.drops() && nothing_before {
                self.drop_small(&used.file, size_bytes);
            }
            return;
        }
        let nothing_before = before.as_ref().is_some_and(|map| map.cached_bytes() == 0);
        let eager = settings.mode.writeback == Writeback::Eager;
        if closed && wrote && size_bytes <= SMALL_BYTES && used.info.kind == FileKind::Regular {
            // Where others had it in the cache, there is nothing to do.
            if eager && nothing_before && !overlay::is_overlay(&used.file) {
                self.small
                    .closed(used.file, size_bytes, settings.mode.drops());
            }
            return;
        }
        let description = if overlay::is_overlay(&used.file) {
            match overlay::file_below(used.file.as_fd(), &path) {
                Some(below) => below,
                None => {
                    lock(&self.board).note(format!(
                        "{}: the file below the overlay cannot be seen from here, and is left to \
                         the kernel",
                        path.display()
                    ));
                    return;
                }
            }
        } else {
            used.file
        };
        let open = i64::from(opened) - i64::from(closed);
        self.track(
            used.info.id,
            path,
            description,
            settings,
            before,
            fresh,
            false,
            open.max(0),
        );
        if let Some(&key) = self.by_id.get(&used.info.id)
            && closed
            && let Some(tracked) = self.tracked.get(&key)
        {
            tracked.observed.closed();
        }
    }

    #[allow(clippy::too_many_arguments, reason = "all that is known of a file")]
    fn track(
        &mut self,
        id: FileId,
        path: PathBuf,
        description: OwnedFd,
        settings: Settings,
        before: Option<CacheMap>,
        fresh: bool,
        shared: bool,
        open: i64,
    ) {
        let before = before.unwrap_or_else(|| CacheMap::now(description.as_fd()));
        let Ok(for_marks) = description.try_clone() else {
            lock(&self.board)
                .note("out of descriptors: some files are left to the kernel".to_owned());
            return;
        };
        self.keys += 1;
        let key = self.keys;
        let options = ObserveOptions {
            mode: settings.mode,
            window_bytes: settings.window_bytes,
            max_dirty_bytes: settings.max_dirty_bytes,
            request_bytes: settings.request_bytes,
            reads: settings.reads,
            before: before.clone(),
            shared,
            key,
            notices: self.notices.clone(),
        };
        let observed = match self.flusher.observe(description, options) {
            Ok(observed) => observed,
            Err(error) => {
                lock(&self.board)
                    .note(format!("{} is left to the kernel: {error}", path.display()));
                return;
            }
        };
        if !fresh && settings.mode.drops() {
            // Somebody outside may use it, or come to use it.
            self.scan.want(id);
            if let Some(openers) = &self.openers {
                let target = MarkTarget::Inode(for_marks.as_fd());
                let _ = openers.add_mark(target, EventMask::OPEN, MarkOptions::WANTED);
                // Its own reads are not to be told of.
                let _ = openers.remove_mark(target, EventMask::ACCESS, MarkOptions::WANTED);
            }
        }
        let mode = settings.mode.to_string();
        let mut board = lock(&self.board);
        board.finished.files += 1;
        board
            .files
            .insert(key, (path.clone(), mode.clone(), observed.clone(), false));
        drop(board);
        self.by_id.insert(id, key);
        self.tracked.insert(
            key,
            Tracked {
                observed,
                id,
                path,
                mode,
                description: for_marks,
                open,
                marked: false,
                fresh,
                inherited: false,
                rounds: 0,
                settings,
                before,
            },
        );
    }

    fn settings(
        &mut self,
        path: &Path,
        process: i32,
        file: std::os::fd::BorrowedFd<'_>,
    ) -> Option<Settings> {
        let rules = Arc::clone(&self.rules);
        rules.settings_for(Candidate {
            path,
            process,
            disk: self.disk_name(file),
        })
    }

    /// True when whoever opens this file gets the same answer.
    fn is_settled(&mut self, path: &Path, file: std::os::fd::BorrowedFd<'_>) -> bool {
        let rules = Arc::clone(&self.rules);
        rules.path_alone_for(path, self.disk_name(file))
    }

    fn disk_name(&mut self, file: std::os::fd::BorrowedFd<'_>) -> &str {
        let device = rustix::fs::fstat(file).map_or(0, |stat| stat.st_dev);
        self.disk_names
            .entry(device)
            .or_insert_with(|| disk_of(file).map_or_else(|_| String::new(), |disk| disk.name))
    }

    /// Drops a small file that was read, of which nothing was cached before.
    fn drop_small(&mut self, file: &OwnedFd, size_bytes: u64) {
        let Ok(counted) = cachestat(file.as_fd(), 0, 0) else {
            return;
        };
        let mut board = lock(&self.board);
        board.finished.files += 1;
        board.finished.read_bytes += counted.cached_pages * page_size();
        if counted.is_clean() && counted.cached_pages > 0 {
            let _ = drop_clean(file.as_fd(), 0, size_bytes.next_multiple_of(page_size()));
            let after =
                cachestat(file.as_fd(), 0, 0).map_or(counted.cached_pages, |now| now.cached_pages);
            board.finished.small_dropped_bytes +=
                counted.cached_pages.saturating_sub(after) * page_size();
        }
    }

    /// A process that has a file open from before its start, or before ours.
    pub(crate) fn inherited(&mut self, process: i32, file: OwnedFd, before: CacheMap) {
        let Ok(info) = file_stat(file.as_fd()) else {
            return;
        };
        if info.kind == FileKind::Other || self.by_id.contains_key(&info.id) {
            return;
        }
        let path = path_of(file.as_fd());
        let Some(settings) = self.settings(&path, process, file.as_fd()) else {
            return;
        };
        let fresh = info.size_bytes == 0;
        self.track(info.id, path, file, settings, Some(before), fresh, false, 1);
        if let Some(tracked) = self.tracked_by(info.id) {
            tracked.inherited = true;
        }
    }

    fn tracked_by(&mut self, id: FileId) -> Option<&mut Tracked> {
        let key = self.by_id.get(&id)?;
        self.tracked.get_mut(key)
    }

    /// A process opened a file that had been there before.
    pub(crate) fn opened_by(&mut self, process: i32, id: FileId) {
        if self.insiders.is_inside(process) {
            return;
        }
        match self.tracked_by(id) {
            Some(tracked) => tracked.observed.shared(),
            // What it has in the cache from now on is its own.
            None => drop(self.looked.take(id)),
        }
    }

    /// What the flusher says.
    pub(crate) fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Idle { key } => self.idle(key),
            Notice::Finished {
                key,
                description,
                state,
            } => self.finished(key, description, state),
        }
    }

    fn idle(&mut self, key: u64) {
        let Some(tracked) = self.tracked.get_mut(&key) else {
            return;
        };
        if !tracked.marked {
            let target = MarkTarget::Inode(tracked.description.as_fd());
            let marked = self.fanotify.add_mark(target, WAKE, MarkOptions::WANTED);
            tracked.marked = marked.is_ok();
        }
        let id = tracked.id;
        self.set_idle(key, true);
        // Events merge, and a close may have been missed.
        self.scan.want(id);
    }

    fn set_idle(&self, key: u64, idle: bool) {
        if let Some(file) = lock(&self.board).files.get_mut(&key) {
            file.3 = idle;
        }
    }

    fn finished(&mut self, key: u64, description: OwnedFd, state: ObservedState) {
        let Some(tracked) = self.tracked.remove(&key) else {
            return;
        };
        self.by_id.remove(&tracked.id);
        let mut board = lock(&self.board);
        board.files.remove(&key);
        board.finished.written_bytes += state.written_bytes;
        board.finished.read_bytes += state.read_bytes;
        board.finished.waits += state.waits;
        board.finished.wait_ns += state.wait_ns;
        let disk = tracked.observed.disk_name().to_owned();
        let sums = board.by_disk.entry(disk).or_default();
        sums.0 += state.written_bytes;
        sums.1 += state.read_bytes;
        drop(board);
        let target = MarkTarget::Inode(description.as_fd());
        if !tracked.fresh
            && let Some(openers) = &self.openers
        {
            let _ = openers.remove_mark(target, EventMask::OPEN, MarkOptions::WANTED);
        }
        // Whoever looked meanwhile saw what was brought in.
        let _ = self.looked.take(tracked.id);
        // A close that came when the flusher had already let go reached nobody.
        let drops = tracked.settings.mode.drops();
        let missed = tracked.open == 0
            && !state.shared
            && tracked.rounds < ROUNDS
            && cachestat(description.as_fd(), 0, 0).is_ok_and(|now| {
                let more = now.cached_pages * page_size() > state.counted.cached_bytes;
                !now.is_clean() || drops && more
            });
        if !missed && (tracked.open == 0 || tracked.marked) {
            return self.left(tracked, &description, state);
        }
        // Opened again in the moment it was done with. Whoever did may be reading
        // already, so what is cached now is not to be asked; what was there
        // before all of it is known.
        lock(&self.board).finished.files -= 1;
        let Tracked { id, inherited, .. } = tracked;
        let rounds = tracked.rounds + u32::from(missed);
        self.track(
            id,
            tracked.path,
            description,
            tracked.settings,
            Some(tracked.before),
            tracked.fresh,
            state.shared,
            tracked.open,
        );
        if let Some(tracked) = self.tracked_by(id) {
            tracked.inherited = inherited;
            tracked.rounds = rounds;
            if tracked.open == 0 {
                tracked.observed.closed();
            }
        }
    }

    /// A file that is done with may be opened again, and read before anybody can
    /// look. What there was before is true for it still, until somebody else
    /// opens or reads it.
    fn left(&self, tracked: Tracked, description: &OwnedFd, state: ObservedState) {
        let options = MarkOptions {
            ignore: false,
            evictable: true,
        };
        // Events merge: of two opens of one process one may have been told, and
        // the other descriptor is still used.
        let target = MarkTarget::Inode(description.as_fd());
        let _ = self.fanotify.add_mark(target, WAKE, options);
        let Some(openers) = &self.openers else { return };
        if state.shared || !tracked.settings.mode.drops() {
            return;
        }
        let target = MarkTarget::Inode(description.as_fd());
        if openers.add_mark(target, LEFT, options).is_ok() {
            self.looked.keep(tracked.id, tracked.before);
        }
    }

    /// Looks who uses the files in question, when it is time.
    pub(crate) fn look_around(&mut self) {
        let Some(users) = self.scan.go(&mut self.insiders) else {
            return;
        };
        for id in users.asked {
            let Some(tracked) = self
                .by_id
                .get(&id)
                .and_then(|key| self.tracked.get_mut(key))
            else {
                continue;
            };
            let outside =
                users.outside.contains(&id) || users.ancestors.contains(&id) && !tracked.inherited;
            if outside && !tracked.fresh {
                let state = tracked.observed.state();
                if state.counters.brought_bytes >= SHARED_BYTES || !state.shared {
                    tracked.observed.shared();
                }
            }
            let used = users.inside.contains(&id) || outside;
            if !used && tracked.open > 0 {
                tracked.open = 0;
                tracked.observed.closed();
            } else if !used && tracked.marked {
                tracked.observed.closed();
            }
        }
    }

    /// The observed programs have ended, or nobody waits for them any more.
    pub(crate) fn close_all(&mut self) {
        for (_, (_, used)) in std::mem::take(&mut self.young) {
            let writes = opener_has(&used).unwrap_or(false);
            self.first_used(used, true, false, writes);
        }
        for tracked in self.tracked.values_mut() {
            tracked.open = 0;
            tracked.observed.closed();
        }
    }

    /// Events were lost: whoever has a file open now is taken for having opened
    /// it now.
    pub(crate) fn known(&self, id: FileId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// For the log: how many files, and the modes they are in.
    pub(crate) fn describe(&self) -> String {
        let first = self.tracked.values().next();
        first.map_or_else(String::new, |tracked| {
            format!("{} ({})", tracked.path.display(), tracked.mode)
        })
    }
}

/// Whether the process that opened a file has it open for writing; `None` when
/// it does not have it open any more.
fn opener_has(used: &Use) -> Option<bool> {
    let open = open_files(used.process).unwrap_or_default();
    let of_it = open.iter().filter(|file| file.id == used.info.id);
    of_it
        .map(|file| file.writable)
        .reduce(|one, other| one || other)
}

/// The path of an open file, as far as the kernel still knows one.
pub(crate) fn path_of(file: std::os::fd::BorrowedFd<'_>) -> PathBuf {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default()
}
