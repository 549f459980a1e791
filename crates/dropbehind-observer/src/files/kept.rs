//! How much of which files counts as kept for others.

use std::collections::HashMap;
use std::sync::Arc;

use dropbehind_linux::FileId;

use crate::board::Rule;

/// So many files count, and at most twice as many: users may have any number of files. Each takes
/// some 100 bytes.
const FILES: usize = 1 << 17;

/// What was kept of a file, and the disk and the rule that it counts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) disk: Arc<str>,
    pub(super) rule: Rule,
    pub(super) bytes: u64,
}

/// The files that count, in two maps: when one is full, the other is forgotten.
#[derive(Debug, Default)]
pub(super) struct Kept {
    recent: HashMap<FileId, Counted>,
    less_recent: HashMap<FileId, Counted>,
}

impl Kept {
    /// Has a file count from now on, or no more. Returns what has counted until now, and does so no
    /// more.
    #[must_use]
    pub(super) fn count(&mut self, id: FileId, now: Option<Counted>) -> Vec<Counted> {
        let before = self.recent.remove(&id);
        let before = before.or_else(|| self.less_recent.remove(&id));
        let mut gone: Vec<Counted> = before.into_iter().collect();
        if let Some(now) = now {
            if self.recent.len() >= FILES {
                let full = std::mem::take(&mut self.recent);
                gone.extend(std::mem::replace(&mut self.less_recent, full).into_values());
            }
            self.recent.insert(id, now);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_counts_twice_however_many_there_are() {
        let mut kept = Kept::default();
        let mut sum = 0;
        let files = 3 * FILES as u64;
        for look in 1..=3 {
            for inode in 0..files {
                let id = FileId { device: 1, inode };
                let now = Counted {
                    disk: "sda".into(),
                    rule: None,
                    bytes: look,
                };
                let gone = kept.count(id, Some(now));
                sum = sum + look - gone.iter().map(|counted| counted.bytes).sum::<u64>();
            }
            let counted = (FILES as u64 * look)..=(2 * FILES as u64 * look);
            assert!(counted.contains(&sum), "{sum}");
        }
        for inode in 0..files {
            let gone = kept.count(FileId { device: 1, inode }, None);
            sum -= gone.iter().map(|counted| counted.bytes).sum::<u64>();
        }
        assert_eq!(sum, 0);
    }
}
