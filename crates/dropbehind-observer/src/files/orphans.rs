//! Pages brought into inodes before their files were known: the event of a file's open may still
//! be unread, and an overlay copies a file up before that event.

use std::collections::HashMap;

use dropbehind_policy::{Brought, ByteRange, FileNumber, Inode};

use super::Files;

/// At most so many ranges are remembered. Each takes up to some 120 bytes. The event of its file's
/// open takes more of the kernel, which keeps the inode for it (1.1 KB on ext4).
const ORPHANS: usize = 1 << 20;

/// Pages that a process brought in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Orphan {
    process: i32,
    range: ByteRange,
    /// The process was one of a run then.
    ours: bool,
}

/// All that was brought into unknown inodes, oldest first.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    of: HashMap<Inode, Vec<Orphan>>,
    count: usize,
    /// Some were forgotten whose files may still become known.
    are_missing: bool,
}

impl Orphans {
    fn add(&mut self, inode: Inode, orphan: Orphan) {
        if self.count >= ORPHANS {
            self.forget();
        }
        // Mostly there is one.
        let of = self
            .of
            .entry(inode)
            .or_insert_with(|| Vec::with_capacity(1));
        match of.last_mut() {
            Some(last)
                if (last.process, last.range.end, last.ours)
                    == (orphan.process, orphan.range.start, orphan.ours) =>
            {
                last.range.end = orphan.range.end;
            }
            _ => {
                of.push(orphan);
                self.count += 1;
            }
        }
    }

    fn take(&mut self, inode: Inode) -> Vec<Orphan> {
        let taken = self.of.remove(&inode).unwrap_or_default();
        self.count -= taken.len();
        taken
    }

    /// Forgets all. Their files may still become known.
    pub(super) fn forget(&mut self) {
        *self = Orphans::default();
        self.are_missing = true;
    }
}

impl Files {
    /// Notes what was brought into an inode that no known file has. Returns false if that is of no
    /// interest.
    pub(super) fn note_orphan(&mut self, process: i32, inode: Inode, range: ByteRange) -> bool {
        if self.inodes.is_block_device(inode) {
            return false;
        }
        let ours = self.programs.has(process);
        let orphan = Orphan {
            process,
            range,
            ours,
        };
        let counts = match self.programs.are_of_a_run() {
            // Others' pages count only where they take the place of the programs' own.
            true => ours || self.has_orphans(inode),
            // No rule wants a file whose open has been read, and which is not known.
            false => self.opens_wait,
        };
        if !counts {
            return false;
        }
        self.orphans.add(inode, orphan);
        ours
    }

    /// Returns whether something was brought into this inode before its file was known.
    pub(super) fn has_orphans(&self, inode: Inode) -> bool {
        self.orphans.of.contains_key(&inode)
    }

    /// Puts orphans down to their file, which is known now, unless they may be another one's.
    pub(super) fn take_orphans(&mut self, number: FileNumber, inode: Inode) {
        if self.orphans.are_missing {
            self.note_unclear(number, ByteRange::WHOLE, true);
        }
        let orphans = self.orphans.take(inode);
        if self.shares_number(number) {
            return;
        }
        for Orphan {
            process,
            range,
            ours,
        } in orphans
        {
            match self.programs.are_of_a_run() {
                // The process may have ended.
                true => self.bring(number, process, Brought::new(range, ours)),
                false => self.brought_of(number, process, range),
            }
        }
    }

    /// All opens that were reported before the trace was read have been read, too. In a run, files
    /// may also become known by their closes.
    pub(crate) fn opens_were_read(&mut self) {
        if !self.programs.are_of_a_run() {
            self.orphans = Orphans::default();
        }
        self.orphans.are_missing = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orphan(process: i32, start: u64, end: u64) -> Orphan {
        Orphan {
            process,
            range: ByteRange::new(start, end),
            ours: true,
        }
    }

    fn inode(number: u64) -> Inode {
        Inode { device: 8, number }
    }

    #[test]
    fn what_one_process_brings_in_after_another_stays_in_order() {
        let mut orphans = Orphans::default();
        for (process, start) in [(1, 0), (1, 10), (2, 20), (1, 30), (1, 0)] {
            orphans.add(inode(1), orphan(process, start, start + 10));
        }
        let expected = [
            orphan(1, 0, 20),
            orphan(2, 20, 30),
            orphan(1, 30, 40),
            orphan(1, 0, 10),
        ];
        assert_eq!(orphans.take(inode(1)), expected);
        assert_eq!((orphans.take(inode(1)), orphans.count), (Vec::new(), 0));
    }

    #[test]
    fn more_than_are_remembered_are_missing() {
        let mut orphans = Orphans::default();
        let first = 0..ORPHANS as u64;
        first.for_each(|number| orphans.add(inode(number), orphan(1, 0, 10)));
        assert!(!orphans.are_missing);
        orphans.add(inode(0), orphan(2, 0, 10));
        assert!(orphans.are_missing);
        assert_eq!(orphans.take(inode(1)), []);
        assert_eq!(orphans.take(inode(0)), [orphan(2, 0, 10)]);
    }
}
