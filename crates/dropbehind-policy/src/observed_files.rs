//! The files that observed programs use, and which of their pages those brought in.
//!
//! The trace names each page that enters the cache, with its inode and the process that
//! brought it in. A page belongs to whoever brought it in last: earlier records of the same
//! page are void, since it must have left the cache in between.
//!
//! ```text
//!  opened ─▶ waiting ── more than a small file's worth brought in ──▶ streaming
//!               │                                                        │
//!            last close                                          last close, and all
//!               │                                                written and dropped
//!               ▼                                                        │
//!   shelved, if anything of it is ours; else forgotten ◀─────────────────┘
//! ```

mod brought;
mod file_action;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::grace::SMALL_FILE_BYTES;
use crate::lessons::Subject;
use crate::range::ByteRange;
use crate::range_list::gaps_between;
use crate::range_set::RangeSet;
use crate::reuse::{Arrival, Reuse, Used};
use crate::shelf::Fate;
pub use brought::{Brought, Unread};
pub use file_action::FileAction;

/// The shell's name for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileNumber(pub u64);

/// An inode as the kernel's tracepoints name it: its superblock's device and its number. On
/// btrfs, files in different subvolumes may share one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inode {
    /// The superblock's device, as the kernel encodes it.
    pub device: u32,
    /// The inode's number.
    pub number: u64,
}

#[derive(Clone, Debug, Default)]
struct ObservedFile {
    inode: Inode,
    opens: u32,
    /// Pages brought in that wait for the close. Empty while the file has a stream.
    ours: RangeSet,
    /// Of them: had been dropped before.
    back: RangeSet,
    streaming: bool,
    /// Its stream's close is still to be reported.
    closing: bool,
    /// Records for its stream, which gets them with the next [`FileAction::Report`].
    pending: Vec<Brought>,
    /// How many places it has on the shelf.
    shelved: u32,
}

impl ObservedFile {
    fn is_done(&self) -> bool {
        self.opens == 0 && !self.streaming && self.shelved == 0 && self.ours.is_empty()
    }
}

/// The files that observed programs have open, or whose pages are still to be dropped.
#[derive(Clone, Debug, Default)]
pub struct ObservedFiles {
    files: BTreeMap<FileNumber, ObservedFile>,
    by_inode: BTreeMap<Inode, Vec<FileNumber>>,
    /// Files of which something is to be reported.
    reporting: BTreeSet<FileNumber>,
    /// Files that may be forgotten once nothing else is to be done.
    done: BTreeSet<FileNumber>,
    actions: VecDeque<FileAction>,
    waiting_bytes: u64,
    reused_bytes: u64,
    /// What is known of pages that are used again, for files in a mode that keeps those.
    pub reuse: Reuse,
}

impl ObservedFiles {
    /// The number of known files.
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// Returns whether this file is known to be open.
    pub fn is_open(&self, number: FileNumber) -> bool {
        self.files.get(&number).is_some_and(|file| file.opens > 0)
    }

    /// Returns whether this file has a place on the shelf.
    pub fn is_shelved(&self, number: FileNumber) -> bool {
        self.files.get(&number).is_some_and(|file| file.shelved > 0)
    }

    /// Bytes brought into open files that have no stream.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// Bytes brought in so far that stay, since they were used again: of files that had no stream
    /// then and were not on the shelf. Streams and the shelf count their own.
    pub fn reused_bytes(&self) -> u64 {
        self.reused_bytes
    }

    /// The files with this inode.
    pub fn of_inode(&self, inode: Inode) -> &[FileNumber] {
        self.by_inode.get(&inode).map_or(&[], Vec::as_slice)
    }

    /// A file was opened, which may be known already.
    pub fn opened(&mut self, number: FileNumber, inode: Inode) {
        let file = self.files.entry(number).or_insert_with(|| {
            self.by_inode.entry(inode).or_default().push(number);
            ObservedFile {
                inode,
                ..ObservedFile::default()
            }
        });
        file.opens += 1;
    }

    /// Pages of this file entered the cache.
    pub fn brought_of(&mut self, number: FileNumber, brought: Brought) {
        if !brought.ours {
            self.reuse.taken_over(number, brought.range);
        }
        self.note(number, brought);
    }

    fn note(&mut self, number: FileNumber, brought: Brought) {
        let Some(file) = self.files.get_mut(&number) else {
            return;
        };
        let Brought {
            range, ours, back, ..
        } = brought;
        if file.shelved > 0 {
            // What was there has left the cache. The new folio may reach beyond what the shelf has,
            // and the kernel drops no part of a folio.
            self.actions
                .push_back(FileAction::DecideShelved(number, range, Fate::Others));
        }
        if file.streaming {
            match file.pending.last_mut() {
                Some(last)
                    if last.range.end == range.start
                        && (last.ours, last.held, last.back) == (ours, brought.held, back) =>
                {
                    last.range.end = range.end;
                }
                _ => file.pending.push(brought),
            }
            self.reporting.insert(number);
            return;
        }
        if ours {
            self.waiting_bytes += file.ours.insert(range);
            match back {
                true => file.back.insert(range),
                false => file.back.remove(range),
            };
            if file.ours.bytes() > SMALL_FILE_BYTES {
                self.stream(number);
            } else if file.opens == 0 {
                // Its last close was reported, but it is still in use.
                self.leave(number);
            }
        } else {
            self.waiting_bytes -= file.ours.remove(range);
            file.back.remove(range);
        }
    }

    /// The file was truncated to nothing. Its places on the shelf have nothing in the cache any more:
    /// what comes now is counted at the next close.
    pub fn emptied(&mut self, number: FileNumber) {
        if self.is_shelved(number) {
            let gone = FileAction::DecideShelved(number, ByteRange::WHOLE, Fate::Others);
            self.actions.push_back(gone);
        }
    }

    /// Pages of this file entered the cache that are ours, and are dropped in any case.
    pub fn brought_to_drop(&mut self, number: FileNumber, range: ByteRange) {
        let dropped = self.reuse.dropped_in_any_case(number, range);
        for (range, back) in split(range, &dropped) {
            let brought = Brought {
                back,
                ..Brought::new(range, true)
            };
            self.brought_of(number, brought);
        }
    }

    /// Takes how many bytes of a file without a stream had been dropped before.
    pub fn take_back_bytes(&mut self, number: FileNumber) -> u64 {
        let file = self.files.get_mut(&number);
        file.map_or(0, |file| core::mem::take(&mut file.back).bytes())
    }

    /// Pages of this file entered the cache that are ours, and are to stay if they are used
    /// again. `subjects` are whom there is to learn about.
    pub fn brought_to_try(
        &mut self,
        number: FileNumber,
        range: ByteRange,
        subjects: [Option<Subject>; 2],
    ) {
        let (parts, dropped) = self.reuse.arrived(number, range, subjects);
        for (part, arrival) in parts {
            for (range, back) in split(part, &dropped) {
                let brought = Brought {
                    range,
                    ours: true,
                    held: arrival == Arrival::Waits,
                    back,
                };
                self.brought_of(number, brought);
            }
            if arrival == Arrival::Stays {
                self.decided(number, part, true);
            }
        }
        self.forget_if_done(number);
    }

    /// Decides about pages that have waited for long enough, or about `all` that wait. `look` tells
    /// of some pages in which folios they are, and what is known of the uses of those. A folio stays
    /// as a whole, or goes as a whole. `kept` tells how many bytes of a range are cached, or were
    /// recently evicted by the kernel.
    pub fn decide(
        &mut self,
        all: bool,
        mut look: impl FnMut(Inode, ByteRange) -> (ByteRange, Used),
        mut kept: impl FnMut(FileNumber, ByteRange) -> u64,
    ) {
        while let Some((number, mut parts)) = self.reuse.take_oldest(all) {
            let Some(file) = self.files.get(&number) else {
                continue;
            };
            let (mut folios, mut used) = (Vec::new(), Used::default());
            for part in &parts {
                let (around, of_folios) = look(file.inode, *part);
                folios.push(around);
                used.once |= of_folios.once;
                used.again |= of_folios.again;
                used.unknown |= of_folios.unknown;
            }
            for folio in folios {
                parts.extend(self.reuse.take(number, folio));
            }
            if used.once && !used.again {
                used.again = Reuse::surroundings(&parts)
                    .is_some_and(|around| kept(number, around.range) >= around.kept_bytes);
            }
            let stays = self.reuse.decide(number, &parts, used);
            for range in parts {
                self.decided(number, range, stays);
            }
            self.forget_if_done(number);
        }
    }

    fn decided(&mut self, number: FileNumber, range: ByteRange, stays: bool) {
        let Some(file) = self.files.get_mut(&number) else {
            return;
        };
        if stays {
            let bytes = file.ours.remove(range);
            self.waiting_bytes -= bytes;
            self.reused_bytes += bytes;
        }
        let (is_told, is_shelved) = (stays || file.streaming, file.shelved > 0);
        if is_told {
            self.report(number);
            let decide = FileAction::Decide(number, range, stays);
            self.actions.push_back(decide);
        }
        if is_shelved {
            let fate = if stays { Fate::Stays } else { Fate::Goes };
            let decide = FileAction::DecideShelved(number, range, fate);
            self.actions.push_back(decide);
        }
    }

    /// Records of pages were lost. Any page may have left the cache and come back through
    /// others since, so none that was brought in so far counts as ours any more.
    pub fn records_lost(&mut self) {
        let all: Vec<FileNumber> = self.files.keys().copied().collect();
        for number in all {
            let nobodys = Brought::new(ByteRange::WHOLE, false);
            self.brought_of(number, nobodys);
        }
    }

    /// Gives the file a stream, however little was brought in.
    pub fn stream(&mut self, number: FileNumber) {
        let Some(file) = self.files.get_mut(&number) else {
            return;
        };
        if file.streaming {
            return;
        }
        file.streaming = true;
        self.waiting_bytes -= file.ours.bytes();
        let ours = core::mem::take(&mut file.ours);
        for part in ours.iter() {
            let waiting = self.reuse.waiting_of(number, part);
            for (part, held) in split(part, &waiting) {
                let back: Vec<ByteRange> = file.back.overlaps_of(part).collect();
                let told = split(part, &back).map(|(range, back)| Brought {
                    range,
                    ours: true,
                    held,
                    back,
                });
                file.pending.extend(told);
            }
        }
        file.back.clear();
        self.reporting.insert(number);
        self.actions.push_back(FileAction::Stream(number));
    }

    /// The file is gone, and another one has its inode number: pages that enter the cache
    /// from now on belong to the new file.
    pub fn replaced(&mut self, number: FileNumber) {
        if let Some(file) = self.files.get(&number)
            && let Some(numbers) = self.by_inode.get_mut(&file.inode)
        {
            numbers.retain(|known| *known != number);
        }
    }

    /// A file was closed.
    pub fn closed(&mut self, number: FileNumber) {
        let Some(file) = self.files.get_mut(&number) else {
            return;
        };
        file.opens = file.opens.saturating_sub(1);
        if file.opens > 0 {
            return;
        }
        if file.shelved > 0 && !file.streaming && file.ours.is_empty() {
            self.actions.push_back(FileAction::Release(number));
        }
        self.leave(number);
    }

    /// Nobody has this file open any more, whatever closes were reported.
    pub fn closed_by_all(&mut self, number: FileNumber) {
        if let Some(file) = self.files.get_mut(&number) {
            file.opens = 0;
            self.leave(number);
        }
    }

    /// Nobody uses any file any more.
    pub fn close_all(&mut self) {
        let open: Vec<FileNumber> = self
            .files
            .iter()
            .filter(|(_, file)| file.opens > 0)
            .map(|(number, _)| *number)
            .collect();
        for number in open {
            self.closed_by_all(number);
        }
    }

    /// The stream of a file is done with it, and has not read this.
    pub fn stream_finished(&mut self, number: FileNumber, unread: Vec<Unread>) {
        let Some(file) = self.files.get_mut(&number) else {
            return;
        };
        file.streaming = false;
        let untold = self.take_untold(number);
        for unread in unread.into_iter().chain(untold) {
            let brought = match unread {
                Unread::Brought(brought) => brought,
                Unread::Stays(range) => {
                    self.decided(number, range, true);
                    continue;
                }
            };
            // It may have been decided about since.
            let waiting = match brought.ours {
                true => self.reuse.waiting_of(number, brought.range),
                false => Vec::new(),
            };
            for (range, held) in split(brought.range, &waiting) {
                let brought = Brought {
                    range,
                    held,
                    ..brought
                };
                self.note(number, brought);
            }
        }
        if self.files.get(&number).is_some_and(|file| file.opens == 0) {
            self.leave(number);
        }
    }

    /// No stream could be started: the file is left to the kernel.
    pub fn stream_refused(&mut self, number: FileNumber) {
        if let Some(file) = self.files.get_mut(&number) {
            file.streaming = false;
            self.take_untold(number);
            self.forget_if_done(number);
        }
    }

    /// A file was taken off the shelf, with nothing left to do.
    pub fn unshelved(&mut self, number: FileNumber) {
        if let Some(file) = self.files.get_mut(&number) {
            file.shelved = file.shelved.saturating_sub(1);
            self.forget_if_done(number);
        }
    }

    /// What to do next; `None` when nothing is left.
    #[allow(
        clippy::should_implement_trait,
        reason = "events come in between, after which there may be more"
    )]
    pub fn next(&mut self) -> Option<FileAction> {
        loop {
            if let Some(action) = self.actions.pop_front() {
                if let FileAction::Close(number) = action
                    && let Some(file) = self.files.get_mut(&number)
                {
                    file.closing = false;
                }
                return Some(action);
            }
            if let Some(number) = self.reporting.pop_first() {
                let file = self.files.get(&number);
                match file.is_some_and(|file| file.opens == 0 && !file.pending.is_empty()) {
                    // Its last close was reported, but it is still in use.
                    true => self.leave(number),
                    false => self.report(number),
                }
                continue;
            }
            // After all else that is to be done about them. Some were used again just when they
            // were done with.
            let number = self.done.pop_first()?;
            if self.forget(number) {
                return Some(FileAction::Forget(number));
            }
        }
    }

    /// Has what is known of a file by now reported before what follows.
    fn report(&mut self, number: FileNumber) {
        self.reporting.remove(&number);
        if let Some(file) = self.files.get_mut(&number)
            && !file.pending.is_empty()
        {
            let pending = core::mem::take(&mut file.pending);
            self.actions.push_back(FileAction::Report(number, pending));
        }
    }

    /// Handles a file that nobody is known to have open.
    fn leave(&mut self, number: FileNumber) {
        let Some(file) = self.files.get_mut(&number) else {
            return;
        };
        if file.streaming {
            let was_closing = core::mem::replace(&mut file.closing, true);
            if !was_closing || !file.pending.is_empty() {
                self.report(number);
                self.actions.push_back(FileAction::Close(number));
            }
            return;
        }
        if !file.ours.is_empty() {
            let ours = core::mem::take(&mut file.ours);
            self.waiting_bytes -= ours.bytes();
            file.shelved += 1;
            let mut held = RangeSet::new();
            let parts = ours
                .iter()
                .flat_map(|part| self.reuse.waiting_of(number, part));
            parts.for_each(|part| {
                held.insert(part);
            });
            self.actions
                .push_back(FileAction::Shelve(number, ours, held));
            return;
        }
        self.forget_if_done(number);
    }

    /// A file stays known here until the shell forgets it, too: an inode must have one file
    /// number at a time.
    fn forget_if_done(&mut self, number: FileNumber) {
        if self.files.get(&number).is_some_and(ObservedFile::is_done) {
            self.done.insert(number);
        }
    }

    /// Returns false if there is something to do for the file after all.
    fn forget(&mut self, number: FileNumber) -> bool {
        let Some(file) = self.files.get(&number).filter(|file| file.is_done()) else {
            return false;
        };
        let inode = file.inode;
        self.files.remove(&number);
        self.reuse.forget(number);
        if let Some(numbers) = self.by_inode.get_mut(&inode) {
            numbers.retain(|known| *known != number);
            if numbers.is_empty() {
                self.by_inode.remove(&inode);
            }
        }
        true
    }

    /// Takes back what the stream of a file, which is gone, was still to be told.
    fn take_untold(&mut self, number: FileNumber) -> Vec<Unread> {
        self.report(number);
        if let Some(file) = self.files.get_mut(&number) {
            file.closing = false;
        }
        let mut untold = Vec::new();
        self.actions.retain(|action| match action {
            FileAction::Report(of, brought) if *of == number => {
                untold.extend(brought.iter().copied().map(Unread::Brought));
                false
            }
            FileAction::Decide(of, range, stays) if *of == number => {
                untold.extend(stays.then_some(Unread::Stays(*range)));
                false
            }
            FileAction::Close(of) => *of != number,
            _ => true,
        });
        untold
    }
}

/// The parts of `range`, each with whether it is in one of `marked`, which ascend.
fn split(range: ByteRange, marked: &[ByteRange]) -> impl Iterator<Item = (ByteRange, bool)> {
    let inside = marked.iter().map(|part| part.intersection(range));
    let inside: Vec<ByteRange> = inside.filter(|part| !part.is_empty()).collect();
    let outside = gaps_between(range, inside.clone()).into_iter();
    let inside = inside.into_iter().map(|part| (part, true));
    outside.map(|part| (part, false)).chain(inside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const FILE: FileNumber = FileNumber(1);
    const INODE: Inode = Inode {
        device: 8,
        number: 77,
    };
    const PAGE: u64 = 4096;

    fn pages(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start * PAGE, end * PAGE)
    }

    fn brought(range: ByteRange, ours: bool) -> Brought {
        Brought::new(range, ours)
    }

    fn shelved(ranges: &[ByteRange]) -> FileAction {
        let mut ours = RangeSet::new();
        for range in ranges {
            ours.insert(*range);
        }
        FileAction::Shelve(FILE, ours, RangeSet::new())
    }

    /// Compares actions by their text.
    #[track_caller]
    fn expect(files: &mut ObservedFiles, expected: &[FileAction]) {
        let actions: Vec<FileAction> = core::iter::from_fn(|| files.next()).collect();
        assert_eq!(
            alloc::format!("{actions:?}"),
            alloc::format!("{expected:?}")
        );
    }

    fn opened() -> ObservedFiles {
        let mut files = ObservedFiles::default();
        files.opened(FILE, INODE);
        files
    }

    /// With a stream that knows about the first 300 pages.
    fn streaming() -> ObservedFiles {
        let mut files = opened();
        let large = brought(pages(0, 300), true);
        files.brought_of(FILE, large);
        let told = FileAction::Report(FILE, vec![large]);
        expect(&mut files, &[FileAction::Stream(FILE), told]);
        files
    }

    #[test]
    fn of_a_small_file_what_others_brought_in_last_stays() {
        let mut files = opened();
        files.brought_of(FILE, brought(pages(0, 10), true));
        files.brought_of(FILE, brought(pages(4, 6), false));
        assert_eq!(files.waiting_bytes(), 8 * PAGE);
        expect(&mut files, &[]);
        files.closed(FILE);
        files.brought_of(FILE, brought(pages(8, 10), false));
        let kept = FileAction::DecideShelved(FILE, pages(8, 10), Fate::Others);
        expect(&mut files, &[shelved(&[pages(0, 4), pages(6, 10)]), kept]);
        assert_eq!(files.waiting_bytes(), 0);
        files.opened(FILE, INODE);
        files.closed(FILE);
        expect(&mut files, &[FileAction::Release(FILE)]);
        files.unshelved(FILE);
        expect(&mut files, &[FileAction::Forget(FILE)]);
        assert_eq!(files.count(), 0);
    }

    /// The old place must not try to drop a part of the new folio.
    #[test]
    fn what_comes_again_has_left_the_shelf() {
        let mut files = opened();
        files.brought_of(FILE, brought(pages(0, 4), true));
        files.closed(FILE);
        files.opened(FILE, INODE);
        files.brought_of(FILE, brought(pages(0, 8), true));
        files.closed(FILE);
        let gone = FileAction::DecideShelved(FILE, pages(0, 8), Fate::Others);
        let [first, second] = [pages(0, 4), pages(0, 8)].map(|range| shelved(&[range]));
        expect(&mut files, &[first, gone, second]);
    }

    #[test]
    fn of_an_emptied_file_nothing_is_left_on_the_shelf() {
        let mut files = opened();
        files.emptied(FILE);
        files.brought_of(FILE, brought(pages(0, 4), true));
        files.closed(FILE);
        files.opened(FILE, INODE);
        files.emptied(FILE);
        let gone = FileAction::DecideShelved(FILE, ByteRange::WHOLE, Fate::Others);
        expect(&mut files, &[shelved(&[pages(0, 4)]), gone]);
    }

    #[test]
    fn what_came_before_a_close_is_told_before_it() {
        let mut files = streaming();
        let more = brought(pages(300, 310), true);
        files.brought_of(FILE, more);
        files.closed(FILE);
        let told = FileAction::Report(FILE, vec![more]);
        expect(&mut files, &[told, FileAction::Close(FILE)]);
    }

    #[test]
    fn what_a_stream_has_not_read_is_not_lost() {
        let mut files = streaming();
        files.closed(FILE);
        expect(&mut files, &[FileAction::Close(FILE)]);
        let unread = [brought(pages(0, 4), true), brought(pages(1, 2), false)];
        files.stream_finished(FILE, unread.map(Unread::Brought).into());
        let kept = FileAction::DecideShelved(FILE, pages(1, 2), Fate::Others);
        expect(&mut files, &[shelved(&[pages(0, 4)]), kept]);
    }

    #[test]
    fn what_a_stream_did_not_hear_was_to_stay_stays() {
        let mut files = streaming();
        files.reuse.opened(FILE, None, 0);
        files.closed(FILE);
        expect(&mut files, &[FileAction::Close(FILE)]);
        // Since then, some of it was evicted and came back.
        files.brought_to_try(FILE, pages(0, 4), [None; 2]);
        let unread = vec![
            Unread::Brought(brought(pages(0, 8), true)),
            Unread::Stays(pages(0, 8)),
        ];
        files.stream_finished(FILE, unread);
        let mut waits = RangeSet::new();
        waits.insert(pages(0, 4));
        let actions: Vec<FileAction> = core::iter::from_fn(|| files.next()).collect();
        let stays = FileAction::Decide(FILE, pages(0, 8), true);
        let shelved_stays = FileAction::DecideShelved(FILE, pages(0, 8), Fate::Stays);
        let gone = FileAction::DecideShelved(FILE, pages(0, 4), Fate::Others);
        let again = FileAction::Shelve(FILE, waits.clone(), waits);
        let last = &actions[actions.len() - 4..];
        assert_eq!(
            alloc::format!("{last:?}"),
            alloc::format!("{:?}", [stays, shelved_stays, gone, again])
        );
    }

    #[test]
    fn what_was_decided_about_is_not_held_by_the_next_stream() {
        let mut files = streaming();
        let held = Brought {
            held: true,
            ..brought(pages(300, 310), true)
        };
        let unread = [brought(pages(0, 300), true), held];
        files.stream_finished(FILE, unread.map(Unread::Brought).into());
        let told = FileAction::Report(FILE, vec![brought(pages(0, 310), true)]);
        expect(&mut files, &[FileAction::Stream(FILE), told]);
    }

    #[test]
    fn what_came_back_since_is_decided_about_anew() {
        let mut files = streaming();
        files.reuse.opened(FILE, Some((INODE, 0)), 0);
        files.brought_to_try(FILE, pages(0, 8), [None; 2]);
        let again = Used {
            once: true,
            again: true,
            unknown: false,
        };
        files.decide(true, |_, part| (part, again), |_, _| 0);
        files.brought_to_try(FILE, pages(0, 4), [None; 2]);
        let held = |range| Brought {
            held: true,
            ..brought(range, true)
        };
        let told = FileAction::Report(FILE, vec![held(pages(0, 8))]);
        let decided = FileAction::Decide(FILE, pages(0, 8), true);
        // After that, so it waits again.
        let back = FileAction::Report(FILE, vec![held(pages(0, 4))]);
        expect(&mut files, &[told, decided, back]);
    }

    /// The kernel drops no part of a folio. Of this one, half has been dropped before, and so stays
    /// after one use.
    #[test]
    fn a_folio_stays_as_a_whole() {
        let mut files = opened();
        let reuse = &mut files.reuse;
        reuse.opened(FILE, Some((INODE, 0)), u64::MAX);
        reuse.dropped_in_any_case(FILE, pages(0, 64));
        let folio = pages(0, 128);
        files.brought_to_try(FILE, folio, [None; 2]);
        let once = Used {
            once: true,
            again: false,
            unknown: false,
        };
        let mut looks = 0;
        files.decide(
            true,
            |_, _| {
                looks += 1;
                (folio, once)
            },
            |_, _| 0,
        );
        assert_eq!(looks, 1);
        let stays = |part| FileAction::Decide(FILE, part, true);
        let halves = [pages(64, 128), pages(0, 64)];
        expect(&mut files, &halves.map(stays));
        assert_eq!(files.reused_bytes(), folio.len());
        assert_eq!(files.waiting_bytes(), 0);
    }

    #[test]
    fn a_stream_that_is_gone_is_told_nothing() {
        let mut files = streaming();
        files.close_all();
        // Only now does the news arrive that the stream had finished.
        let large = brought(pages(0, 300), true);
        files.stream_finished(FILE, vec![Unread::Brought(large)]);
        let actions = [
            FileAction::Stream(FILE),
            FileAction::Report(FILE, vec![large]),
            FileAction::Close(FILE),
        ];
        expect(&mut files, &actions);
    }

    #[test]
    fn a_closed_file_whose_stream_is_refused_is_forgotten() {
        let mut files = opened();
        files.stream(FILE);
        files.closed(FILE);
        assert_eq!(files.next(), Some(FileAction::Stream(FILE)));
        files.stream_refused(FILE);
        expect(&mut files, &[FileAction::Forget(FILE)]);
        assert_eq!(files.of_inode(INODE), []);
    }

    #[test]
    fn a_file_is_forgotten_after_all_else() {
        let mut files = opened();
        files.reuse.opened(FILE, None, 0);
        files.closed(FILE);
        // Nothing was left to do, and then there was.
        files.opened(FILE, INODE);
        files.brought_to_try(FILE, pages(0, 1), [None; 2]);
        let again = Used {
            once: true,
            again: true,
            unknown: false,
        };
        files.decide(true, |_, part| (part, again), |_, _| 0);
        files.closed(FILE);
        let stays = FileAction::Decide(FILE, pages(0, 1), true);
        expect(&mut files, &[stays, FileAction::Forget(FILE)]);
    }

    #[test]
    fn a_file_is_known_until_it_is_forgotten() {
        let mut files = opened();
        files.closed(FILE);
        assert_eq!(files.of_inode(INODE), [FILE]);
        files.opened(FILE, INODE);
        expect(&mut files, &[]);
        for _ in 0..2 {
            files.closed_by_all(FILE);
        }
        expect(&mut files, &[FileAction::Forget(FILE)]);
        assert_eq!(files.of_inode(INODE), []);
    }

    #[test]
    fn an_inode_number_that_is_used_again_is_the_new_files() {
        const NEXT: FileNumber = FileNumber(2);
        let mut files = opened();
        files.brought_of(FILE, brought(pages(0, 2), true));
        files.replaced(FILE);
        files.opened(NEXT, INODE);
        assert_eq!(files.of_inode(INODE), [NEXT]);
        // The old file's records still go, and take nothing else along.
        files.closed(FILE);
        expect(&mut files, &[shelved(&[pages(0, 2)])]);
        files.unshelved(FILE);
        expect(&mut files, &[FileAction::Forget(FILE)]);
        assert_eq!(files.of_inode(INODE), [NEXT]);
    }
}
