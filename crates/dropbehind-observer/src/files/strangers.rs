//! Files that observed programs use and whose open no event reported: they were opened
//! before, passed on by another process, or are raw block devices.
//!
//! The kernel says which process brought in pages of which inode. That process has the file
//! open, and `/proc` shows it. A block device's inode has the device's own number. What a thread of
//! the kernel uses may be behind a loop device, and sysfs shows that.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dropbehind_linux::{
    FileId, FileLink, NamedFile, backing_paths, file_links, file_stat, kernel_device, process_stat,
};
use dropbehind_policy::{FileNumber, Inode};

use super::Files;
use super::mappings::{Asked, Wanted};
use super::open_file::is_deleted;
use super::scan::Scan;
use super::users::is_kernel_thread;
use crate::board::lock;
use crate::budget::Budget;
use crate::device::name_device;

/// At most this many searches are remembered.
const SEARCHES: usize = 4096;
/// Searching for processes that have files open takes at most one part in this many of the time:
/// 5 ms with 300 processes.
const SCAN_SHARE: u32 = 25;
/// The longest that one step of that takes.
const SCAN_STEP: Duration = Duration::from_millis(5);
/// The shortest pause before the next step: a thread may be looking meanwhile.
const SCAN_PAUSE: Duration = Duration::from_millis(3);
/// The most of a round that searches of single processes take together, enough for some thousand
/// descriptors. The trace has room for what comes in ten times as long.
const SEARCH_ROUND: Duration = Duration::from_millis(10);
/// A search that takes longer, as with a few hundred descriptors, delays the next search of that
/// process: it would keep the observer from reading the trace.
const COSTLY_SEARCH: Duration = Duration::from_millis(1);

/// How long until `/proc` is asked whether a file is still open. The pause doubles each time
/// that it is: fanotify merges closes, and only `/proc` shows how many descriptors are left.
pub(super) const DOUBT_FIRST: Duration = Duration::from_millis(20);
/// The longest such pause.
const DOUBT_LONGEST: Duration = Duration::from_secs(30);
/// The same where no event reports closes. Until the close is found, a deleted file's blocks stay in
/// use, and what others bring in counts as the program's.
const DOUBT_LONGEST_UNSEEN: Duration = Duration::from_secs(1);

/// A file that may be closed.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    due: Instant,
    pause: Duration,
}

/// What a search of one process has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Searched<T> {
    Found(T),
    Nothing,
    /// It took too long, and may have been stopped.
    CutShort,
}

/// All searches, and what they are about.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    doubts: HashMap<FileNumber, Doubt>,
    /// The files that threads are opening.
    opening: HashMap<i32, FileNumber>,
    /// No process had these open in the last search.
    unused: HashSet<FileNumber>,
    /// How often a process brought in pages of an inode that was not found, such as a file
    /// system's own data, or that no rule wants.
    missed: HashMap<(i32, Inode), u32>,
    /// When a process with many descriptors may be searched again.
    next_search: HashMap<i32, Instant>,
    /// How long this round's searches have taken.
    searched: Duration,
    /// One of them was stopped before it had found anything.
    pub(super) cut_short: bool,
    /// Users have more descriptors than were looked at.
    pub(super) limit_reached: bool,
    /// The search for processes that have files open, if one is under way.
    scan: Option<Scan>,
    /// Processes asked to show what they have mapped.
    asked: Asked,
    /// When processes may be looked at again.
    next_scan: Option<Instant>,
}

impl Strangers {
    /// Returns true the first, second, fourth, eighth time and so on: the process may have
    /// opened the file since. Times at which a costly search has to wait do not count.
    fn is_worth_a_search(&mut self, process: i32, inode: Inode) -> bool {
        if !self.may_search(process) {
            return false;
        }
        let times = self.missed(process, inode);
        *times = times.saturating_add(1);
        times.is_power_of_two()
    }

    /// Returns false while a process with many descriptors must not be searched again, and once
    /// this round's searches have used up their time.
    pub(super) fn may_search(&self, process: i32) -> bool {
        let next = self.next_search.get(&process);
        self.searched < SEARCH_ROUND && next.is_none_or(|next| Instant::now() >= *next)
    }

    /// Returns the first of a process's open files that is wanted.
    pub(super) fn search<T>(
        &mut self,
        process: i32,
        wanted: impl FnMut(FileLink) -> Option<T>,
    ) -> Searched<T> {
        let budget = Budget::new(SEARCH_ROUND.saturating_sub(self.searched));
        let Ok(links) = file_links(process) else {
            return Searched::Nothing;
        };
        let found = links
            .take_while(|_| budget.lasts())
            .flatten()
            .find_map(wanted);
        self.searched(process, budget.cost());
        match found {
            Some(found) => Searched::Found(found),
            None if budget.lasts() => Searched::Nothing,
            None => Searched::CutShort,
        }
    }

    /// Records a search of a process and the processor time that it took.
    fn searched(&mut self, process: i32, cost: Duration) {
        self.searched += cost;
        if cost < COSTLY_SEARCH {
            return;
        }
        if self.next_search.len() >= SEARCHES {
            self.next_search.clear();
        }
        let next = Instant::now() + cost * SCAN_SHARE;
        self.next_search.insert(process, next);
    }

    fn missed(&mut self, process: i32, inode: Inode) -> &mut u32 {
        if self.missed.len() >= SEARCHES {
            self.missed.clear();
        }
        self.missed.entry((process, inode)).or_default()
    }
}

impl Files {
    /// Finds the file with this inode that a process has open.
    pub(super) fn find_stranger(&mut self, process: i32, inode: Inode) -> Option<FileNumber> {
        let may_be_wanted = self.programs.has(process) && self.rules.rules.want_any();
        if !may_be_wanted || !self.strangers.is_worth_a_search(process, inode) {
            return None;
        }
        let stamp = self.rules.names.stamp(process);
        if self.owners.have(process, stamp) {
            return None;
        }
        let file = match self.inodes.unmounted_device(inode) {
            Some(device) => name_device(device),
            None => self.open_as(process, inode),
        }?;
        let info = file_stat(file.as_fd()).ok()?;
        let number = self.admit(file, &info, process, None)?;
        if let Some(open) = self.files.get_mut(&number) {
            open.close_unseen = true;
        }
        self.strangers.missed.remove(&(process, inode));
        Some(number)
    }

    /// Opens the file behind a loop device that has this inode: the kernel's threads use it, and have
    /// no descriptor.
    fn open_backing(&mut self, process: i32, inode: Inode) -> Option<OwnedFd> {
        let budget = Budget::new(SEARCH_ROUND);
        let mut named = backing_paths().filter_map(|path| NamedFile::at(&path).ok());
        let file = named.find(|named| self.inodes.inode_of(named.as_fd()) == Some(inode));
        self.strangers.searched(process, budget.cost());
        self.open_named(process, &file?)
    }

    /// Opens the file with this inode that a process has open.
    fn open_as(&mut self, process: i32, inode: Inode) -> Option<OwnedFd> {
        if is_kernel_thread(process) {
            return self.open_backing(process, inode);
        }
        let mut strangers = std::mem::take(&mut self.strangers);
        let file = strangers.search(process, |link| {
            // Not what it can only name: it may not be allowed to open that.
            let used = self.inodes.may_be(inode, link) && link.writable().is_some();
            let file = used.then(|| self.open_again(process, link)).flatten()?;
            (self.inodes.inode_of(file.as_fd()) == Some(inode)).then_some(file)
        });
        self.strangers = strangers;
        match file {
            Searched::Found(file) => Some(file),
            Searched::Nothing => None,
            Searched::CutShort => {
                self.strangers.cut_short = true;
                None
            }
        }
    }

    /// Gives back the memory of searches for files that are forgotten by now.
    pub(super) fn shrink_searches(&mut self) {
        let doubts = &mut self.strangers.doubts;
        doubts.retain(|number, _| self.files.contains_key(number));
        doubts.shrink_to_fit();
        self.strangers.unused.shrink_to_fit();
    }

    /// Resets the time that searches may take in a round.
    pub(super) fn begin_searches(&mut self) {
        self.strangers.searched = Duration::ZERO;
        if std::mem::take(&mut self.strangers.cut_short) {
            lock(&self.board).note(
                "searching programs' open files took so long that some searches were cut short: the \
                 pages of those files may stay cached, and their writers are not held",
            );
        }
        if std::mem::take(&mut self.strangers.limit_reached) {
            lock(&self.board).note(
                "programs have so many files open that dropbehind did not look at all of them: a \
                 file that it did not find, and that nobody reads or writes now, is taken for \
                 closed, so it is written back and dropped early",
            );
        }
    }

    /// Notes that no rule wants a file that the process opened. That counts as one search: the
    /// process may execute another program and keep the file open.
    pub(super) fn decline(&mut self, process: i32, file: BorrowedFd<'_>) {
        if let Some(inode) = self.inodes.inode_of(file) {
            let times = self.strangers.missed(process, inode);
            *times = (*times).max(1);
        }
    }

    /// Under other rules, files that none wanted may be wanted.
    pub(super) fn forget_declined(&mut self) {
        self.strangers.missed.clear();
    }

    /// A file was closed, perhaps for the last time. Finding out takes long where a process has
    /// a million descriptors, so until then we do not keep its mount busy. A deleted file could
    /// not be opened again, though, and a file whose writers are held must be held itself.
    pub(super) fn may_be_closed(&mut self, number: FileNumber, after: Duration) {
        self.doubt(number, after);
        let open = self.files.get(&number);
        if open.is_some_and(|open| open.writer_limit.is_none()) && self.table.is_open(number) {
            self.release(number);
        }
    }

    /// Stops keeping a file's mount busy, unless the file could not be opened again.
    pub(super) fn release(&self, number: FileNumber) {
        if let Some(open) = self.files.get(&number)
            && open.file.is_held()
            && !is_deleted(open)
        {
            open.file.release();
        }
    }

    /// Doubts that a file is open: after this time, a search of `/proc` shows whether it is.
    pub(super) fn doubt(&mut self, number: FileNumber, after: Duration) {
        let doubt = Doubt {
            due: Instant::now() + after,
            pause: DOUBT_FIRST,
        };
        self.strangers.doubts.entry(number).or_insert(doubt);
    }

    /// Notes which file a thread is opening, or that it is done. No search looks for its users
    /// before the open is over: the thread still has to get a processor, and an overlay may copy
    /// the file.
    pub(crate) fn is_being_opened(&mut self, thread: i32, number: Option<FileNumber>) {
        match number {
            Some(number) => self.strangers.opening.insert(thread, number),
            None => self.strangers.opening.remove(&thread),
        };
    }

    /// A file was opened, and no event will report its close.
    pub(super) fn doubt_anew(&mut self, number: FileNumber) {
        self.strangers.doubts.remove(&number);
        self.doubt(number, DOUBT_FIRST);
    }

    /// Takes one step of searching `/proc` for processes that have files open, since events
    /// merge and some files have none.
    pub(crate) fn settle_doubts(&mut self) {
        let now = Instant::now();
        if self.strangers.next_scan.is_some_and(|next| now < next) {
            return;
        }
        let budget = Budget::new(SCAN_STEP);
        let scan = self.strangers.scan.take();
        let Some(mut scan) = scan.or_else(|| self.begin_scan(now)) else {
            return;
        };
        let mut used = Vec::new();
        let list = || self.programs.list();
        let is_done = scan.go_on(
            || budget.lasts(),
            list,
            |number, link| used.push((number, link)),
        );
        self.strangers.limit_reached |= scan.limit_reached();
        let longest = match self.fanotify {
            Some(_) => DOUBT_LONGEST,
            None => DOUBT_LONGEST_UNSEEN,
        };
        for (number, link) in used {
            if let Some(doubt) = self.strangers.doubts.get_mut(&number) {
                doubt.pause = (doubt.pause * 2).min(longest);
                doubt.due = Instant::now() + doubt.pause;
            }
            self.hold_again(number, link);
        }
        match is_done {
            // By the next round, the trace has named what was brought in before this.
            true => self.strangers.unused.extend(scan.into_unused()),
            false => self.strangers.scan = Some(scan),
        }
        let pause = (budget.cost() * SCAN_SHARE).max(SCAN_PAUSE);
        self.strangers.next_scan = Some(Instant::now() + pause);
    }

    /// Holds a file that a process has open, through the mount that this keeps busy anyway.
    fn hold_again(&mut self, number: FileNumber, link: Option<(i32, FileLink)>) {
        let (Some(open), Some((process, link))) = (self.files.get(&number), link) else {
            return;
        };
        if !self.may_hold() || open.file.is_held() || open.file.is_device() {
            return;
        }
        if let Some(file) = self.open_again(process, link)
            && let Some(open) = self.files.get(&number)
            && open.file.is(file.as_fd())
        {
            open.file.hold(Arc::new(file));
        }
    }

    /// Begins a search for users of the files whose doubts are due.
    fn begin_scan(&mut self, now: Instant) -> Option<Scan> {
        let doubts = self.strangers.doubts.iter();
        let mut due: HashSet<FileNumber> = doubts
            .filter(|(_, doubt)| doubt.due <= now)
            .map(|(number, _)| *number)
            .collect();
        let doubts = &mut self.strangers.doubts;
        self.strangers.opening.retain(|thread, number| {
            if !due.contains(number) {
                return true;
            }
            // If whoever was to report the end of the open has died, so may the thread have.
            let lives = process_stat(*thread).is_ok();
            if lives && let Some(doubt) = doubts.get_mut(number) {
                due.remove(number);
                doubt.due = now + DOUBT_FIRST;
            }
            lives
        });
        let mut unused: Vec<(FileId, FileNumber)> = Vec::new();
        let mut may_be_mapped = Wanted::default();
        may_be_mapped.all = self.trace.is_none();
        for number in due {
            let Some(open) = self.files.get(&number) else {
                self.strangers.doubts.remove(&number);
                continue;
            };
            unused.extend(open.ids.iter().map(|id| (*id, number)));
            let inode = (self.inodes.device_of(open.inode), open.inode.number);
            let ids = open.ids.iter().map(|id| {
                // stat(2) does not report an overlay's real device.
                let device = open.overlay.is_none().then(|| kernel_device(id.device));
                (device, id.inode)
            });
            for (device, inode) in ids.filter(|id| *id != inode).chain([inode]) {
                may_be_mapped.add(device, inode, number);
            }
        }
        let is_due = !unused.is_empty();
        is_due.then(|| {
            let processes = self.programs.list();
            Scan::of(unused, may_be_mapped, processes, &self.strangers.asked)
        })
    }

    /// Closes the files that no process had open in the round before.
    pub(crate) fn close_unused(&mut self) {
        for number in std::mem::take(&mut self.strangers.unused) {
            self.strangers.doubts.remove(&number);
            self.see_what_was_brought(number);
            self.table.closed_by_all(number);
        }
    }

    /// The file was opened: a search that looked before may have looked too early.
    pub(super) fn is_used(&mut self, number: FileNumber) {
        self.strangers.unused.remove(&number);
        if let Some(scan) = &mut self.strangers.scan {
            scan.is_used(number);
        }
    }

    /// How long until `/proc` is to be searched; `None` if it is not.
    pub(crate) fn doubts_due(&self) -> Option<Duration> {
        if !self.strangers.unused.is_empty() {
            return Some(Duration::ZERO);
        }
        let now = Instant::now();
        let doubts = self.strangers.doubts.values();
        let due = match self.strangers.scan {
            Some(_) => now,
            None => doubts.map(|doubt| doubt.due).min()?,
        };
        let due = self.strangers.next_scan.map_or(due, |next| next.max(due));
        Some(due.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_costly_search_has_only_its_own_process_wait() {
        let mut strangers = Strangers::default();
        let inode = |number| Inode { device: 1, number };
        strangers.searched(10, COSTLY_SEARCH / 2);
        assert!(strangers.is_worth_a_search(10, inode(1)));
        strangers.searched(10, Duration::from_secs(3600));
        strangers.searched = Duration::ZERO;
        assert!(!strangers.is_worth_a_search(10, inode(2)));
        assert!(strangers.is_worth_a_search(11, inode(2)));
        // A search that had to wait does not count, so this one is the first.
        strangers.next_search.clear();
        assert!(strangers.is_worth_a_search(10, inode(2)));
        assert!(strangers.is_worth_a_search(10, inode(2)));
        assert!(!strangers.is_worth_a_search(10, inode(2)));
    }

    #[test]
    fn searches_end_when_those_of_the_round_have_taken_their_time() {
        let file = rustix::fs::memfd_create("search", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let id = file_stat(file.as_fd()).unwrap().id;
        let own = i32::try_from(std::process::id()).unwrap();
        let wanted = |link: FileLink| (link.id == id).then_some(());
        let mut strangers = Strangers::default();
        assert_eq!(strangers.search(own, wanted), Searched::Found(()));
        strangers.searched = SEARCH_ROUND;
        assert!(!strangers.may_search(11));
        assert_eq!(strangers.search(own, wanted), Searched::CutShort);
    }
}
