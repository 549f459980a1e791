//! The files that observed programs use, and what the observer's thread, which owns them, does
//! when something happens to them. [`ObservedFiles`](dropbehind_policy::ObservedFiles) makes the
//! decisions.

mod actions;
mod admission;
mod advice;
mod heirs;
mod kept;
mod mappings;
mod namesakes;
mod open_file;
mod orphans;
mod reuse;
mod scan;
mod strangers;
mod untraced;
mod user_limit;
mod users;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dropbehind_flusher::{
    CacheMap, ExcessSink, FailedWriteback, Flusher, Notice, NoticeSink, ReportedTrace,
};
use dropbehind_linux::{
    CacheUses, EventMask, Fanotify, FileId, FileKind, FileStat, FileSystem, MarkTarget,
    MemoryCgroup, WritebackFailure, cachestat, file_stat, kernel_device, page_size,
};
use dropbehind_policy::grace::SMALL_FILE_BYTES;
use dropbehind_policy::{Brought, FileNumber, Inode, ObservedFiles};
use dropbehind_policy::{ByteRange, Writeback};

use crate::board::{SharedBoard, lock};
use crate::budget::Budget;
use crate::file_path::path_of;
use crate::inodes::Inodes;
use crate::observer::own_process;
use crate::opens::{Before, Opened};
use crate::owners::Owners;
use crate::programs::Programs;
use crate::rules::Rules;
use crate::rules_in_force::RulesInForce;
use crate::shown;
use crate::small_files::{SmallFiles, Unshelved};
use crate::source::{Marks, MountTable};
use heirs::Heirs;
use kept::Kept;
use open_file::OpenFile;
use orphans::Orphans;
use strangers::{DOUBT_FIRST, Strangers};

/// This many known files take a few megabytes.
const MANY_FILES: usize = 2048;
/// The most processor time that applying changed rules takes in a round.
const RULES_STEP: Duration = Duration::from_millis(5);

/// Of a file, so many unclear ranges are remembered. After that, nothing is learned.
const UNCLEAR_MAX: usize = 1 << 12;

/// Of a larger file, a close does not count what is to be written.
const COUNTED_BYTES: u64 = 4 << 20;

/// The close of a file.
#[derive(Debug)]
pub(crate) struct Close {
    pub(crate) id: FileId,
    /// The file, if it was known when the event was read: its ID may be another's since.
    pub(crate) number: Option<FileNumber>,
    /// The file, if it was not known.
    pub(crate) file: Option<OwnedFd>,
    pub(crate) process: i32,
    /// A process that could write closed it; the kernel does not say whether it wrote.
    pub(crate) by_writer: bool,
    /// The file's size then, in bytes.
    pub(crate) size_bytes: u64,
    /// The file was also opened, before or after that.
    pub(crate) merged: bool,
    /// We closed it: the open was ours, or we looked at a program's open file, held it for that
    /// moment, and so were the last to close it.
    pub(crate) by_us: bool,
}

/// All files of an observer.
#[derive(Debug)]
pub(crate) struct Files {
    flusher: Flusher,
    pub(crate) rules: RulesInForce,
    /// `None` where opens are reported without it.
    pub(crate) fanotify: Option<Arc<Fanotify>>,
    small: SmallFiles,
    pub(crate) programs: Programs,
    owners: Owners,
    pub(crate) board: SharedBoard,
    notices: NoticeSink,
    pub(crate) inodes: Inodes,
    /// How far it was reported who brings in what, for the threads that drop. `None` if the kernel
    /// does not say.
    pub(crate) trace: Option<ReportedTrace>,
    /// Without the trace, when files may be looked at again that have grown.
    next_growth: Option<Instant>,
    failed_writeback: Option<FailedWriteback>,
    told_of_failure: bool,
    table: ObservedFiles,
    files: HashMap<FileNumber, OpenFile>,
    by_id: HashMap<FileId, FileNumber>,
    /// How many small files are done with, hold a descriptor, and are about to be forgotten.
    unshelved: usize,
    last_number: u64,
    strangers: Strangers,
    orphans: Orphans,
    heirs: Heirs,
    /// Inodes of more files than are told apart, as this round's trace named them.
    crowded: HashSet<Inode>,
    /// The number of the round that is under way.
    round: u64,
    kept: Kept,
    mounts: MountTable,
    /// The numbers of mounts that can be unmounted while nobody holds a file there.
    unmountable: HashSet<u64>,
    /// By the kernel's number for their device.
    filesystems: HashMap<u32, Arc<FileSystem>>,
    /// Open events of files already in use may still be unread.
    pub(crate) opens_wait: bool,
    /// From this many files on, no more are held open: descriptors are limited. While so many
    /// closed files hold one, events wait in the kernel's queue.
    pub(crate) most_held: usize,
    /// Without the trace, what others had of files that were forgotten last, and when that was
    /// (`CLOCK_MONOTONIC`).
    forgotten: HashMap<FileId, (u64, CacheMap)>,
    /// Makes opens for writing wait; `None` where the source of opens cannot.
    excess: Option<ExcessSink>,
    /// The devices of the last small file that was written, and how many bytes may be unwritten
    /// there.
    last_written: Option<(Vec<u64>, u64)>,
    /// Files for which the rules before those in force still hold.
    outdated: Vec<FileNumber>,
    /// What is known of uses of cached pages, if a rule asks for it.
    uses: Option<CacheUses>,
    /// When to ask again how much memory is available.
    next_memory: Option<Instant>,
    /// The memory cgroup of a run.
    memory_cgroup: Option<MemoryCgroup>,
}

/// What [`Files`] is made from.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) flusher: Flusher,
    pub(crate) rules: Arc<dyn Rules>,
    pub(crate) fanotify: Option<Arc<Fanotify>>,
    pub(crate) small: SmallFiles,
    pub(crate) programs: Programs,
    pub(crate) owners: Owners,
    pub(crate) board: SharedBoard,
    pub(crate) notices: NoticeSink,
    pub(crate) inodes: Inodes,
    pub(crate) mounts: MountTable,
    pub(crate) trace: Option<ReportedTrace>,
    pub(crate) failed_writeback: Option<FailedWriteback>,
    pub(crate) most_held: usize,
    pub(crate) excess: Option<ExcessSink>,
}

impl Files {
    pub(crate) fn new(parts: Parts) -> Files {
        // Of a watch, programs in all groups are observed.
        let is_run = parts.programs.are_of_a_run();
        let memory_cgroup = is_run.then(|| MemoryCgroup::of(own_process())).flatten();
        let mut files = Files {
            flusher: parts.flusher,
            rules: RulesInForce::new(parts.rules),
            fanotify: parts.fanotify,
            small: parts.small,
            programs: parts.programs,
            owners: parts.owners,
            board: parts.board,
            notices: parts.notices,
            inodes: parts.inodes,
            trace: parts.trace,
            next_growth: None,
            failed_writeback: parts.failed_writeback,
            told_of_failure: false,
            table: ObservedFiles::default(),
            files: HashMap::new(),
            by_id: HashMap::new(),
            unshelved: 0,
            last_number: 0,
            strangers: Strangers::default(),
            orphans: Orphans::default(),
            heirs: Heirs::default(),
            crowded: HashSet::new(),
            round: 0,
            kept: Kept::default(),
            mounts: parts.mounts,
            unmountable: HashSet::new(),
            filesystems: HashMap::new(),
            opens_wait: false,
            most_held: parts.most_held,
            forgotten: HashMap::new(),
            excess: parts.excess,
            last_written: None,
            outdated: Vec::new(),
            uses: None,
            next_memory: None,
            memory_cgroup,
        };
        files.ask_for_memory();
        files
    }

    /// The rules in force have changed: also for files that are open.
    pub(crate) fn rules_changed(&mut self) {
        self.forget_declined();
        // Where no rule names a server's files any more, no event reports closes.
        self.doubt_all();
        self.outdated = self.files.keys().copied().collect();
        self.apply_rules();
    }

    /// Returns whether the rules before those in force still hold for some files.
    pub(crate) fn have_outdated(&self) -> bool {
        !self.outdated.is_empty()
    }

    /// Applies the rules in force to files that are open, in steps: there may be many.
    pub(crate) fn apply_rules(&mut self) {
        let budget = Budget::new(RULES_STEP);
        while budget.lasts()
            && let Some(number) = self.outdated.pop()
        {
            self.ask_again(number);
        }
        if self.outdated.is_empty() {
            lock(&self.board).rules_taken();
        }
    }

    /// If a file could not be opened for want of descriptors, notes that. Returns whether it was so.
    pub(crate) fn lack_descriptors(&self, error: &io::Error) -> bool {
        let lacks = matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
        if lacks {
            let note = "out of descriptors: some files are left to the kernel";
            lock(&self.board).note(note);
        }
        lacks
    }

    /// How many files are open, or still to be written or dropped.
    pub(crate) fn count(&self) -> usize {
        self.table.count()
    }

    /// Gives back the memory of forgotten files, if they were many, so that a watch does not
    /// keep what it took on its worst day.
    pub(crate) fn shrink(&mut self) {
        if self.files.capacity() > 2 * MANY_FILES && self.files.len() < MANY_FILES {
            self.files.shrink_to(MANY_FILES);
            self.by_id.shrink_to(MANY_FILES);
            self.shrink_searches();
            if let Some(failed) = &self.failed_writeback {
                failed.forget_unasked();
            }
        }
    }

    /// Another round begins.
    pub(crate) fn begin_round(&mut self) {
        self.round += 1;
        self.crowded.clear();
        self.programs.begin_round();
        self.begin_searches();
    }

    /// Takes note of all that is mounted and marked now.
    pub(crate) fn mounted(&mut self, marks: &Marks) {
        self.inodes.mounted(marks.mounts());
        if let Some(failed) = &self.failed_writeback {
            failed.mounts_changed();
        }
        self.unmountable = marks.unmountable();
        let mounts = marks.mounts().iter();
        let devices: HashSet<u32> = mounts.map(|mount| kernel_device(mount.device)).collect();
        self.filesystems.retain(|device, filesystem| {
            let is_mounted = devices.contains(device);
            if !is_mounted {
                filesystem.unmounted();
            }
            is_mounted
        });
        for device in devices {
            let filesystem = self.filesystems.entry(device).or_default();
            filesystem.mounted_at(marks.points_of(device));
        }
        // Only a run claims its mounts: other programs' files come through other mounts, too.
        if self.programs.are_of_a_run() {
            self.owners.claim_mounts(marks.numbers());
        }
    }

    /// Returns whether some file system's mounts are not where they were.
    pub(crate) fn miss_mounts(&self) -> bool {
        let mut filesystems = self.filesystems.values();
        filesystems.any(|filesystem| filesystem.was_unreachable())
    }

    /// Returns false once so many files are known that none may be held open between uses: users
    /// may open as many as they like.
    fn may_hold(&self) -> bool {
        self.files.len() < self.most_held
    }

    /// The file with this ID, if it is known.
    pub(crate) fn known(&self, id: FileId) -> Option<FileNumber> {
        self.by_id.get(&id).copied()
    }

    /// Doubts all files: a search of `/proc` shows which are still open.
    pub(crate) fn doubt_all(&mut self) {
        let numbers: Vec<FileNumber> = self.files.keys().copied().collect();
        for number in numbers {
            self.doubt(number, Duration::ZERO);
        }
    }

    // ---- what programs do ---------------------------------------------------

    /// The number of this file, if it is known.
    fn number_of(&mut self, info: &FileStat, file: BorrowedFd<'_>) -> Option<FileNumber> {
        let number = *self.by_id.get(&info.id)?;
        let open = self.files.get(&number)?;
        if open.was_copied_up(info) {
            // Whoever opened it before still reads the known one.
            self.by_id.remove(&info.id);
            self.doubt(number, DOUBT_FIRST);
            return None;
        }
        if open.file.is(file) {
            return Some(number);
        }
        // The known file is gone, and this one reuses its inode number.
        self.by_id.remove(&info.id);
        self.table.replaced(number);
        self.doubt(number, DOUBT_FIRST);
        None
    }

    /// A file was opened.
    pub(crate) fn opened(&mut self, file: OwnedFd, info: FileStat, process: i32) {
        if self.trace.is_none() {
            self.programs.opened(process);
        }
        self.inodes.opened(info.id, file.as_fd());
        if let Some(number) = self.number_of(&info, file.as_fd()) {
            return self.opened_again(number, process, file);
        }
        if let Some(number) = self.admit(file, &info, process, None) {
            self.expect_uses(number, info.size_bytes);
        }
    }

    /// A file is being opened. What was cached of it before counts only if it was not known, or
    /// if the open has emptied it. An overlay may have copied it since, or still do so.
    pub(crate) fn reported(&mut self, file: OwnedFd, opened: Opened) {
        let process = opened.process;
        let is_emptied = matches!(opened.before, Before::Emptied);
        let Ok(info) = file_stat(file.as_fd()) else {
            return;
        };
        if info.kind != FileKind::Regular {
            return;
        }
        self.programs.opened(process);
        self.inodes.opened(info.id, file.as_fd());
        let known = self.number_of(&info, file.as_fd());
        let number = match known {
            Some(number) => {
                self.opened_again(number, process, file);
                Some(number)
            }
            None => {
                let mut before = opened.before.map(file.as_fd());
                if let Some((forgotten_ns, since)) = self.forgotten.get(&info.id)
                    && opened.counted_ns < *forgotten_ns
                {
                    before = since.clone();
                }
                if let Some(born) = opened.copied_born
                    && info.born != Some(born)
                {
                    let original = |found: &FileStat| found.born == Some(born);
                    self.admit_copied(path_of(file.as_fd()), process, Some(before), original);
                    before = CacheMap::empty();
                }
                self.admit(file, &info, process, Some(before))
            }
        };
        self.is_being_opened(opened.thread, number.filter(|_| opened.is_under_way));
        let Some(number) = number else { return };
        let Some(open) = self.files.get_mut(&number) else {
            return;
        };
        if is_emptied {
            open.is_emptied();
            if self.trace.is_none() {
                // The trace names what comes after the truncation, and may have done so already.
                self.table.emptied(number);
            }
        }
        if opened.writable {
            open.may_be_written();
            open.is_written_by(process);
        }
        if opened.readable {
            open.was_read();
        }
        self.hold_own_writers(number);
        self.doubt_anew(number);
    }

    fn opened_again(&mut self, number: FileNumber, process: i32, file: OwnedFd) {
        self.is_used(number);
        // Ask who the process is before it ends.
        self.used_again(number, process, file.as_fd());
        let holds = self.may_hold();
        let Some(open) = self.files.get_mut(&number) else {
            return;
        };
        open.is_out_of_the_cache = false;
        if holds && !open.file.is_held() {
            open.file.hold(Arc::new(file));
        }
        if let Some(observed) = &open.observed {
            observed.reopened();
        }
        if self.trace.is_some() && open.before.is_some() && open.round < self.round {
            // Pages that were dropped since may be brought in again.
            self.look_again(number);
        }
        if let Some(open) = self.files.get(&number) {
            self.table.opened(number, open.inode);
        }
    }

    /// Handles a close. If the kernel merged events, the file may also have been opened again.
    /// The close has a descriptor only if the file was not known when its event was read.
    pub(crate) fn closed(&mut self, close: Close) {
        let Close {
            id,
            number,
            file,
            process,
            by_writer,
            size_bytes,
            merged,
            by_us,
        } = close;
        let known = match (number, file) {
            (Some(number), _) => Some(number),
            (None, Some(file)) => match self.known(id) {
                // The file became known after this close, so the close belongs to an earlier open.
                Some(number) => return self.doubt(number, Duration::ZERO),
                None => self.missed(file, process),
            },
            (None, None) => None,
        };
        let Some(number) = known else { return };
        let Some(open) = self.files.get(&number) else {
            return;
        };
        // Where reads stay, a writer that no rule applies to must not make them go.
        let reads = open.settings.reads;
        let counts = by_writer && (reads || self.is_ours(number, process) != Some(false));
        if counts && let Some(open) = self.files.get_mut(&number) {
            open.is_written_by(process);
            self.hold_own_writers(number);
        }
        self.see_what_was_brought(number);
        // Cached pages may have been written, which nothing else reports.
        let Some(open) = self.files.get(&number) else {
            return;
        };
        let early = open.settings.mode.writeback != Writeback::Lazy;
        // A stream takes longer to make than to count what is cached of a file up to this size.
        let may_be_dirty = |open: &OpenFile| {
            if size_bytes > COUNTED_BYTES {
                return true;
            }
            let file = open.file.open().ok();
            let counted = file.and_then(|file| cachestat(file.as_fd(), 0, 0).ok());
            counted.is_none_or(|counted| counted.dirty_pages + counted.writeback_pages > 0)
        };
        if by_writer
            && early
            && open.observed.is_none()
            && size_bytes > SMALL_FILE_BYTES
            && may_be_dirty(open)
        {
            self.table.stream(number);
        }
        if by_us {
            let is_open = self.table.is_open(number);
            match &open.observed {
                None if is_open => self.may_be_closed(number, Duration::ZERO),
                // Its stream opens and closes the file now and then.
                Some(_) if is_open => self.doubt(number, Duration::ZERO),
                _ => {}
            }
            return;
        }
        self.table.closed(number);
        let Some(open) = self.files.get(&number) else {
            return;
        };
        if merged || open.close_unseen {
            self.may_be_closed(number, Duration::ZERO);
        } else if open.observed.is_none() && self.table.is_open(number) {
            // fanotify merges two closes of one process and does not report how many there were.
            // If a file has a stream, the flusher reports when it is idle.
            self.may_be_closed(number, DOUBT_FIRST);
        }
    }

    /// The file of a close whose open was missed, if observed programs brought something in.
    fn missed(&mut self, file: OwnedFd, process: i32) -> Option<FileNumber> {
        let inode = self.inodes.inode_of(file.as_fd())?;
        if !self.has_orphans(inode) {
            return None;
        }
        let info = file_stat(file.as_fd()).ok()?;
        self.admit(file, &info, process, None)
    }

    /// Handles the first write to a file, or the first read, since that event was asked for.
    pub(crate) fn used(
        &mut self,
        file: BorrowedFd<'_>,
        id: FileId,
        process: i32,
        wrote: bool,
        read: bool,
    ) {
        let told = match (wrote, read) {
            (true, true) => EventMask::MODIFY | EventMask::ACCESS,
            (true, false) => EventMask::MODIFY,
            _ => EventMask::ACCESS,
        };
        // The mark stays on the inode, even if the file is forgotten here.
        if let Some(fanotify) = &self.fanotify {
            let _ = fanotify.remove_mark(MarkTarget::Inode(file), told);
        }
        let Some(number) = self.known(id) else {
            return;
        };
        let wrote_ours = wrote && self.is_ours(number, process) == Some(true);
        let Some(open) = self.files.get_mut(&number) else {
            return;
        };
        if read {
            open.was_read();
        }
        if wrote_ours {
            open.was_written();
        }
        if wrote {
            // A write to cached pages brings nothing in, so the trace does not show it.
            self.table.stream(number);
        }
    }

    /// A process brought pages of an inode into the cache. Returns false if that is of no
    /// interest.
    pub(crate) fn brought(&mut self, process: i32, inode: Inode, range: ByteRange) -> bool {
        match *self.table.of_inode(inode) {
            [] => {
                // A file whose open event is still unread is no stranger.
                let found = (!self.opens_wait).then(|| self.find_stranger(process, inode));
                match found.flatten() {
                    Some(number) if self.shares_number(number) => {
                        self.brought_of_one(inode, &[number], process, range);
                    }
                    Some(number) => self.brought_of(number, process, range),
                    None => return self.note_orphan(process, inode, range),
                }
            }
            [number] if !self.shares_number(number) => self.brought_of(number, process, range),
            ref several => {
                let several = several.to_vec();
                self.brought_of_one(inode, &several, process, range);
            }
        }
        true
    }

    /// Some pages entered the cache unreported, and may be any file's.
    pub(crate) fn records_lost(&mut self) {
        self.table.records_lost();
        self.orphans.forget();
        for open in self.files.values_mut() {
            // Any page may have come since we looked, of anybody's.
            open.named.insert(ByteRange::WHOLE);
            open.unclear.insert(ByteRange::WHOLE);
            open.is_out_of_the_cache = false;
        }
    }

    /// Records whether it is not known who brought in a range of a file.
    fn note_unclear(&mut self, number: FileNumber, range: ByteRange, unclear: bool) {
        let open = self.files.get_mut(&number);
        if let Some(open) = open.filter(|open| open.unclear.count() < UNCLEAR_MAX) {
            match unclear {
                true => open.unclear.insert(range),
                false => open.unclear.remove(range),
            };
        }
    }

    fn brought_of(&mut self, number: FileNumber, process: i32, range: ByteRange) {
        self.was_named(number, range);
        let ours = self.is_ours(number, process);
        self.note_unclear(number, range, ours.is_none());
        let brought = Brought::new(range, ours == Some(true));
        self.bring(number, process, brought);
    }

    /// Puts failed writeback on the board, with the path of the first file only.
    pub(crate) fn note_failed_writeback(&mut self) {
        let Some(failed) = &self.failed_writeback else {
            return;
        };
        for failure in failed.news() {
            let note = match failure {
                WritebackFailure::File(inode) => {
                    let inode = self.inodes.traced(inode.device, inode.number);
                    let number = self.table.of_inode(inode).first();
                    let Some(open) = number.and_then(|number| self.files.get(number)) else {
                        continue;
                    };
                    match std::mem::replace(&mut self.told_of_failure, true) {
                        true => "writing back other files failed: their pages stay cached".into(),
                        false => format!(
                            "writing back {} failed: its pages stay cached, since the disk does \
                             not have them",
                            shown(open.used().map(path_of).unwrap_or_default())
                        ),
                    }
                }
                WritebackFailure::FileSystem(_) => "a file system reported an error: the pages of \
                                                    its files in use stay cached, since the disk \
                                                    may not have them"
                    .into(),
                WritebackFailure::Lost => "more writeback failed than the kernel tells apart: \
                                           the pages of all files that are in use stay cached"
                    .into(),
            };
            lock(&self.board).note(note);
        }
    }

    // ---- the end ------------------------------------------------------------

    /// Closes all files: the observed programs have ended, or nobody waits for them any more.
    pub(crate) fn close_all(&mut self) {
        self.decide(true);
        // Decisions are about what has been told so far.
        self.act();
        let open: Vec<FileNumber> = self.files.keys().copied().collect();
        for number in open {
            self.see_what_was_brought(number);
        }
        self.table.close_all();
    }

    /// Records what became of a small file.
    pub(crate) fn unshelved(&mut self, unshelved: Unshelved) {
        if let Some(open) = self.files.get_mut(&unshelved.number) {
            open.left_bytes += unshelved.left_bytes;
            open.is_out_of_the_cache = unshelved.is_out_of_the_cache;
            let mut board = lock(&self.board);
            let finished = board.sums(&open.disk, &open.rule);
            finished.dropped_bytes += unshelved.dropped_bytes;
            finished.left_bytes += unshelved.left_bytes;
        }
        self.table.unshelved(unshelved.number);
        if !self.table.is_shelved(unshelved.number)
            && let Some(open) = self.files.get_mut(&unshelved.number)
        {
            open.shelved.clear();
        }
        self.unshelved += usize::from(unshelved.has_descriptor);
    }

    /// Handles a notice from the flusher.
    pub(crate) fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Idle { key } => self.doubt(FileNumber(key), Duration::ZERO),
            Notice::Finished { key, mut state } => {
                let number = FileNumber(key);
                let open = self.files.get_mut(&number);
                let known = open.and_then(|open| open.observed.take().map(|it| (open, it)));
                // One that began too late is nobody's.
                let Some((open, observed)) = known else {
                    return lock(&self.board).end(key, &state);
                };
                let counts = &mut state.counts;
                if self.trace.is_some() && !open.written && !open.close_unseen {
                    // What was dirty in pages that were there before, others have written.
                    counts.written_bytes -= std::mem::take(&mut counts.early_bytes);
                }
                counts.written_bytes -= open.take_early(counts.written_bytes);
                open.early_bytes += counts.early_bytes;
                open.cached_bytes = counts.counted.cached_bytes;
                lock(&self.board).end(key, &state);
                let unread = observed.take_unread();
                open.left_bytes += state.counters.left_bytes;
                self.table.stream_finished(number, unread);
            }
        }
    }
}

/// Converts a range of pages to bytes.
pub(crate) fn range_of_pages(first_page: u64, pages: u64) -> ByteRange {
    let page_bytes = page_size();
    let start = first_page.saturating_mul(page_bytes);
    ByteRange::new(
        start,
        start.saturating_add(pages.saturating_mul(page_bytes)),
    )
}
