//! Files that share an inode number: on btrfs, those of different subvolumes.

use std::os::fd::AsFd;

use dropbehind_flusher::CacheMap;
use dropbehind_linux::cached_pages;
use dropbehind_policy::{Brought, ByteRange, FileNumber, Inode};

use super::Files;

/// With more files than this, we do not look: each costs a call for each record of the trace, and
/// a user can make hundreds of subvolumes.
const SEVERAL_MAX: usize = 8;
/// Of a file, so many ranges that the trace named are remembered. Beyond that, all counts as named.
const NAMED_MAX: usize = 1 << 14;

impl Files {
    /// Returns whether another file that is or was open, known or not, may have the inode number
    /// of this one in this subvolume. While a watch still looks for open files, any may.
    pub(super) fn has_namesakes(&self, inode: Inode, subvolume: u64) -> bool {
        let may_be_shared = || match self.may_miss_files() && !self.programs.are_of_a_run() {
            true => self.inodes.may_have_subvolumes(inode),
            false => self.inodes.may_be_shared(inode, subvolume),
        };
        self.trace.is_some() && may_be_shared()
    }

    /// The same of a known file.
    pub(super) fn shares_number(&self, number: FileNumber) -> bool {
        let open = self.files.get(&number);
        open.is_some_and(|open| self.has_namesakes(open.inode, open.subvolume))
    }

    /// Attributes pages to the one of these files that has them now, and had them neither when we
    /// looked at it nor by a record of the trace since then: something brought them in there
    /// since, and if that is another record, it comes later. All other pages that are there now
    /// may be any file's: those of a process that is not observed there stay.
    pub(super) fn brought_of_one(
        &mut self,
        inode: Inode,
        several: &[FileNumber],
        process: i32,
        range: ByteRange,
    ) {
        if several.len() > SEVERAL_MAX {
            return self.brought_of_many(inode, several);
        }
        let mut having = Vec::new();
        for number in several {
            if self.may_have(*number, range) {
                let looked = self.files.get(number).map(|open| open.before.is_some());
                let parts = self.new_parts(*number, range);
                // What was there before is not known, and no other file is.
                let all_new = several.len() == 1 && looked == Some(false);
                having.push((*number, parts, all_new));
            }
        }
        let mut candidates = having.iter().filter(|(_, parts, _)| !parts.is_empty());
        let only = match (candidates.next(), candidates.next()) {
            (Some((number, ..)), None) => Some(*number),
            _ => None,
        };
        for (number, parts, all_new) in having {
            self.was_named(number, range);
            let ours = self.is_ours(number, process);
            let may_be_ours = match all_new {
                true => vec![range],
                false => parts.clone(),
            };
            self.note_unclear(number, range, ours.is_none());
            if ours != Some(true) {
                self.table.brought_of(number, Brought::new(range, false));
                continue;
            }
            for part in may_be_ours {
                self.note_unclear(number, part, true);
            }
            for part in parts.into_iter().filter(|_| only == Some(number)) {
                self.note_unclear(number, part, false);
                self.bring(number, process, Brought::new(part, true));
            }
        }
    }

    /// Keeps all that these files have, once for each round.
    fn brought_of_many(&mut self, inode: Inode, many: &[FileNumber]) {
        if !self.crowded.insert(inode) {
            return;
        }
        for number in many {
            let (range, ours) = (ByteRange::WHOLE, false);
            self.was_named(*number, range);
            self.table.brought_of(*number, Brought::new(range, ours));
        }
    }

    /// Remembers that the trace has named pages of a file, if we have looked at it.
    pub(super) fn was_named(&mut self, number: FileNumber, range: ByteRange) {
        let Some(open) = self.files.get_mut(&number) else {
            return;
        };
        open.is_out_of_the_cache = false;
        if self.trace.is_some() && open.before.is_some() {
            let many = open.named.count() >= NAMED_MAX;
            let range = if many { ByteRange::WHOLE } else { range };
            open.named.insert(range);
        }
    }

    /// Looks at what a file has now.
    pub(super) fn look_again(&mut self, number: FileNumber) {
        let Some(open) = self.files.get_mut(&number) else {
            return;
        };
        let file = open.file.open();
        open.before = Some(file.map_or(CacheMap::unknown(), |file| CacheMap::now(file.as_fd())));
        open.named.clear();
        open.round = self.round;
    }

    /// Returns whether any of these pages of a file may be cached.
    fn may_have(&self, number: FileNumber, range: ByteRange) -> bool {
        let file = self.files.get(&number).map(|open| open.file.open());
        let Some(Ok(file)) = file else { return true };
        cached_pages(file.as_fd(), range.start, range.len()).map_or(true, |cached| cached > 0)
    }

    /// The parts of a range that the file has now, and had neither when we looked at it nor by
    /// any record since then. If nobody has looked yet, this does.
    fn new_parts(&mut self, number: FileNumber, range: ByteRange) -> Vec<ByteRange> {
        let Some(open) = self.files.get(&number) else {
            return Vec::new();
        };
        let Some(before) = &open.before else {
            self.look_again(number);
            return Vec::new();
        };
        let absent = before.absent(range);
        let unnamed = absent.iter().flat_map(|part| open.named.gaps_of(*part));
        unnamed
            .filter(|part| self.may_have(number, *part))
            .collect()
    }
}
