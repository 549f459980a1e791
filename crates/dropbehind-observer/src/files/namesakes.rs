//! Files that share an inode number: on btrfs, those of different subvolumes.

use std::os::fd::AsFd;

use dropbehind_linux::cachestat;
use dropbehind_policy::{Brought, ByteRange, FileNumber};

use super::Files;

/// With more files than this, we do not look: each costs a call for each record of the trace, and
/// a user can make hundreds of subvolumes.
const SEVERAL_MAX: usize = 8;

/// Why pages may belong to a file that shares its inode number with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Likely {
    /// They were absent when we looked at the file, and are there now.
    Seen,
    /// We looked at the file a moment ago, when they may have been there already.
    JustOpened,
}

impl Files {
    /// Returns whether another file may have the same inode number, as on btrfs.
    pub(super) fn has_namesakes(&self, number: FileNumber) -> bool {
        self.traced
            && self
                .files
                .get(&number)
                .is_some_and(|open| open.before.is_some())
    }

    /// Attributes pages to the one of these files that has them now and did not have them when
    /// it was opened. The trace must not have named them before, since records come in order. A
    /// file without rivals may have been looked at too late after its open, and still counts. If
    /// none or several fit, or if there are too many to look at, the pages stay: those of a
    /// process that is not observed may be any of these files', where ours were before.
    pub(super) fn brought_of_one(
        &mut self,
        several: &[FileNumber],
        process: i32,
        range: ByteRange,
    ) {
        let found = (several.len() <= SEVERAL_MAX).then(|| self.one_of(several, range));
        if let Some(number) = found.flatten() {
            if several.len() > 1
                && let Some(open) = self.files.get_mut(&number)
            {
                open.named.insert(range);
            }
            self.brought_of(number, process, range);
        } else if !self.programs.has(process) {
            let many = several.len() > SEVERAL_MAX;
            for number in several {
                if many || self.may_have(*number, range) {
                    let others = Brought { range, ours: false };
                    self.table.brought_of(*number, others);
                }
            }
        }
    }

    fn one_of(&self, several: &[FileNumber], range: ByteRange) -> Option<FileNumber> {
        let having = |likely: Likely| {
            let mut having = several
                .iter()
                .filter(|number| self.likely(**number, range) == Some(likely));
            let first = having.next().copied();
            (first, having.next().is_some())
        };
        let (got, doubtful) = match having(Likely::Seen) {
            (None, _) if several.len() == 1 => having(Likely::JustOpened),
            seen => seen,
        };
        got.filter(|_| !doubtful)
    }

    /// Returns whether any of these pages of a file may be cached.
    fn may_have(&self, number: FileNumber, range: ByteRange) -> bool {
        let file = self.files.get(&number).map(|open| open.file.open());
        let Some(Ok(file)) = file else { return true };
        let counted = cachestat(file.as_fd(), range.start, range.len());
        counted.map_or(true, |counted| counted.cached_pages > 0)
    }

    /// Why these pages may be this file's, if they may.
    fn likely(&self, number: FileNumber, range: ByteRange) -> Option<Likely> {
        let open = self.files.get(&number)?;
        if !self.may_have(number, range) {
            return None;
        }
        let before = open.before.as_ref()?;
        if !before.absent(range).is_empty() && open.named.bytes_of(range) < range.len() {
            return Some(Likely::Seen);
        }
        // By the end of the next round the trace has named all that came before our look.
        (self.round <= open.round + 1).then_some(Likely::JustOpened)
    }
}
