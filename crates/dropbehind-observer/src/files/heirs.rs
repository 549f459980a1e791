//! Processes that have files open whose opens no event reported. They are looked through in
//! steps, since any process may have a million descriptors.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use dropbehind_linux::{FileKind, FileLink, FileLinks, file_links};

use super::Files;
use super::user_limit::UserLimit;
use crate::board::lock;
use crate::budget::Budget;
use crate::observer::own_process;

/// The most processor time that one step takes.
const STEP: Duration = Duration::from_millis(5);
/// The shortest time between two searches for files whose events could not be delivered: users
/// can cause those all the time.
const PAUSE: Duration = Duration::from_secs(1);

/// A process whose open files are to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Heir {
    process: i32,
    /// Only files that it may write to.
    writable: bool,
}

/// The processes that wait, and the one being looked at.
#[derive(Debug, Default)]
pub(super) struct Heirs {
    waiting: VecDeque<Heir>,
    current: Option<(Heir, FileLinks)>,
    limit: UserLimit,
    /// A process did not let us look at its files.
    refused: bool,
    /// Some process may have a file open of which nobody knows, not even which one it is.
    unknown: bool,
    /// So it is until all of these were looked at.
    may_be_unknown: bool,
    /// When that was last searched for.
    searched: Option<Instant>,
}

impl Heirs {
    /// The next descriptor's file; `Some(None)` if it has none, and `None` at the end.
    fn next(&mut self) -> Option<Option<(Heir, FileLink)>> {
        let Some((heir, files)) = &mut self.current else {
            let Some(heir) = self.waiting.pop_front() else {
                self.limit = UserLimit::default();
                return None;
            };
            let may_look = self.limit.may_look(heir.process);
            let files = may_look.then(|| file_links(heir.process));
            let refused = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
            self.refused |= matches!(&files, Some(Err(error)) if refused(error));
            self.current = files.and_then(Result::ok).map(|files| (heir, files));
            return Some(None);
        };
        let looks = self.limit.look(heir.process);
        let Some(file) = looks.then(|| files.next()).flatten() else {
            self.current = None;
            return Some(None);
        };
        Some(file.map(|file| (*heir, file)))
    }
}

impl Files {
    /// Observes the files that a process has open already, whose opens no event will report.
    pub(crate) fn inherit(&mut self, process: i32) {
        let writable = false;
        let heir = Heir { process, writable };
        self.heirs.may_be_unknown = true;
        // A search that has not begun finds what was opened meanwhile.
        if !self.heirs.waiting.contains(&heir) {
            self.heirs.waiting.push_back(heir);
        }
    }

    /// After events were lost, searches for files that are open for writing. Known files may
    /// have been closed.
    pub(crate) fn find_again(&mut self) {
        self.heirs.may_be_unknown = true;
        self.look_at_all();
        self.doubt_all();
    }

    fn look_at_all(&mut self) {
        let writable = true;
        // Processes that wait already keep their place, even if this happens all the time.
        let waiting: HashSet<Heir> = self.heirs.waiting.iter().copied().collect();
        let own = own_process();
        let processes = self.programs.list().into_iter();
        let others = processes.filter(|process| *process != own);
        let heirs = others.map(|process| Heir { process, writable });
        let new = heirs.filter(|heir| !waiting.contains(heir));
        self.heirs.waiting.extend(new);
    }

    /// The event of an open could not be delivered, because the file has a lease, say. It may
    /// have the inode number of another file.
    pub(crate) fn unknown_opened(&mut self) {
        self.heirs.unknown |= self.inodes.has_subvolumes;
    }

    /// Returns whether some file may be open of which nobody knows.
    pub(super) fn may_miss_files(&self) -> bool {
        self.have_heirs() && self.heirs.may_be_unknown || self.heirs.unknown
    }

    /// Returns whether there is more to look at.
    pub(crate) fn have_heirs(&self) -> bool {
        self.heirs.current.is_some() || !self.heirs.waiting.is_empty()
    }

    /// Takes one step.
    pub(crate) fn look_at_heirs(&mut self) {
        let searched = self.heirs.searched;
        let (unknown, many) = (self.heirs.unknown, self.inodes.have_many());
        if (unknown || many)
            && !self.have_heirs()
            && searched.is_none_or(|searched| searched.elapsed() >= PAUSE)
        {
            self.heirs.searched = Some(Instant::now());
            if self.inodes.have_too_many() {
                lock(&self.board).note(
                    "more files were opened on btrfs than can be remembered: until all that is \
                     open was looked through, some that were to be dropped stayed cached",
                );
            }
            self.inodes.search_begins();
            match unknown {
                true => self.find_again(),
                false => self.look_at_all(),
            }
            self.heirs.unknown = false;
        }
        let budget = Budget::new(STEP);
        while budget.lasts() {
            let Some(found) = self.heirs.next() else {
                self.heirs.may_be_unknown = false;
                self.inodes.search_ends();
                return;
            };
            self.strangers.limit_reached |= self.heirs.limit.is_reached();
            if std::mem::take(&mut self.heirs.refused) {
                lock(&self.board).note(
                    "some programs let nobody look at what they have open (prctl(2), \
                     PR_SET_DUMPABLE): their files are left to the kernel",
                );
            }
            if let Some((heir, link)) = found {
                self.inodes.found_open(heir.process, link);
            }
            if let Some((heir, link)) = found
                && self.known(link.id).is_none()
                && let Some(writable) = link.seems_writable()
                && (writable || !heir.writable)
                // Opening a device does something, and a process may exchange one that it can
                // only name for this moment.
                && (link.kind != FileKind::Block || link.writable().is_some())
            {
                let process = heir.process;
                self.heirs.limit.open(process);
                if let Some(file) = self.open_again(process, link) {
                    self.inherited(process, file);
                }
            }
        }
    }
}
