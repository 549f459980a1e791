//! The files that are looked after, and what is done when something happens to
//! them. Owned by the observer's worker thread.

mod file_event;
mod first_use;
mod settling;
mod tracked_file;
mod tracked_files;
mod young_files;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dropbehind::{CacheMap, Flusher, NoticeSink, ObserveOptions};
use dropbehind_linux::{EventMask, Fanotify, FileId, FileKind, MarkOptions, MarkTarget, file_stat};

pub(crate) use file_event::FileEvent;

use crate::board::{SharedBoard, lock};
use crate::file_path::path_of;
use crate::looked::Looked;
use crate::others::{Insiders, Scan, Whose};
use crate::owners::{Owners, is_observer};
use crate::rules::Rules;
use crate::rules_in_force::RulesInForce;
use crate::scout::Scout;
use crate::small_files::SmallFiles;
use file_event::WAKE;
use tracked_file::{FileFacts, TrackedFile};
use tracked_files::TrackedFiles;
use young_files::YoungFiles;

/// A pre-existing file of which less than this is brought in is not worth a
/// search for its other users.
const SHARED_BYTES: u64 = 64 << 10;

/// Of a process that ended before anybody could ask whose it was, its own events
/// have told by then if it was observed.
const OWN_EVENTS_TELL: Duration = Duration::from_millis(100);

/// All files of an observer.
#[derive(Debug)]
pub(crate) struct Files {
    flusher: Flusher,
    rules: RulesInForce,
    fanotify: Arc<Fanotify>,
    /// Opens by anybody, of the files that had been there before.
    openers: Option<Arc<Fanotify>>,
    looked: Looked,
    scout: Option<Scout>,
    small: SmallFiles,
    young: YoungFiles,
    insiders: Insiders,
    owners: Owners,
    scan: Scan,
    /// Users of files of which it is not known whose they are, and since when.
    gone: VecDeque<(Instant, i32, FileId)>,
    board: SharedBoard,
    tracked: TrackedFiles,
    notices: NoticeSink,
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
    pub(crate) notices: NoticeSink,
}

impl Files {
    pub(crate) fn new(parts: Parts) -> Files {
        Files {
            flusher: parts.flusher,
            rules: RulesInForce::new(parts.rules),
            fanotify: parts.fanotify,
            openers: parts.openers,
            looked: parts.looked,
            scout: parts.scout,
            small: parts.small,
            young: YoungFiles::default(),
            insiders: parts.insiders,
            owners: Owners::default(),
            scan: Scan::default(),
            gone: VecDeque::new(),
            board: parts.board,
            tracked: TrackedFiles::default(),
            notices: parts.notices,
        }
    }

    pub(crate) fn set_rules(&mut self, rules: Arc<dyn Rules>) {
        self.rules.replace(rules);
        // What was not wanted before may be wanted now.
        let _ = self.fanotify.remove_inode_marks();
    }

    /// True when a look at `/proc` or at idle files may be due soon.
    pub(crate) fn is_busy(&self) -> bool {
        !self.tracked.is_empty()
            || !self.young.is_empty()
            || self.scan.is_wanted()
            || !self.gone.is_empty()
    }

    /// True while there are files that were just made.
    pub(crate) fn has_young(&self) -> bool {
        !self.young.is_empty()
    }

    /// True for a file that is looked after.
    pub(crate) fn knows(&self, id: FileId) -> bool {
        self.tracked.key_of(id).is_some()
    }

    /// For the log: one of the files, and the mode it is in.
    pub(crate) fn describe(&self) -> String {
        let first = self.tracked.iter().next();
        first.map_or_else(String::new, |tracked| {
            let facts = &tracked.facts;
            format!("{} ({})", facts.path.display(), facts.settings.mode)
        })
    }

    /// Something happened to a file.
    pub(crate) fn used(&mut self, event: FileEvent) {
        if event.info.kind == FileKind::Block {
            // Marked itself, so that everybody's use is told.
            if !self.insiders.is_inside(event.process) {
                return self.used_by_anybody(event.process, event.file.as_fd(), event.mask);
            }
        } else if event.is_by_observed() {
            self.seen_inside(event.process);
        }
        if let Some(key) = self.tracked.key_of(event.info.id) {
            return self.used_again(key, &event);
        }
        if event.is_access_only() {
            // Marked once, and forgotten since.
            let target = MarkTarget::Inode(event.file.as_fd());
            let _ = self.fanotify.remove_mark(target, WAKE, MarkOptions::WANTED);
            if !self.insiders.is_inside(event.process) {
                return;
            }
        }
        if let Some(first) = self.young.first_use(event) {
            self.first_used(first);
        }
    }

    /// Files that were made a while ago and are still open.
    pub(crate) fn grow_up(&mut self) {
        for first in self.young.take_grown_up() {
            self.first_used(first);
        }
    }

    fn used_again(&mut self, key: u64, event: &FileEvent) {
        let Some(tracked) = self.tracked.by_key(key) else {
            return;
        };
        let (opened, closed) = (event.opened(), event.closed());
        if opened && keeps(&mut self.rules, tracked, event.process) {
            tracked.observed.shared();
        }
        if event.read() {
            tracked.was_read(&self.fanotify);
        }
        if tracked.unmark(&self.fanotify) {
            lock(&self.board).set_idle(key, false);
        }
        let facts = &mut tracked.facts;
        facts.open += i64::from(opened) - i64::from(closed);
        if !closed || facts.open > 0 {
            tracked.observed.touched();
        } else if facts.inherited {
            // Others' opens before ours were not counted: who closed it may be
            // one of them.
            facts.open = 1;
            self.scan.want(facts.id);
        } else {
            tracked.close();
        }
    }

    /// Looks after a file from now on. `shared` is one that others use.
    fn track(&mut self, facts: FileFacts, description: OwnedFd, shared: bool) {
        let Ok(for_marks) = description.try_clone() else {
            lock(&self.board)
                .note("out of descriptors: some files are left to the kernel".to_owned());
            return;
        };
        let settings = facts.settings;
        let key = self.tracked.new_key();
        let options = ObserveOptions {
            mode: settings.mode,
            window_bytes: settings.window_bytes,
            max_dirty_bytes: settings.max_dirty_bytes,
            request_bytes: settings.request_bytes,
            reads: settings.reads,
            before: facts.before.clone(),
            shared,
            key,
            notices: self.notices.clone(),
        };
        let observed = match self.flusher.observe(description, options) {
            Ok(observed) => observed,
            Err(error) => {
                let path = facts.path.display();
                lock(&self.board).note(format!("{path} is left to the kernel: {error}"));
                return;
            }
        };
        if !facts.fresh && settings.mode.drops() {
            // Somebody outside may use it, or come to use it.
            self.scan.want(facts.id);
            if let Some(openers) = &self.openers {
                let target = MarkTarget::Inode(facts.used(&for_marks));
                let _ = openers.add_mark(target, EventMask::OPEN, MarkOptions::WANTED);
                // Its own reads are not to be told of.
                let _ = openers.remove_mark(target, EventMask::ACCESS, MarkOptions::WANTED);
            }
        }
        let (path, mode) = (facts.path.clone(), settings.mode.to_string());
        lock(&self.board).begin(key, path, mode, observed.clone());
        let mut tracked = TrackedFile {
            facts,
            observed,
            description: for_marks,
            marked: false,
            awaits_read: false,
        };
        if settings.mode.drops() && !settings.reads {
            tracked.await_read(&self.fanotify);
        }
        self.tracked.insert(key, tracked);
    }

    /// A process that has a file open from before its start, or before ours.
    pub(crate) fn inherited(&mut self, process: i32, file: OwnedFd, before: CacheMap) {
        let Ok(info) = file_stat(file.as_fd()) else {
            return;
        };
        if info.kind == FileKind::Other || self.knows(info.id) {
            return;
        }
        let path = path_of(file.as_fd());
        let Some(settings) = self.rules.settings_for(&path, process, file.as_fd()) else {
            return;
        };
        let Some((file, overlay)) = self.file_with_pages(file, &path) else {
            return;
        };
        let facts = FileFacts {
            id: info.id,
            path,
            settings,
            before: match overlay {
                Some(_) => CacheMap::now(file.as_fd()),
                None => before,
            },
            fresh: info.size_bytes == 0,
            inherited: true,
            overlay,
            open: 1,
            rounds: 0,
        };
        self.track(facts, file, false);
    }

    /// A process is one of those observed.
    pub(crate) fn seen_inside(&mut self, process: i32) {
        if !self.insiders.knows(process) {
            self.insiders.seen_inside(process);
        }
    }

    /// A process, observed or not, opened or read a file that had been there
    /// before.
    pub(crate) fn used_by_anybody(
        &mut self,
        process: i32,
        file: BorrowedFd<'_>,
        events: EventMask,
    ) {
        if events.contains(EventMask::ACCESS) {
            self.looked.was_read(file);
        }
        let whose = self.insiders.whose(process);
        if whose == Whose::Inside || whose == Whose::Outside && is_observer(process) {
            return;
        }
        let Ok(info) = file_stat(file) else { return };
        // What it has in the cache from now on is its own.
        let _ = self.looked.take(file, info.id);
        match whose {
            Whose::Gone => self.gone.push_back((Instant::now(), process, info.id)),
            _ => self.used_by_others(info.id),
        }
    }

    fn used_by_others(&mut self, id: FileId) {
        match self.tracked.by_id(id) {
            Some(tracked) => tracked.observed.shared(),
            None => self.small.users_of(id, true),
        }
    }

    /// Who is gone and was not told of as observed was somebody else.
    fn decide_who_is_gone(&mut self) {
        while let Some(&(since, process, id)) = self.gone.front()
            && since.elapsed() >= OWN_EVENTS_TELL
        {
            self.gone.pop_front();
            if !self.insiders.is_inside(process) {
                self.used_by_others(id);
            }
        }
    }

    /// Looks who uses the files in question, when it is time.
    pub(crate) fn look_around(&mut self) {
        self.decide_who_is_gone();
        let (rules, tracked) = (&mut self.rules, &self.tracked);
        let users = self.scan.go(&mut self.insiders, |process, id| {
            let tracked = tracked.get(id);
            tracked.is_some_and(|tracked| keeps(rules, tracked, process))
        });
        let Some(users) = users else { return };
        let now = Instant::now();
        let gone = users.gone.iter();
        self.gone
            .extend(gone.map(|&(process, id)| (now, process, id)));
        for id in users.asked {
            let by_ancestors = users.ancestors.contains(&id);
            let outside = users.outside.contains(&id);
            let Some(tracked) = self.tracked.by_id(id) else {
                let by_gone = users.gone.iter().any(|&(_, used)| used == id);
                let used = outside || by_ancestors || by_gone;
                self.small.users_of(id, used);
                continue;
            };
            let facts = &tracked.facts;
            let outside = outside || by_ancestors && !facts.inherited;
            if outside && !facts.fresh {
                let state = tracked.observed.state();
                if state.counters.brought_bytes >= SHARED_BYTES || !state.shared {
                    tracked.observed.shared();
                }
            }
            let used = users.inside.contains(&id) || outside;
            if !used && (facts.open > 0 || tracked.marked) {
                tracked.close();
            }
        }
    }

    /// The observed programs have ended, or nobody waits for them any more.
    pub(crate) fn close_all(&mut self) {
        for first in self.young.take_all() {
            self.first_used(first);
        }
        for tracked in self.tracked.iter_mut() {
            tracked.close();
        }
    }
}

/// True when a file is not dropped for all programs, and for this one it is not:
/// what it has in the cache is to stay.
fn keeps(rules: &mut RulesInForce, tracked: &TrackedFile, process: i32) -> bool {
    let (facts, file) = (&tracked.facts, tracked.description.as_fd());
    let concerns = facts.settings.mode.drops() && !facts.fresh;
    concerns
        && !rules.is_settled(&facts.path, file)
        && !is_observer(process)
        && !rules
            .settings_for(&facts.path, process, file)
            .is_some_and(|settings| settings.mode.drops())
}
